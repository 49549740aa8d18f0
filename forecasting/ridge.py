"""Direct ridge regression, one small problem per series and step ahead, solved in batches.

What is regressed is the change since the newest value, so that a strong penalty falls back to
"nothing changes" and not to zero. Features of an origin t for the step k: 1, y[t], y[t-1], means
of the last hour, six hours and day, the value one day before t+k, and the mean of the values one,
two and three days before t+k.
Series are divided by their recent level; the level is floored by the long-run level and values
are clipped at 20 times it, since a client that idles for days would otherwise blow both up.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from forecasting.residuals import RESIDUAL_DTYPE, PathFit, decay_weights
from forecasting.series_source import Floats

LAMBDA: Final = 0.1
"""Ridge penalty in units of origins times the series' variance; the constant is not penalised.
Quantile loss on 21 of the shipped series is flat from 0.05 to 0.4 (measured);
a lower penalty follows a regular day more closely."""

CLIP: Final = 20.0
SHARED: Final = 6
OWN: Final = 2
SEASONAL_DAYS: Final = 3


def level_scale(values: Floats, day_steps: int) -> Floats:
    """The level that a series is divided by, always positive, shape (n_series, 1).

    Args:
        values: Shape (n_series, n_bins), no NaN.
        day_steps: Bins in a day.
    """
    recent = np.mean(np.abs(values[:, -3 * day_steps :]), axis=1, keepdims=True)
    whole = np.mean(np.abs(values), axis=1, keepdims=True)
    peak = np.max(np.abs(values), axis=1, keepdims=True)
    scale = np.maximum(np.maximum(recent, 0.2 * whole), peak / (10 * CLIP))
    result: Floats = np.where(scale > 0, scale, 1.0)
    return result


def min_bins(horizon: int, day_steps: int) -> int:
    """Shortest history that gives the ridge at least a day of training origins."""
    return 2 * day_steps + horizon


def fit_ridge(
    values: Floats,
    horizon: int,
    step_seconds: int,
    day_steps: int,
    origin_stride: int = 6,
    known: np.ndarray | None = None,
) -> PathFit:
    """Point paths and past errors of every series.

    Args:
        values: Filled history, shape (n_series, n_bins), no NaN.
        horizon: Steps ahead; at most a day.
        step_seconds: Width of a bin.
        day_steps: Bins in a day.
        origin_stride: Every how many bins a training origin is taken.
        known: Where ``values`` was observed; other targets do not count as errors.
    """
    n_bins = values.shape[1]
    scale = level_scale(values, day_steps)
    y = np.clip(values / scale, -CLIP, CLIP)
    origins = np.arange(n_bins - 1 - horizon, day_steps - 1, -origin_stride)[::-1]
    ahead = np.arange(1, horizon + 1)
    shared = _shared_features(y, np.append(origins, n_bins - 1), day_steps)
    own = _own_features(y, np.append(origins, n_bins - 1), ahead, day_steps)
    target_at = origins[None, :] + ahead[:, None]
    targets = y[:, target_at]
    newest = shared[:, None, :, 1]
    shared_beta, own_beta = _solve(shared[:, :-1], own[:, :, :-1], targets - newest[:, :, :-1])
    fitted = newest + _predict(shared, own, shared_beta, own_beta)
    widen = _lost_freedom(len(origins), ahead, origin_stride)
    residuals = (targets - fitted[:, :, :-1]) * (scale[:, :, None] * widen[:, None])
    weights = decay_weights((n_bins - 1 - origins).astype(np.float64), step_seconds)
    return PathFit(
        mean=fitted[:, :, -1] * scale,
        residuals=residuals.astype(RESIDUAL_DTYPE),
        weights=weights,
        known=None if known is None or known.all() else known[:, target_at],
    )


def _lost_freedom(n_origins: int, ahead: np.ndarray, origin_stride: int) -> Floats:
    """How much larger errors are on new data than on the data of the fit, shape (horizon,).

    Errors k steps ahead of origins closer than k overlap, so the number of independent ones is
    the number of origins times stride / k; the coefficients take their share of those.
    """
    independent = n_origins * np.minimum(1.0, origin_stride / ahead)
    left = np.maximum(independent - SHARED - OWN, independent / 2)
    result: Floats = np.sqrt(independent / left)
    return result


def _shared_features(y: Floats, origins: np.ndarray, day_steps: int) -> Floats:
    """Features that all steps share, shape (n_series, n_origins, SHARED)."""
    total = np.concatenate([np.zeros((len(y), 1)), np.cumsum(y, axis=1)], axis=1)
    columns = [np.ones((len(y), len(origins))), y[:, origins], y[:, origins - 1]]
    for width in (max(1, day_steps // 24), max(1, day_steps // 4), day_steps):
        columns.append((total[:, origins + 1] - total[:, origins + 1 - width]) / width)
    return np.stack(columns, axis=-1)


def _own_features(y: Floats, origins: np.ndarray, ahead: np.ndarray, day_steps: int) -> Floats:
    """Features of one step, shape (n_series, horizon, n_origins, OWN)."""
    place = origins[None, :] + ahead[:, None] - day_steps
    yesterday = y[:, place]
    total, count = yesterday.copy(), np.ones(place.shape)
    for day in range(1, SEASONAL_DAYS):
        earlier = place - day * day_steps
        there = earlier >= 0
        total += np.where(there, y[:, np.maximum(earlier, 0)], 0.0)
        count += there
    return np.stack([yesterday, total / count], axis=-1)


def _solve(shared: Floats, own: Floats, targets: Floats) -> tuple[Floats, Floats]:
    """Coefficients by block normal equations; shapes (s, h, SHARED) and (s, h, OWN)."""
    n_series, horizon, n_origins, _ = own.shape
    size = SHARED + OWN
    gram = np.empty((n_series, horizon, size, size))
    shared_t = shared.transpose(0, 2, 1)
    gram[:, :, :SHARED, :SHARED] = (shared_t @ shared)[:, None]
    cross = shared_t[:, None] @ own
    gram[:, :, :SHARED, SHARED:] = cross
    gram[:, :, SHARED:, :SHARED] = cross.transpose(0, 1, 3, 2)
    gram[:, :, SHARED:, SHARED:] = own.transpose(0, 1, 3, 2) @ own
    # In units of the series' own variance: a regular day on a high base is signal, not noise.
    spread = np.maximum(np.var(shared[:, :, 1], axis=1), 1e-9)
    penalty = np.where(np.arange(size) > 0, LAMBDA * spread[:, None], 1e-9) * n_origins
    gram += (penalty[:, :, None] * np.eye(size))[:, None]
    right = np.empty((n_series, horizon, size, 1))
    right[:, :, :SHARED, 0] = (shared_t @ targets.transpose(0, 2, 1)).transpose(0, 2, 1)
    right[:, :, SHARED:] = own.transpose(0, 1, 3, 2) @ targets[..., None]
    beta: Floats = np.linalg.solve(gram, right)[..., 0].astype(np.float64, copy=False)
    return beta[..., :SHARED], beta[..., SHARED:]


def _predict(shared: Floats, own: Floats, shared_beta: Floats, own_beta: Floats) -> Floats:
    """Forecast of each step at each origin, shape (n_series, horizon, n_origins)."""
    result = (shared @ shared_beta.transpose(0, 2, 1)).transpose(0, 2, 1)
    result = result + (own @ own_beta[..., None])[..., 0]
    return result
