"""Rounds of the service: replay, promises, status, and what users make of it."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forecasting.forecast_book import ForecastBook, Question
from forecasting.forecast_status import status_of
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import Floats, SeriesId
from forecasting.targets import Target, target_of
from forecasting.tiers.level_grid import GRID
from tests.forecasting.forecast_builders import AUTHORITY, make_forecast
from wattpack.api.demand_forecast import HIGHEST_LEVEL, LOWEST_LEVEL, DemandForecastStatus
from wattpack.errors import InputError, TransientError

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "forecasting"
DAY = 144


def _target(name: str, series: str = "", ceiling: float | None = None) -> Target:
    return Target(
        "ns", name, SeriesId(series or name), "workload", 36, 600, (0.5, 0.99), ceiling, 3
    )


def _load(name: str) -> Floats:
    text = gzip.decompress((DATA / name).read_bytes()).decode()
    rows = list(csv.reader(io.StringIO(text)))[1:]
    return np.array(rows, dtype=np.float64)[:, 1:].T


def _diurnal(n: int = 1, days: int = 12, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    t = np.arange(days * DAY)
    return 100 + 40 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, 5, (n, len(t)))


@pytest.mark.parametrize(
    ("file", "highest_miss"),
    [
        ("servegen_m-small_top12_10min.csv.gz", 0.02),
        ("servegen_model_totals_10min.csv.gz", 0.06),
        ("helios_earth_top6_vc_gpus_10min.csv.gz", 0.03),
    ],
)
def test_p99_of_the_window_peak_holds_on_real_demand(file: str, highest_miss: float) -> None:
    values = _load(file)
    names = [f"s{i}" for i in range(len(values))]
    source = MemorySource(dict(zip(names, values, strict=True)))
    targets = [_target(name) for name in names]
    state = ForecasterState()
    for day in np.arange(10, 14, 0.25):
        state, answers = step(state, float(day) * 86400, source, targets)
    windows = sum(answer.record.total.windows for answer in answers)
    missed = sum(answer.record.total.violations[0] for answer in answers)
    assert windows >= 39 * len(names)
    assert missed / windows <= highest_miss


def test_a_restart_rehearses_and_a_running_one_settles_each_promise_once() -> None:
    values = _diurnal(days=13)[0]
    source = MemorySource({"a": values})
    state, (first,) = step(ForecasterState(), 10 * 86400, source, [_target("a")])
    assert first.record.total.windows == 24
    state, (again,) = step(state, 10 * 86400 + 600, source, [_target("a")])
    assert again.record.total.windows == 24
    state, (later,) = step(state, 10.25 * 86400, source, [_target("a")])
    assert later.record.total.windows == 25
    state, (much_later,) = step(state, 12 * 86400, source, [_target("a")])
    assert much_later.record.total.windows == 26


def test_a_demand_that_doubles_is_counted_as_a_violation() -> None:
    values = _diurnal(days=11)[0]
    values[10 * DAY + 5 :] *= 3
    source = MemorySource({"a": values})
    state, (before,) = step(ForecasterState(), 10 * 86400, source, [_target("a")])
    state, (after,) = step(state, 10.25 * 86400, source, [_target("a")])
    assert after.record.total.violations[0] == before.record.total.violations[0] + 1


def test_targets_that_are_gone_are_forgotten() -> None:
    source = MemorySource({"a": _diurnal()[0], "b": _diurnal()[0]})
    state, _ = step(ForecasterState(), 12 * 86400, source, [_target("a"), _target("b")])
    state, answers = step(state, 12 * 86400, source, [_target("b")])
    assert list(state.records) == [_target("b").identity]
    assert [answer.target.name for answer in answers] == ["b"]


class _PickySource(MemorySource):
    """Refuses one expression and can be cut off."""

    down = False

    def fetch(
        self, series: Sequence[SeriesId], start: int, end: int, step_seconds: int = 600
    ) -> Floats:
        if self.down:
            raise TransientError("history is away")
        if "sum(" in series:
            raise InputError("series", "a PromQL expression", "sum(")
        return super().fetch(series, start, end, step_seconds)


def test_one_bad_expression_does_not_take_the_others_along() -> None:
    source = _PickySource({"a": _diurnal()[0]})
    targets = [_target("bad", "sum("), _target("good", "a")]
    _, answers = step(ForecasterState(), 12 * 86400, source, targets)
    assert [answer.error is None for answer in answers] == [False, True]
    status = status_of(answers[0], 12 * 86400)
    assert status["conditions"][0]["reason"] == "SeriesRefused"
    assert "p99" not in status


def test_a_history_that_is_away_raises_and_the_old_state_stays_valid() -> None:
    source = _PickySource({"a": _diurnal()[0]})
    state, _ = step(ForecasterState(), 12 * 86400, source, [_target("a")])
    source.down = True
    with pytest.raises(TransientError):
        step(state, 12 * 86400 + 600, source, [_target("a")])
    assert state.records[_target("a").identity].total.windows == 24


def test_the_ceiling_bounds_calibrated_peaks_too() -> None:
    source = MemorySource({"a": _diurnal()[0]})
    _, (answer,) = step(ForecasterState(), 12 * 86400, source, [_target("a", ceiling=90.0)])
    assert answer.peaks.max() <= 90.0


def _status(days: float = 12, now: float | None = None) -> dict[str, Any]:
    source = MemorySource({"a": _diurnal()[0]})
    _, (answer,) = step(ForecasterState(), days * 86400, source, [_target("a")])
    return status_of(answer, days * 86400 if now is None else now)


def test_the_status_passes_the_crd_model_and_carries_the_spec_levels() -> None:
    status = _status()
    parsed = DemandForecastStatus.model_validate(status)
    assert [path.level for path in parsed.quantiles] == [0.5, 0.99]
    assert all(len(path.values) == 36 for path in parsed.quantiles)
    assert parsed.method == "ridge"
    assert parsed.observed_generation == 3
    assert parsed.data_until == "1970-01-13T00:00:00Z"
    assert parsed.p50 is not None
    assert parsed.p99 is not None
    assert parsed.p50 < parsed.p99


def test_the_last_days_maximum_says_its_version_its_data_and_its_correction() -> None:
    """Of two series of a pool one has a single day: its maximum is corrected as its pool is."""
    source = MemorySource({"old": _diurnal()[0], "young": _diurnal()[0]})
    source.values["young"][: 11 * DAY] = np.nan
    source.values["young"][12 * DAY - 1] = np.nan
    state, _ = step(ForecasterState(), 12 * 86400, source, [_target("old")])
    _, answers = step(state, 12 * 86400, source, [_target("old"), _target("young")])
    old, young = (status_of(answer, 12 * 86400) for answer in answers)
    assert (old["method"], young["method"]) == ("ridge", "last-24h-max")
    assert young["modelVersion"] == "last-24h-max/2"
    assert young["fittedUntil"] == young["dataUntil"] == "1970-01-12T23:50:00Z"
    assert young["tiers"] == []
    assert young["calibration"]["rehearsedWindows"] == old["calibration"]["rehearsedWindows"] == 24
    assert young["calibration"]["updatedAt"] == old["calibration"]["updatedAt"]
    assert "offsetP99" in young["calibration"]


def test_a_limit_says_its_version_and_that_nothing_corrects_it() -> None:
    values = _diurnal()[0]
    values[:-60] = np.nan
    source = MemorySource({"a": values})
    _, (answer,) = step(ForecasterState(), 12 * 86400, source, [_target("a", ceiling=500.0)])
    status = status_of(answer, 12 * 86400)
    assert (status["method"], status["p99"]) == ("limit", 500.0)
    assert status["modelVersion"] == "limit/1"
    assert status["calibration"] == {"liveWindows": 0, "rehearsedWindows": 0}
    assert "fittedUntil" not in status
    assert status["dataUntil"] == "1970-01-13T00:00:00Z"
    # Without a ceiling there is no answer whose version could be told.
    _, (answer,) = step(ForecasterState(), 12 * 86400, source, [_target("a")])
    assert "modelVersion" not in status_of(answer, 12 * 86400)


def test_readers_believe_what_the_forecaster_writes() -> None:
    body = make_forecast(metadata={"generation": 3}) | {"status": _status()}
    book = ForecastBook.of(AUTHORITY, [body])
    outlook = book.of_domain("row", Question(12 * 86400.0 + 1200, 1000))
    assert (outlook.state, outlook.p99_watts) == ("Forecast", body["status"]["p99"])


def _body(**spec: Any) -> dict[str, Any]:
    base = {"target": {"powerDomain": "row-1", "series": "domain:row-1"}}
    return {
        "apiVersion": "wattpack.io/v1alpha1", "kind": "DemandForecast",
        "metadata": {"name": "row-1", "namespace": "power", "generation": 2},
        "spec": {**base, **spec},
    }  # fmt: skip


def test_an_object_becomes_a_target() -> None:
    target = target_of(_body(ceilingWatts=1e5))
    assert (target.kind, target.horizon, target.ceiling) == ("domain", 36, 1e5)
    assert target.levels == (0.5, 0.9, 0.95, 0.99)


@pytest.mark.parametrize(
    ("horizon", "step", "steps"),
    [
        (7000, 3600, 2),
        (21_600, 3500, 7),
        (21_601, 600, 37),
        (600, 600, 1),
        # As many as any model answers, and as a status carries.
        (604_800, 650, 930),
        (604_800, 600, 1008),
        (61_499, 60, 1024),
    ],
)
def test_the_steps_cover_the_horizon(horizon: int, step: int, steps: int) -> None:
    """Readers hold the peak for one of the whole horizon: 7,000 s were answered by one hour."""
    assert target_of(_body(horizonSeconds=horizon, stepSeconds=step)).horizon == steps


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"levels": [0.0, 0.5]}, "levels"),
        ({"levels": [0.5, 1.0]}, "levels"),
        ({"levels": [0.005, 0.5]}, "levels"),
        ({"levels": [0.5, 0.9999]}, "levels"),
        ({"levels": []}, "levels"),
        ({"target": {"series": ""}}, "series"),
        ({"horizonSeconds": -1}, "horizonSeconds"),
        (
            {"horizonSeconds": 604800, "stepSeconds": 60},
            "horizonSeconds: expected at most 1024 steps",
        ),
        ({"target": {"powerDomain": "row", "series": "s", "unit": "kW"}}, "unit: expected watts"),
        ({"ceilingWatts": 0}, "ceilingWatts"),
    ],
)
def test_a_bad_object_is_refused_by_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        target_of(_body(**spec))


def test_the_outermost_levels_that_are_computed_may_be_asked_for() -> None:
    target = target_of(_body(levels=[LOWEST_LEVEL, HIGHEST_LEVEL]))
    assert (target.levels[0], target.levels[-1]) == (GRID[0], GRID[-1])


def test_pooled_misses_do_not_lift_a_calm_series_beyond_its_bound() -> None:
    """Other clients of the pool burst, and a calm one promised 991 times its record.

    The bound of 20 times holds after calibration, and is said.
    """
    calm = _target("calm")
    state = ForecasterState()
    bursts = {f"b{i}": np.where(np.arange(13 * DAY) > 12 * DAY, 900.0, 1.0) for i in range(40)}
    every_other_day = np.arange(13 * DAY) // DAY % 2
    source = MemorySource({"calm": 1.0 - 0.2 * every_other_day, **bursts})
    targets = [calm, *(_target(name) for name in bursts)]
    for day in (12, 12.25, 12.5):
        state, (answer, *_) = step(state, day * 86400, source, targets)
    assert answer.peaks.max() == pytest.approx(20.0)
    assert "extreme" in status_of(answer, 12.5 * 86400)["conditions"][1]["message"]


def _p99_of_calm_beside(other: str, *, namespace: str) -> float:
    """The calm series' calibrated p99 when another target of its kind is forecast with it."""
    calm = _target("calm")
    members = [calm, replace(_target("other"), namespace=namespace)]
    day = np.sin(np.arange(12 * DAY) / DAY * 2 * np.pi)
    rows = {
        "calm": 5_000.0 + 1_500.0 * day,
        "none": 5_000.0 + 1_500.0 * day,
        "glitch": (5_000.0 + 1_500.0 * day) * np.where(np.arange(12 * DAY) == 1_500, 1e3, 1.0),
        "bursts": np.where(np.arange(12 * DAY) % 300 == 0, 1e6, 0.0),
    }
    source = MemorySource({"calm": rows["calm"], "other": rows[other]})
    _, answers = step(ForecasterState(), 12 * 86400, source, members)
    return float(answers[0].peaks[-1])


