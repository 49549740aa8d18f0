"""An HTTP extender for people who run their own kube-scheduler: it answers from the last plan."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping

from scheduler_plugin.app.planning_cycle import CycleResult
from scheduler_plugin.kube_objects.extender_answers import (
    STALE_SECONDS,
    PlanTable,
    filtered,
    prioritized,
)
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["FILTER_PATH", "PRIORITIZE_PATH", "Extender"]

FILTER_PATH = "/extender/filter"
PRIORITIZE_PATH = "/extender/prioritize"
Answer = tuple[int, bytes]
log = logging.getLogger(__name__)


class Extender:
    """The table of the last plan, and its answers. Thread-safe.

    Args:
        clock: For the table's age.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._table: PlanTable | None = None
        self._until_ns = 0

    def planned(self, result: CycleResult | None, spaces: frozenset[str]) -> None:
        """A cycle has ended; None: this replica plans no more.

        Args:
            result: Of the cycle. One that failed leaves the table as it is.
            spaces: Namespaces whose pods are planned without a gate.
        """
        with self._lock:
            if result is None:
                self._table = None
                return
            if result.outcome == "failed":
                return
            self._until_ns = self._clock.monotonic_ns() + seconds_to_ns(STALE_SECONDS)
            plan = result.plan
            if result.outcome == "idle":
                self._table = PlanTable(spaces=spaces)
            elif plan is not None:
                self._table = PlanTable(
                    {p.uid: p.node for p in plan.placements},
                    {p.uid: f"{p.reason.value}: {p.message}" for p in plan.pending},
                    spaces,
                )

    def routes(self) -> Mapping[str, Callable[[bytes], Answer]]:
        """Answers by path."""
        return {FILTER_PATH: self._filter, PRIORITIZE_PATH: self._prioritize}

    def _filter(self, body: bytes) -> Answer:
        wall_seconds = self._clock.wall_time_ns() / NS_PER_SECOND
        return self._answer(body, lambda table, given: filtered(table, given, wall_seconds))

    def _prioritize(self, body: bytes) -> Answer:
        return self._answer(body, prioritized)

    def _answer(self, body: bytes, say: Callable[[PlanTable, object], object]) -> Answer:
        with self._lock:
            table, until_ns = self._table, self._until_ns
        if table is None:
            return 503, b"another replica plans\n"
        if self._clock.monotonic_ns() > until_ns:
            table = PlanTable()
        try:
            return 200, json.dumps(say(table, json.loads(body))).encode()
        except ValueError as error:
            return 400, f"the body is no JSON: {error}\n".encode()
        except InputError as error:
            return 400, f"{error}\n".encode()
