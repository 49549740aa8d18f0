"""Which windows a backtest goes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from forecasting.backtest.window import LEVELS
from forecasting.domain_series import DomainDraw, as_domains
from forecasting.events.planned_event import PlannedEvent
from forecasting.series_source import BIN_SECONDS, DAY_SECONDS, SeriesId, window_steps
from forecasting.targets import Target
from wattpack.errors import InputError
from wattpack.units import require_number

MOST_WINDOWS: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class BacktestPlan:
    """What to go through. Times are Unix seconds on the grid of bins.

    Attributes:
        series: Names.
        first_seconds: First origin.
        last_seconds: Last origin; its window ends where the history does.
        every_seconds: From one origin to the next.
        horizon: Steps of a window.
        step_seconds: Width of a step.
        ceiling: What no series can exceed.
        domains: The series that are draws of PowerDomains.
        events: What was planned, as if it had been known at every origin.
    """

    series: tuple[SeriesId, ...]
    first_seconds: int
    last_seconds: int
    every_seconds: int
    horizon: int
    step_seconds: int = BIN_SECONDS
    ceiling: float | None = None
    domains: Mapping[SeriesId, DomainDraw] = field(default_factory=dict)
    events: tuple[PlannedEvent, ...] = ()

    @property
    def origins(self) -> range:
        """Ascending."""
        return range(self.first_seconds, self.last_seconds + 1, self.every_seconds)

    def of(self, series: Sequence[SeriesId]) -> BacktestPlan:
        """The same of some of the series."""
        domains = {name: self.domains[name] for name in series if name in self.domains}
        return replace(self, series=tuple(series), domains=domains)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asks for, in hours and days."""

    days: float = 7.0
    every_hours: float = 6.0
    horizon_hours: float = 6.0


def plan_of(
    series: Sequence[str], end_seconds: float, asked: Asked, ceiling: float | None = None
) -> BacktestPlan:
    """Origins over the last days, the newest such that its window is over.

    Args:
        series: Names.
        end_seconds: Until when the history is used, Unix time.
        asked: Days of origins, hours between them and of each window.
        ceiling: What no series can exceed.

    Raises:
        InputError: naming what is out of its range.
    """
    days = require_number("days", asked.days, exclusive_minimum=0, maximum=366)
    least = BIN_SECONDS / 3600
    every = require_number("every", asked.every_hours, minimum=least, maximum=24 * 31)
    horizon = require_number("horizon", asked.horizon_hours, minimum=least, maximum=168)
    end = int(end_seconds // BIN_SECONDS) * BIN_SECONDS
    steps = window_steps(horizon * 3600, BIN_SECONDS)
    stride = round(every * 3600 / BIN_SECONDS) * BIN_SECONDS
    last = end - steps * BIN_SECONDS
    count = max(1, int(days * DAY_SECONDS // stride))
    if count * len(series) > MOST_WINDOWS:
        raise InputError("every", f"at most {MOST_WINDOWS} windows", count * len(series))
    first = last - (count - 1) * stride
    if first <= 0:
        raise InputError("days", "origins after 1970", asked.days)
    names = tuple(SeriesId(name) for name in series)
    return BacktestPlan(names, first, last, stride, steps, ceiling=ceiling)


def targets_of(plan: BacktestPlan) -> list[Target]:
    """One a series, in one pool for domains and one for all others, as in one namespace."""
    targets = [
        Target(
            namespace="", name=f"{i}:{name[:200]}", series=name, kind="series",
            horizon=plan.horizon, step_seconds=plan.step_seconds, asked_levels=LEVELS,
            ceiling=plan.ceiling, generation=0, events=plan.events,
            tells_tiers=True,
        )
        for i, name in enumerate(plan.series)
    ]  # fmt: skip
    return as_domains(targets, plan.domains)
