"""A peak at any risk, of all that may draw and of what runs; statuses are read with suspicion."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.decisions import risk_bands
from forecasting.forecast_book import ForecastBook, Outlook, Question
from forecasting.peak_quantiles import PeakQuantiles
from tests.examples import examples
from tests.forecasting.forecast_builders import AUTHORITY, make_forecast
from wattpack.api.forecast_subject import LEAST_RISK, MOST_RISK
from wattpack.errors import InputError

PEAKS = st.lists(st.floats(0, 1e9), min_size=3, max_size=3).map(sorted)
RISKS = st.floats(LEAST_RISK, MOST_RISK)


@examples(100)
@given(PEAKS, RISKS, RISKS)
def test_more_risk_never_takes_more_and_stated_levels_are_exact(
    peaks: list[float], one: float, other: float
) -> None:
    told = PeakQuantiles(*peaks)
    low, high = sorted((one, other))
    assert told.p99 >= told.at_risk(low) >= told.at_risk(high) >= told.p50
    assert (told.at_risk(0.5), told.at_risk(0.05), told.at_risk(0.01)) == tuple(peaks)


@pytest.mark.parametrize("risk", [0.0, 0.009, 0.51, 1.0, float("nan"), -1.0])
def test_nothing_is_said_of_what_is_not_published(risk: float) -> None:
    with pytest.raises(InputError, match="risk"):
        PeakQuantiles(1.0, 2.0, 3.0).at_risk(risk)


def told(limit_watts: float = 100_000.0, **status: Any) -> Outlook:
    body = make_forecast(1e8, 30_000.0, p95=28_000.0, p50=20_000.0, **status)
    question = Question(1e8, limit_watts, 50_000.0)
    return ForecastBook.of(AUTHORITY, [body]).of_domain("row", question)


RUNNING = {"p50": 10_000.0, "p95": 15_000.0, "p99": 18_000.0}


def test_what_runs_is_told_apart_and_never_above_the_whole() -> None:
    assert told(running=RUNNING).running_peak == (10_000.0, 15_000.0, 18_000.0)
    assert told(running=RUNNING).peak == (20_000.0, 28_000.0, 30_000.0)
    above = {"p50": 10_000.0, "p95": 29_000.0, "p99": 90_000.0}
    assert told(running=above).running_peak == (10_000.0, 28_000.0, 30_000.0)
    assert told(12_000.0, running=RUNNING).running_peak == (10_000.0, 12_000.0, 12_000.0)
    assert told(running=RUNNING, fallback=True).running_peak == (18_000.0,) * 3


@pytest.mark.parametrize(
    "running",
    [
        None,
        "much",
        {},
        {"p50": 1.0, "p95": 2.0},
        RUNNING | {"p99": 1.0},
        RUNNING | {"p50": -1.0},
        RUNNING | {"p95": "15 kW"},
        RUNNING | {"p50": 0.0},
    ],
)
def test_a_running_peak_without_sense_costs_no_forecast(running: object) -> None:
    outlook = told(running=running)
    assert outlook.state == "Forecast"
    assert outlook.running_peak == outlook.peak


@examples(60)
@given(st.dictionaries(st.integers(-100, 100), RISKS, max_size=4), st.integers(-120, 120))
def test_bands_give_each_priority_the_risk_of_the_lowest_key_above_it(
    below: dict[int, float], priority: int
) -> None:
    keys = sorted(below, reverse=True)
    risks = [below[key] for key in keys]
    if risks != sorted(risks):
        with pytest.raises(InputError, match="risk_below_priority"):
            risk_bands(below)
        return
    bands = risk_bands(below)
    mine = next(b for b in bands if b.least_priority is None or priority >= b.least_priority)
    above = [key for key in keys if priority < key]
    assert mine.risk == (below[min(above)] if above else LEAST_RISK)
