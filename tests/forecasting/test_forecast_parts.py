"""The pieces: weighted quantiles, ridge against its textbook form, peaks of sums, calibration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.calibration import Calibration
from forecasting.clean_history import clean
from forecasting.fallback import fit_last_day_maximum
from forecasting.peaks import peak_quantiles
from forecasting.residuals import PathFit, decay_weights, point_quantiles, weighted_quantiles
from forecasting.ridge import LAMBDA, fit_ridge, level_scale, min_bins
from forecasting.series_source import Floats
from tests.examples import examples

DAY = 24
STEP = 3600


def _series(n: int = 3, days: int = 12, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    t = np.arange(days * DAY)
    return 50 + 20 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, 4, (n, len(t)))


@pytest.mark.parametrize(
    ("odd", "flag"),
    [(-1.0, "negative"), (np.inf, "not-finite"), (1e300, "too-large"), (np.nan, "")],
)
def test_a_value_that_nothing_can_draw_is_a_gap(odd: float, flag: str) -> None:
    cleaned = clean(np.array([[5.0, 7.0, odd, 9.0]]), DAY)
    assert cleaned.known.tolist() == [[True, True, False, True]]
    assert cleaned.filled.tolist() == [[5.0, 7.0, 8.0, 9.0]]
    assert [f for f in cleaned.flags[0] if f != "gaps"] == ([flag] if flag else [])


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.floats(0.01, 0.99))
@examples(60)
def test_a_weighted_quantile_reaches_its_level_and_no_lower_value_does(
    values: list[float], level: float
) -> None:
    data = np.array(values, dtype=np.float32)
    weights = decay_weights(np.arange(len(values), dtype=float), STEP)
    found = weighted_quantiles(data, weights, np.array([level]))[0]
    assert weights[data <= found].sum() >= level - 1e-4
    assert weights[data < found].sum() < level + 1e-4


def test_unknown_values_do_not_count() -> None:
    values = np.array([[1.0, 2.0, 1e9]], dtype=np.float32)
    known = np.array([[True, True, False]])
    found = weighted_quantiles(values, np.full(3, 1 / 3), np.array([0.99]), known)
    assert found[0, 0] == 2.0
    nothing = weighted_quantiles(values, np.full(3, 1 / 3), np.array([0.5]), np.zeros((1, 3), bool))
    assert nothing[0, 0] == 0.0


def test_weights_halve_in_three_days() -> None:
    weights = decay_weights(np.array([0.0, 72.0]), STEP)
    assert weights[0] == pytest.approx(2 * weights[1])
    assert weights.sum() == pytest.approx(1.0)


def test_the_batched_ridge_equals_the_textbook_formula_for_one_step() -> None:
    values = _series()
    horizon, k, i = 6, 4, 1
    fit = fit_ridge(values, horizon, STEP, DAY, origin_stride=1)
    y = values[i] / level_scale(values, DAY)[i]

    def features(t: int) -> list[float]:
        same = [y[t + k - d * DAY] for d in (1, 2, 3) if t + k - d * DAY >= 0]
        means = [np.mean(y[t + 1 - w : t + 1]) for w in (1, 6, 24)]
        return [1.0, y[t], y[t - 1], *means, y[t + k - DAY], float(np.mean(same))]

    last = len(y) - 1
    origins = range(DAY, last - horizon + 1)
    x = np.array([features(t) for t in origins])
    target = np.array([y[t + k] - y[t] for t in origins])
    penalty = np.diag([1e-9, *[LAMBDA * np.var(x[:, 1])] * 7]) * len(x)
    beta = np.linalg.solve(x.T @ x + penalty, x.T @ target)
    expected = (y[last] + np.array(features(last)) @ beta) * level_scale(values, DAY)[i, 0]
    assert fit.mean[i, k - 1] == pytest.approx(expected, rel=1e-6)
    errors = (target - x @ beta) * level_scale(values, DAY)[i, 0]
    freedom = np.sqrt((len(x) / k) / (len(x) / k - 8))
    np.testing.assert_allclose(fit.residuals[i, k - 1], errors * freedom, rtol=1e-3, atol=1e-4)


def test_the_shortest_history_of_the_ridge_has_a_day_of_origins() -> None:
    fit = fit_ridge(_series()[:, : min_bins(6, DAY)], 6, STEP, DAY, origin_stride=1)
    assert fit.residuals.shape[-1] >= DAY - 1
    assert np.all(np.isfinite(fit.mean))


def test_an_idle_client_is_not_blown_up_by_its_normalisation() -> None:
    values = np.zeros((1, 12 * DAY))
    values[0, 10] = 1000.0
    scale = level_scale(values, DAY)
    assert scale[0, 0] >= 1000 / 200
    assert level_scale(np.zeros((1, 48)), DAY)[0, 0] == 1.0


def test_the_fallback_never_promises_less_than_the_last_day_at_high_levels() -> None:
    values = _series()
    fit = fit_last_day_maximum(values, 6, STEP, DAY, origin_stride=1)
    assert fit is not None
    np.testing.assert_allclose(fit.mean, np.repeat(values[:, -DAY:].max(1)[:, None], 6, axis=1))
    assert np.all(np.diff(point_quantiles(fit, np.array([0.5, 0.9, 0.99])), axis=-1) >= 0)
    assert fit_last_day_maximum(values[:, : DAY + 8], 6, STEP, DAY) is None


@given(st.integers(0, 100))
@examples(20)
def test_a_peak_quantile_covers_every_steps_quantile(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fit = PathFit(
        rng.normal(10, 1, (2, 5)),
        rng.normal(0, 2, (2, 5, 40)).astype(np.float32),
        np.full(40, 1 / 40),
    )
    levels = np.array([0.1, 0.5, 0.99])
    assert np.all(peak_quantiles(fit, levels) >= point_quantiles(fit, levels).max(axis=1) - 1e-5)


def test_calibration_brings_broken_promises_back_to_their_level() -> None:
    rng = np.random.default_rng(3)
    state = Calibration.new((0.5, 0.99))
    for _ in range(200):
        state = state.after(rng.normal(0.3, 0.2, (10, 2)))
    untrained = Calibration.new((0.5, 0.99)).after(rng.normal(0.3, 0.2, (2000, 2)))
    assert untrained.coverage()[1] == pytest.approx(0.07, abs=0.03)
    assert state.windows == 2000
    assert state.coverage()[0] == pytest.approx(0.5, abs=0.03)
    # The first 20 windows are uncorrected and nearly all missed; they stay in the count.
    assert state.coverage()[1] == pytest.approx(0.99 - 20 / 2000, abs=0.006)


def test_calibration_follows_a_shift_within_a_few_days() -> None:
    rng = np.random.default_rng(4)
    state = Calibration.new((0.99,))
    for _ in range(40):
        state = state.after(rng.normal(0, 0.1, (20, 1)))
    before = state.violations[0]
    for _ in range(40):
        state = state.after(rng.normal(1, 0.1, (20, 1)))
    assert (state.violations[0] - before) / 800 < 0.06


def test_too_few_windows_move_nothing_and_nan_is_ignored() -> None:
    state = Calibration.new((0.9, 0.99)).after(np.full((19, 2), 5.0))
    assert np.all(state.offsets() == 0)
    assert state.after(np.array([[np.nan, 1.0], [np.inf, 1.0]])) is state
    assert np.all(state.after(np.full((1, 2), 5.0)).offsets() == 5.0)
    assert Calibration.new((0.5,)).coverage() == (None,)
