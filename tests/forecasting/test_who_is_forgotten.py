"""What was learned of a target stays while it is asked for, and goes when it is another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from forecasting.engine_memory import EngineMemory
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import Floats, SeriesId
from forecasting.targets import Target
from wattpack.errors import TransientError

DAY, BIN = 144, 600.0
LEVELS = (0.5, 0.9, 0.99)
BEGIN = 11 * DAY * BIN
NAMES = ("a", "b", "c")


class Source(MemorySource):
    """In memory; some of its series fail at times."""

    def __init__(self, values: dict[str, Floats]) -> None:
        super().__init__(values)
        self.away: set[str] = set()

    def fetch(
        self,
        series: Sequence[SeriesId],
        start_seconds: int,
        end_seconds: int,
        step_seconds: int = 600,
    ) -> Floats:
        if self.away & set(series):
            raise TransientError("the history did not answer")
        return super().fetch(series, start_seconds, end_seconds, step_seconds)


def diurnal(seed: int) -> Floats:
    t = np.arange(14 * DAY)
    noise = np.random.default_rng(seed).normal(0, 5, len(t))
    return 100 + 40 * np.sin(2 * np.pi * t / DAY) + noise


def target(name: str, **changes: object) -> Target:
    made = Target("ns", name, SeriesId(name), "workload", 36, 600, LEVELS, None, 1)
    return replace(made, **changes)  # type: ignore[arg-type]


def memory(state: ForecasterState) -> EngineMemory:
    (engine,) = state.engines.values()
    return engine.memory


def source() -> Source:
    return Source({name: diurnal(seed) for seed, name in enumerate("abcd")})


def at(bins: int) -> float:
    return BEGIN + bins * BIN


def p99(answer: TargetForecast) -> float:
    return float(answer.peaks[-1])


def test_a_history_that_fails_once_costs_a_series_nothing_that_was_learned_of_it() -> None:
    reader, asked = source(), [target(name) for name in NAMES]
    state, _ = step(ForecasterState(), at(0), reader, asked)
    state, (_, before, _) = step(state, at(1), reader, asked)
    seen = memory(state).losses.windows.sum(axis=(0, 2))
    reader.away = {"b"}
    state, _ = step(state, at(2), reader, asked)
    reader.away = set()
    state, (_, after, _) = step(state, at(3), reader, asked)
    assert after.record == before.record
    assert after.record.rehearsed.windows == 24
    kept = memory(state).losses
    assert set(kept.series) == {one.identity for one in asked}
    row = kept.series.index(asked[1].identity)
    assert kept.windows.sum(axis=(0, 2))[row] > 0.95 * seen[row]
    assert all(len(issue.series) == 3 for issue in memory(state).open_issues)


@pytest.mark.parametrize("back", [10, 36, 50])
def test_a_promise_that_broke_while_the_history_was_away_counts_when_it_is_back(back: int) -> None:
    reader, asked = source(), [target(name) for name in NAMES]
    reader.values["b"] = reader.values["b"].copy()
    reader.values["b"][11 * DAY + 4 : 11 * DAY + 9] *= 5
    state, _ = step(ForecasterState(), at(0), reader, asked)
    for bins in (3, 9, 36, 49):
        if bins < back:
            reader.away = {"b"}
            state, _ = step(state, at(bins), reader, asked)
    reader.away = set()
    state, (_, answer, calm) = step(state, at(back), reader, asked)
    assert answer.record.live.violations[0] == 1
    assert calm.record.live.violations[0] == 0
    state, (_, answer, _) = step(state, at(max(back, 37)), reader, asked)
    assert (answer.record.live.windows, answer.record.live.violations[0]) == (1, 1)


def test_a_window_that_nobody_can_judge_any_more_is_given_up() -> None:
    reader, asked = source(), [target(name) for name in NAMES]
    state, _ = step(ForecasterState(), at(0), reader, asked)
    reader.away = {"b"}
    for bins in (20, 36, 60, 73):
        state, _ = step(state, at(bins), reader, asked)
    assert all(asked[1].identity not in issue.series for issue in memory(state).open_issues)


def test_weights_of_a_series_that_came_later_stand_while_older_issues_are_settled() -> None:
    reader, asked = source(), [target(name) for name in NAMES]
    state, _ = step(ForecasterState(), at(0), reader, asked)
    asked.append(target("d"))
    for bins in (6, 7, 8):
        state, _ = step(state, at(bins), reader, asked)
        losses = memory(state).losses
        seen = losses.windows.sum(axis=(0, 2))
        newcomer = losses.series.index(asked[3].identity)
        others = [i for i in range(4) if i != newcomer]
        assert seen[newcomer] > 0.9 * seen[others].min()


def test_another_series_under_the_same_name_is_judged_by_its_own_promises() -> None:
    """A target whose unit changes from kW to W breaks nobody's promise and moves no neighbour."""
    reader, asked = source(), [target(name) for name in NAMES]
    reader.values["a2"] = 1000 * reader.values["a"]
    state, _ = step(ForecasterState(), at(0), reader, asked)
    calm, _ = step(ForecasterState(), at(0), reader, asked)
    changed = [target("a", series=SeriesId("a2"), generation=2), *asked[1:]]
    for bins in (1, 2, 36, 72):
        state, after = step(state, at(bins), reader, changed)
        calm, before = step(calm, at(bins), reader, asked)
        assert after[0].record.live.violations[0] == 0
        assert after[0].record.rehearsed.windows == 24
    assert after[0].record.live.windows == 1
    assert p99(after[0]) == pytest.approx(1000 * p99(before[0]), rel=0.15)
    for mine, theirs in zip(after[1:], before[1:], strict=True):
        assert p99(mine) == pytest.approx(p99(theirs), rel=0.1)


def test_other_levels_or_another_horizon_are_gone_through_anew() -> None:
    reader, asked = source(), [target(name) for name in NAMES]
    state, _ = step(ForecasterState(), at(0), reader, asked)
    for changes in ({"asked_levels": (0.1, 0.5, 0.99)}, {"horizon": 18}):
        changed = [replace(one, **changes) for one in asked]
        state, answers = step(state, at(1), reader, changed)
        assert all(one.record.rehearsed.windows >= 24 for one in answers)
        assert not any("uncalibrated" in one.flags for one in answers)
        assert len(state.rehearsed) == 3


def test_nothing_is_kept_of_a_target_that_is_gone() -> None:
    reader, asked = source(), [target(name) for name in NAMES]
    state, _ = step(ForecasterState(), at(0), reader, asked)
    state, _ = step(state, at(1), reader, asked[:2])
    kept, left = memory(state), {one.identity for one in asked[:2]}
    (points,), (peaks,) = kept.points.values(), kept.peaks.values()
    assert set(points.own) == set(peaks.own) == set(peaks.tops) == left
    assert set(kept.losses.series) == set(kept.records) == state.rehearsed == left
