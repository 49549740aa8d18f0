"""Servers of a small row in virtual time: boards and actuator (agents: ``_lease_agent``).

Each has a clock of its own. A write takes 10 to 80 ms to reach its board, and a board that hangs
takes its round until the actuator's deadline, as behind ``gpu.workers.DeadlineExecutor``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from actuator.app.assembly import build_table, read_bounds, start_actuator
from actuator.app.board_writes import DEADLINE_NS
from actuator.app.config_file import ActuatorConfig
from actuator.app.node_actuator import Actuator
from actuator.app.persisted_state import MemoryStore
from actuator.audit_log import AuditTrail
from actuator.lease_entry import Outcome, Write, WriteKind
from actuator.lease_messages import ActuatorStatus, ApplyResult, LeaseCommand
from actuator.lease_table import LeaseTable
from actuator.unix_socket.client import ActuatorUnavailable
from benchmarks._lease_agent import Process
from controller.tick_values import Decisions, Topology
from gpu.device import GpuIdentity, GpuProcess, GpuReading, GpuTimeout, PowerLimits
from wattpack.clock import ManualClock
from wattpack.units import NS_PER_MS, NS_PER_SECOND, GpuUuid
from wattpack.wire.v1 import power_pb2

if TYPE_CHECKING:
    from benchmarks._lease_row import Row

#: Writes and their read-backs: 50-80 ms (DynamoLLM), about 10 ms (Perseus), for clocks; assumed.
WRITE_NS = (10 * NS_PER_MS, 80 * NS_PER_MS)


class Witness(Protocol):
    """What a judge is told, in true time."""

    def issued(self, node: int, nonce: int, now_ns: int) -> None:
        """An actuator gave a nonce."""
        ...

    def spoke(self, node: int, batch: power_pb2.LeaseBatch, now_ns: int) -> None:
        """A replica put a batch on the wire."""
        ...

    def accepted(self, node: int, command: LeaseCommand, now_ns: int) -> None:
        """An actuator took a command."""
        ...

    def decided(self, topology: Topology, decisions: Decisions, epoch: int, now_ns: int) -> None:
        """A replica ticked, in a term or, with 0, without leading."""
        ...


class OwnClock(ManualClock):
    """The row's time with an origin of its own."""

    def __init__(self, row: Row, offset_ns: int) -> None:
        super().__init__()
        self._row, self._offset_ns = row, offset_ns

    def monotonic_ns(self) -> int:
        """The row's time, counted from this machine's boot."""
        return self._row.now_ns + self._offset_ns


class Board:
    """One GPU: what its driver was told, what holds by now, and what it draws."""

    def __init__(self, row: Row, uuid: str, index: int) -> None:
        self._row = row
        self.identity = GpuIdentity(GpuUuid(uuid), row.kind.product, index)
        self.written_watts = self.limit_watts = row.kind.default_watts
        self.changed_ns = self._lands_ns = 0
        self.demand_watts, self.wanted_ns = 300.0, 0
        self.drawn_watts = row.kind.idle_watts
        self.joules = 1.0
        self.hangs = False

    def draw_watts(self) -> float:
        """Over the last 50 ms, as its regulation held it."""
        return self.drawn_watts

    def want(self, watts: float) -> None:
        """Its work would draw this from now on."""
        self.demand_watts, self.wanted_ns = watts, self._row.now_ns

    def read(self, now_ns: int) -> GpuReading:
        """One sample."""
        self._answer()
        # Two equal numbers in a row are rare on a real board (I7).
        draw = self.draw_watts() * self._row.rng.uniform(0.99, 1.0)
        return GpuReading(now_ns, draw, energy_joules=self.joules)

    def limits(self) -> PowerLimits:
        """As the driver tells them."""
        self._answer()
        told, kind = self.written_watts, self._row.kind
        return PowerLimits(kind.min_watts, kind.default_watts, kind.default_watts, told, told)

    def max_clock_mhz(self) -> int:
        """The highest clock."""
        return 1980

    def processes(self) -> tuple[GpuProcess, ...]:
        """Nobody."""
        return ()

    def set_power_limit(self, watts: float) -> None:
        """Takes effect in a moment."""
        self._answer()
        self.written_watts = watts
        # A board takes one write after the other.
        at_ns = self._row.now_ns + self._row.rng.randint(*WRITE_NS)
        self._lands_ns = max(self._lands_ns, at_ns)
        self._row.at(self._lands_ns, lambda: self.hold(watts))

    def hold(self, watts: float) -> None:
        """The limit is set and read back from now on; lowered, the draw follows later."""
        self.limit_watts, self.changed_ns = watts, self._row.now_ns
        self._row.limits_changed()

    def lock_clocks(self, max_mhz: int) -> None:
        """Nobody locks clocks here."""

    def reset_clocks(self) -> None:
        """Nobody locks clocks here."""

    def _answer(self) -> None:
        if self.hangs:
            raise GpuTimeout(f"{self.identity.uuid} hangs")


