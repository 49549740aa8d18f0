"""Replicas by the price of a violation, of quantiles instead of paths, for many moments at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forecasting.series_source import Floats
from wattpack.errors import InputError
from wattpack.units import require_number

CHUNK = 512
"""Moments solved together: a table of 500 replicas then is 2 MB."""


def priced_replicas(
    quantiles: Floats,
    levels: Sequence[float],
    replica_rate: float,
    violation_prices: Sequence[float],
    least: int = 1,
) -> npt.NDArray[np.int64]:
    """The number with the least ``replicas + price * P(needed rate > replicas * replica_rate)``.

    Between the levels the logarithm of the tail is a straight line; above the highest it falls on
    as between the last three, below the lowest all is counted as short.

    Args:
        quantiles: Of the needed rate, shape (n, n_levels), never falling over levels.
        levels: Rising, within (0, 1).
        replica_rate: What one replica serves.
        violation_prices: Replica steps that a violated step is worth, one answer each.
        least: Replicas that always run.

    Returns:
        Shape (n, n_prices).

    Raises:
        InputError: naming what is out of its range.
    """
    known = np.asarray(levels, dtype=np.float64)
    values = np.asarray(quantiles, dtype=np.float64)
    rising = len(known) >= 3 and known[0] > 0 and known[-1] < 1 and np.all(np.diff(known) > 0)
    if not rising or values.ndim != 2 or values.shape[1] != len(known):
        raise InputError("levels", "at least three rising ones, one a quantile", tuple(levels))
    require_number("replicaRate", replica_rate, exclusive_minimum=0)
    prices = [require_number("violationPrice", price, minimum=0) for price in violation_prices]
    needs = values / replica_rate
    # So far beyond the last quantile hardly any price pays for one more.
    most = int(np.ceil(min(needs.max(initial=0.0), 1e6))) + 1 + least
    found = [
        _cheapest(part, np.log1p(-known), np.arange(least, most + 65), prices)
        for part in np.array_split(needs, max(1, -(-len(needs) // CHUNK)))
    ]
    return np.concatenate(found)


def risked_replicas(
    quantiles: Floats, levels: Sequence[float], replica_rate: float, risk: float, least: int = 1
) -> npt.NDArray[np.int64]:
    """The least number that is short with a probability of at most ``risk``, shape (n,)."""
    kept = require_number("risk", risk, exclusive_minimum=0, maximum=1)
    values = np.asarray(quantiles, dtype=np.float64) / replica_rate
    tails = np.log1p(-np.asarray(levels, dtype=np.float64))
    most = int(np.ceil(min(values.max(initial=0.0), 1e6))) + 1 + least
    numbers = np.arange(least, most + 65)
    parts = np.array_split(values, max(1, -(-len(values) // CHUNK)))
    short = np.concatenate([_short_shares(part, tails, numbers) for part in parts])
    enough = np.where((short <= kept).any(axis=1), (short <= kept).argmax(axis=1), len(numbers) - 1)
    found: npt.NDArray[np.int64] = numbers[enough]
    return found


def short_share(
    quantiles: Floats, levels: Sequence[float], replica_rate: float, replicas: int
) -> float:
    """Probability that so many are fewer than are needed, by quantiles of shape (n_levels,)."""
    tails = np.log1p(-np.asarray(levels, dtype=np.float64))
    needs = np.asarray(quantiles, dtype=np.float64)[None] / replica_rate
    return float(_short_shares(needs, tails, np.array([replicas]))[0, 0])


def _cheapest(
    needs: Floats, tails: Floats, replicas: npt.NDArray[np.int64], prices: Sequence[float]
) -> npt.NDArray[np.int64]:
    """Of one part."""
    short = _short_shares(needs, tails, replicas)
    best = [np.argmin(replicas + price * short, axis=1) for price in prices]
    cheapest: npt.NDArray[np.int64] = replicas[np.stack(best, axis=1)]
    return cheapest


def _short_shares(needs: Floats, tails: Floats, replicas: npt.NDArray[np.int64]) -> Floats:
    """Of each moment and number; ``tails`` are the logarithms of what lies above each level."""
    # Equal quantiles would have no slope between them.
    apart = needs + 1e-9 * np.arange(needs.shape[1])
    place = (apart[:, None, :] < replicas[None, :, None]).sum(axis=2)
    left = np.clip(place - 1, 0, needs.shape[1] - 2)
    x0, x1 = (np.take_along_axis(apart, left + k, axis=1) for k in (0, 1))
    inside = tails[left] + (tails[left + 1] - tails[left]) * (replicas - x0) / (x1 - x0)
    slope = (tails[-1] - tails[-3]) / np.maximum(apart[:, -1:] - apart[:, -3:-2], 0.5)
    beyond = tails[-1] + slope * (replicas - apart[:, -1:])
    tail = np.where(place == needs.shape[1], beyond, np.where(place == 0, 0.0, inside))
    shares: Floats = np.exp(np.minimum(tail, 0.0))
    return shares
