"""What is told of the days that forecasts are judged on."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import forecast_shift
from benchmarks.forecast_run import LEVELS, PEAK_LEVELS, Published
from benchmarks.forecast_sets import DAY, ForecastSet


@pytest.fixture
def given() -> ForecastSet:
    """A cluster without work on day 9 beside a service, both of one shape a day."""
    values = np.tile(10 + np.sin(np.arange(DAY) / DAY * 2 * np.pi), (2, 12))
    values += np.random.default_rng(1).uniform(0, 1, values.shape)
    values[1, 9 * DAY : 10 * DAY] = 0
    return ForecastSet("totals", ("m-small", "helios"), values, (10 * DAY + 42, 11 * DAY))


@pytest.fixture
def ours(given: ForecastSet) -> Published:
    """One that knows what comes, but for a bin in four that is higher than its median."""
    truth = given.truth()
    low = truth.copy()
    low[..., ::4] -= 0.5
    peaks = np.repeat(truth.max(axis=2)[..., None], len(PEAK_LEVELS), axis=2)
    quantiles = np.repeat(low[..., None], len(LEVELS), axis=-1)
    return Published(quantiles, peaks, (({},) * 2,) * 2, np.zeros(2))


def test_an_outage_of_yesterday_is_most_of_what_a_seasonal_forecast_loses(
    given: ForecastSet, ours: Published
) -> None:
    figures = forecast_shift.losses_by_series(given, ours, None)
    assert figures["helios_share_of_naive_sql"] > 0.5
    assert figures["sql_ratio"] < figures["sql_ratio_without_outage"]
    assert figures["mase_ratio_without_m_small"] == pytest.approx(
        forecast_shift.losses_by_series(
            ForecastSet("one", ("helios",), given.values[1:], given.origins),
            Published(ours.quantiles[:, 1:], ours.peaks[:, 1:], (({},),) * 2, np.zeros(2)),
            None,
        )["mase_ratio"]
    )


def test_rounds_are_covered_as_often_as_their_bins(given: ForecastSet, ours: Published) -> None:
    figures = forecast_shift.coverage_by_round(given, ours)
    assert figures["median_coverage"] == pytest.approx(0.75 * 0.5)
    assert figures["coverage_at_0.9"] == pytest.approx(0.75)
    assert figures["morning_rounds"] == 1
    assert figures["median_coverage_standard_error"] == pytest.approx(0)


def test_errors_and_peaks_of_few_are_told(given: ForecastSet, ours: Published) -> None:
    few = forecast_shift.weight_of_few(given)
    assert few["share_of_constant_error_of_10_windows"] == pytest.approx(1)
    found = forecast_shift.peaks(given, ours, 0.05, 0.95)
    assert found["published_broken_share"] == 0
    assert found["published_over_best_maximum"] < 1
    assert found["published_over_best_p10"] <= found["published_over_best_p90"]
