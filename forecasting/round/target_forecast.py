"""One target's answer of a round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forecasting.calibration.promise_record import PromiseRecord
from forecasting.engine_memory import RECORDED_LEVEL
from forecasting.events.planned_event import PlannedEvent
from forecasting.forecast import Forecast
from forecasting.series_source import Floats
from forecasting.targets import Target
from wattpack.errors import WattpackError

REHEARSING: Final = "rehearsing"
"""Flag of a target whose history is still gone through: it has no record yet."""


@dataclass(frozen=True, slots=True)
class TargetForecast:
    """One target's answer.

    Attributes:
        target: What was asked.
        made: The forecast of its group; None without an answer.
        row: Its place there.
        record: How its promises did, rehearsed ones included.
        error: Why there is no forecast, else None: an ``InputError`` is the target's own fault.
        source_flags: What its source was short of.
        pool_live_windows: Finished windows of promises that were made to its pool.
        pool_rehearsed_windows: Those of its pool that were gone through afterwards.
        awaits_record: Whether its history, of a day at least, is still to be gone through.
        events: Planned ones, earlier ones included, of told or learned effect.
    """

    target: Target
    made: Forecast | None
    row: int = 0
    record: PromiseRecord = field(default_factory=lambda: PromiseRecord.new((RECORDED_LEVEL,)))
    error: WattpackError | None = None
    source_flags: tuple[str, ...] = ()
    pool_live_windows: int = 0
    pool_rehearsed_windows: int = 0
    awaits_record: bool = False
    events: tuple[PlannedEvent, ...] = ()

    @classmethod
    def refused(cls, target: Target, error: WattpackError) -> TargetForecast:
        """The answer for a target whose series cannot be read or forecast as it stands."""
        return cls(target, None, error=error)

    @property
    def peaks(self) -> Floats:
        """Peak quantiles over ``target.levels``, shape (n_levels,)."""
        return np.empty(0) if self.made is None else self.made.peaks[self.row]

    @property
    def paths(self) -> Floats | None:
        """Its joint paths, shape (n_paths, horizon); None where nobody asked, or without answer."""
        told = None if self.made is None else self.made.paths
        return None if told is None else told[self.row]

    @property
    def flags(self) -> tuple[str, ...]:
        """What a user should know about it."""
        if self.made is None:
            return self.source_flags
        own = self.made.flags[self.row]
        if self.awaits_record:
            own = (*own, REHEARSING)
        return tuple(dict.fromkeys((*own, *self.source_flags)))
