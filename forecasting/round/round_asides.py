"""Reads what goes with the draw of a round's domains: loads, bins that caps held, new work.

Whatever of it cannot be read costs corrections and no forecast: the draw is then taken as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.clean_history import MAX_GAP_SHARE
from forecasting.power_forecast.draw_aside import DrawAside
from forecasting.series_source import (
    DAY_SECONDS,
    Floats,
    History,
    SeriesId,
    SeriesSource,
    source_flags,
)
from forecasting.targets import Target
from wattpack.errors import WattpackError

ASIDE_AWAY: Final = "aside-away"
"""Flag of a domain of whose load, pods that serve it, or held bins nothing is known of the last
day: a name that nothing bears, a series that ended, a history that does not answer."""

ASIDE_GAPS: Final = "aside-gaps"
"""Flag of a domain with something beside its draw that is missing for over 5 % of the draw."""

PARTIAL: Final = "partial"
"""Flag of an answer that a store behind the history had no part in, as sources tell it. Of a load
or a held share it is as bad as of the draw: their sums are too low, and so is what is learned."""

MOST_FAILURES: Final = 5
"""In a round: a history that does not answer must not be asked for every domain."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class AsideReader:
    """Of one round.

    Args:
        source: The history.

    Attributes:
        failures: So far.
    """

    source: SeriesSource
    failures: int = field(default=0, init=False)

    def read(
        self, member: Target, history: History, row: int
    ) -> tuple[DrawAside | None, tuple[str, ...]]:
        """What goes with a domain's draw, and the flags of what is missing of it.

        Args:
            member: Who is asked for; nothing goes with what is no domain.
            history: Over whose bins.
            row: Of the draw there.
        """
        new = [one.watts for one in member.changes if one.at_seconds > history.until_seconds]
        if not (member.load or member.held_series or new):
            return None, ()
        loads = [self._row(one.series, history) for one in member.load]
        held = None if member.held_series is None else self._row(member.held_series, history)
        day = slice(-max(1, DAY_SECONDS // history.step_seconds), None)
        unserved = any(
            one.line is None and bool((load[day] > 0).any())
            for one, load in zip(member.load, loads, strict=True)
        )
        drawn = np.isfinite(np.asarray(history.values[row], dtype=np.float64))
        beside = [*_of_those_served(member, loads), *([] if held is None else [held])]
        missing = ASIDE_AWAY if unserved else _missing(beside, drawn, day)
        flags = () if missing is None else (missing,)
        if self._has_partial(member, [*loads, *([] if held is None else [held])]):
            flags = (*flags, PARTIAL)
        aside = DrawAside(_load_watts(member, loads), _share(held), float(sum(new)))
        return aside, flags

    def _has_partial(self, member: Target, rows: Sequence[Floats]) -> bool:
        """Whether some row is a part of itself; of one that was not read nothing newer is told."""
        names = [one.series for one in member.load]
        names += [] if member.held_series is None else [member.held_series]
        return any(
            PARTIAL in source_flags(self.source, name) and bool(np.isfinite(row).any())
            for name, row in zip(names, rows, strict=True)
        )

    def _row(self, series: SeriesId, history: History) -> Floats:
        """A series over the bins, NaN where it cannot be read, (n_bins,)."""
        until, step = history.until_seconds, history.step_seconds
        nothing = np.full(history.values.shape[1], np.nan)
        if self.failures >= MOST_FAILURES:
            return nothing
        start = until - len(nothing) * step
        try:
            row = self.source.fetch([series], start, until, step)[0]
        except WattpackError as error:
            self.failures += 1
            log.warning("%s could not be read: %s", series[:200], error)
            return nothing
        return np.where(np.isfinite(row), row, np.nan)


def _of_those_served(member: Target, loads: Sequence[Floats]) -> list[Floats]:
    """Loads of services that have boards: who has none has perhaps no load to be read either."""
    return [row for one, row in zip(member.load, loads, strict=True) if one.line is not None]


def _load_watts(member: Target, loads: Sequence[Floats]) -> Floats:
    """Watts of each load, none if one of them is unknown, (n_services, n_bins).

    A part of the load would leave the rest to the residual, which is learned as if it stayed.
    """
    told = [
        one.line.watts(np.maximum(row, 0.0))
        for one, row in zip(member.load, loads, strict=True)
        if one.line is not None and np.isfinite(row).any()
    ]
    return np.array(told) if told and len(told) == len(member.load) else np.empty((0, 0))


def _share(held: Floats | None) -> Floats | None:
    """The held share of each bin, NaN for unknown; None where it is known of no bin."""
    return None if held is None or np.isnan(held).all() else np.clip(held, 0.0, 1.0)


def _missing(beside: Sequence[Floats], drawn: NDArray[np.bool_], day: slice) -> str | None:
    """The flag of what stands beside a draw; None where enough of it is known.

    Args:
        beside: Series, (n_bins,) each; NaN for unknown.
        drawn: Bins in which a draw is known, (n_bins,).
        day: The bins of the last day.
    """
    unknown = [np.isnan(row) for row in beside]
    if any(bool(one[day].all()) for one in unknown):
        return ASIDE_AWAY
    most = MAX_GAP_SHARE * drawn.sum()
    return ASIDE_GAPS if any((one & drawn).sum() > most for one in unknown) else None


def asides_of(
    reader: AsideReader, members: Sequence[Target], history: History
) -> tuple[dict[SeriesId, DrawAside], dict[SeriesId, tuple[str, ...]]]:
    """By name of the history's series, and the flags of those that miss some; one member a row."""
    asides, flags = {}, {}
    for row, (name, member) in enumerate(zip(history.series, members, strict=True)):
        aside, missing = reader.read(member, history, row)
        if aside is not None:
            asides[name] = aside
        if missing:
            flags[name] = missing
    return asides, flags