@pytest.mark.parametrize(
    ("other", "namespace"), [("glitch", "ns"), ("glitch", "tenant"), ("bursts", "tenant")]
)
def test_a_series_that_jumps_lifts_no_promise_of_its_neighbours(other: str, namespace: str) -> None:
    """A meter that once read a thousand times too much made every row's p99 20 times its record."""
    alone = _p99_of_calm_beside("none", namespace="ns")
    assert _p99_of_calm_beside(other, namespace=namespace) < 1.2 * alone


class _Poisoned(MemorySource):
    """Hands out rows that no adapter of ours hands out."""

    def fetch(
        self, series: Sequence[SeriesId], start: int, end: int, step_seconds: int = 600
    ) -> Floats:
        row = super().fetch(series, start, end, step_seconds)
        if series[0].startswith("inf"):
            row[:] = np.inf
        if series[0].startswith("huge"):
            row[:] = 1.7e308
        if series[0].startswith("mixed"):
            row[:, ::2] = np.nextafter(np.inf, 0)
        return row


@pytest.mark.parametrize("bad", ["inf", "huge", "mixed"])
def test_a_poisoned_row_of_any_source_fails_alone(bad: str) -> None:
    source = _Poisoned({"a": _diurnal()[0], "z": _diurnal()[0], bad: _diurnal()[0]})
    targets = [_target("a"), _target(bad), _target("z")]
    with np.errstate(all="raise"):
        _, (first, _, last) = step(ForecasterState(), 12 * 86400, source, targets)
    assert first.error is None
    assert last.error is None
    np.testing.assert_allclose(first.peaks, last.peaks)
