"""The actuators of a row as arrays: leases, fences, writes and read-backs (I3, I4, I10).

Written from docs/architecture.md (Promises), not from the product's lease table; a test holds the
two to each other. Times of the run are ns on the controller's clock; a lease runs on the node's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from simulation.row_control.drawn_ahead import DrawnAhead
from simulation.row_control.messages import LeaseBatches
from simulation.row_control.start_states import RowStart
from simulation.row_control.work import Bools, Floats, Integers
from wattpack.units import NS_PER_MS, NS_PER_SECOND

NEVER: Final = np.iinfo(np.int64).max // 2
NONCE_LIFE_NS: Final = 2 * NS_PER_SECOND
READ_BACK_NS: Final = NS_PER_SECOND
MATCH_WATTS: Final = 1.0
FAILURES_UNTIL_UNCONTROLLED: Final = 3
RING: Final = 16


@dataclass(frozen=True, slots=True)
class ActuatorTimes:
    """Delays between a word and its write; assumed, within the product's 0.5 s at p99.9.

    Attributes:
        write_seconds: Lowest and highest of an ordinary write and its read-back.
        slow_write_seconds: The same of a slow one.
        slow_chance: How often it is slow.
        host_unit_seconds: From a server's boot to the guaranteed caps of its host unit (I10).
        out_of_band_seconds: What a word over a server's management network takes (POLCA: 40 s).
    """

    write_seconds: tuple[float, float] = (0.01, 0.08)
    slow_write_seconds: tuple[float, float] = (0.1, 0.5)
    slow_chance: float = 0.01
    host_unit_seconds: float = 2.0
    out_of_band_seconds: float = 40.0


@dataclass(frozen=True, slots=True)
class BoardRange:
    """What the boards accept, (n_nodes, g) each."""

    min_watts: Floats
    default_watts: Floats
    max_watts: Floats


class RowActuators:
    """One actuator a server, all at once; arrays are (n_nodes,) or (n_nodes, g).

    Arrays are written to, never replaced: ``compiled_talk`` holds on to them.

    Args:
        boards: Their ranges.
        guaranteed_watts: Guaranteed caps as configured and persisted, (n_nodes, g).
        times: Delays.
        generator: Of delays, clocks and failing writes.
        start_ns: First instant.
        clock_spread_seconds: Each node's clock is off by up to so much.

    Attributes:
        cap_watts: What each board shall hold.
        limit_watts: What its driver holds.
        seen_watts: What was read back last.
        out_of_band: Servers that no lease reaches: their guaranteed caps are set late, and nobody
            vouches for them.
        deadline_ns: End of its lease on the node's clock, ``NEVER`` without one.
        confirmed_sequence: Of the last command that a read-back agreed with.
        refused: Batches that were not accepted, in all.
        expired: Boards whose lease ran out, in all.
        draws: Random numbers of writes and their delays.
        nonces: Given last.
        nonce_ring: Nonces given of late, by their remainder, (n_nodes, ``RING``).
        issued_ring: When each was given, on the node's clock.
    """

    def __init__(
        self,
        boards: BoardRange,
        guaranteed_watts: Floats,
        times: ActuatorTimes,
        generator: np.random.Generator,
        start_ns: int = 0,
        clock_spread_seconds: float = 5.0,
    ) -> None:
        n, g = int(guaranteed_watts.shape[0]), int(guaranteed_watts.shape[1])
        shape = (n, g)
        self._boards, self.times = boards, times
        spread_ns = clock_spread_seconds * NS_PER_SECOND
        offsets = spread_ns * generator.uniform(0.0, 2.0, size=n)
        self.clock_offset_ns: Integers = offsets.astype(np.int64)
        self.guaranteed_watts = guaranteed_watts.copy()
        self.cap_watts = guaranteed_watts.copy()
        self.limit_watts = guaranteed_watts.copy()
        self.seen_watts = guaranteed_watts.copy()
        self.lock_mhz = np.zeros(shape, dtype=np.int64)
        self.driver_lock_mhz = np.zeros(shape, dtype=np.int64)
        self.deadline_ns = np.full(shape, NEVER)
        self.sequence = np.zeros(shape, dtype=np.int64)
        self.confirmed_sequence = np.zeros(shape, dtype=np.int64)
        self.ever_confirmed: Bools = np.ones(shape, dtype=np.bool_)
        self.failures = np.zeros(shape, dtype=np.int64)
        self.epoch = np.zeros(n, dtype=np.int64)
        self.fence_sequence = np.zeros(n, dtype=np.int64)
        self.fence_issued_ns = np.full(n, -1, dtype=np.int64)
        self.write_ns = np.full(n, NEVER)
        self.next_read_ns: Integers = start_ns + generator.integers(0, READ_BACK_NS, size=n)
        self.boot = np.ones(n, dtype=np.int64)
        self.ready_ns = np.zeros(n, dtype=np.int64)
        self.out_of_band: Bools = np.zeros(n, dtype=np.bool_)
        self.nonces = np.zeros(n, dtype=np.int64)
        self.nonce_ring = np.zeros((n, RING), dtype=np.int64)
        self.issued_ring = np.zeros((n, RING), dtype=np.int64)
        self.refused = self.expired = 0
        self.draws = DrawnAhead(generator)

    def begin_as(self, start: RowStart, now_ns: int) -> None:
        """Stand as somebody left it: what is held was written and read back.

        Args:
            start: Caps, locks, leases, and who is out of band.
            now_ns: When the run begins.
        """
        self.out_of_band[:] = start.out_of_band
        for held in (self.cap_watts, self.limit_watts, self.seen_watts):
            held[:] = start.cap_watts
        for locked in (self.lock_mhz, self.driver_lock_mhz):
            locked[:] = start.lock_mhz
        left_ns = (start.lease_seconds * NS_PER_SECOND).astype(np.int64)
        ends = np.where(left_ns > 0, self.local_ns(now_ns) + left_ns, NEVER)
        self.deadline_ns[:] = ends[:, None]

    def local_ns(self, now_ns: Integers | int, nodes: Integers | slice = slice(None)) -> Integers:
        """The nodes' own clocks at a time, (n,)."""
        offsets = self.clock_offset_ns
        if not isinstance(nodes, slice):
            offsets = offsets.take(nodes)
        return np.asarray(now_ns + offsets, dtype=np.int64)

    # -- what is told ----------------------------------------------------------------------------

    def new_nonces(self, nodes: Integers, at_ns: Integers) -> Integers:
        """A nonce for a status that each of the nodes gives now, (n,)."""
        nonces = self.nonces.take(nodes) + 1
        self.nonces[nodes] = nonces
        slot = nonces % RING
        self.nonce_ring[nodes, slot] = nonces
        self.issued_ring[nodes, slot] = self.local_ns(at_ns, nodes)
        return nonces

    def controlled(self, nodes: Integers) -> Bools:
        """Boards that the actuator vouches for, (n, g)."""
        controlled = self.ever_confirmed.take(nodes, axis=0)
        controlled &= ~self.out_of_band.take(nodes)[:, None]
        failed = self.failures.take(nodes, axis=0) >= FAILURES_UNTIL_UNCONTROLLED
        if not failed.any():
            return controlled
        too_high = self.seen_watts[nodes] > self.cap_watts[nodes] + MATCH_WATTS
        return np.asarray(controlled & ~(too_high & failed))

    def leased(self, nodes: Integers, at_ns: Integers) -> Bools:
        """Boards under a running lease, (n, g)."""
        deadline = self.deadline_ns.take(nodes, axis=0)
        local = self.local_ns(at_ns, nodes)[:, None]
        return np.asarray((deadline < NEVER) & (deadline > local))

    # -- what is commanded -----------------------------------------------------------------------

    def apply(self, batches: LeaseBatches, nodes: Integers, at_ns: Integers) -> Bools:
        """Judge a batch a node, and hold what is accepted; which were, (n,).

        Args:
            batches: One row a node.
            nodes: Which, each at most once, (n,).
            at_ns: When each arrived, (n,).
        """
        self.expire(at_ns, nodes)
        local = self.local_ns(at_ns, nodes)
        slot = nodes * RING + batches.nonce % RING
        issued = self.issued_ring.take(slot)
        known = (self.nonce_ring.take(slot) == batches.nonce) & (batches.nonce > 0)
        fresh = known & (local - issued <= NONCE_LIFE_NS)
        deadline = issued + batches.ttl_ms * NS_PER_MS
        epoch, fence_ns = self.epoch.take(nodes), self.fence_issued_ns.take(nodes)
        newer = (issued > fence_ns) | (
            (issued == fence_ns) & (batches.sequence > self.fence_sequence.take(nodes))
        )
        follows = np.where(batches.epoch == epoch, newer, batches.epoch > epoch)
        accepted: Bools = fresh & follows & (deadline > local)
        accepted &= self.ready_ns.take(nodes) <= at_ns
        accepted &= ~self.out_of_band.take(nodes)
        if not accepted.all():
            self.refused += int((~accepted).sum())
            if not accepted.any():
                return accepted
            nodes, at_ns, issued = nodes[accepted], at_ns[accepted], issued[accepted]
            batches, deadline = batches.rows(accepted), deadline[accepted]
        self._hold(batches, nodes, deadline)
        self.fence_issued_ns[nodes] = issued
        self._due(nodes, at_ns)
        return accepted

    def _hold(self, batches: LeaseBatches, nodes: Integers, deadline_ns: Integers) -> None:
        self.epoch[nodes] = batches.epoch
        self.fence_sequence[nodes] = batches.sequence
        new = batches.guaranteed_watts > 0.0
        if new.any():
            self.guaranteed_watts[nodes] = np.where(
                new, batches.guaranteed_watts, self.guaranteed_watts[nodes]
            )
        self.cap_watts[nodes] = batches.cap_watts
        self.lock_mhz[nodes] = batches.lock_max_mhz
        self.deadline_ns[nodes] = deadline_ns[:, None]
        self.sequence[nodes] = batches.sequence[:, None]

    def _due(self, nodes: Integers, at_ns: Integers) -> None:
        """Writes of these nodes begin now; one that is under way is waited for."""
        under_way = self.write_ns.take(nodes)
        begin = np.where(under_way < NEVER, np.maximum(under_way, at_ns), at_ns)
        times, n = self.times, len(nodes)
        slow = self.draws.random(n) < times.slow_chance
        share = self.draws.random(n)
        low, high = times.write_seconds
        seconds = low + share * (high - low)
        if slow.any():
            low, high = times.slow_write_seconds
            seconds = np.where(slow, low + share * (high - low), seconds)
        late = self.out_of_band.take(nodes)
        if late.any():
            seconds = np.where(late, times.out_of_band_seconds, seconds)
        self.write_ns[nodes] = begin + (seconds * NS_PER_SECOND).astype(np.int64)

    # -- what time does --------------------------------------------------------------------------

    def expire(self, until_ns: Integers, nodes: Integers | slice = slice(None)) -> None:
        """End leases that have run out; silence raises nothing, a lock stays.

        Args:
            until_ns: By node, (n,).
            nodes: Which.
        """
        deadline = self.deadline_ns[nodes]
        over = deadline <= self.local_ns(until_ns, nodes)[:, None]
        if not over.any():
            return
        self.expired += int(over.sum())
        struck = over.any(axis=1)
        ended = np.where(over, deadline, NEVER).min(axis=1)[struck]
        caps, seen = self.cap_watts[nodes], self.seen_watts[nodes]
        fallen = np.minimum(np.minimum(caps, self.guaranteed_watts[nodes]), seen)
        self.cap_watts[nodes] = np.where(over, fallen, caps)
        self.deadline_ns[nodes] = np.where(over, NEVER, deadline)
        which = np.flatnonzero(struck) if isinstance(nodes, slice) else nodes[struck]
        self._due(which, ended - self.clock_offset_ns[which])

    def write(self, until_ns: Integers, fail_chance: Floats) -> None:
        """Carry out the writes that are through by then, and read them back.

        Args:
            until_ns: By node, (n_nodes,).
            fail_chance: That a write changes nothing, silently, (n_nodes, g).
        """
        nodes = (self.write_ns <= until_ns).nonzero()[0]
        if not nodes.size:
            return
        self.write_ns[nodes] = NEVER
        caps, limits = self.cap_watts.take(nodes, axis=0), self.limit_watts.take(nodes, axis=0)
        tried = np.abs(self.seen_watts.take(nodes, axis=0) - caps) > MATCH_WATTS
        locks = self.lock_mhz.take(nodes, axis=0)
        written = tried
        fails = fail_chance.take(nodes, axis=0)
        if fails.any():
            works = self.draws.random(caps.shape) >= fails
            written = tried & works
            locks = np.where(works, locks, self.driver_lock_mhz[nodes])
        limits = np.where(written, caps, limits)
        self.limit_watts[nodes] = limits
        self.driver_lock_mhz[nodes] = locks
        self._see(nodes, limits, caps, tried)

    def _see(self, nodes: Integers, limits: Floats, caps: Floats, tried: Bools | None) -> None:
        """Take in what the drivers hold, and whether that is meant, (k, g) each."""
        self.seen_watts[nodes] = limits
        agrees = np.abs(limits - caps) <= MATCH_WATTS
        if agrees.all():
            self.failures[nodes] = 0
            self.ever_confirmed[nodes] = True
            self.confirmed_sequence[nodes] = self.sequence.take(nodes, axis=0)
            return
        failures = self.failures[nodes] if tried is None else self.failures[nodes] + tried
        self.failures[nodes] = np.where(agrees, 0, failures)
        self.ever_confirmed[nodes] |= agrees
        self.confirmed_sequence[nodes] = np.where(
            agrees, self.sequence[nodes], self.confirmed_sequence[nodes]
        )

    def read_back(self, until_ns: int) -> None:
        """Once a second look what the drivers hold, and write again where it differs (I10)."""
        nodes = ((self.next_read_ns <= until_ns) & (self.ready_ns <= until_ns)).nonzero()[0]
        if not nodes.size:
            return
        at_ns = self.next_read_ns.take(nodes)
        self.next_read_ns[nodes] = at_ns + READ_BACK_NS
        caps, limits = self.cap_watts.take(nodes, axis=0), self.limit_watts.take(nodes, axis=0)
        self._see(nodes, limits, caps, None)
        differs = (np.abs(limits - caps) > MATCH_WATTS).any(axis=1)
        differs &= self.write_ns[nodes] == NEVER
        if differs.any():
            self._due(nodes[differs], at_ns[differs])

    # -- what happens to a server ----------------------------------------------------------------

    def driver_reloaded(self, node: int) -> None:
        """Limits are the default ones and locks gone, until somebody looks."""
        self.limit_watts[node] = self._boards.default_watts[node]
        self.driver_lock_mhz[node] = 0

    def rebooted(self, node: int, up_ns: int) -> None:
        """Leases, fence and nonces are gone; guaranteed caps come with the host unit (I10)."""
        self.driver_reloaded(node)
        self.boot[node] += 1
        ready_ns = up_ns + round(self.times.host_unit_seconds * NS_PER_SECOND)
        self.ready_ns[node], self.write_ns[node] = ready_ns, ready_ns
        if self.out_of_band[node]:
            self.write_ns[node] += round(self.times.out_of_band_seconds * NS_PER_SECOND)
        self.next_read_ns[node] = ready_ns + READ_BACK_NS
        self.cap_watts[node] = self.guaranteed_watts[node]
        self.seen_watts[node] = self.limit_watts[node]
        self.lock_mhz[node] = 0
        self.deadline_ns[node] = NEVER
        self.sequence[node] = self.confirmed_sequence[node] = 0
        self.ever_confirmed[node] = False
        self.failures[node] = 0
        self.epoch[node] = self.fence_sequence[node] = 0
        self.fence_issued_ns[node] = -1
        self.nonce_ring[node] = 0
