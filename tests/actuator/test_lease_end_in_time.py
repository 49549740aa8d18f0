"""A lease ends in time on every board that answers, whatever another board does (I2)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from actuator.app.board_writes import DEADLINE_NS
from actuator.app.node_actuator import READ_BACK_PERIOD_NS, Actuator
from actuator.app.persisted_state import MemoryStore
from actuator.audit_log import AuditTrail
from actuator.lease_entry import DeviceBounds, Outcome, Write, WriteKind
from actuator.lease_messages import DeviceCommand, LeaseCommand, Operation
from actuator.lease_table import LeaseTable
from wattpack.clock import ManualClock
from wattpack.units import NS_PER_MS, NS_PER_SECOND

#: Most of T_fault's actuation; writes and their read-backs take 10 to 80 ms.
ACTUATION_NS = NS_PER_SECOND // 2
WRITE_NS = 80 * NS_PER_MS
TTL_MS = 4000
BUSY_NS = 20 * NS_PER_MS


class SlowHands:
    """Boards behind one deadline, in virtual time: a hung one holds a round up until the deadline.

    After that it is asked nothing more, as by ``DeadlineExecutor``.
    """

    def __init__(self, clock: ManualClock, uuids: tuple[str, ...]) -> None:
        self._clock = clock
        self.limits = dict.fromkeys(uuids, 700.0)
        self.written_ns: dict[str, int] = {}
        self.hang: str | None = None
        self._stuck: set[str] = set()

    def carry_out(self, plans: Mapping[str, tuple[Write, ...]]) -> dict[str, Outcome]:
        """All boards at the same time."""
        begin_ns = self._clock.monotonic_ns()
        hangs = {uuid for uuid in plans if uuid == self.hang} - self._stuck
        outcomes = {}
        for uuid, writes in plans.items():
            if uuid in hangs | self._stuck:
                outcomes[uuid] = Outcome(error="stuck", failed=writes[0] if writes else None)
                continue
            for write in writes:
                if write.kind is WriteKind.POWER_LIMIT and write.cap_watts is not None:
                    self.limits[uuid] = write.cap_watts
                    self.written_ns[uuid] = begin_ns + WRITE_NS
            outcomes[uuid] = Outcome(self.limits[uuid], self.limits[uuid], writes)
        self._stuck |= hangs
        self._clock.advance_to(begin_ns + (DEADLINE_NS if hangs else WRITE_NS))
        return outcomes

    def close(self) -> None:
        """Nothing is held."""


class Node:
    """An actuator whose owner calls it when it says so, with a batch a second until some moment."""

    def __init__(self) -> None:
        self.clock = ManualClock(start_ns=10**12)
        uuids = ("GPU-0", "GPU-1", "GPU-2")
        self.hands = SlowHands(self.clock, uuids)
        bounds = dict.fromkeys(uuids, DeviceBounds(200.0, 700.0, 700.0, 1980))
        nonces = itertools.count(1)
        table = LeaseTable(dict.fromkeys(uuids, 400.0), bounds, "boot", nonces.__next__)
        self.actuator = Actuator(table, self.hands, MemoryStore(), self.clock, AuditTrail())
        self.actuator.start()
        self.sequence = 0

    def lease(self) -> int:
        """Every board gets 600 W; when that ends."""
        status = self.actuator.status()
        self.sequence += 1
        boards = tuple(
            DeviceCommand(uuid, Operation.SET_POWER_LIMIT, 600.0) for uuid in status.devices
        )
        result = self.actuator.apply(LeaseCommand(1, self.sequence, status.nonce, TTL_MS, boards))
        assert result.accepted
        return status.clock_ns + TTL_MS * NS_PER_MS

    def run_until(self, end_ns: int) -> None:
        """Tick when the actuator wants to be called, and between, as behind a busy socket."""
        while (now_ns := self.clock.monotonic_ns()) < end_ns:
            next_ns = min(self.actuator.next_wake_ns(), now_ns + BUSY_NS)
            self.clock.advance_to(max(next_ns, now_ns))
            self.actuator.tick()


@pytest.mark.parametrize("hangs_before_ms", [*range(0, 700, 25)])
@pytest.mark.parametrize("phase_ms", [0, 300, 600, 900])
def test_i3_a_board_that_hangs_as_a_lease_ends_delays_no_other_board(
    hangs_before_ms: int, phase_ms: int
) -> None:
    node = Node()
    node.run_until(node.clock.monotonic_ns() + phase_ms * NS_PER_MS)
    end_ns = node.lease()
    node.run_until(end_ns - hangs_before_ms * NS_PER_MS)
    node.hands.hang = "GPU-0"
    node.run_until(end_ns + 2 * NS_PER_SECOND)
    for uuid in ("GPU-1", "GPU-2"):
        assert node.hands.limits[uuid] == 400.0
        assert end_ns <= node.hands.written_ns[uuid] - WRITE_NS
        assert node.hands.written_ns[uuid] <= end_ns + ACTUATION_NS


def test_i10_short_leases_put_the_read_back_off_by_no_more_than_the_deadline() -> None:
    node = Node()
    node.lease()
    begin_ns = node.clock.monotonic_ns()
    node.hands.limits["GPU-0"] = 700.0  # raised behind the actuator's back
    table = node.actuator._table
    table._held = {
        uuid: held.holding(held.cap_watts, None, begin_ns + 400 * NS_PER_MS)
        for uuid, held in table.entries().items()
    }
    while node.hands.limits["GPU-0"] == 700.0:
        now_ns = node.clock.monotonic_ns()
        assert now_ns <= begin_ns + READ_BACK_PERIOD_NS + DEADLINE_NS + WRITE_NS
        # Somebody renews leases of 400 ms again and again.
        table._held = {
            uuid: held.holding(held.cap_watts, None, now_ns + 400 * NS_PER_MS)
            for uuid, held in table.entries().items()
        }
        node.clock.advance_to(now_ns + 50 * NS_PER_MS)
        node.actuator.tick()
