"""Reference models against plain formulas, and runs that are kept by what they rest on."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from benchmarks import forecast_run
from benchmarks._kept_arrays import Arrays, kept_arrays
from benchmarks.forecast_references import refitted_daily as runs
from benchmarks.forecast_references.boosted_reference import BoostedAlone
from benchmarks.forecast_references.dynamo_references import Arima, Constant, Kalman
from benchmarks.forecast_references.mstl_reference import MstlAutoEts
from benchmarks.forecast_references.naive_references import (
    LastValue,
    SeasonalNaive,
    multi_day_maxima,
)
from benchmarks.forecast_references.statsmodels_references import (
    AutoRegressive,
    SeasonalSmoothing,
)
from benchmarks.forecast_sets import DAY, HORIZON, TRAINING, Floats, ForecastSet
from forecasting.memory_source import MemorySource
from wattpack.errors import InputError

LEVELS = (0.1, 0.5, 0.9)


def _daily(n: int = 2, bins: int = TRAINING, noise: float = 3.0) -> Floats:
    random = np.random.default_rng(5)
    t = np.arange(bins)
    level = 100 + 40 * np.sin(2 * np.pi * t / DAY)
    return np.maximum(level + random.normal(0, noise, (n, bins)), 0.0)


def _set(values: Floats, origins: tuple[int, ...]) -> ForecastSet:
    return ForecastSet("made", tuple(f"s{i}" for i in range(len(values))), values, origins)


def test_seasonal_naive_is_yesterday_with_errors_pooled_over_steps() -> None:
    past = _daily()
    made = SeasonalNaive().quantiles(past, HORIZON, LEVELS)
    errors = sorted(past[1, t] - past[1, t - DAY] for t in range(DAY, TRAINING))
    for k in (1, 7, HORIZON):
        yesterday = past[1, TRAINING - 1 + k - DAY]
        assert made[1, k - 1, 1] - yesterday == pytest.approx(np.median(errors))
        assert made[1, k - 1, 2] - yesterday == pytest.approx(np.quantile(errors, 0.9))


def test_last_value_has_the_errors_of_each_step() -> None:
    past = _daily()
    made = LastValue().quantiles(past, HORIZON, LEVELS)
    for k in (1, 20):
        errors = [past[0, t + k] - past[0, t] for t in range(TRAINING - k)]
        assert made[0, k - 1, 2] == pytest.approx(past[0, -1] + np.quantile(errors, 0.9))


def test_multi_day_maxima_look_back_whole_days() -> None:
    past = np.arange(float(TRAINING))[None, ::-1].copy()
    found = multi_day_maxima(past, (1, 3, 10))
    assert {days: row.item() for days, row in found.items()} == {1: 143, 3: 431, 10: 1439}


@pytest.mark.parametrize("make", [SeasonalSmoothing, AutoRegressive, BoostedAlone, MstlAutoEts])
def test_a_fitted_model_knows_the_day_better_than_the_last_value(
    make: type[SeasonalSmoothing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.forecast_references.boosted_reference.ROUNDS", 40)
    monkeypatch.setattr("benchmarks.forecast_references.boosted_reference.MOST_ROWS", 5_000)
    values = _daily(bins=TRAINING + 100)
    model = make()
    model.fit(values[:, :TRAINING])
    shown = values[:, 64 : TRAINING + 64]
    made = model.quantiles(shown, HORIZON, LEVELS)
    truth = values[:, TRAINING + 64 :]
    assert made.shape == (2, HORIZON, 3)
    assert (np.diff(made, axis=2) >= 0).all()
    error = np.abs(made[..., 1] - truth).mean()
    assert error < 6  # noise of 3; the last value is off by 20
    assert error < 0.5 * np.abs(shown[:, -1:] - truth).mean()
    assert 0.5 < ((made[..., 0] < truth) & (truth < made[..., 2])).mean() <= 1
    assert np.array_equal(made, model.quantiles(shown, HORIZON, LEVELS))


def test_autoregression_spreads_as_its_simulated_paths() -> None:
    random = np.random.default_rng(1)
    noise = random.normal(0, 1, 6 * TRAINING)
    row = np.zeros(len(noise))
    for t in range(1, len(row)):
        row[t] = 0.9 * row[t - 1] + noise[t]
    model = AutoRegressive()
    model.fit(row[None] + 50)
    made = model.quantiles(row[None] + 50, HORIZON, LEVELS)[0]
    for k in (1, 5, HORIZON):
        deviation = np.sqrt(sum(0.9 ** (2 * j) for j in range(k)))
        assert (made[k - 1, 2] - made[k - 1, 1]) / 1.2816 == pytest.approx(deviation, rel=0.1)


def test_kalman_is_the_textbook_filter_with_the_published_noise() -> None:
    row = _daily(1, 60)[0]
    state, covariance = np.array([row[0], 0.0]), 1000.0 * np.eye(2)
    move, reads = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    for reading in row[1:]:
        state = move @ state
        covariance = move @ covariance @ move.T + np.diag([1.0, 0.1])
        gain = covariance @ reads.T / (reads @ covariance @ reads.T + 10.0)
        state = state + (gain * (reading - reads @ state)).ravel()
        covariance = (np.eye(2) - gain @ reads) @ covariance
    assert Kalman().next(row[None])[0] == pytest.approx((move @ state)[0])
    assert Constant().next(row[None]).tolist() == [row[-1]]


def test_arima_holds_what_never_changes_and_follows_a_regression() -> None:
    random = np.random.default_rng(2)
    row = np.full(400, 20.0)
    for t in range(1, 400):
        row[t] = 4 + 0.8 * row[t - 1] + random.normal(0, 0.5)
    model = Arima()
    model.fit(np.stack([row, np.full(400, 7.0)]))
    made = model.next(np.stack([row, np.full(400, 7.0)]))
    assert made[1] == 7.0
    assert made[0] == pytest.approx(4 + 0.8 * row[-1], abs=0.3)


class _Spy:
    """A reference that writes down what it was shown."""

    fits: ClassVar[list[int]] = []
    asked: ClassVar[list[int]] = []

    def fit(self, past: Floats) -> None:
        self.fits.append(int(past[0, -1]))

    def quantiles(self, past: Floats, horizon: int, levels: tuple[float, ...]) -> Floats:
        self.asked.append(int(past[0, -1]))
        return np.repeat(past[:, -1:, None], horizon, axis=1).repeat(len(levels), axis=2)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> type[_Spy]:
    _Spy.fits.clear()
    _Spy.asked.clear()
    _Spy.__module__ = SeasonalNaive.__module__
    monkeypatch.setitem(runs.QUANTILES, "spy", runs.Kind(_Spy))
    return _Spy


def test_references_are_refitted_once_a_day_and_never_see_ahead(
    spy: type[_Spy], tmp_path: Path
) -> None:
    values = np.tile(np.arange(2000.0), (2, 1))
    given = _set(values, (1440, 1468, 1590, 1600, 1900))
    made = runs.reference_quantiles("spy", given, tmp_path)
    assert spy.fits == [1439, 1583, 1871]
    assert spy.asked == [1439, 1467, 1589, 1599, 1899]
    again = runs.reference_quantiles("spy", given, tmp_path)
    assert np.array_equal(made, again)
    assert len(spy.asked) == 5  # kept
    values[0, 500] += 1
    runs.reference_quantiles("spy", given, tmp_path)
    assert len(spy.asked) == 10  # of other data


def test_a_kept_file_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> Arrays:
        made.append(1)
        return {"a": np.arange(50.0)}

    assert kept_arrays(tmp_path, "x", "0", make)[1] is False
    assert kept_arrays(tmp_path, "x", "0", make)[1] is True
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    arrays, was_kept = kept_arrays(tmp_path, "x", "0", make)
    assert not was_kept
    assert np.array_equal(arrays["a"], np.arange(50.0))
    assert len(made) == 2
    file.write_bytes(b"")
    assert kept_arrays(None, "x", "0", make)[1] is False
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="--resume"):
        kept_arrays(tmp_path / "taken", "x", "0", make)


@pytest.mark.parametrize("error", [ModuleNotFoundError("no statsmodels"), OSError("no libgomp")])
def test_a_missing_library_makes_a_reference_absent(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was found and could not be loaded ended the benchmark."""

    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(runs, "import_module", fail)
    assert not runs.is_present("ets")
    assert runs.is_present("seasonal_naive")
    with pytest.raises(InputError, match="statsmodels"):
        runs.reference_quantiles("ets", _set(_daily(), (TRAINING,)))


