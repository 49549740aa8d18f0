"""History in, quantiles out: picks the forecaster that the history can carry and checks its answer.

history ─ clean ─┬─ 2 days + horizon ─► ridge or last value, as the replay chose ─┐
                 ├─ 1 day ────────────► last-day maximum + what it lacked before ─┼─► Forecast
                 └─ less ─────────────► the limit ─────────────────── clip, sort, flag
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from forecasting.clean_history import Cleaned, clean
from forecasting.fallback import ASSUMED_OFFSET, fit_last_day_maximum
from forecasting.peaks import peak_quantiles
from forecasting.persistence import fit_last_value
from forecasting.residuals import PathFit, point_quantiles
from forecasting.ridge import fit_ridge, level_scale, min_bins
from forecasting.series_source import Floats, History, SeriesId
from wattpack.errors import InputError

Method = Literal["ridge", "last-value", "last-24h-max", "limit"]
FALLBACKS: Final[tuple[Method, ...]] = ("last-24h-max", "limit")
"""Methods that a status calls a fallback."""

CHUNK_SERIES: Final = 200
"""Series solved together: about 100 MB of features at 36 steps and 200 origins."""

EXTREME: Final = 20.0
"""Multiples of the highest value ever seen at which a forecast is cut and flagged."""

DAY_SECONDS: Final = 86400


@dataclass(frozen=True, slots=True)
class Forecast:
    """Quantiles of several series over one window.

    Attributes:
        series: Names, in the order of the first axis.
        data_until_seconds: End of the newest bin used, Unix time: the window starts here.
        step_seconds: Width of a step.
        levels: Quantile levels, ascending.
        quantiles: Each step, shape (n_series, horizon, n_levels): finite, >= 0, sorted.
        peaks: Highest value of the window, shape (n_series, n_levels).
        now: Newest observed value, shape (n_series,); NaN if there is none.
        scale: What misses are measured by, positive, shape (n_series,).
        methods: What made each row.
        flags: What a user should know about each row, for example ``stale`` or ``gaps``.
        tops: What no answer may exceed, calibrated ones included, shape (n_series,).
        observed_until_seconds: End of the newest observed bin, Unix time, shape (n_series,); the
            start of the history where nothing was observed.
    """

    series: tuple[SeriesId, ...]
    data_until_seconds: int
    step_seconds: int
    levels: tuple[float, ...]
    quantiles: Floats
    peaks: Floats
    now: Floats
    scale: Floats
    methods: tuple[Method, ...]
    flags: tuple[tuple[str, ...], ...]
    tops: Floats
    observed_until_seconds: Floats


def forecast(
    history: History,
    *,
    horizon: int,
    levels: Sequence[float],
    ceilings: Floats | None = None,
    prefer: Mapping[SeriesId, Method] | None = None,
) -> Forecast:
    """Quantiles of the next ``horizon`` steps.

    Args:
        history: What was observed.
        horizon: Steps ahead.
        levels: In (0, 1), ascending.
        ceilings: What each series cannot exceed (sum of caps), shape (n_series,); NaN for none.
        prefer: A method per series, used where the history allows it.

    Raises:
        InputError: for levels out of order, a horizon below 1.
    """
    chosen = _checked_levels(levels)
    series, step_seconds = history.series, history.step_seconds
    values = np.asarray(history.values, dtype=np.float64)
    if horizon < 1:
        raise InputError("horizon", "at least one step", horizon)
    day_steps = max(1, DAY_SECONDS // step_seconds)
    limits = np.full(len(series), np.nan) if ceilings is None else np.asarray(ceilings, float)
    cleaned = clean(values, day_steps)
    wishes = [(prefer or {}).get(name) for name in series]
    wanted = [_method(cleaned, i, horizon, day_steps, wish) for i, wish in enumerate(wishes)]
    answer = _solve_groups(cleaned, wanted, limits, horizon, step_seconds, chosen)
    quantiles, peaks, methods, flags = answer
    tops = _tops(cleaned, limits)
    _bound(quantiles, peaks, tops, cleaned.highest * EXTREME, flags)
    return Forecast(
        series=tuple(series),
        data_until_seconds=history.until_seconds,
        step_seconds=step_seconds,
        levels=tuple(float(level) for level in chosen),
        quantiles=quantiles,
        peaks=peaks,
        now=cleaned.newest,
        scale=_miss_scale(cleaned, peaks, day_steps),
        methods=tuple(methods),
        flags=tuple(flags),
        tops=tops,
        observed_until_seconds=history.until_seconds - cleaned.bins_since * float(step_seconds),
    )


def _solve_groups(
    cleaned: Cleaned,
    wanted: Sequence[Method],
    limits: Floats,
    horizon: int,
    step_seconds: int,
    levels: Floats,
) -> tuple[Floats, Floats, list[Method], list[tuple[str, ...]]]:
    """Step quantiles, peak quantiles, methods and flags of all rows, not yet bounded."""
    day_steps = max(1, DAY_SECONDS // step_seconds)
    quantiles = np.zeros((len(wanted), horizon, len(levels)))
    peaks = np.zeros((len(wanted), len(levels)))
    methods = list(wanted)
    flags = [tuple(row) for row in cleaned.flags]
    for (method, days), rows in _groups(wanted, cleaned, day_steps).items():
        for part in np.array_split(rows, max(1, -(-len(rows) // CHUNK_SERIES))):
            fitted, used = _fit(method, cleaned, part, days * day_steps, horizon, step_seconds)
            if fitted is None:
                quantiles[part], peaks[part] = _without_errors(cleaned, part, used, limits, horizon)
            else:
                quantiles[part] = point_quantiles(fitted, levels)
                peaks[part] = peak_quantiles(fitted, levels)
            for i in part:
                methods[i] = used
                if fitted is None:
                    flags[i] += ("no-history",) if used == "limit" else ("uncalibrated",)
    return quantiles, peaks, methods, flags


def _checked_levels(levels: Sequence[float]) -> Floats:
    """Ascending levels in (0, 1)."""
    chosen = np.asarray(levels, dtype=np.float64)
    inside = chosen.ndim == 1 and len(chosen) > 0 and bool(np.all((chosen > 0) & (chosen < 1)))
    if not inside or np.any(np.diff(chosen) <= 0):
        raise InputError("levels", "ascending numbers between 0 and 1", levels)
    return chosen


def _method(cleaned: Cleaned, i: int, horizon: int, day_steps: int, wish: Method | None) -> Method:
    """The best method that the row's history can carry, or the wished one if it can."""
    length = int(cleaned.length[i])
    if length < day_steps:
        return "limit"
    can_ridge = length >= min_bins(horizon, day_steps) and horizon <= day_steps
    if can_ridge and cleaned.last_day_known[i] >= 0.5 and wish != "last-24h-max":
        return "last-value" if wish == "last-value" else "ridge"
    return "last-24h-max"


