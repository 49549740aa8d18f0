"""Making a history usable: gaps filled, nonsense removed, and all of it written down as flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.series_source import Floats

Bools = NDArray[np.bool_]
Integers = NDArray[np.intp]

MAX_GAP_SHARE: Final = 0.05
STALE_BINS: Final = 3

LARGEST: Final = 1e15
"""Above any demand in watts, tokens or requests; larger numbers overflow what is fitted."""

LONG_GAP_SHARE: Final = 1 / 24
"""Of a day: beyond an hour a straight line says nothing, the hour of day still does. Assumed."""

USABLE_SHARE: Final = 1 / 8
"""Of a stretch that has to be observed to count as history: hourly readings on a grid of ten
minutes (one in six) do, one reading of last week and two hours of today do not. Assumed."""

SPIKE_RATIO: Final = 20.0
"""Times everything else in the history, where a single bin is not believed: as far as a forecast
may go beyond the record at all. Of 221 real series (bins 0-1439 of the forecasting sets) one has
such a bin; a new record of that size came 24 times in nine days, and the next bin confirmed 18."""

STEP_RATIO: Final = 1.1
"""Times everything before, for an hour and more: a new level, not a longer peak. Assumed."""

IDLE_SHARE: Final = 0.01
"""Of the last day's highest value, below which all earlier history was idleness. Assumed."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A history without NaN.

    Attributes:
        filled: Gaps up to an hour interpolated, longer ones taken from the same time of other days,
            ends held, shape (n_series, n_bins); 0 before the first value.
        known: Where a usable value was observed, same shape.
        length: Bins of the longest stretch up to the end of which at least an eighth was observed,
            beginning at an observed one, shape (n_series,).
        newest: Last observed value, NaN if none, a disbelieved spike included, shape (n_series,).
        highest: Highest observed value, 0 if none, shape (n_series,).
        last_day_known: Share of the last day's bins that were observed, shape (n_series,).
        bins_since: Bins after the newest observed one; all of them without any, (n_series,).
        step_bins: Newest bins that all lie above everything before them; 0 for none, (n_series,).
        flags: Per series: ``gaps``, ``stale``, ``negative``, ``not-finite``, ``too-large``,
            ``spike``, ``burst``, ``step``, ``counter``.
    """

    filled: Floats
    known: Bools
    length: Integers
    newest: Floats
    highest: Floats
    last_day_known: Floats
    bins_since: np.ndarray
    step_bins: Integers
    flags: list[list[str]]


def observed(values: Floats) -> Bools:
    """Where a history holds a usable value, same shape."""
    known: Bools = (values >= 0) & (values <= LARGEST)
    return known


def clean(values: Floats, day_steps: int) -> Cleaned:
    """The history with every gap filled; nothing is invented silently.

    Demand and power are never negative: negative, infinite and absurdly large values (counter
    resets, meters that lie) count as gaps and set a flag, and so does a single bin above twenty
    times all others (``spike``): forecasts rest on it once a second bin confirms it. A series that
    wakes up after nothing (``burst``), settles above all it ever was (``step``) or only ever rises
    (``counter``: a rate was meant) stays as it is and is told.

    Args:
        values: Shape (n_series, n_bins); NaN marks a gap.
        day_steps: Bins in a day.
    """
    n_series, n_bins = values.shape
    raw = observed(values)
    filled: Floats = np.where(raw, values, 0.0)
    place, second = _spikes(filled, raw, day_steps)
    spiked = np.nonzero(place >= 0)[0]
    known = raw.copy() if len(spiked) else raw
    known[spiked, place[spiked]] = False
    first, last = _ends(known)
    any_known = last >= 0
    gapped = np.nonzero(~known.all(axis=1) & any_known)[0]
    if len(gapped):
        filled[gapped] = _filled(filled[gapped], known[gapped], day_steps)
    # Nobody knows whether the newest bin was real; the record is the highest that is believed.
    new = spiked[place[spiked] == n_bins - 1]
    filled[new, -1] = second[new]
    bins_since = n_bins - 1 - _ends(raw)[1]
    length = n_bins - first
    length[gapped] = _lengths(known[gapped], length[gapped])
    rows = np.arange(n_series)
    newest_place = n_bins - 1 - np.minimum(bins_since, n_bins - 1)
    newest = np.where(raw.any(axis=1), values[rows, newest_place], np.nan)
    step_bins = _step_bins(filled, length, day_steps)
    told = {
        "gaps": any_known & (1 - known.sum(axis=1) / np.maximum(1, n_bins - first) > MAX_GAP_SHARE),
        "stale": any_known & (bins_since >= STALE_BINS),
        **_refused(values, raw),
        "spike": place >= 0,
        "burst": _bursts(filled, length, day_steps),
        "step": step_bins > 0,
        "counter": _counters(filled, known, day_steps),
    }
    return Cleaned(
        filled=filled,
        known=known,
        length=length,
        newest=newest,
        highest=np.max(filled, axis=1, initial=0.0, where=known),
        last_day_known=known[:, -day_steps:].mean(axis=1),
        bins_since=bins_since,
        step_bins=step_bins,
        flags=_flags(told, n_series),
    )


def clean_again(before: Cleaned, values: Floats, told: Floats, day_steps: int) -> Cleaned:
    """``clean`` of what models are told of a history; rows that are told as read are not redone.

    What was read and what was wrong with it (flags, newest value, age) stays as it was read.

    Args:
        before: ``clean`` of ``values``.
        values: As observed, shape (n_series, n_bins).
        told: The same without what is not believed, moved where it has to be.
        day_steps: Bins in a day.
    """
    as_read = np.where(before.known, told == values, np.isnan(told) & ~observed(values))
    rows = np.nonzero(~as_read.all(axis=1))[0]
    if not len(rows):
        return before
    made = clean(told[rows], day_steps)
    anew = {}
    for name in ("filled", "known", "length", "highest", "last_day_known", "step_bins"):
        anew[name] = getattr(before, name).copy()
        anew[name][rows] = getattr(made, name)
    return replace(before, **anew)


def _flags(told: dict[str, Bools], n_series: int) -> list[list[str]]:
    """The names that hold of each series."""
    flags: list[list[str]] = [[] for _ in range(n_series)]
    for name, holds in told.items():
        for i in np.nonzero(holds)[0].tolist():
            flags[i].append(name)
    return flags


def _refused(values: Floats, known: Bools) -> dict[str, Bools]:
    """Why values do not count, by series; gaps are no reason."""
    odd = np.nonzero(~known.all(axis=1))[0]
    some = values[odd]
    holds = {
        "negative": np.isfinite(some) & (some < 0),
        "not-finite": np.isinf(some),
        "too-large": np.isfinite(some) & (some > LARGEST),
    }
    found = {}
    for name, cells in holds.items():
        found[name] = np.zeros(len(values), dtype=np.bool_)
        found[name][odd] = cells.any(axis=1)
    return found


def _ends(known: Bools) -> tuple[Integers, Integers]:
    """First and last observed bin; n_bins and -1 where there is none, (n_series,) each."""
    n_bins = known.shape[1]
    some = known.any(axis=1)
    first = np.where(some, known.argmax(axis=1), n_bins)
    last = np.where(some, n_bins - 1 - known[:, ::-1].argmax(axis=1), -1)
    return first, last


def _spikes(filled: Floats, known: Bools, day_steps: int) -> tuple[Integers, Floats]:
    """The bin that is not believed, -1 for none, and the highest of the others, (n_series,) each.

    Under a day of observations nothing is disbelieved: the first burst looks the same.
    """
    rows = np.arange(len(filled))
    place = filled.argmax(axis=1)
    highest = filled[rows, place]
    second = np.zeros(len(filled))
    # Only where a cheap look says that it could be: the mean of a spiked row is mostly its spike.
    rest = (filled.sum(axis=1) - highest) / max(1, filled.shape[1] - 1)
    maybe = np.nonzero(highest > SPIKE_RATIO * rest)[0]
    others = filled[maybe]
    others[np.arange(len(maybe)), place[maybe]] = 0.0
    second[maybe] = others.max(axis=1, initial=0.0)
    spiked = np.zeros(len(filled), dtype=np.bool_)
    spiked[maybe] = (
        (second[maybe] > 0)
        & (highest[maybe] > SPIKE_RATIO * second[maybe])
        & (known[maybe].sum(axis=1) > day_steps)
    )
    return np.where(spiked, place, -1), second


def _filled(values: Floats, known: Bools, day_steps: int) -> Floats:
    """Rows with every gap after the first value filled; each row has one at least."""
    n_bins = values.shape[1]
    edges = np.diff(known, axis=1, prepend=True, append=True)
    row, place = np.nonzero(edges)
    # Edges come in pairs along each row: a gap's first bin, and the first one after it.
    row, start, end = row[::2], place[::2], place[1::2]
    inside = (start > 0) & (end < n_bins)
    lower = np.where(start > 0, values[row, np.maximum(start - 1, 0)], 0.0)
    upper = np.where(inside, values[row, np.minimum(end, n_bins - 1)], lower)
    size = end - start
    gap = np.repeat(np.arange(len(size)), size)
    step = np.arange(len(gap)) - np.repeat(np.cumsum(size) - size, size)
    share = (step + 1) / (size[gap] + 1)
    line = lower[gap] + share * (upper[gap] - lower[gap])
    # Never beyond the two ends, however rounding falls.
    line = np.clip(line, np.minimum(lower, upper)[gap], np.maximum(lower, upper)[gap])
    filled = values.copy()
    rows, places = row[gap], start[gap] + step
    filled[rows, places] = line
    longest = max(1, round(day_steps * LONG_GAP_SHARE))
    wide = (inside & (size > longest))[gap]
    rows, places = rows[wide], places[wide]
    for day in _days_outwards(n_bins // day_steps):
        other = places - day * day_steps
        there = (other >= 0) & (other < n_bins)
        there[there] = known[rows[there], other[there]]
        filled[rows[there], places[there]] = values[rows[there], other[there]]
        rows, places = rows[~there], places[~there]
    return filled


def _days_outwards(days: int) -> list[int]:
    """1, -1, 2, -2, …: the day before, the day after, and so on."""
    return [sign * day for day in range(1, days + 1) for sign in (1, -1)]


def _lengths(known: Bools, whole: Integers) -> Integers:
    """Bins of the longest stretch up to the end that is observed well enough, (n_series,).

    Args:
        known: Where something was observed.
        whole: Bins since the first observation, (n_series,): mostly that is the stretch.
    """
    lengths = whole.copy()
    for i in np.nonzero(known.sum(axis=1) < USABLE_SHARE * whole)[0].tolist():
        places = np.nonzero(known[i])[0][::-1]
        sizes = known.shape[1] - places
        counts = np.arange(1, len(places) + 1)
        lengths[i] = np.max(sizes[counts >= USABLE_SHARE * sizes], initial=0)
    return lengths


def _step_bins(filled: Floats, length: Integers, day_steps: int) -> Integers:
    """How many of the last day's newest bins lie above all that was before, 0 for none."""
    n_bins = filled.shape[1]
    found: Integers = np.zeros(len(filled), dtype=np.intp)
    hour = max(1, day_steps // 24)
    if n_bins <= day_steps or day_steps <= hour:
        return found
    # Who has a step is above all earlier bins in the last hour: few rows are looked at closely.
    earlier = filled[:, :-day_steps].max(axis=1)
    maybe = np.nonzero(
        (filled[:, -hour:].min(axis=1) > STEP_RATIO * earlier) & (length > day_steps)
    )[0]
    day = filled[maybe, -day_steps:]
    lowest = np.minimum.accumulate(day[:, ::-1], axis=1)[:, ::-1]
    highest = np.maximum.accumulate(np.column_stack([earlier[maybe], day[:, :-1]]), axis=1)
    above = (lowest > STEP_RATIO * highest)[:, : day_steps - hour + 1]
    found[maybe] = np.where(above.any(axis=1), day_steps - above.argmax(axis=1), 0)
    return found


def _bursts(filled: Floats, length: Integers, day_steps: int) -> Bools:
    """Which series were idle until the last day, (n_series,)."""
    if filled.shape[1] <= day_steps:
        return np.zeros(len(filled), dtype=np.bool_)
    today = filled[:, -day_steps:].max(axis=1)
    before = filled[:, :-day_steps].max(axis=1)
    bursts: Bools = (today > 0) & (before <= IDLE_SHARE * today) & (length > day_steps)
    return bursts


def _counters(filled: Floats, known: Bools, day_steps: int) -> Bools:
    """Which series rose all day but for falls to almost nothing, (n_series,): no demand does."""
    if filled.shape[1] < day_steps or day_steps < 3:
        return np.zeros(len(filled), dtype=np.bool_)
    day = filled[:, -day_steps:]
    change = np.diff(day, axis=1)
    both = known[:, -day_steps + 1 :] & known[:, -day_steps:-1]
    steady = np.nonzero((~both | (change > 0)).sum(axis=1) >= change.shape[1] - 2)[0]
    resets = (day[steady, 1:] < 0.1 * day[steady, :-1]) | (change[steady] > 0) | ~both[steady]
    found = np.zeros(len(filled), dtype=np.bool_)
    found[steady] = resets.all(axis=1) & (both[steady].sum(axis=1) >= day_steps // 2)
    return found
