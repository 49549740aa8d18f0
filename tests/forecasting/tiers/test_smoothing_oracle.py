"""Exponential smoothing beside ETS(A,N,A) of statsmodels, on real series.

With the same parameters both are the same recursions. The tier's quantiles are not those of a fit
by likelihood: its parameters are picked by errors over the coming hours, its quantiles are past
errors where statsmodels' are Gaussian, and values are compressed. Real series have to repay that.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas
import pytest

from benchmarks import forecast_sets
from benchmarks.forecast_references.statsmodels_references import SeasonalSmoothing
from forecasting.series_source import Floats
from forecasting.tiers.smoothing import START_SHARE, Smoothing, smooth
from tests.forecasting.tiers.test_tiers import DAY, history

ets = pytest.importorskip("statsmodels.tsa.exponential_smoothing.ets")

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
ORIGINS = (1008, 1116, 1224, 1332)
"""Within bins 0-1439: what models may be tuned on."""


def _by_statsmodels(row: Floats, alpha: float, gamma: float, horizon: int) -> tuple[Floats, Floats]:
    """Levels after each bin and the forecast, from the tier's initial states."""
    first = row[: 2 * DAY]
    profile = START_SHARE * (first.reshape(2, DAY).mean(axis=0) - first.mean())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it thinks of seasons that do not sum to zero
        model = ets.ETSModel(
            pandas.Series(row), error="add", seasonal="add", seasonal_periods=DAY,
            initialization_method="known", initial_level=first.mean(), initial_seasonal=profile,
        )  # fmt: skip
        # The share of an error that moves the season is (1 - alpha) times ours.
        found = model.smooth(np.array([alpha, gamma * (1 - alpha)]))
        return np.asarray(found.level), np.asarray(found.forecast(horizon))


@pytest.mark.parametrize("number", [0, 2, 3])
@pytest.mark.parametrize(("alpha", "gamma"), [(0.05, 0.4), (0.4, 0.1), (0.95, 0.02)])
def test_with_the_same_parameters_levels_and_forecasts_are_statsmodels_own(
    number: int, alpha: float, gamma: float
) -> None:
    row, horizon = forecast_sets.totals().values[number, :1440], 2 * DAY
    states = smooth(row[:, None], np.array([alpha]), np.array([gamma]), DAY)
    level, forecast = _by_statsmodels(row, alpha, gamma, horizon)
    np.testing.assert_allclose(states.level[:, 0, 0], level, rtol=1e-9)
    season = states.season[1440 - DAY :, 0, 0]
    mine = states.level[-1, 0, 0] + np.tile(season, 2)
    np.testing.assert_allclose(mine, forecast, rtol=1e-9)


def _quantiles(row: Floats) -> tuple[Floats, Floats]:
    """Ours and those of a fit by statsmodels, (36, n_levels) each."""
    tier, judge = Smoothing(), SeasonalSmoothing()
    tier.update(history(row[None]))
    judge.fit(row[None])
    return tier.quantiles(36, LEVELS)[0], judge.quantiles(row[None], 36, LEVELS)[0]


def _made_by_the_model(seed: int) -> Floats:
    """Ten days of ETS(A,N,A) with normal errors of deviation 3."""
    draw, level, made = np.random.default_rng(seed), 200.0, []
    season = 30 * np.sin(2 * np.pi * np.arange(DAY) / DAY)
    for t in range(10 * DAY):
        error = draw.normal(0, 3)
        made.append(level + season[t % DAY] + error)
        level += 0.1 * error
        season[t % DAY] += 0.05 * error
    return np.array(made)


def test_on_series_that_the_model_made_it_says_the_same_with_more_doubt() -> None:
    """Medians within 0.6 of an error's deviation, spreads 1 to 1.6 times those of a fit.

    Ten days tell each of the 144 seasons to a third of it, to both in their own way. A fit takes
    them for known and is right about the rest; past errors hold what is not known.
    """
    apart, wider = [], []
    for seed in range(11, 15):
        ours, theirs = _quantiles(_made_by_the_model(seed))
        apart.append(np.abs(ours[:, 2] - theirs[:, 2]).mean())
        wider.append((ours[:, 4] - ours[:, 0]).mean() / (theirs[:, 4] - theirs[:, 0]).mean())
    assert np.mean(apart) < 0.6 * 3
    assert 1.0 < np.mean(wider) < 1.6


def test_on_real_totals_its_quantiles_lose_less_than_those_of_a_fit() -> None:
    taus = np.array(LEVELS)
    for row in forecast_sets.totals().values[:, :1440]:
        losses = np.zeros(2)
        for origin in ORIGINS:
            came = row[origin : origin + 36, None]
            miss = came - np.stack(_quantiles(row[:origin]))
            losses += np.maximum(taus * miss, (taus - 1) * miss).mean(axis=(1, 2))
        assert losses[0] < 0.95 * losses[1]