def _groups(
    wanted: Sequence[Method], cleaned: Cleaned, day_steps: int
) -> dict[tuple[Method, int], np.ndarray]:
    """Rows that can be solved together: one method, one whole number of days of history."""
    groups: dict[tuple[Method, int], list[int]] = {}
    for i, method in enumerate(wanted):
        days = int(cleaned.length[i]) // day_steps
        groups.setdefault((method, days), []).append(i)
    return {key: np.array(rows, dtype=np.intp) for key, rows in groups.items()}


def _fit(
    method: Method, cleaned: Cleaned, rows: np.ndarray, bins: int, horizon: int, step_seconds: int
) -> tuple[PathFit | None, Method]:
    """The fitted paths of some rows; None if only a bound can be given."""
    if method == "limit":
        return None, "limit"
    values = cleaned.filled[rows, -bins:]
    known = cleaned.known[rows, -bins:]
    day_steps = DAY_SECONDS // step_seconds
    if method == "ridge" and bins >= min_bins(horizon, day_steps):
        return fit_ridge(values, horizon, step_seconds, day_steps, known=known), "ridge"
    if method == "last-value":
        return fit_last_value(values, horizon, step_seconds, known=known), "last-value"
    fitted = fit_last_day_maximum(values, horizon, step_seconds, day_steps, known=known)
    return fitted, "last-24h-max"


def _without_errors(
    cleaned: Cleaned, rows: np.ndarray, method: Method, limits: Floats, horizon: int
) -> tuple[Floats, Floats]:
    """With too little history: the limit if there is one, else the maximum plus a fixed share."""
    bound = cleaned.highest[rows] * (1 + ASSUMED_OFFSET)
    if method == "limit":
        bound = np.where(np.isfinite(limits[rows]), limits[rows], bound)
    return np.repeat(bound[:, None, None], horizon, axis=1), bound[:, None]


def _tops(cleaned: Cleaned, limits: Floats) -> Floats:
    """The ceiling or 20 times the record, whichever is lower; 0 with neither, (n_series,)."""
    record = np.where(cleaned.length == 0, np.inf, cleaned.highest * EXTREME)
    lowest = np.fmin(record, np.where(np.isfinite(limits), limits, np.inf))
    result: Floats = np.where(np.isfinite(lowest), lowest, 0.0)
    return result


def _bound(
    quantiles: Floats, peaks: Floats, tops: Floats, record: Floats, flags: list[tuple[str, ...]]
) -> None:
    """Cut at zero and at the top, and keep levels sorted; in place."""
    for i in np.nonzero(peaks[:, -1] > record)[0]:
        flags[i] += ("extreme",)
    np.clip(quantiles, 0.0, tops[:, None, None], out=quantiles)
    np.maximum.accumulate(quantiles, axis=2, out=quantiles)
    np.maximum(peaks, np.max(quantiles, axis=1), out=peaks)
    np.clip(peaks, 0.0, tops[:, None], out=peaks)
    np.maximum.accumulate(peaks, axis=1, out=peaks)


def _miss_scale(cleaned: Cleaned, peaks: Floats, day_steps: int) -> Floats:
    """What a miss is measured by: the level, the promised peak, or a quarter of the record.

    The level alone is tiny for a client that idles; its misses would then inflate every other
    promise of the pool.
    """
    level = level_scale(cleaned.filled, day_steps)[:, 0]
    result: Floats = np.maximum(level, np.maximum(peaks[:, -1], 0.25 * cleaned.highest))
    return result


def level_index(levels: Sequence[float], level: float) -> int:
    """Position of a level.

    Raises:
        InputError: if it was not forecast.
    """
    for i, known in enumerate(levels):
        if abs(known - level) < 1e-9:
            return i
    raise InputError("level", f"one of {tuple(levels)}", level)
