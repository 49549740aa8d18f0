"""Watches the demo from outside while everybody waits: accounts, invariants, brakes.

It runs in the conductor between two moments of simulated time, when no thread of the product runs
and no message is under way, so that what it sees is consistent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from actuator.lease_table import LeaseTable
from controller.app.tick_loop import TickOutcome
from controller.tick_values import Band
from simulation.monitor import InvariantMonitor
from simulation.told import decided_caps, told_by
from simulation.world import World
from wattpack.units import NS_PER_SECOND, seconds_to_ns


class Watch:
    """Moves the world and checks it.

    Args:
        world: What is moved.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._outcomes: list[TickOutcome] = []
        self._monitor: InvariantMonitor | None = None
        self._warm_ns = seconds_to_ns(world.scenario.warmup_seconds)
        self._is_warm = self._warm_ns == 0
        self._checked_second = -1
        self._braking: set[str] = set()
        self.brakes = 0
        self._each_second: Callable[[int], None] = lambda now_ns: None
        self._each_decision: Callable[[TickOutcome], None] = lambda outcome: None

    def observe(
        self, second: Callable[[int], None], decided: Callable[[TickOutcome], None]
    ) -> None:
        """Call these once a simulated second, while time stands, and for each decision."""
        self._each_second, self._each_decision = second, decided

    def attach(self, tables: Mapping[str, LeaseTable]) -> None:
        """Begin to check invariants on these lease tables."""
        self._monitor = InvariantMonitor(self._world, tables)

    def ticked(self, outcome: TickOutcome) -> None:
        """A controller has decided; only what a leader decides counts."""
        if outcome.seen.leading:
            with self._lock:
                self._outcomes.append(outcome)

    def advance(self, to_ns: int) -> None:
        """The conductor's hook before each new moment."""
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
        for outcome in outcomes:
            self._take(outcome, self._world.now_ns)
        if not self._is_warm and to_ns >= self._warm_ns:
            self._world.advance(self._warm_ns)
            self._world.reset_accounts()
            self._is_warm = True
        self._world.advance(to_ns)
        if self._monitor is not None and to_ns // NS_PER_SECOND != self._checked_second:
            self._checked_second = to_ns // NS_PER_SECOND
            self._monitor.check(to_ns)
            self._each_second(to_ns)

    def _take(self, outcome: TickOutcome, now_ns: int) -> None:
        self._each_decision(outcome)
        world, topology, decisions = self._world, outcome.topology, outcome.decisions
        world.note_caps(now_ns, decided_caps(world, topology, decisions))
        if self._monitor is not None:
            self._monitor.decided(told_by(world, topology, outcome.seen, decisions), now_ns)
        braking = {
            name
            for name, band in zip(topology.tree.names, decisions.band, strict=True)
            if band == Band.BRAKE
        }
        if self._is_warm:
            self.brakes += len(braking - self._braking)
        self._braking = braking

    @property
    def violations(self) -> list[str]:
        """Every violation that was seen, in words."""
        return [] if self._monitor is None else list(self._monitor.details)

    @property
    def violation_count(self) -> int:
        """How many there were."""
        return 0 if self._monitor is None else self._monitor.count
