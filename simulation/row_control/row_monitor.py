"""Watches I1 to I4 of a row from outside, once a second: what is held, never what was decided.

Worked out anew from docs/architecture.md (Promises), with constants of its own, as
``simulation.monitor`` does for the twin; here for all boards at once.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from simulation.row_control.actuators import NEVER, RowActuators
from simulation.row_control.jump_judge import HIGHEST_RATIO, JumpJudge
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.work import Bools, Floats, Integers
from wattpack.units import NS_PER_SECOND

MATCH_WATTS = 1.5
HEAT_TOLERANCE = 0.03
"""Curves through the same published points differ by up to 4 % between and beside them."""

JUMP_SECONDS = 3.0
"""I2 is restored by lowering caps when nodes fall silent; a command and its read-back take this."""

HELD_SECONDS = 2.5
"""A limit above what is held is undone within a read-back and a write (I10)."""

SILENT_SECONDS = 3.0


class RowMonitor:
    """Counts seconds in which an invariant does not hold, each at most once a second.

    Args:
        plant: Truth.
        actuators: What is held.
        lease_seconds: The declared lease.
    """

    def __init__(self, plant: RowPlant, actuators: RowActuators, lease_seconds: float) -> None:
        self._plant, self._actuators, self._lease_seconds = plant, actuators, lease_seconds
        self.counts: Counter[str] = Counter()
        self.details: list[str] = []
        n_domains = len(plant.domain_names)
        self._jump = JumpJudge(plant, lease_seconds)
        self._default = self._shaped(plant.bank.default_limit_watts)
        self._jump_since_ns = np.full(n_domains, NEVER)
        self._above_since_ns = np.full(actuators.cap_watts.shape, NEVER)
        self._floor_of = np.zeros(0)
        self._floor_broken: list[str] = []
        self._epoch = actuators.epoch.copy()
        self._boot = actuators.boot.copy()

    def _shaped(self, boards: Floats) -> Floats:
        return boards.reshape(self._actuators.cap_watts.shape)

    def check(self, heard_ns: Integers, excused: Bools) -> None:
        """Look once.

        Args:
            heard_ns: When the controller heard of each node last, (n_nodes,).
            excused: Boards that a declared fault keeps from obeying, (n_nodes, g).
        """
        now_ns, up = self._plant.now_ns, self._plant.up
        self._check_floor(now_ns)
        self._check_leases(now_ns, excused | ~up[:, None])
        self._check_jump(now_ns, heard_ns)

    def _violated(self, name: str, now_ns: int, text: str) -> None:
        self.counts[name] += 1
        if len(self.details) < 100:
            seconds = (now_ns - self._plant.start_ns) / NS_PER_SECOND
            self.details.append(f"{name} at {seconds:.2f} s: {text}")

    def _check_floor(self, now_ns: int) -> None:
        """I1: guaranteed caps, and the largest 5 % of a domain's servers at default limits."""
        held = self._actuators.guaranteed_watts
        if not np.array_equal(held, self._floor_of):
            self._floor_of = held.copy()
            self._floor_broken = self._broken_floors(held.sum(axis=1))
        for text in self._floor_broken:
            self._violated("I1", now_ns, text)

    def _broken_floors(self, guaranteed: Floats) -> list[str]:
        """Domains that bear too much then, each in words."""
        broken = []
        jump = self._default.sum(axis=1) - guaranteed
        for domain, members in enumerate(self._jump.members):
            count = max(1, int(np.ceil(0.05 * members.sum())))
            largest = np.argsort(-np.where(members, jump, -1.0), kind="stable")[:count]
            node_watts = guaranteed.copy()
            node_watts[largest] = self._default[largest].sum(axis=1)
            watts = float(self._jump.floor_watts(node_watts)[domain])
            rating = float(self._plant.breakers.rating_watts[domain])
            if watts > rating + 1.0:
                name = self._plant.domain_names[domain]
                broken.append(f"{name}: {watts:.0f} of {rating:.0f} W")
        return broken

    def _check_leases(self, now_ns: int, excused: Bools) -> None:
        """I3, I4, I10: who holds more than guaranteed has a lease; epochs rise; limits are kept."""
        actuators = self._actuators
        left_ns = actuators.deadline_ns - actuators.local_ns(now_ns)[:, None]
        leased = (actuators.deadline_ns < NEVER) & (left_ns > -NS_PER_SECOND)
        above = (actuators.cap_watts > actuators.guaranteed_watts + MATCH_WATTS) & ~leased
        if above.any():
            self._violated("I3", now_ns, f"{above.sum()} caps above guaranteed without a lease")
        long = (actuators.deadline_ns < NEVER) & (left_ns > self._lease_seconds * NS_PER_SECOND)
        if long.any():
            self._violated("I3", now_ns, f"{long.sum()} leases longer than declared")
        same_boot = actuators.boot == self._boot
        if (same_boot & (actuators.epoch < self._epoch)).any():
            self._violated("I4", now_ns, "an epoch fell")
        self._epoch, self._boot = actuators.epoch.copy(), actuators.boot.copy()
        over = (actuators.limit_watts > actuators.cap_watts + MATCH_WATTS) & ~excused
        since = np.where(over, np.minimum(self._above_since_ns, now_ns), NEVER)
        self._above_since_ns = since
        late = over & (now_ns - since > HELD_SECONDS * NS_PER_SECOND)
        if late.any():
            self._violated("I10", now_ns, f"{late.sum()} boards above their cap for too long")

    def _check_jump(self, now_ns: int, heard_ns: Integers) -> None:
        """I2: every board at the highest cap it may hold, for as long as a dead controller allows.

        Silent nodes count at their default limits; once all others are at guaranteed caps there is
        nothing left to lower.
        """
        actuators = self._actuators
        caps = np.maximum(actuators.cap_watts, actuators.limit_watts)
        quiet = now_ns - heard_ns > SILENT_SECONDS * NS_PER_SECOND
        caps = np.where(quiet[:, None], self._default, caps)
        breakers = self._plant.breakers
        ratio = self._jump.load_ratio(caps.sum(axis=1))
        heat = self._jump.heat_after(breakers.heat, ratio)
        allowed = self._jump.allowed_heat
        lowerable = (actuators.cap_watts > actuators.guaranteed_watts + MATCH_WATTS).any(axis=1)
        left = (self._jump.members & (lowerable & ~quiet)).any(axis=1)
        bad = ((heat > allowed + HEAT_TOLERANCE) | (ratio > HIGHEST_RATIO)) & left
        self._jump_since_ns = np.where(bad, np.minimum(self._jump_since_ns, now_ns), NEVER)
        late = bad & (now_ns - self._jump_since_ns > JUMP_SECONDS * NS_PER_SECOND)
        for domain in np.flatnonzero(late):
            name = self._plant.domain_names[int(domain)]
            text = f"{name}: load {ratio[domain]:.3f} would heat to {heat[domain]:.3f}"
            self._violated("I2", now_ns, text)
