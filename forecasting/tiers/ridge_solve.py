"""The ridge's small regressions of many series and steps, solved by blocks, and their past errors.

Steps share most features, so the shared block is factored once a series; what is left for each step
is a system of ``OWN`` unknowns (Schur complement). Everything large is in single precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.residuals import countable, decay_weights, spread_over_steps
from forecasting.series_source import Floats
from forecasting.tiers.level_grid import GRID_LEVELS
from forecasting.tiers.past_errors import ORIGIN_STRIDE
from forecasting.tiers.ridge_features import (
    OWN,
    SHARED,
    StepGroup,
    hour_steps,
    seasonal_tables,
    shared_features,
    windows_at,
)

LAMBDA: Final = 0.2
"""Ridge penalty in units of origins times the series' variance; the constant is not penalised.
Losses on bins 0-1439 are flat from 0.1 to 0.3."""


@dataclass(frozen=True, slots=True)
class StepFit:
    """Coefficients and error quantiles of one group of steps, in compressed units, float32.

    Attributes:
        constant: Shape (n_series, n_steps).
        shared: Shape (n_series, n_steps, SHARED).
        own: Shape (n_series, n_steps, OWN).
        errors: Quantiles of past errors on the grid of levels, (n_series, n_steps, n_grid).
    """

    constant: np.ndarray
    shared: np.ndarray
    own: np.ndarray
    errors: np.ndarray


def training_origins(n_bins: int, group: StepGroup, day_steps: int) -> np.ndarray:
    """Origins whose windows are over and that have all features, oldest first."""
    first = _first_origin(group, day_steps)
    return np.arange(n_bins - 1 - int(group.steps[-1]), first - 1, -ORIGIN_STRIDE)[::-1]


def least_bins(group: StepGroup, day_steps: int, n_origins: int) -> int:
    """Bins that give so many training origins."""
    reach = int(group.steps[-1]) + (n_origins - 1) * ORIGIN_STRIDE
    return _first_origin(group, day_steps) + reach + 1


def _first_origin(group: StepGroup, day_steps: int) -> int:
    """The first bin with all features before it."""
    first = max(day_steps + hour_steps(day_steps) - 1, 1)
    # A step that looks back further than its distance needs those bins before its origin.
    return max(first, group.days_back * day_steps - int(group.steps[0]))


def fit_steps(
    z: np.ndarray, known: np.ndarray, group: StepGroup, day_steps: int, step_seconds: int
) -> StepFit:
    """Regressions of some series for one group of steps.

    Args:
        z: Compressed values, shape (n_series, n_bins).
        known: Where they were observed; other targets do not count as errors. Same shape.
        group: Steps ahead.
        day_steps: Bins in a day.
        step_seconds: Width of a bin.
    """
    origins = training_origins(z.shape[1], group, day_steps)
    newest = z[:, None, origins]
    shared = shared_features(z, origins, day_steps)
    back = group.steps - group.days_back * day_steps
    own = [windows_at(t, origins, back) - newest for t in seasonal_tables(z, day_steps)]
    change = windows_at(z, origins, group.steps) - newest
    shared_mean = shared.mean(axis=1, keepdims=True)
    own_mean = [o.mean(axis=2, keepdims=True) for o in own]
    change_mean = change.mean(axis=2, keepdims=True)
    shared -= shared_mean
    for table, mean in zip(own, own_mean, strict=True):
        table -= mean
    change -= change_mean
    variance = np.maximum(np.var(newest[:, 0], axis=1, dtype=np.float64), 1e-9)
    penalty = LAMBDA * len(origins) * variance
    shared_beta, own_beta = _solve(shared, own, change, penalty)
    constant = change_mean[:, :, 0] - (shared_beta @ shared_mean[:, 0, :, None])[..., 0]
    for j in range(OWN):
        constant -= own_beta[..., j] * own_mean[j][..., 0]
    fitted = _fitted(shared, own, shared_beta, own_beta)
    fitted += change_mean
    fitted += newest
    np.clip(fitted, 0.0, np.max(z, axis=1)[:, None, None], out=fitted)
    change += change_mean
    change += newest
    change -= fitted
    change *= _widening(len(origins), group.steps)[:, None]
    ages = (z.shape[1] - 1 - origins).astype(np.float64)
    weights = decay_weights(ages, step_seconds)
    if known.all():
        errors = _error_quantiles(change, weights)
    else:
        counted = countable(windows_at(known, origins, group.steps))
        change[~counted] = np.nan
        errors = _error_quantiles(change, weights)
        spread_over_steps(errors, counted)
    return StepFit(constant, shared_beta, own_beta, errors)


def _solve(
    shared: np.ndarray, own: list[np.ndarray], change: np.ndarray, penalty: Floats
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of centred features; shapes (s, k, SHARED) and (s, k, OWN)."""
    n_series, n_steps, _ = change.shape
    block = (shared.transpose(0, 2, 1) @ shared).astype(np.float64)
    block += penalty[:, None, None] * np.eye(SHARED)
    columns = [table @ shared for table in (*own, change)]
    right = np.concatenate(columns, axis=1).transpose(0, 2, 1).astype(np.float64)
    solved = np.linalg.solve(block, right).transpose(0, 2, 1)
    solved = solved.reshape(n_series, OWN + 1, n_steps, SHARED)
    system = np.empty((n_series, n_steps, OWN, OWN + 1))
    tables = [*own, change]
    for i in range(OWN):
        for j in range(i, OWN + 1):
            inner = np.einsum("sko,sko->sk", own[i], tables[j])
            system[:, :, i, j] = inner - np.einsum("skf,skf->sk", columns[i], solved[:, j])
            if i < j < OWN:
                system[:, :, j, i] = system[:, :, i, j]
        system[:, :, i, i] += penalty[:, None]
    own_beta = np.linalg.solve(system[..., :OWN], system[..., OWN:])[..., 0]
    shared_beta = solved[:, OWN] - np.einsum("skj,sjkf->skf", own_beta, solved[:, :OWN])
    return shared_beta.astype(np.float32), own_beta.astype(np.float32)


