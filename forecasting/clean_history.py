"""Making a history usable: gaps filled, nonsense removed, and all of it written down as flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.series_source import Floats

MAX_GAP_SHARE: Final = 0.05
STALE_BINS: Final = 3

LARGEST: Final = 1e15
"""Above any demand in watts, tokens or requests; larger numbers overflow what is fitted."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A history without NaN.

    Attributes:
        filled: Gaps interpolated, ends held, shape (n_series, n_bins); 0 before the first value.
        known: Where a usable value was observed, same shape.
        length: Bins since the first observation, shape (n_series,).
        newest: Last observed value, NaN if none, shape (n_series,).
        highest: Highest observed value, 0 if none, shape (n_series,).
        last_day_known: Share of the last day's bins that were observed, shape (n_series,).
        bins_since: Bins after the newest observed one; all of them without any, (n_series,).
        flags: Per series: ``gaps``, ``stale``, ``negative``, ``not-finite``, ``too-large``.
    """

    filled: Floats
    known: np.ndarray
    length: np.ndarray
    newest: Floats
    highest: Floats
    last_day_known: Floats
    bins_since: np.ndarray
    flags: list[list[str]]


def observed(values: Floats) -> np.ndarray:
    """Where a history holds a usable value, same shape."""
    known: np.ndarray = np.isfinite(values) & (values >= 0) & (values <= LARGEST)
    return known


def clean(values: Floats, day_steps: int) -> Cleaned:
    """The history with every gap filled; nothing is invented silently.

    Demand and power are never negative: negative, infinite and absurdly large values (counter
    resets, meters that lie) count as gaps and set a flag.

    Args:
        values: Shape (n_series, n_bins); NaN marks a gap.
        day_steps: Bins in a day.
    """
    n_series, n_bins = values.shape
    known = observed(values)
    large: np.ndarray = np.any(np.isfinite(values) & (values > LARGEST), axis=1)
    negative: np.ndarray = np.any(np.isfinite(values) & (values < 0), axis=1)
    infinite: np.ndarray = np.any(np.isinf(values), axis=1)
    any_known: np.ndarray = np.any(known, axis=1)
    first = np.where(any_known, known.argmax(axis=1), n_bins)
    last = np.where(any_known, n_bins - 1 - known[:, ::-1].argmax(axis=1), -1)
    filled: Floats = np.where(known, values, 0.0)
    places = np.arange(n_bins)
    for i in np.nonzero(any_known & ~known.all(axis=1))[0].tolist():
        inside = places[first[i] :]
        filled[i, first[i] :] = np.interp(inside, places[known[i]], values[i, known[i]])
    length = n_bins - first
    gap_share = 1 - known.sum(axis=1) / np.maximum(1, length)
    flags: list[list[str]] = []
    for i in range(n_series):
        row = []
        if any_known[i] and gap_share[i] > MAX_GAP_SHARE:
            row.append("gaps")
        if any_known[i] and n_bins - 1 - last[i] >= STALE_BINS:
            row.append("stale")
        if negative[i]:
            row.append("negative")
        if infinite[i]:
            row.append("not-finite")
        if large[i]:
            row.append("too-large")
        flags.append(row)
    rows = np.arange(n_series)
    return Cleaned(
        filled=filled,
        known=known,
        length=length,
        newest=np.where(any_known, filled[rows, np.maximum(last, 0)], np.nan),
        highest=np.max(filled, axis=1),
        last_day_known=known[:, -day_steps:].mean(axis=1),
        bins_since=n_bins - 1 - last,
        flags=flags,
    )
