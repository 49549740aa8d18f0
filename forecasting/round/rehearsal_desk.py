"""Where histories are gone through beside the rounds, so that no forecast waits for its record.

    round: new series ──► order ──► desk (a process) ──► learned memory ──► a later round's memory

Without a desk a round goes through them itself: a backtest is deterministic that way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from forecasting.engine_memory import EngineMemory, Pool
from forecasting.engine_question import Beside, Shape
from forecasting.engine_rehearsal import with_learned
from forecasting.forecast_engine import Engine
from forecasting.series_source import History, SeriesId

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RehearsalOrder:
    """Which history to go through.

    Attributes:
        shape: Of the group.
        history: Of series without a record.
        pools: Of all series of the group.
        base: What is known of the pools; a rehearsal goes on from there.
        beside: What is known of the series beside their history.
    """

    shape: Shape
    history: History
    pools: Mapping[SeriesId, Pool]
    base: EngineMemory
    beside: Beside = field(default_factory=Beside)


class Rehearsal(NamedTuple):
    """An order that is over.

    Attributes:
        order: As it was given.
        learned: On top of its base; None if it failed, which is logged by the desk.
    """

    order: RehearsalOrder
    learned: EngineMemory | None


class RehearsalDesk(Protocol):
    """Works at one order at a time."""

    @property
    def order(self) -> RehearsalOrder | None:
        """What is worked at, or was and is not taken yet."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether ``take`` has something to give."""
        ...

    def submit(self, order: RehearsalOrder) -> bool:
        """Begin; False if another order is there, or nothing can be begun."""
        ...

    def take(self) -> Rehearsal | None:
        """The order that is over, once; None while it is worked at."""
        ...


def taken_over(
    desk: RehearsalDesk, engines: Mapping[tuple[int, int, tuple[float, ...]], Engine]
) -> frozenset[SeriesId]:
    """What was learned goes into the memory of its group's engine.

    Returns:
        The series of the order that is over. One that failed is not gone through again: its series
        earn their record by promises that are kept.
    """
    over = desk.take()
    if over is None:
        return frozenset()
    shape = over.order.shape
    engine = engines.get((shape.step_seconds, shape.horizon, shape.levels))
    if engine is not None and over.learned is not None:
        engine.memory = with_learned(engine.memory, over.order.base, over.learned)
        log.info("%d histories were gone through", len(over.order.history.series))
    return frozenset(over.order.history.series)