def _fitted(
    shared: np.ndarray, own: list[np.ndarray], shared_beta: np.ndarray, own_beta: np.ndarray
) -> np.ndarray:
    """Forecast of each step at each origin, shape (n_series, n_steps, n_origins)."""
    result: np.ndarray = shared_beta @ shared.transpose(0, 2, 1)
    for j in range(OWN):
        result += own_beta[..., j, None] * own[j]
    return result


def _widening(n_origins: int, steps: np.ndarray) -> np.ndarray:
    """How much larger errors are on new data than on the data of the fit, shape (n_steps,).

    Errors k steps ahead of origins closer than k overlap, so the number of independent ones is
    the number of origins times stride / k; the coefficients take their share of those.
    """
    independent = n_origins * np.minimum(1.0, ORIGIN_STRIDE / steps)
    left = np.maximum(independent - SHARED - OWN - 1, independent / 2)
    result: np.ndarray = np.sqrt(independent / left).astype(np.float32)
    return result


def _error_quantiles(errors: np.ndarray, weights: Floats) -> np.ndarray:
    """Weighted quantiles on the grid of levels, shape (n_series, n_steps, n_grid).

    Origins are drawn in proportion to their weights (systematically, twice as many as there are),
    and equal weights then need a plain sort: six times as fast as sorting weights along.

    Args:
        errors: Shape (n_series, n_steps, n_origins), NaN where nothing was observed.
        weights: Shape (n_origins,), sum 1.
    """
    n = 2 * len(weights)
    places = (np.arange(n) + 0.5) / n
    drawn = np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)
    ranked = errors[..., drawn]
    ranked.sort(axis=-1)
    if not np.isnan(ranked[..., -1]).any():
        rank = np.ceil(GRID_LEVELS * n - 1e-9).astype(np.intp) - 1
        whole: np.ndarray = ranked[..., rank]
        return whole
    counts = np.sum(np.isfinite(ranked), axis=-1, keepdims=True)
    rank = np.ceil(GRID_LEVELS * counts - 1e-9).astype(np.intp) - 1
    result: np.ndarray = np.take_along_axis(ranked, np.maximum(rank, 0), axis=-1)
    result[np.isnan(result)] = 0.0
    return result
