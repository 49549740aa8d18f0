"""Judges a small row from outside: leases by its own account, limits by reading the boards.

It knows when each nonce was given and which commands were accepted, and works out for itself until
when each board may hold what. Nothing here is the controller's or the actuator's code; worst loads
and trip times are those of the house that it is given (``tests/controller/oracle.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actuator.lease_messages import LeaseCommand
from benchmarks._lease_breakers import LOOK_NS, Breakers, House
from benchmarks._lease_kind import RowKind
from benchmarks._lease_node import Board
from benchmarks._lease_order import OrderJudge
from benchmarks._lease_raises import RaiseJudge
from benchmarks._lease_row import Row
from controller.tick_values import Decisions, Topology
from wattpack.units import NS_PER_MS, NS_PER_SECOND
from wattpack.wire.v1 import power_pb2

#: What the design promises, written down again; a lease is as long as a file says, if there is one.
LEASE_MS = 3500
SET_WITHIN_NS = NS_PER_SECOND // 2
READ_BACK_WITHIN_NS = 3 * NS_PER_SECOND // 2
NONCE_LIFE_NS = 2 * NS_PER_SECOND
#: Beyond the lease, of T_fault: actuation and settling.
REACTION_SECONDS = 0.5 + 1.3
#: From the end of a lease to the draw: actuation 0.5 s, settling 1.3 s.
SETTLED_WITHIN_NS = 1800 * NS_PER_MS
#: A limit that somebody raised is undone within a read-back period and a write (I10).
UNDONE_WITHIN_NS = NS_PER_SECOND + SET_WITHIN_NS
#: Messages are under way for no longer; a node is silent 3 s after its newest report, which was
#: sent up to 1 s before it was cut off, as seen at a tick up to 1 s later.
UNDER_WAY_NS = 200 * NS_PER_MS
SILENT_AFTER_NS = 5 * NS_PER_SECOND + UNDER_WAY_NS
ROUNDING_WATTS = 1.5
#: A board at its cap draws up to so much of it (the design's steady overshoot).
OVERSHOOT = 1.05


@dataclass(slots=True)
class _Command:
    """One that an actuator accepted.

    Attributes:
        until_ns: End of its lease, or when a later one was accepted.
        caps: By board of the node; the guaranteed cap where it names none.
    """

    accepted_ns: int
    until_ns: int
    caps: dict[str, float]


class Judge:
    """Counts what breaks a promise, and how long the ends of leases took.

    Args:
        house: The row's breakers.
        ratings: Continuous watts of each domain.
        guaranteed: Of each board, in watts.
        order: Judges I5; None where no board is more important than another.
        kind: Of what the row is.
    """

    def __init__(
        self,
        house: House,
        ratings: Sequence[float],
        guaranteed: Sequence[float],
        order: OrderJudge | None = None,
        kind: RowKind | None = None,
    ) -> None:
        self._kind = kind or RowKind()
        given = self._kind.given
        lease_ms = LEASE_MS if given is None else given.scenario.control.lease_ttl_ms
        self._lease_ns = lease_ms * NS_PER_MS
        self.fault_seconds = self._lease_ns / NS_PER_SECOND + REACTION_SECONDS
        self._order = order
        self.breakers = Breakers(house, ratings, self.fault_seconds)
        self._guaranteed = list(guaranteed)
        uuids = [f"gpu-{number}" for number in range(len(self._guaranteed))]
        self._raises = RaiseJudge(self.breakers, self._guaranteed, uuids, self._lease_ns)
        self.violations: Counter[str] = Counter()
        self.details: list[str] = []
        self.set_seconds: list[float] = []
        self.read_back_seconds: list[float] = []
        self.settled_seconds: list[float] = []
        self._boards: list[Board] = []
        self.expiries = 0
        self.looks = self.raised_looks = 0
        self._issued: dict[tuple[int, int], int] = {}
        self._spoken: set[tuple[int, int, int, int]] = set()
        self._flying: list[tuple[int, int, dict[str, float]]] = []
        self._commands: dict[int, list[_Command]] = {}
        self._epochs: Counter[int] = Counter()
        self._ended: dict[int, int] = {}
        self._told: dict[int, int] = {}
        self._high: dict[str, int] = {}
        self._settled: dict[str, int] = {}
        self._excused: dict[str, int] = {}
        self._hung_until: dict[str, int] = {}
        self._calm_from_ns = 0
        self._cut_since: dict[int, int] = {}
        self._recent: dict[str, list[tuple[int, float]]] = {}
        self._terms: dict[int, int] = {}

    # -- what it is told -------------------------------------------------------------------------

    def issued(self, node: int, nonce: int, now_ns: int) -> None:
        """An actuator gave a nonce: a lease that answers it runs from now."""
        self._issued[node, nonce] = now_ns
        self._raises.read_back(node, now_ns)

    def spoke(self, node: int, batch: power_pb2.LeaseBatch, now_ns: int) -> None:
        """A replica put a batch on the wire."""
        self._spoken.add((node, batch.epoch, batch.sequence, batch.nonce))
        caps = {device.uuid: device.cap_watts for device in batch.devices}
        self._flying.append((now_ns, node, caps))
        for what in self._raises.spoke(caps, now_ns):
            # Nobody knows at once of a board that somebody else raised.
            if now_ns >= self._calm_from_ns:
                self._note("I6", what, now_ns)
        began_ns = self._terms.setdefault(batch.epoch, now_ns)
        if batch.epoch > 1 and now_ns - began_ns < self._lease_ns:
            for uuid, cap in caps.items():
                # What does not answer is known to nobody and counts at its default limit.
                if now_ns < self._hung_until.get(uuid, 0):
                    continue
                held = [w for at, w in self._recent.get(uuid, ()) if at >= now_ns - NONCE_LIFE_NS]
                # Written since the last look.
                held += [b.limit_watts for b in self._boards if b.identity.uuid == uuid]
                if cap > max([self._of(uuid), *held]) + ROUNDING_WATTS:
                    self._note("I4", f"{uuid}: a new leader asks for {cap:.0f} W", now_ns)

    def accepted(self, node: int, command: LeaseCommand, now_ns: int) -> None:
        """An actuator took a command."""
        issued_ns = self._issued.get((node, command.nonce))
        if issued_ns is None or now_ns - issued_ns > NONCE_LIFE_NS:
            self._note("I4", f"node {node}: an answer to no recent report", now_ns)
            return
        key = (node, command.epoch, command.sequence, command.nonce)
        if key not in self._spoken:
            self._note("I4", f"node {node}: nobody said {key}", now_ns)
        if command.epoch < self._epochs[node]:
            self._note("I4", f"node {node}: epoch {command.epoch} after a newer one", now_ns)
        self._epochs[node] = max(self._epochs[node], command.epoch)
        if command.ttl_ms * NS_PER_MS > self._lease_ns:
            self._note("I3", f"node {node}: a lease of {command.ttl_ms} ms", now_ns)
        for device in command.devices:
            watts = device.cap_watts
            # Also false for what is no number (I8); milliwatts would lie above (I9).
            kind = self._kind
            if watts is not None and not kind.min_watts <= watts <= kind.default_watts:
                self._note("I8", f"{device.uuid}: a cap of {watts} W was accepted", now_ns)
        if self._order is not None:
            self._order.answered(node, issued_ns, command.epoch)
        earlier = self._commands.setdefault(node, [])
        if earlier:
            earlier[-1].until_ns = min(earlier[-1].until_ns, now_ns)
        caps = {d.uuid: d.cap_watts or self._of(d.uuid) for d in command.devices}
        earlier.append(_Command(now_ns, issued_ns + command.ttl_ms * NS_PER_MS, caps))
        self._raises.accepted(caps, earlier[-1].until_ns)
        self._ended.pop(node, None)

    def decided(self, topology: Topology, decisions: Decisions, epoch: int, now_ns: int) -> None:
        """A replica ticked, in a term or, with 0, without leading."""
        if not epoch:
            return
        if self._order is not None:
            heat = self.breakers.heat
            for short, other in self._order.unfair(topology, decisions, epoch, heat, now_ns)[:1]:
                what = f"board {short} is short and the less important {other} is favoured"
                self._note("I5", what, now_ns)
        for what in self._raises.counted(decisions.highest_cap_watts.tolist(), now_ns):
            if now_ns >= self._calm_from_ns:
                self._note("I6", what, now_ns)
        for node, since_ns in self._cut_since.items():
            if now_ns - since_ns < SILENT_AFTER_NS:
                continue
            mine = topology.node_of_gpu == node
            if (
                not decisions.silent_nodes[node]
                or (decisions.highest_cap_watts[mine] < self._kind.default_watts).any()
            ):
                self._note("I7", f"node {node} is cut off and not counted at its most", now_ns)

    def excuse(self, row: Row, uuids: Sequence[str], for_ns: int = UNDONE_WITHIN_NS) -> None:
        """These boards were raised, or cannot be written, by nobody's command for so long."""
        for uuid in uuids:
            self._excused[uuid] = max(self._excused.get(uuid, 0), row.now_ns + for_ns)
            if self._order is not None and row.now_ns > NS_PER_SECOND:
                self._order.doubted(uuid, row.now_ns + for_ns)
        self._calm_from_ns = max(self._calm_from_ns, row.now_ns + for_ns)

    # -- what it sees ----------------------------------------------------------------------------

    def look(self, row: Row) -> None:
        """Every board, by its limit."""
        now_ns, self._boards = row.now_ns, row.boards
        self._raises.row = row
        while self._flying and self._flying[0][0] < now_ns - UNDER_WAY_NS:
            self._flying.pop(0)
        for node in row.nodes:
            if node.cut_up:
                self._cut_since.setdefault(node.number, now_ns)
            else:
                self._cut_since.pop(node.number, None)
            for uuid, board in node.boards.items():
                if board.hangs:
                    self.excuse(row, [uuid])
                    self._hung_until[uuid] = now_ns + NONCE_LIFE_NS
                seen = self._recent.setdefault(uuid, [])
                seen.append((now_ns, board.limit_watts))
                while seen[0][0] < now_ns - NONCE_LIFE_NS - NS_PER_SECOND:
                    seen.pop(0)
                self.looks += 1
                self.raised_looks += board.limit_watts > self._of(uuid) + ROUNDING_WATTS
                if now_ns < self._excused.get(uuid, 0):
                    continue
                allowed = self._allowed(node.number, uuid, now_ns)
                if board.limit_watts > allowed + ROUNDING_WATTS:
                    what = f"{uuid} holds {board.limit_watts:.0f} W of {allowed:.0f} W"
                    # What somebody else raised is undone by reading back (I10).
                    undone = now_ns < self._excused.get(uuid, 0) + self._lease_ns
                    self._note("I10" if undone else "I3", what, now_ns)
            self._look_at_end(row, node.number)
        if self._order is not None:
            self._order.look(row)
        calm = now_ns >= self._calm_from_ns
        for invariant, what in self.breakers.look(row, self._may_hold, calm=calm):
            self._note(invariant, what, now_ns)

    def _allowed(self, node: int, uuid: str, now_ns: int) -> float:
        commands = self._commands.get(node, [])
        while len(commands) > 1 and commands[0].until_ns + SET_WITHIN_NS < now_ns:
            commands.pop(0)
        caps = [
            command.caps.get(uuid, 0.0)
            for command in commands
            if now_ns <= command.until_ns + SET_WITHIN_NS
        ]
        return max([self._of(uuid), *caps])

    def _look_at_end(self, row: Row, number: int) -> None:
        """How long it took, after a lease ended, until limits were set and read back."""
        commands, now_ns = self._commands.get(number, []), row.now_ns
        if not commands or now_ns < commands[-1].until_ns:
            return
        end_ns, node = commands[-1].until_ns, row.nodes[number]
        if self._ended.get(number) != end_ns:
            self._ended[number] = end_ns
            self.expiries += 1
        boards = {
            uuid: board
            for uuid, board in node.boards.items()
            if not board.hangs and now_ns >= self._excused.get(uuid, 0)
        }
        late_ns = now_ns - end_ns
        self._look_at_draws(boards, end_ns, now_ns)
        held = [node.table.held(uuid).limit_watts for uuid in boards]
        read_back = [*held, *(board.limit_watts for board in boards.values())]
        if any(
            watts is None or watts > self._of(uuid) + ROUNDING_WATTS
            for uuid, watts in zip([*boards, *boards], read_back, strict=True)
        ):
            if late_ns > READ_BACK_WITHIN_NS:
                self._note("I3", f"node {number}: not read back {late_ns / 1e9:.2f} s late", now_ns)
        elif self._told.get(number) != end_ns:
            self._told[number] = end_ns
            self.read_back_seconds.append(late_ns / NS_PER_SECOND)
            changed = [board.changed_ns - end_ns for board in boards.values()]
            self.set_seconds += [ns / NS_PER_SECOND for ns in changed if ns > 0]

    def _look_at_draws(self, boards: Mapping[str, Board], end_ns: int, now_ns: int) -> None:
        """From the end of a lease until a board draws no more than its guaranteed cap makes it.

        Work that only began after it is none of a lease's: boards exceed any cap for a second then.
        """
        for uuid, board in boards.items():
            if self._settled.get(uuid) == end_ns:
                continue
            if board.draw_watts() <= OVERSHOOT * self._of(uuid) + ROUNDING_WATTS:
                self._settled[uuid] = end_ns
                if self._high.get(uuid) == end_ns:
                    self.settled_seconds.append((now_ns - end_ns) / NS_PER_SECOND)
            elif board.wanted_ns > end_ns:
                self._settled[uuid] = end_ns
            else:
                self._high[uuid] = end_ns
                if now_ns - end_ns > SETTLED_WITHIN_NS + LOOK_NS:
                    self._note("T_fault", f"{uuid} draws {board.draw_watts():.0f} W", now_ns)

    def _may_hold(self) -> list[float]:
        """The highest cap on each board or on its way there."""
        highest = {str(b.identity.uuid): b.limit_watts for b in self._boards}
        for _, _, caps in self._flying:
            for uuid, cap in caps.items():
                highest[uuid] = max(highest[uuid], cap)
        return list(highest.values())

    def _of(self, uuid: str) -> float:
        return self._guaranteed[int(uuid.rpartition("-")[2])]

    def _note(self, invariant: str, what: str, now_ns: int) -> None:
        self.violations[invariant] += 1
        if len(self.details) < 20:
            self.details.append(f"{now_ns / NS_PER_SECOND:.2f} s {invariant} {what}")
