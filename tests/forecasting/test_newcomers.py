"""Series that come to an established pool teach it as one of many, and only what they can know."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.engine_memory import EngineMemory
from forecasting.engine_question import Shape
from forecasting.engine_rehearsal import ENOUGH_WINDOWS, gone_through, rehearsal_base
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import Floats, History, SeriesId
from forecasting.targets import Target
from forecasting.tiers.tier_sets import RIDGE_ALONE
from tests.examples import examples

DAY, BEGIN = 144, 11 * 86400.0
LEVELS = (0.5, 0.9, 0.99)
POOL = ("ns", "workload")


def calm(random: np.random.Generator) -> Floats:
    t = np.arange(12 * DAY)
    return 100 + 40 * np.sin(2 * np.pi * t / DAY) + random.normal(0, 5, len(t))


def with_bursts(random: np.random.Generator, times: float) -> Floats:
    values = calm(random)
    for day in (5, 6, 8, 9):
        at = day * DAY + int(random.integers(DAY - 6))
        values[at : at + 6] *= times * (day - 3) / 2
    return values


def targets(names: list[str]) -> list[Target]:
    return [Target("ns", n, SeriesId(n), "workload", 36, 600, LEVELS, None, 1) for n in names]


def p99(answers: list[TargetForecast], names: list[str]) -> Floats:
    return np.array([float(a.peaks[-1]) for a in answers if a.target.name in names])


@examples(4)
@given(st.integers(0, 2**32 - 1), st.sampled_from([20, 40]), st.floats(2, 20))
def test_a_newcomer_moves_its_neighbours_as_if_it_had_always_been_one_of_them(
    seed: int, n_series: int, times: float
) -> None:
    random = np.random.default_rng(seed)
    names = [f"s{i}" for i in range(n_series)]
    values = {name: calm(random) for name in names}
    values["new"] = with_bursts(random, times)
    source, everybody = MemorySource(values), [*names, "new"]
    made = []
    for first, then in ((names, names), (names, everybody), (everybody, everybody)):
        state, _ = step(ForecasterState(), BEGIN, source, targets(first))
        _, answers = step(state, BEGIN + 600, source, targets(then))
        made.append(p99(answers, names))
    later, together = (np.abs(one / made[0] - 1).mean() for one in made[1:])
    assert later < together + 1 / n_series


def taught(n_known: int, days: int, shape: Shape) -> tuple[EngineMemory, EngineMemory]:
    """What is known of some series, and after the history of one with bursts was gone through."""
    random = np.random.default_rng(3)
    known = [SeriesId(f"s{i}") for i in range(n_known)]
    new = [SeriesId("new")]
    pools = dict.fromkeys([*known, *new], POOL)
    tiers = RIDGE_ALONE.rehearsing
    ten = slice(DAY, 11 * DAY)
    past = History(known, np.array([calm(random)[ten] for _ in known]), round(BEGIN), 600)
    base = gone_through(shape, tiers(36), past, pools, EngineMemory())
    until = slice(DAY, (1 + days) * DAY)
    fresh = History(new, with_bursts(random, 4)[None, until], round(BEGIN), 600)
    start = rehearsal_base(base)
    return start, gone_through(shape, tiers(shape.horizon), fresh, pools, start)


@pytest.mark.parametrize("days", [7, 10])
def test_windows_behind_a_short_record_teach_an_established_pools_peaks_nothing(days: int) -> None:
    shape = Shape(600, 36, LEVELS)
    base, after = taught(20, days, shape)
    assert base.peaks[POOL].windows > ENOUGH_WINDOWS
    behind = (days - 7) * 4  # the one that ends where the record is whole is left out
    assert after.peaks[POOL].windows == pytest.approx(base.peaks[POOL].windows + behind, abs=4)
    assert after.points[POOL].windows > base.points[POOL].windows
    assert after.records[SeriesId("new")].rehearsed.windows >= behind


def test_windows_behind_a_short_record_teach_a_pool_that_knows_little() -> None:
    base, after = taught(3, 7, Shape(600, 36, LEVELS))
    assert base.peaks[POOL].windows < ENOUGH_WINDOWS
    assert after.peaks[POOL].windows == pytest.approx(base.peaks[POOL].windows + 12, abs=3)


def begun(values: Floats, first_bin: int) -> Floats:
    return np.where(np.arange(len(values)) >= first_bin, values, np.nan)


def test_a_history_that_was_empty_at_first_is_gone_through_when_it_comes() -> None:
    random = np.random.default_rng(5)
    values, asked = {name: calm(random) for name in "ab"}, targets(["a", "b"])
    empty = MemorySource({"a": values["a"]})
    state, (a, b) = step(ForecasterState(), BEGIN, empty, asked)
    assert (a.record.rehearsed.windows, b.record.rehearsed.windows) == (24, 0)
    assert "rehearsing" not in b.flags
    assert not b.awaits_record
    state, _ = step(state, BEGIN + 600, empty, asked)
    assert state.rehearsed == {asked[0].identity}
    _, (a, b) = step(state, BEGIN + 1200, MemorySource(values), asked)
    assert (a.record.rehearsed.windows, b.record.rehearsed.windows) == (24, 24)
    assert not {"uncalibrated", "rehearsing"} & set(b.flags)


def test_a_series_that_was_just_born_counts_each_of_its_promises_once() -> None:
    values = np.tile(calm(np.random.default_rng(6)), 2)
    source = MemorySource({"a": begun(values, round(BEGIN) // 600 - 8)})
    state, counts = ForecasterState(), []
    for bins in range(0, 3 * DAY, 6):
        state, (answer,) = step(state, BEGIN + 600 * bins, source, targets(["a"]))
        counts.append((answer.record.rehearsed.windows, answer.record.live.windows))
    assert all(rehearsed == 0 for rehearsed, _ in counts)
    assert counts[-1][1] >= 6
