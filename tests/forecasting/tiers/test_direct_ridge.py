"""The ridge against least squares written out, its features against the future, its turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecasting.residuals import decay_weights
from forecasting.series_source import Floats
from forecasting.tiers import direct_ridge
from forecasting.tiers.direct_ridge import Ridge
from forecasting.tiers.level_grid import GRID
from forecasting.tiers.ridge_features import (
    compress,
    days_back,
    expand,
    level_scale,
    seasonal_tables,
    shared_features,
    step_groups,
    windows_at,
)
from forecasting.tiers.ridge_solve import LAMBDA, _error_quantiles, fit_steps, training_origins
from tests.forecasting.tiers.test_tiers import DAY, LEVELS, demand, history


def features(z: Floats, t: int, k: int, day: int) -> list[float]:
    """The ridge's features of one origin and step, one by one."""
    hour, quarter, back = max(1, day // 24), max(1, day // 4), days_back(k, day) * day
    place = t + k - back
    same_time = [z[p] for p in (place, place - day, place - 2 * day) if p >= 0]
    around = [z[p] for p in range(place - hour // 2, place + hour // 2 + 1) if 0 <= p < len(z)]
    differing = [
        z[t - 1],
        np.mean(z[t + 1 - hour : t + 1]),
        np.mean(z[t + 1 - quarter : t + 1]),
        np.mean(z[t + 1 - day : t + 1]),
        z[t - day],
        np.mean(z[t - day + 1 - hour : t - day + 1]),
        z[place],
        np.mean(same_time),
        np.mean(around),
    ]
    return [z[t], *(value - z[t] for value in differing)]


def least_squares(z: Floats, step: int, origins: np.ndarray, day: int) -> float:
    """The change ``step`` bins after the last one, by least squares with rows for the penalty."""
    x = np.array([features(z, t, step, day) for t in origins])
    y = np.array([z[t + step] - z[t] for t in origins])
    weight = np.sqrt(LAMBDA * len(origins) * np.var(z[origins]))
    centre = x.mean(axis=0)
    rows = np.vstack([x - centre, weight * np.eye(x.shape[1])])
    beta, *_ = np.linalg.lstsq(rows, np.append(y - y.mean(), np.zeros(x.shape[1])))
    now = np.array(features(z, len(z) - 1, step, day))
    return float(y.mean() + (now - centre) @ beta)


@pytest.mark.parametrize(("day", "n_bins", "horizon"), [(144, 576, 40), (24, 240, 75)])
def test_it_is_the_least_squares_solution(day: int, n_bins: int, horizon: int) -> None:
    rng = np.random.default_rng(1)
    waves = 2 + np.sin(2 * np.pi * np.arange(n_bins) / day)
    z = np.arcsinh(waves * rng.gamma(9, 1 / 9, (2, n_bins))).astype(np.float32)
    known = np.ones(z.shape, dtype=bool)
    for group in step_groups(horizon, day):
        fit = fit_steps(z, known, group, day, 86400 // day)
        now = np.array([n_bins - 1])
        shared = shared_features(z, now, day)[:, 0]
        origins = training_origins(n_bins, group, day)
        for j, step in enumerate(group.steps.tolist()):
            place = np.array([step - group.days_back * day])
            own = [windows_at(t, now, place)[:, 0, 0] - z[:, -1] for t in seasonal_tables(z, day)]
            made = fit.constant[:, j] + np.sum(fit.shared[:, j] * shared, axis=1)
            made = made + np.sum(fit.own[:, j] * np.stack(own, axis=-1), axis=1)
            wanted = [least_squares(row.astype(float), step, origins, day) for row in z]
            np.testing.assert_allclose(made, wanted, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("day", [144, 24, 4])
def test_nothing_is_seen_that_lies_after_the_origin(day: int) -> None:
    z = np.random.default_rng(0).random((1, 12 * day)).astype(np.float32)
    for group in step_groups(7 * day, day):
        origins = training_origins(z.shape[1], group, day)
        assert len(origins)
        assert (origins + group.steps[-1] < z.shape[1]).all()
        place = group.steps - group.days_back * day
        for t in origins[[0, -1]]:
            until = z[:, : t + 1]
            at = np.array([t])
            later = [windows_at(table, at, place) for table in seasonal_tables(z, day)]
            at_the_time = [windows_at(table, at, place) for table in seasonal_tables(until, day)]
            np.testing.assert_array_equal(later, at_the_time)
            np.testing.assert_allclose(
                shared_features(z, at, day), shared_features(until, at, day), rtol=1e-6
            )


@given(st.integers(2, 300), st.integers(1, 6))
def test_step_groups_cover_the_horizon_in_even_steps(horizon: int, hours: int) -> None:
    day = 24 * hours
    horizon = min(horizon, 7 * day)
    groups = step_groups(horizon, day)
    steps = np.concatenate([g.steps for g in groups])
    assert (np.diff(steps) > 0).all()
    assert steps[-1] >= horizon
    assert all(len(np.unique(np.diff(g.steps))) <= 1 for g in groups)
    np.testing.assert_array_equal(steps[:36], np.arange(1, len(steps[:36]) + 1))
    for g in groups:
        assert {days_back(int(step), day) for step in g.steps} == {g.days_back}


@given(st.integers(0, 10_000), st.floats(0, 0.4))
@settings(max_examples=30, deadline=None)
def test_error_quantiles_carry_their_weight(seed: int, missing: float) -> None:
    rng = np.random.default_rng(seed)
    n = 200
    errors = rng.normal(size=(40, 1, n)).astype(np.float32)
    errors[rng.random(errors.shape) < missing] = np.nan
    weights = decay_weights(6.0 * np.arange(n, dtype=np.float64)[::-1], 600)
    below = []
    for row, made in zip(errors[:, 0], _error_quantiles(errors.copy(), weights)[:, 0], strict=True):
        seen = np.isfinite(row)
        share = weights[seen] / weights[seen].sum()
        below.append([float(share[row[seen] <= q].sum()) for q in made])
    np.testing.assert_allclose(below, np.tile(GRID, (40, 1)), atol=0.08)
    np.testing.assert_allclose(np.mean(below, axis=0), GRID, atol=0.012)


@given(st.lists(st.floats(0, 1e12), min_size=30, max_size=60))
def test_compression_is_undone_below_its_cut(values: list[float]) -> None:
    row = np.array([values])
    level = level_scale(row, 6)
    assert (level > 0).all()
    back = expand(compress(row, level), level)
    np.testing.assert_allclose(back, np.minimum(row, 20 * level), rtol=1e-4, atol=1e-30)


def test_series_take_turns_and_each_is_then_as_if_fitted_cold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(direct_ridge, "MIN_REFIT", 2)
    values = demand(5, 4 * DAY + 4)
    turns, start = Ridge(), 4 * DAY
    turns.update(history(values[:, :start]))
    fitted = set()
    for i in range(3):
        end = start + i + 1
        repeated = 300 if i == 1 else 0  # a batch may repeat what is known
        first = end - 1 - repeated
        turns.update(history(values[:, first:end], first_bin=first))
        cold = Ridge()
        cold.update(history(values[:, :end]))
        same = np.all(turns.quantiles(36, LEVELS) == cold.quantiles(36, LEVELS), axis=(1, 2))
        due = {(2 * i) % 5, (2 * i + 1) % 5}
        assert set(np.nonzero(same)[0].tolist()) == due
        assert turns.provenance.fitted_until_seconds < turns.provenance.data_until_seconds or i == 2
        fitted |= due
    assert fitted == set(range(5))


def test_a_forecast_follows_now_even_where_coefficients_are_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(direct_ridge, "MIN_REFIT", 0)
    monkeypatch.setattr(direct_ridge, "REFIT_SECONDS", 10**9)
    values = demand(3, 5 * DAY)
    tier = Ridge()
    tier.update(history(values[:, :-1]))
    before = tier.quantiles(1, (0.5,))
    values[1:, -1] *= 1.5
    tier.update(history(values[:, -1:], first_bin=5 * DAY - 1))
    assert (tier.quantiles(1, (0.5,))[2] > before[2]).all()


def test_a_week_ahead_is_answered_in_coarse_steps() -> None:
    tier = Ridge()
    tier.update(history(demand(3, 10 * DAY)))
    week = tier.quantiles(7 * DAY, LEVELS)
    assert np.isfinite(week).all()
    np.testing.assert_array_equal(week[:, :36], tier.quantiles(36, LEVELS))
    daily = week[1:, :, 2].reshape(2, 7, DAY)
    assert (np.corrcoef(daily[0])[0, 1:] > 0.8).all()
