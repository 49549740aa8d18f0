"""What an engine is asked: the shape of its answers once, the rest at every round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forecasting.engine_memory import Pool
from forecasting.events.round_events import RoundEvents
from forecasting.forecast import checked_levels
from forecasting.power_forecast.draw_aside import DrawAside, demand_history
from forecasting.power_forecast.present_rows import UNKNOWN_BOARDS, BoardWatts, PresentRows
from forecasting.series_source import DAY_SECONDS, Floats, History, SeriesId
from wattpack.errors import InputError

GRID: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
"""Levels that are always computed: what is asked is only what is told."""

DOMAIN: Final = "domain"
"""Kind of the pools whose series are power."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What an engine is asked.

    Attributes:
        step_seconds: Width of a step.
        horizon: Steps of a window.
        levels: To be told, ascending.

    Raises:
        InputError: for levels out of order or beyond those that models compute, a horizon below 1.
    """

    step_seconds: int
    horizon: int
    levels: tuple[float, ...]

    def __post_init__(self) -> None:
        levels = checked_levels(self.levels)
        if levels[0] < GRID[0] or levels[-1] > GRID[-1]:
            raise InputError("levels", f"levels from {GRID[0]:g} to {GRID[-1]:g}", self.levels)
        if self.horizon < 1:
            raise InputError("horizon", "at least one step", self.horizon)

    @property
    def day_steps(self) -> int:
        """Steps in a day."""
        return max(1, DAY_SECONDS // self.step_seconds)

    @property
    def grid(self) -> tuple[float, ...]:
        """All levels that are computed."""
        return tuple(sorted({*GRID, *self.levels}))


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known of series beside their histories; nothing of those that are not named.

    Attributes:
        parents: Series of which others are a part; their paths are made to add up.
        asides: Of series that are domains, what goes with their draw.
    """

    parents: Mapping[SeriesId, SeriesId] = field(default_factory=dict)
    asides: Mapping[SeriesId, DrawAside] = field(default_factory=dict)

    def before(self, cut: int) -> Beside:
        """As it was after ``cut`` bins."""
        return Beside(self.parents, {name: one.before(cut) for name, one in self.asides.items()})


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of an engine now.

    Attributes:
        history: Ten days of every series as observed, NaN for gaps.
        pools: Of every series that is forecast, those included that were not read this time:
            what was learned of others is forgotten.
        ceilings: What each series cannot exceed, shape (n_series,); NaN for none.
        events: Planned events and the history without them; None for none.
        boards: What stands below series that are domains; those not named are unknown.
        beside: What is known beside the histories.
        n_paths: Joint paths to be told beside the quantiles; 0 for none.
        tells_tiers: Whether each tier's answer is told, too.
    """

    history: History
    pools: Mapping[SeriesId, Pool]
    ceilings: Floats
    events: RoundEvents | None = None
    boards: Mapping[SeriesId, BoardWatts] = field(default_factory=dict)
    beside: Beside = field(default_factory=Beside)
    n_paths: int = 0
    tells_tiers: bool = False

    def present(self, known: NDArray[np.bool_]) -> PresentRows:
        """The history without what events added to it and on one level: what models see.

        Args:
            known: Where the history is believed, shape (n_series, n_bins); what is not is NaN.
        """
        history = self.history
        values = history.values if self.events is None else self.events.freed
        freed = replace(history, values=np.where(known, values, np.nan))
        if self.beside.asides:
            day_bins = max(1, DAY_SECONDS // history.step_seconds)
            freed = replace(freed, values=demand_history(freed, self.beside.asides, day_bins))
        boards = [
            self.boards.get(name, UNKNOWN_BOARDS) if self.pools[name][1] == DOMAIN else None
            for name in history.series
        ]
        return PresentRows.of(freed, boards, self.ceilings)
