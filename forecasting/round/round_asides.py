"""Reads what goes with the draw of a round's domains: loads, bins that caps held, new work.

Whatever of it cannot be read costs corrections and no forecast: the draw is then taken as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forecasting.power_forecast.draw_aside import DrawAside
from forecasting.series_source import Floats, History, SeriesId, SeriesSource
from forecasting.targets import Target
from wattpack.errors import WattpackError

ASIDE_AWAY: Final = "aside-away"
"""Flag of a domain whose load or held bins could not be read: its draw is taken as it is."""

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

    def read(self, member: Target, history: History) -> tuple[DrawAside | None, bool]:
        """What goes with a domain's draw, and whether something of it was not to be had.

        Args:
            member: Who is asked for; nothing goes with what is no domain.
            history: Over whose bins.
        """
        lines = [one for one in member.load if one.line is not None]
        new = [one.watts for one in member.changes if one.at_seconds > history.until_seconds]
        if not (lines or member.held_series or new):
            return None, False
        loads = [self._row(one.series, history) for one in lines]
        held = None if member.held_series is None else self._row(member.held_series, history)
        away = any(row is None for row in loads)
        away |= member.held_series is not None and held is None
        told = [
            one.line.watts(np.maximum(row, 0.0))
            for one, row in zip(lines, loads, strict=True)
            if one.line is not None and row is not None
        ]
        # A part of the load would leave the rest to the residual, which is learned as if it stayed.
        whole = np.array(told) if len(told) == len(member.load) and told else None
        if whole is None:
            whole = np.empty((0, history.values.shape[1]))
        if held is not None:
            held = np.clip(np.nan_to_num(held, nan=0.0), 0.0, 1.0)
        return DrawAside(whole, held, float(sum(new))), away

    def _row(self, series: SeriesId, history: History) -> Floats | None:
        """A series over the bins; None where it cannot be read."""
        if self.failures >= MOST_FAILURES:
            return None
        until, step = history.until_seconds, history.step_seconds
        start = until - history.values.shape[1] * step
        try:
            row = self.source.fetch([series], start, until, step)[0]
        except WattpackError as error:
            self.failures += 1
            log.warning("%s could not be read: %s", series[:200], error)
            return None
        return np.asarray(row, dtype=np.float64)


def asides_of(
    reader: AsideReader, members: Sequence[Target], history: History
) -> tuple[dict[SeriesId, DrawAside], set[SeriesId]]:
    """By name of the history's series, and whose were not to be had; one member a row."""
    asides, away = {}, set()
    for name, member in zip(history.series, members, strict=True):
        aside, failed = reader.read(member, history)
        if aside is not None:
            asides[name] = aside
        if failed:
            away.add(name)
    return asides, away
