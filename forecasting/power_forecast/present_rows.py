"""The domains among the series of a round: what their models learn from, what they promise now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forecasting.engine_memory import Pool
from forecasting.power_forecast.present_floor import PresentPeaks, with_present
from forecasting.power_forecast.present_level import at_present_level, present_since
from forecasting.power_forecast.present_peaks import LEVELS, PresentDraw, present_peak_quantiles
from forecasting.series_source import Floats, History, SeriesId

NEW_LEVEL: Final = "new-level"
"""Flag of a domain whose past is not like its present: days before
the break are moved to its level, and its peak is the present's."""


class BoardWatts(NamedTuple):
    """What stands below a domain, AC watts.

    Attributes:
        startable: Rise if work came to all free boards.
        busy: Of all boards at work.
        held: Of those at work that a pod holds; NaN where nobody knows.
    """

    startable: float
    busy: float
    held: float = float("nan")


OF_PRESENT: Final = "/present"
"""Ends the kind of the pool of domains that the present tells without knowing their boards."""

OF_BOARDS: Final = "/boards"
"""Ends it where the boards are known."""

UNKNOWN_BOARDS: Final = BoardWatts(float("nan"), float("nan"))


def of_models(pool: Pool) -> Pool:
    """The pool in which models' steps miss as in this one: boards tell peaks, not steps."""
    space, kind = pool
    return (space, kind.removesuffix(OF_BOARDS))


def new_since_seconds(history: History, domains: Sequence[SeriesId]) -> dict[SeriesId, int]:
    """When domains became what they are now, Unix time; those that did not break are left out."""
    wanted = set(domains)
    rows = np.array([i for i, name in enumerate(history.series) if name in wanted], dtype=np.intp)
    since = present_since(np.asarray(history.values, dtype=np.float64)[rows], history.step_seconds)
    n_bins = history.values.shape[1]
    return {
        history.series[row]: history.until_seconds - (n_bins - int(at)) * history.step_seconds
        for row, at in zip(rows.tolist(), since, strict=True)
        if at > 0
    }


@dataclass(frozen=True, slots=True)
class PresentRows:
    """Series that are the power of domains.

    Attributes:
        history: Of all series; days before a break are moved to the level after it.
        rows: Which of them are domains.
        draw: What is known of these now.
        held_watts: Of their boards at work that a pod holds, (n_rows,); NaN where nobody knows.
    """

    history: History
    rows: NDArray[np.intp]
    draw: PresentDraw
    held_watts: Floats

    @classmethod
    def of(
        cls, history: History, boards: Sequence[BoardWatts | None], ceilings: Floats
    ) -> PresentRows:
        """From what was observed.

        Args:
            history: Of all series; what is not believed of domains is NaN.
            boards: Of each that is a domain, None for every other series.
            ceilings: What each series cannot exceed, NaN for nothing.
        """
        rows = np.array([i for i, one in enumerate(boards) if one is not None], dtype=np.intp)
        values = np.asarray(history.values, dtype=np.float64)[rows]
        known = [one for one in boards if one is not None]
        draw = PresentDraw(
            values=values,
            step_seconds=history.step_seconds,
            startable_watts=np.array([one.startable for one in known]),
            busy_watts=np.array([one.busy for one in known]),
            ceiling_watts=np.asarray(ceilings, dtype=np.float64)[rows],
        )
        if draw.since.any():
            levelled = np.array(history.values, dtype=np.float64)
            levelled[rows] = at_present_level(values, draw.since, history.step_seconds)
            history = replace(history, values=levelled)
        return cls(history, rows, draw, np.array([one.held for one in known]))

    def pools(self, pools: Mapping[SeriesId, Pool]) -> dict[SeriesId, Pool]:
        """The pools, domains that the present tells in one of their own beside their namesake.

        Models and the present miss in ways of their own, so neither corrects the other.
        """
        draw = self.draw
        known = np.isfinite(draw.startable_watts + draw.busy_watts)
        told = {self.history.series[row]: OF_PRESENT for row in self.rows[draw.since > 0].tolist()}
        told |= {self.history.series[row]: OF_BOARDS for row in self.rows[known].tolist()}
        return {name: (space, kind + told.get(name, "")) for name, (space, kind) in pools.items()}

    def promised(self, peaks: Floats, levels: Sequence[float], window_seconds: int) -> PresentPeaks:
        """All series' peaks, domains' as ``with_present`` says."""
        nobody = np.zeros(len(peaks), dtype=np.bool_)
        made = PresentPeaks(np.array(peaks), nobody.copy(), nobody.copy())
        if len(self.rows):
            told = with_present(peaks[self.rows], levels, self.draw, window_seconds)
            for whole, part in zip(made, told, strict=True):
                whole[self.rows] = part
        return made

    def running(self, peaks: Floats, levels: Sequence[float], placed: Floats) -> Floats:
        """Peaks of what ran at the data's end: no free board starts, no pod has come since.

        Args:
            peaks: As ``promised`` made them, (n_series, n_levels).
            levels: Ascending.
            placed: What each series draws more by pods that came since, AC watts, (n_series,).

        Returns:
            At most ``peaks``; NaN for series whose boards nobody knows, (n_series, n_levels).
        """
        made = np.full(peaks.shape, np.nan)
        known = np.isfinite(self.held_watts)
        if not known.any():
            return made
        rows = self.rows[known]
        values = self.draw.values[known] - placed[rows, None]
        held = self.held_watts[known]
        alone = PresentDraw(
            np.maximum(values, 0.0), self.draw.step_seconds, np.zeros(len(rows)), held,
            self.draw.ceiling_watts[known],
        )  # fmt: skip
        first = int(np.searchsorted(np.asarray(levels), LEVELS[0]))
        if first < len(levels):
            own = present_peak_quantiles(alone, levels[first:])
            made[rows, first:] = np.where(np.isnan(own), np.nan, np.fmin(own, peaks[rows, first:]))
        return made
