"""What is known beside a domain's draw: the load behind it, caps that held, pods that came since.

draw ─► held bins ─► what the load would have drawn ─► + pods placed since ─► what models learn
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.power_forecast.held_bins import demand_of, held_bins
from forecasting.power_forecast.load_power import LoadFit, load_fit, residual_watts
from forecasting.power_forecast.present_work import WorkChange, history_of_present
from forecasting.series_source import Floats, History, SeriesId

FIT_SECONDS: Final = 3 * 86400
"""Recent bins over which load has to tell the draw (assumed): work that changed before is gone."""


def _no_services() -> Floats:
    return np.empty((0, 0))


@dataclass(frozen=True, slots=True)
class DrawAside:
    """Of one domain, in the bins of its history.

    Attributes:
        load_watts: What the capacity model makes of each service's load, AC watts,
            (n_services, n_bins); NaN for gaps.
        held_share: Share of each bin in which caps held work back, NaN for unknown, (n_bins,);
            None for none told.
        placed_watts: Drawn by pods that were placed since the data's end, less those that went.
    """

    load_watts: Floats = field(default_factory=_no_services)
    held_share: Floats | None = None
    placed_watts: float = 0.0

    def before(self, cut: int) -> DrawAside:
        """As it was after ``cut`` bins."""
        held = None if self.held_share is None else self.held_share[:cut]
        return replace(self, load_watts=self.load_watts[:, :cut], held_share=held, placed_watts=0.0)

    def free_draw(self, draw_watts: Floats, step_seconds: int) -> Floats:
        """The draw where no cap held, as far as anybody knows, NaN elsewhere, (n_bins,)."""
        if self.held_share is None:
            return draw_watts
        return np.where(held_bins(self.held_share, step_seconds), np.nan, draw_watts)

    def fit(self, draw_watts: Floats, step_seconds: int) -> LoadFit:
        """How well the load told the free draw of recent bins."""
        if not len(self.load_watts):
            return LoadFit(1.0, 0.0)
        recent = slice(-max(1, FIT_SECONDS // step_seconds), None)
        told = self.load_watts.sum(axis=0)[recent]
        return load_fit(self.free_draw(draw_watts, step_seconds)[recent], told)

    def demand(self, draw_watts: Floats, step_seconds: int, day_bins: int) -> Floats:
        """What the domain wanted to draw, (n_bins,)."""
        if self.held_share is None:
            return draw_watts
        open_watts = self.open_watts(draw_watts, step_seconds)
        told = None if open_watts is None else open_watts[None, :]
        held = self.doubtful(self.held_share, open_watts, step_seconds)
        return np.asarray(demand_of(draw_watts[None, :], held[None, :], told, day_bins)[0])

    def open_watts(self, draw_watts: Floats, step_seconds: int) -> Floats | None:
        """What the load would draw without caps, (n_bins,); None where it tells too little."""
        fit = self.fit(draw_watts, step_seconds)
        if not fit.is_trusted(was_trusted=True):
            return None
        told = self.load_watts.sum(axis=0)
        rest = residual_watts(self.free_draw(draw_watts, step_seconds), told, fit)
        result: Floats = fit.factor * told + np.nanmedian(rest)
        return result

    @staticmethod
    def doubtful(
        held_share: Floats, open_watts: Floats | None, step_seconds: int
    ) -> NDArray[np.bool_]:
        """Bins whose draw may be less than what was wanted, (n_bins,).

        Besides held ones those of which nobody told whether caps held, as far as the load tells
        what was wanted: too low a demand costs work, too high a one reserve. Without a load their
        draw stands: at least so much was wanted, and as gaps they would tell nothing.

        Args:
            held_share: NaN for unknown, (n_bins,).
            open_watts: What the load would draw without caps, (n_bins,); None without one.
            step_seconds: Width of a bin.
        """
        held = held_bins(held_share, step_seconds)
        if open_watts is None:
            return held
        return held | (np.isnan(held_share) & np.isfinite(open_watts))


def demand_history(history: History, asides: Mapping[SeriesId, DrawAside], day_bins: int) -> Floats:
    """The values that models learn of, (n_series, n_bins): wanted, and with what runs now.

    Args:
        history: What is believed, NaN for gaps.
        asides: Of some of its series.
        day_bins: Bins in a day.
    """
    values = np.array(history.values, dtype=np.float64)
    changes = []
    for row, aside in rows_of(history.series, asides):
        values[row] = aside.demand(values[row], history.step_seconds, day_bins)
        if aside.placed_watts:
            changes.append(WorkChange(row, history.until_seconds, aside.placed_watts))
    if not changes:
        return values
    return history_of_present(replace(history, values=values), changes)


def wanted_values(history: History, asides: Mapping[SeriesId, DrawAside]) -> Floats | None:
    """The values as if no cap had held, NaN where nobody knows; None where none did.

    Forecasts are judged by them: unlike models, which need some history, they do without guesses.

    Args:
        history: What is believed, NaN for gaps.
        asides: Of some of its series.
    """
    values = None
    for row, aside in rows_of(history.series, asides):
        if aside.held_share is None:
            continue
        draw = np.asarray(history.values[row], dtype=np.float64)
        open_watts = aside.open_watts(draw, history.step_seconds)
        held = aside.doubtful(aside.held_share, open_watts, history.step_seconds)
        if not held.any():
            continue
        values = np.array(history.values, dtype=np.float64) if values is None else values
        if open_watts is None:
            open_watts = np.full(len(held), np.nan)
        values[row, held] = np.maximum(open_watts, values[row])[held]
    return values


def rows_of(
    series: Sequence[SeriesId], asides: Mapping[SeriesId, DrawAside]
) -> list[tuple[int, DrawAside]]:
    """Rows of which something is known, with it."""
    return [(i, asides[name]) for i, name in enumerate(series) if name in asides]
