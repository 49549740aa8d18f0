"""What boosted trees see of a series at an origin, and the sample that they learn from.

One table of features per bin is made of each series (compressed values, see ``ridge_features``) and
read where a point of the sample lies. All levels are differences from the newest value, so that one
forest serves series of any height.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.series_source import DAY_SECONDS, Floats
from forecasting.tiers.past_errors import row_groups
from forecasting.tiers.records import Records
from forecasting.tiers.ridge_features import (
    compress,
    days_back,
    hour_steps,
    level_scale,
    seasonal_tables,
)

LAGS: Final = (1, 2, 3, 6)
ORIGIN_STRIDE: Final = 6
LEAST_DAYS: Final = 2
"""Days of history beside the horizon with which a series teaches and gets an answer."""

ROWS: Final = 60_000
"""Points of a sample. 100,000 cost twice the time for 0.3 % less loss (bins 0-1439, 82 clients)."""

MOST_EACH: Final = 5_000
"""Points of one series: ten days have 7,500 pairs of origin and step."""

MOST_WEIGHT: Final = 10.0
"""Times the least predictable series that a regular one may weigh."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Points to learn from.

    Attributes:
        features: Shape (n_points, n_features), float32.
        changes: What came, minus the newest value, in compressed units, shape (n_points,).
        weights: Shape (n_points,).
        n_series: Series that they come from: so much they can tell apart at most.
    """

    features: np.ndarray
    changes: np.ndarray
    weights: np.ndarray
    n_series: int


class BinTables:
    """Features of some series at any origin and step.

    Args:
        z: Compressed values, shape (n_series, n_bins).
        day_steps: Bins in a day.
        first_of_day: Place of the first bin in its (UTC) day.
    """

    def __init__(self, z: np.ndarray, day_steps: int, first_of_day: int) -> None:
        self._z = z
        self._day_steps = day_steps
        self._first_of_day = first_of_day
        self._sums = _running(z)
        self._seasonal = list(seasonal_tables(z, day_steps))
        self._levels, self._spreads = self._tables()

    def at(self, series: np.ndarray, origins: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Features of points, shape (n_points, n_features), float32; no bin after the origin."""
        newest = self._z[series, origins]
        day, hour = self._day_steps, hour_steps(self._day_steps)
        columns = [newest]
        for lag in LAGS:
            columns.append(self._z[series, np.maximum(origins - lag, 0)] - newest)
        columns += [table[series, origins] - newest for table in self._levels]
        columns += [table[series, origins] for table in self._spreads]
        back = np.array([days_back(int(k), day) for k in range(int(steps.max()) + 1)])[steps] * day
        place = origins + steps - back
        seasonal = [table[series, np.maximum(place, 0)] for table in self._seasonal]
        earlier = self._z[series, np.maximum(place - day, 0)]
        columns += [value - newest for value in (*seasonal, earlier)]
        yesterday = np.maximum(origins - day, 0)
        hour_now = self._mean(hour)[series, origins]
        hour_then = self._mean(hour)[series, yesterday]
        columns += [newest - self._z[series, yesterday], hour_now - hour_then]
        columns += [seasonal[0] - hour_then, steps.astype(np.float32)]
        angle = 2 * np.pi * ((self._first_of_day + origins + steps) % day) / day
        columns += [np.sin(angle), np.cos(angle)]
        return np.stack(columns, axis=-1).astype(np.float32)

    def _mean(self, width: int) -> np.ndarray:
        return _trailing_mean(self._sums, width)

    def _tables(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Tables that are compared with the newest value, and those that are not."""
        z, day = self._z, self._day_steps
        hour = hour_steps(day)
        quarter, three_days = max(1, day // 4), 3 * day
        levels = [
            self._mean(w) for w in (max(1, hour // 2), hour, 3 * hour, quarter, day, three_days)
        ]
        levels += [_trailing(np.maximum, z, w) for w in (hour, quarter, day, three_days)]
        levels += [_trailing(np.minimum, z, w) for w in (quarter, day)]
        squares = _running(z * z)
        spreads = []
        for width in (hour, quarter, day):
            mean = self._mean(width)
            spreads.append(np.sqrt(np.maximum(0, _trailing_mean(squares, width) - mean * mean)))
        changes = _running(np.abs(np.diff(z, axis=1, prepend=z[:, :1])))
        spreads += [_trailing_mean(changes, w) for w in (quarter, day)]
        idle = _running((z <= 0).astype(np.float32))
        spreads += [_trailing_mean(idle, w) for w in (quarter, day, three_days)]
        at = np.arange(z.shape[1], dtype=np.float32)
        busy = np.maximum.accumulate(np.where(z > 0, at, -1), axis=1)
        spreads.append((at - busy) / day)
        return levels, spreads


def _running(table: np.ndarray) -> np.ndarray:
    """Sums before each bin, shape (n_series, n_bins + 1)."""
    sums = np.zeros((len(table), table.shape[1] + 1))
    np.cumsum(table, axis=1, dtype=np.float64, out=sums[:, 1:])
    return sums


def _trailing_mean(sums: np.ndarray, width: int) -> np.ndarray:
    """Mean of the last ``width`` bins, of fewer at the start, shape (n_series, n_bins)."""
    end = np.arange(1, sums.shape[1])
    start = np.maximum(end - width, 0)
    result: np.ndarray = ((sums[:, end] - sums[:, start]) / (end - start)).astype(np.float32)
    return result


def _trailing(
    pick: Callable[[np.ndarray, np.ndarray], np.ndarray], table: np.ndarray, width: int
) -> np.ndarray:
    """Largest or smallest of the last ``width`` bins, by doubling windows."""
    at = np.arange(table.shape[1])
    result, span = table, 1
    while span < width:
        shift = min(span, width - span)
        result = pick(result, result[:, np.maximum(at - shift, 0)])
        span += shift
    return result


def bins_wanted(records: Records, horizon: int) -> int:
    """Bins of history with which a series takes part."""
    return LEAST_DAYS * records.day_steps + horizon


def group_tables(
    records: Records, rows: np.ndarray, bins: int
) -> tuple[BinTables, np.ndarray, Floats]:
    """Tables of rows over their newest bins, the compressed values and the levels."""
    values = records.filled[rows, -bins:]
    level = level_scale(values, records.day_steps)
    z = compress(values, level)
    first = records.until_seconds - bins * records.step_seconds
    first_of_day = first % DAY_SECONDS // records.step_seconds
    return BinTables(z, records.day_steps, first_of_day), z, level


def draw_sample(records: Records, horizon: int, seed: int, rows: int = ROWS) -> Sample | None:
    """Points of all series that are long enough; None if there are none.

    Origins and steps are drawn by seed. A series weighs by the root of its level over its mean
    change in a day: between equal relative errors, which favours erratic ones, and equal errors in
    units of seasonal naive's, which favours regular ones.
    """
    groups = list(row_groups(records, bins_wanted(records, horizon)))
    n_series = sum(len(group) for group, _ in groups)
    if not n_series:
        return None
    random = np.random.default_rng(seed)
    each = max(1, min(rows // n_series, MOST_EACH))
    parts = [_group_sample(records, group, bins, horizon, each, random) for group, bins in groups]
    features, changes, weights = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Sample(features, changes, weights, n_series)


def _group_sample(
    records: Records,
    rows: np.ndarray,
    bins: int,
    horizon: int,
    each: int,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, changes and weights of rows with equally long histories."""
    tables, z, level = group_tables(records, rows, bins)
    day = records.day_steps
    origins = np.arange(bins - 2, day - 1, -ORIGIN_STRIDE)
    series = np.repeat(np.arange(len(rows)), each)
    at = origins[random.integers(0, len(origins), len(series))]
    steps = random.integers(1, horizon + 1, len(series))
    inside = at + steps < bins
    known = records.known[rows, -bins:]
    inside[inside] = known[series[inside], (at + steps)[inside]]
    series, at, steps = series[inside], at[inside], steps[inside]
    values = records.filled[rows, -bins:]
    daily = np.mean(np.abs(values[:, day:] - values[:, :-day]), axis=1)
    weight = np.sqrt(level[:, 0] / np.maximum(daily, 1e-9 * level[:, 0]))
    weight = np.minimum(weight, MOST_WEIGHT)
    changes = z[series, at + steps] - z[series, at]
    return tables.at(series, at, steps), changes, weight[series].astype(np.float32)
