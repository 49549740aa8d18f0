"""What one round of the forecaster hands to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from forecasting.calibration.promise_record import PromiseRecord
from forecasting.forecast_engine import Engine
from forecasting.round.rehearsal_desk import RehearsalDesk
from forecasting.series_source import SeriesId
from forecasting.tiers.tier_sets import RIDGE_ALONE, TierSet

Group = tuple[int, int, tuple[float, ...]]
"""Width of a step, steps, levels: what is computed together."""


@dataclass(frozen=True, slots=True)
class ForecasterState:
    """What one round hands to the next; losing it costs a rehearsal, nothing else.

    Attributes:
        tiers: The models to be made.
        engines: By group. Engines change: a state is used up by the round that it is given to.
        rehearsed: Identities of targets whose history has been gone through.
        desk: Where that is done beside the rounds; None does it within them.
    """

    tiers: TierSet = RIDGE_ALONE
    engines: Mapping[Group, Engine] = field(default_factory=dict)
    rehearsed: frozenset[SeriesId] = frozenset()
    desk: RehearsalDesk | None = None

    @property
    def records(self) -> dict[SeriesId, PromiseRecord]:
        """How the promises to every target did."""
        return {k: v for e in self.engines.values() for k, v in e.memory.records.items()}

    def close(self) -> None:
        """End what models work at beside the rounds."""
        for engine in self.engines.values():
            engine.close()
