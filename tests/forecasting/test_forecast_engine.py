"""The engine's promises: counted when they break, kept over a restart, the same bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecasting import round_paths
from forecasting.app.memory_file import read_state, write_state
from forecasting.engine_question import Question, Shape
from forecasting.engine_rehearsal import rehearsal_cuts
from forecasting.forecast_engine import Engine
from forecasting.forecaster import Forecaster, Provenance
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import Floats, History, SeriesId
from forecasting.targets import Target
from forecasting.tiers.direct_ridge import Ridge
from forecasting.tiers.tier_sets import TierSet
from wattpack.errors import InputError

DAY = 144
LEVELS = (0.5, 0.9, 0.99)


def _target(name: str, namespace: str = "ns") -> Target:
    return Target(namespace, name, SeriesId(name), "workload", 36, 600, LEVELS, None, 1)


def _diurnal(days: float = 13, seed: int = 0) -> Floats:
    t = np.arange(round(days * DAY))
    noise = np.random.default_rng(seed).normal(0, 4, len(t))
    return 100 + 40 * np.sin(2 * np.pi * t / DAY) + noise


def _rounds(
    source: MemorySource, days: Sequence[float], names: Sequence[str], state: ForecasterState
) -> tuple[ForecasterState, list[list[TargetForecast]]]:
    targets, made = [_target(name) for name in names], []
    for day in days:
        state, answers = step(state, day * 86400, source, targets)
        made.append(answers)
    return state, made


def test_a_promise_counts_as_broken_in_the_round_that_breaks_it_and_only_once() -> None:
    values = _diurnal()
    values[10 * DAY + 5 :] *= 3
    source = MemorySource({"a": values})
    days = [10, 10 + 4 / DAY, 10 + 7 / DAY, 10.25, 10.5]
    _, rounds = _rounds(source, days, ["a"], ForecasterState())
    live = [answers[0].record.live for answers in rounds]
    assert [tally.violations[0] for tally in live[:4]] == [0, 0, 1, 1]
    assert [tally.windows for tally in live[:4]] == [0, 0, 1, 1]


def test_live_windows_do_not_overlap_and_a_bad_bin_is_one_miss() -> None:
    values = _diurnal()
    # Within the window of day 10.25 and within the one that began three hours before it.
    values[10 * DAY + 40] *= 3
    hours = [10 + hour / 24 for hour in range(25)]
    state, rounds = _rounds(MemorySource({"a": values}), hours, ["a"], ForecasterState())
    live = [answers[0].record.live for answers in rounds]
    assert [(one.windows, one.violations[0]) for one in live[::6]] == [
        (0, 0), (1, 0), (2, 1), (3, 1), (4, 1)
    ]  # fmt: skip
    (engine,) = state.engines.values()
    began = [(issue.begin_seconds, bool(issue.counted[0])) for issue in engine.memory.open_issues]
    assert began == [(round(10.875 * 86400), False), (11 * 86400, True)]


def test_a_series_that_joins_between_two_windows_has_windows_of_its_own() -> None:
    source = MemorySource({"a": _diurnal(), "b": _diurnal(seed=1)})
    state, _ = _rounds(source, [10], ["a"], ForecasterState())
    state, rounds = _rounds(source, [10.125, 10.25, 10.375], ["a", "b"], state)
    assert [one.record.live.windows for one in rounds[-1]] == [1, 1]


def test_rehearsed_windows_are_counted_apart_from_live_ones() -> None:
    source = MemorySource({"a": _diurnal()})
    _, rounds = _rounds(source, [10, 10.25], ["a"], ForecasterState())
    cuts = rehearsal_cuts(10 * DAY, Shape(600, 36, LEVELS))
    first, later = (answers[0].record for answers in rounds)
    assert (first.rehearsed.windows, first.live.windows) == (len(cuts), 0)
    assert (later.rehearsed.windows, later.live.windows) == (len(cuts), 1)


def test_a_correction_is_as_old_as_the_newest_window_behind_it() -> None:
    bins = np.array([0, 1, 20, 36]) / 144
    _, answers = _rounds(MemorySource({"a": _diurnal()}), list(11 + bins), ["a"], ForecasterState())
    day, until = 86400, []
    for (answer,) in answers:
        assert answer.made is not None
        until.append(int(answer.made.calibrated_until_seconds[answer.row]))
    # Steps teach every ten minutes, the peak when a window is over.
    assert until == [11 * day, 11 * day, 11 * day, 11.25 * day]


def test_a_rehearsal_knows_nothing_that_came_later() -> None:
    values = _diurnal(10)
    changed = values.copy()
    changed[-36:] *= 5
    last = rehearsal_cuts(10 * DAY, Shape(600, 36, LEVELS))[-1]
    assert last == 10 * DAY - 36
    records = []
    for row in (values, changed):
        _, rounds = _rounds(MemorySource({"a": row}), [10], ["a"], ForecasterState())
        records.append(rounds[0][0].record.rehearsed)
    assert records[1].violations[0] == records[0].violations[0] + 1
    assert records[1].reserved == pytest.approx(records[0].reserved)


class _Failing:
    """A tier that raises, or answers nonsense."""

    def __init__(self, answer: float | None) -> None:
        self._answer = answer
        self._series = 0

    @property
    def provenance(self) -> Provenance:
        return Provenance("failing/1", 0, 0)

    def update(self, batch: History) -> None:
        self._series = len(batch.series)

    def quantiles(self, horizon: int, levels: Sequence[float]) -> Floats:
        if self._answer is None:
            raise ArithmeticError("no model today")
        return np.full((self._series, horizon, len(levels)), self._answer)

    def paths(self, horizon: int, n: int) -> Floats:
        raise NotImplementedError

    def peak_quantile(self, window: int, level: float) -> Floats:
        raise NotImplementedError


@pytest.mark.parametrize("answer", [None, np.nan, np.inf])
def test_a_tier_that_fails_costs_only_itself(answer: float | None) -> None:
    def tiers(*others: Forecaster) -> ForecasterState:
        def made(horizon: int) -> Sequence[Forecaster]:
            return (Ridge(), *others)

        return ForecasterState(TierSet(made, made))

    source = MemorySource({"a": _diurnal()})
    _, alone = _rounds(source, [11], ["a"], tiers())
    _, beside = _rounds(source, [11], ["a"], tiers(_Failing(answer)))
    one, other = alone[0][0].made, beside[0][0].made
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(one.quantiles, other.quantiles, rtol=1e-12)
    assert other.methods == ("ridge",)


def test_the_same_history_gives_the_same_bits() -> None:
    source = MemorySource({"a": _diurnal(seed=1), "b": _diurnal(seed=2)})
    both = [_rounds(source, [10, 10.5, 11], ["a", "b"], ForecasterState())[1] for _ in range(2)]
    for one, other in zip(*both, strict=True):
        assert one[0].made is not None
        assert other[0].made is not None
        assert one[0].made.quantiles.tobytes() == other[0].made.quantiles.tobytes()
        assert one[0].made.peaks.tobytes() == other[0].made.peaks.tobytes()


def test_paths_made_a_few_series_at_a_time_are_those_of_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [str(i) for i in range(30)]
    values = {name: np.round(_diurnal(seed=i), -1) for i, name in enumerate(names)}
    values["7"][:] = 0.0
    made = []
    for cells in (10**9, 3 * 200 * 36):
        monkeypatch.setattr(round_paths, "PATH_CELLS", cells)
        _, rounds = _rounds(MemorySource(values), [10], names, ForecasterState())
        forecast = rounds[0][0].made
        assert forecast is not None
        made.append(forecast.peaks)
    assert made[0].tobytes() == made[1].tobytes()


def test_a_restart_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    values = _diurnal(seed=3)
    values[11 * DAY + 3 :] *= 2
    source, names = MemorySource({"a": values, "b": _diurnal(seed=4)}), ["a", "b"]
    state, _ = _rounds(source, [10, 10.3, 10.6, 11, 11.1], names, ForecasterState())
    write_state(tmp_path / "state.npz", state)
    restarted = read_state(tmp_path / "state.npz", ForecasterState())
    _, went_on = _rounds(source, [11.3, 11.6, 12], names, state)
    _, began_anew = _rounds(source, [11.3, 11.6, 12], names, restarted)
    for one, other in zip(went_on, began_anew, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            assert mine.record == theirs.record
            np.testing.assert_allclose(mine.peaks, theirs.peaks, rtol=1e-9)
    assert went_on[-1][0].record.live.violations[0] >= 1


def test_no_state_file_is_an_empty_state(tmp_path: Path) -> None:
    empty = ForecasterState()
    assert read_state(tmp_path / "none.npz", empty) is empty


def _damaged(path: Path, how: str) -> None:
    state, _ = _rounds(MemorySource({"a": _diurnal()}), [10, 10.3], ["a"], ForecasterState())
    write_state(path, state)
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "text":
        path.write_text("state")
    elif how == "empty":
        path.write_bytes(b"")
    else:
        _rewritten(path, how)


def _rewritten(path: Path, how: str) -> None:
    import json

    with np.load(path) as stored:
        arrays: dict[str, Any] = dict(stored)
    header = json.loads(bytes(arrays["header"]))
    if how == "version":
        header["version"] = 999
    if how == "levels":
        header["groups"][0]["levels"] = [0.123]
    if how == "shape":
        arrays["0/0/steps"] = np.zeros((5, 36, 3), dtype=np.float32)
    if how == "missing":
        del arrays["0/sums"]
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


@pytest.mark.parametrize("how", ["cut", "text", "empty", "version", "levels", "shape", "missing"])
def test_a_damaged_state_file_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "state.npz"
    _damaged(path, how)
    with pytest.raises(InputError, match="stateFile"):
        read_state(path, ForecasterState())


@pytest.mark.parametrize("seed", range(4))
def test_a_state_file_of_other_bytes_is_refused_or_read(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "state.npz"
    state, _ = _rounds(MemorySource({"a": _diurnal()}), [10, 10.3], ["a"], ForecasterState())
    write_state(path, state)
    whole, draw = path.read_bytes(), np.random.default_rng(seed)
    refused: list[str] = []
    for _ in range(100):
        changed = bytearray(whole)
        changed[draw.integers(len(whole))] ^= 1 << draw.integers(8)
        path.write_bytes(changed)
        try:
            read_state(path, ForecasterState())
        except InputError as error:
            refused.append(error.field)
    assert len(refused) > 50
    assert all(field.startswith("stateFile") for field in refused)


def test_an_engine_that_nobody_asked_knows_nothing_and_answers_nothing() -> None:
    engine = Engine(Shape(600, 36, LEVELS), (Ridge(),))
    nothing = History([SeriesId("a")], np.full((1, 10 * DAY), np.nan), 10 * 86400)
    made = engine.issue(Question(nothing, {SeriesId("a"): ("ns", "x")}, np.array([np.nan])))
    assert made.methods == ("limit",)
    assert "no-history" in made.flags[0]
    bounded = engine.issue(Question(nothing, {SeriesId("a"): ("ns", "x")}, np.array([700.0])))
    assert np.all(bounded.peaks == 700.0)


def test_a_shape_without_sense_is_refused() -> None:
    with pytest.raises(InputError, match="levels"):
        Shape(600, 36, (0.9, 0.5))
    with pytest.raises(InputError, match="horizon"):
        replace(Shape(600, 36, LEVELS), horizon=0)