def test_the_process_is_shown_what_came_before_an_origin_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = _daily(2, TRAINING + 100)
    lengths: list[int] = []
    made = MemorySource.__init__

    def noted(self: MemorySource, rows: dict[str, Floats], start_seconds: int = 0) -> None:
        lengths.append(len(next(iter(rows.values()))))
        made(self, rows, start_seconds)

    monkeypatch.setattr(MemorySource, "__init__", noted)
    first = _set(values, (TRAINING, TRAINING + 28))
    before = forecast_run.published(first, is_light=True)
    assert lengths == [TRAINING, TRAINING + 28]
    values[:, TRAINING + 28 :] = 1e6
    after = forecast_run.published(_set(values, first.origins), is_light=True)
    assert np.array_equal(before.quantiles, after.quantiles)
    assert np.array_equal(before.peaks, after.peaks)


def test_a_run_that_is_kept_is_read_back_whole(tmp_path: Path) -> None:
    given = _set(_daily(2, TRAINING + 40), (TRAINING,))
    made, read = (forecast_run.published(given, tmp_path, is_light=True) for _ in range(2))
    assert np.array_equal(made.quantiles, read.quantiles)
    assert np.array_equal(made.peak(0.99), read.peak(0.99))
    assert read.words == made.words
    assert read.words[0][1]["dataUntil"].startswith("2020-01-11T00:00:00")
    assert made.quantiles.shape == (1, 2, HORIZON, len(forecast_run.LEVELS))
    assert (np.diff(made.quantiles, axis=3) >= 0).all()
    assert len(list(tmp_path.iterdir())) == 1