class Hands:
    """Writes in virtual time: a board that begins to hang holds its round up, once."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._stuck: set[str] = set()

    def carry_out(self, plans: Mapping[str, tuple[Write, ...]]) -> dict[str, Outcome]:
        """All boards at the same time."""
        node, busy_ns, outcomes = self._node, 0, {}
        for uuid, writes in plans.items():
            board = node.boards[uuid]
            if board.hangs:
                busy_ns = max(busy_ns, 0 if uuid in self._stuck else DEADLINE_NS)
                self._stuck.add(uuid)
                outcomes[uuid] = Outcome(error="stuck", failed=writes[0] if writes else None)
                continue
            self._stuck.discard(uuid)
            for write in writes:
                if write.kind is WriteKind.POWER_LIMIT and write.cap_watts is not None:
                    board.set_power_limit(write.cap_watts)
                    busy_ns = max(busy_ns, WRITE_NS[1])
            outcomes[uuid] = Outcome(board.written_watts, board.written_watts, writes)
        node.busy_until_ns = node.row.now_ns + busy_ns
        return outcomes

    def close(self) -> None:
        """Nothing is held."""


def void(value: object) -> None:
    """Drop a value."""


class Node:
    """Boards, actuator and agent of one server; it is its own actuator port."""

    def __init__(self, row: Row, number: int, uuids: tuple[str, ...], guaranteed: float) -> None:
        self.row, self.number, self.name = row, number, row.topology.node_names[number]
        self.boards = {uuid: Board(row, uuid, i) for i, uuid in enumerate(uuids)}
        self.guaranteed_watts = guaranteed
        self.clock = OwnClock(row, row.rng.randrange(10**15))
        self.boots, self.busy_until_ns = 0, 0
        self.status_nonce = 0
        self.cut_up = self.cut_down = False
        self._store = MemoryStore()
        self.table: LeaseTable
        self.actuator: Actuator
        self.start_actuator()
        self.agents: list[Process] = []
        self._started = 0
        row.after(row.rng.randrange(NS_PER_SECOND), lambda: void(self.start_agent()))
        self._look_after_leases()

    # -- life and death --------------------------------------------------------------------------

    def start_actuator(self) -> None:
        """As after a crash of the actuator: guaranteed caps, or what is left of leases."""
        boards = tuple(self.boards.values())
        bounds = {u: read_bounds(b) for u, b in self.boards.items()}
        config = ActuatorConfig({"*": self.guaranteed_watts}, allowed_uids=frozenset({0}))
        generator = random.Random(self.row.rng.random())
        self.table = build_table(config, boards, bounds, f"boot-{self.boots}", generator)
        self.actuator = start_actuator(
            self.table, Hands(self), self._store, self.clock, AuditTrail(8)
        )

    def start_agent(self, instance: str | None = None) -> Process:
        """A new agent process, beside another if there is one: it knows nothing.

        Args:
            instance: Of the process; None for one that is new, or, of an agent of before instances
                were said (one in four), for none.
        """
        self._started += 1
        if instance is None:
            instance = "" if self.row.rng.random() < 0.25 else f"agent-{self._started}"
        self.agents.append(Process(self, instance))
        return self.agents[-1]

    def kill_agent(self, process: Process | None = None) -> None:
        """One agent process ends, or all of them."""
        for one in [process] if process is not None else list(self.agents):
            one.kill()
            self.agents.remove(one)

    def reboot(self) -> None:
        """Full power, then the host unit and everything else, in the same moment."""
        self.kill_agent()
        self.boots += 1
        for board in self.boards.values():
            board.hangs = False
            board.written_watts = self.row.kind.default_watts
            board.hold(self.row.kind.default_watts)
        self.start_actuator()
        self.start_agent()

    # -- the actuator, as the agent reaches it ----------------------------------------------------

    def status(self) -> ActuatorStatus:
        """Its present state."""
        if self.row.now_ns < self.busy_until_ns:
            raise ActuatorUnavailable("busy with a board")
        status = self.actuator.status()
        self.status_nonce = status.nonce
        self.row.witness.issued(self.number, status.nonce, self.row.now_ns)
        return status

    def apply(self, command: LeaseCommand) -> ApplyResult:
        """A command for it."""
        result = self.actuator.apply(command)
        if result.accepted:
            self.row.witness.accepted(self.number, command, self.row.now_ns)
        return result

    def handle(self) -> None:
        """Batches for the actuator, once it has time."""
        if self.row.now_ns < self.busy_until_ns:
            self.row.at(self.busy_until_ns, self.handle)
            return
        for process in self.agents:
            process.handle()

    def _look_after_leases(self) -> None:
        """The actuator's own loop: called when it said, or when it has time again."""
        row = self.row
        if row.now_ns >= self.busy_until_ns:
            self.actuator.tick()
        own_ns = self.clock.monotonic_ns() - row.now_ns
        due_ns = max(self.actuator.next_wake_ns() - own_ns, self.busy_until_ns, row.now_ns)
        due_ns = max(due_ns, row.now_ns + NS_PER_MS)
        # Peers' messages make the real loop look more often; a lease that was just given may end
        # before what was due when it last looked.
        row.at(min(due_ns, row.now_ns + 50 * NS_PER_MS), self._look_after_leases)
