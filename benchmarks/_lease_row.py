"""A small row in virtual time, of the product's own parts, whose ends can be killed in any order.

    Fleet, AnswerDesk, step()  (two replicas) <── messages: delay, loss ──> NodeAgent, Actuator

The election is a stand-in with the product's durations. Whoever judges listens through ``Witness``
and reads the boards.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks._lease_agent import Stream
from benchmarks._lease_bmcs import Bmcs
from benchmarks._lease_kind import RowKind
from benchmarks._lease_node import Board, Node, OwnClock, Witness
from controller.app.answer_desk import AnswerDesk, lease_batches, words_of
from controller.app.fleet import DomainInputs, Fleet, Leadership
from controller.app.hearing import Hearing
from controller.host_draws import HostDraws
from controller.step import initial_state, step
from controller.tick_values import Tick, Topology
from gpu.simulated.late_limits import LateLimits
from simulation.capping_boards import CappingRegulation, row_loops
from wattpack.errors import InputError
from wattpack.kube.election import CONTROLLER_ELECTION
from wattpack.units import NS_PER_MS, NS_PER_SECOND
from wattpack.wire.v1 import power_pb2

#: Reading and writing the Lease; assumed.
LEASE_WRITE_SECONDS = 0.1


class Replica:
    """One controller replica."""

    def __init__(self, row: Row, number: int) -> None:
        self._row, self._number = row, number
        self.alive = True
        self.clock = OwnClock(row, row.rng.randrange(10**15))
        self._soon = False
        self.believes_until_ns = self.believed_epoch = 0
        self.refused_reports = 0
        self.fleet = Fleet()
        self.hearing: Hearing[Stream] = Hearing(self.fleet)
        self._desk = AnswerDesk(self.epoch)
        self._state, self._hosts = initial_state(row.topology, row.kind.settings), HostDraws()
        row.after(row.rng.randrange(NS_PER_SECOND), self._regular_tick)

    def epoch(self) -> int:
        """Of its term, 0 while another or nobody leads."""
        row = self._row
        if self.alive and row.now_ns < self.believes_until_ns:
            return self.believed_epoch
        return row.epoch if self.alive and row.leader == self._number else 0

    @property
    def renewals(self) -> int:
        """Reports answered on arrival."""
        return self._desk.renewals

    def kill(self) -> None:
        """SIGKILL."""
        self.alive = False

    def opened(self, node: str, stream: Stream) -> bool:
        """An agent says hello; whether it is welcome."""
        try:
            return self.hearing.opened(node, stream, self.clock.monotonic_ns())
        except InputError:  # A board whose limits were never read, for one.
            return False

    def closed(self, node: str, stream: Stream) -> None:
        """An agent's stream has ended."""
        if self.alive:
            self.hearing.closed(node, stream)

    def hear(self, report: power_pb2.NodeReport, stream: Stream) -> None:
        """A report arrives."""
        if not self.alive:
            return
        now_ns = self.clock.monotonic_ns()
        try:
            arrival = self.hearing.report(report.node, stream, report, now_ns)
        except InputError:
            self.refused_reports += 1
            return
        if arrival is None:
            return
        if self._row.answers:
            answer = self._desk.arrived(report.node, arrival, now_ns)
            if answer is not None:
                self._send(report.node, answer)
        if arrival.calls_for_tick and not self._soon:
            self._soon = True
            self._row.after(NS_PER_MS, self.tick)

    def _regular_tick(self) -> None:
        if self.alive:
            self._row.after(NS_PER_SECOND, self._regular_tick)
            self.tick()

    def tick(self) -> None:
        """One decision."""
        if not self.alive:
            return
        self._soon = False
        row, topology = self._row, self._row.topology
        now_ns = self.clock.monotonic_ns()
        self.fleet.begin_tick(float(topology.tree.rating_watts.max()))
        epoch = self.epoch()
        unknown = np.full(topology.n_domains, np.nan)
        inputs = DomainInputs(
            unknown,
            np.full(topology.n_domains, -1, dtype=np.int64),
            unknown,
            topology.tree.rating_watts,
        )
        seen = self.fleet.observe(
            topology,
            Leadership(epoch, epoch > 0, may_raise=row.api_up),
            inputs,
            np.full(topology.n_gpus, np.nan),
        )
        seen = self._hosts.told(topology, seen, row.bmcs.read(now_ns), now_ns)
        if epoch and seen.highest_epoch_seen > epoch:
            row.epoch = seen.highest_epoch_seen + 1
        tick = Tick(topology, seen, row.kind.settings, now_ns)
        self._state, commands, decisions = step(tick, self._state)
        row.witness.decided(topology, decisions, epoch, row.now_ns)
        batches = lease_batches(topology, commands)
        for name, message in self._desk.decided(words_of(topology, commands), batches).items():
            self._send(name, message)

    def _send(self, name: str, message: power_pb2.ControllerMessage) -> None:
        row, stream = self._row, self.hearing.streams.heard(name)
        if stream is not None:
            node = row.topology.node_names.index(name)
            row.witness.spoke(node, message.leases, row.now_ns)
            stream.link.put(message.leases)


@dataclass(order=True)
class _Event:
    at_ns: int
    number: int
    act: Callable[[], None] = field(compare=False)


class Row:
    """The row and its time.

    Args:
        topology: What hangs where; ``nodes`` of it are simulated.
        witness: Is told what happens.
        seed: Of all chance.
        kind: Its boards, and the controller's settings.
    """

    def __init__(
        self, topology: Topology, witness: Witness, seed: int, kind: RowKind | None = None
    ) -> None:
        self.topology, self.witness, self.kind = topology, witness, kind or RowKind()
        self.rng = random.Random(seed)
        self.now_ns = NS_PER_SECOND
        self._events: list[_Event] = []
        self._numbers = itertools.count()
        self.loss = 0.0
        self.answers = True
        self.api_up = True
        self.leader, self.epoch = 0, 1
        self.nodes: list[Node] = []
        self.replicas: list[Replica] = []
        for number in range(topology.n_nodes):
            mine = np.flatnonzero(topology.node_of_gpu == number)
            uuids = tuple(topology.gpu_uuids[g] for g in mine)
            guaranteed = float(topology.guaranteed_watts[mine].min())
            self.nodes.append(Node(self, number, uuids, guaranteed))
        self.bmcs = Bmcs(self, seed)
        self.replicas = [Replica(self, number) for number in range(2)]
        generator, plant = np.random.default_rng(seed), self.kind.plant
        loops = row_loops([self.kind.gpu_type] * topology.n_gpus, generator)
        delays = (plant.cap_delay_min_seconds, plant.cap_delay_max_seconds)
        late = generator.uniform(*delays, topology.n_gpus)
        self._acting = LateLimits(np.full(topology.n_gpus, self.kind.default_watts), late)
        self._idle = np.full(topology.n_gpus, self.kind.idle_watts)
        self._regulation = CappingRegulation(loops, self._idle.copy())
        self._limits = np.zeros(topology.n_gpus)

    @property
    def boards(self) -> list[Board]:
        """All boards in the topology's order."""
        return [board for node in self.nodes for board in node.boards.values()]

    def at(self, at_ns: int, act: Callable[[], None]) -> None:
        """Do something then."""
        heapq.heappush(self._events, _Event(max(at_ns, self.now_ns), next(self._numbers), act))

    def after(self, delay_ns: int, act: Callable[[], None]) -> None:
        """Do something in a while."""
        self.at(self.now_ns + delay_ns, act)

    def lost(self, cut: bool) -> bool:
        """Whether a message goes missing."""
        return cut or self.rng.random() < self.loss

    def run(self, seconds: float, look: Callable[[int], None] = lambda now_ns: None) -> None:
        """Let time pass; ``look`` is called every 50 ms.

        Args:
            seconds: How much.
            look: Reads the boards.
        """
        end_ns = self.now_ns + round(seconds * NS_PER_SECOND)
        step_ns = 50 * NS_PER_MS
        while self.now_ns < end_ns:
            next_ns = min(end_ns, self.now_ns - self.now_ns % step_ns + step_ns)
            while self._events and self._events[0].at_ns <= next_ns:
                event = heapq.heappop(self._events)
                self._pass(event.at_ns)
                event.act()
            self._pass(next_ns)
            self._hold_draws(step_ns / NS_PER_SECOND)
            look(next_ns)

    def _pass(self, now_ns: int) -> None:
        seconds = (now_ns - self.now_ns) / NS_PER_SECOND
        if seconds > 0.0:
            for board in self.boards:
                board.joules += board.draw_watts() * seconds
        self.now_ns = now_ns

    def limits_changed(self) -> None:
        """A board's limit was set now; a lowered one acts after the board's own delay."""
        self._acting.take_in(np.array([board.limit_watts for board in self.boards]), self.now_ns)

    def _hold_draws(self, seconds: float) -> None:
        """Boards hold the limits that act as the loop of their type does (ADR 28, ADR 30)."""
        boards = self.boards
        wanted = np.array([max(self.kind.idle_watts, board.demand_watts) for board in boards])
        self._acting.come_due(self.now_ns - round(0.5 * seconds * NS_PER_SECOND))
        if not np.array_equal(self._acting.watts, self._limits):
            # The loop sees by the array that limits have changed.
            self._limits = self._acting.watts.copy()
        drawn = self._regulation.hold(wanted, self._limits, self._idle, seconds)
        for board, watts in zip(boards, drawn.tolist(), strict=True):
            board.drawn_watts = watts

    def garbage(self, number: int) -> None:
        """Messages that nobody decided reach an agent and a replica (I8)."""
        node = self.nodes[number]
        if not node.agents:
            return
        link = self.rng.choice(node.agents).links[0]
        nonce = self.rng.choice([0, 1, node.status_nonce])
        batch = power_pb2.LeaseBatch(
            epoch=self.rng.choice([0, 1, 2**40, 2**63]),
            sequence=self.rng.choice([0, 2**50]),
            nonce=nonce,
            ttl_ms=self.rng.choice([0, 4000, 2**31]),
            devices=[
                power_pb2.DeviceLease(
                    uuid=self.rng.choice([*node.boards, "nobody"]),
                    cap_watts=self.rng.choice([-1.0, float("nan"), 1e9, 700.0]),
                )
            ],
        )
        link.push(batch)
        stream = self.replicas[0].hearing.streams.heard(node.name)
        if stream is None:
            return
        self.replicas[0].hear(
            power_pb2.NodeReport(
                node=node.name,
                sequence=2**40,
                nonce=nonce,
                devices=[power_pb2.DeviceReading(uuid="nobody", draw_watts=float("nan"))],
            ),
            stream,
        )

    # -- replicas --------------------------------------------------------------------------------

    def end_leader(self, *, kill: bool) -> None:
        """The leading replica goes: at once gives the Lease back, or leaves it to run out."""
        gone = self.leader
        if gone < 0:
            return
        self.end_replica(gone)
        self.leader = -1
        settings = CONTROLLER_ELECTION
        # Who stands by looks at the Lease once in a retry period, and writes it.
        wait = self.rng.uniform(0.0, settings.retry_seconds) + LEASE_WRITE_SECONDS
        if kill:
            wait = settings.lease_seconds - self.rng.uniform(0.0, settings.retry_seconds)
        self.after(round(wait * NS_PER_SECOND), lambda: self._elect(1 - gone))

    def depose_leader(self) -> None:
        """Another is elected, and the leader goes on for three seconds without noticing."""
        gone = self.leader
        if gone < 0 or not self.replicas[1 - gone].alive:
            return
        replica = self.replicas[gone]
        replica.believed_epoch = self.epoch
        replica.believes_until_ns = self.now_ns + 3 * NS_PER_SECOND
        self.leader = -1
        self._elect(1 - gone)

    def end_replica(self, number: int) -> None:
        """A replica's process ends, and its streams with it."""
        self.replicas[number].kill()
        for node in self.nodes:
            for process in node.agents:
                process.links[number].gone()

    def start_replica(self) -> None:
        """Whoever is down comes back and knows nothing; with nobody leading it is elected."""
        for number, replica in enumerate(self.replicas):
            if not replica.alive:
                self.restart_replica(number)

    def restart_replica(self, number: int) -> None:
        """One comes back and knows nothing; with nobody leading it is elected."""
        self.replicas[number] = Replica(self, number)
        seconds = round(CONTROLLER_ELECTION.lease_seconds * NS_PER_SECOND)
        self.after(seconds, lambda: self._elect(number))

    def _elect(self, number: int) -> None:
        if self.leader < 0 and self.api_up and self.replicas[number].alive:
            self.leader = number
            self.epoch += 1
            self.replicas[number].tick()

    def set_api(self, up: bool) -> None:
        """Without the API a term ends at its renew deadline; afterwards somebody is elected."""
        if up == self.api_up:
            return
        self.api_up = up
        seconds = CONTROLLER_ELECTION.renew_deadline_seconds if not up else 1.0
        self.after(round(seconds * NS_PER_SECOND), self._api_told)

    def _api_told(self) -> None:
        if not self.api_up:
            self.leader = -1
        elif self.leader < 0:
            for number in range(2):
                self._elect(number)
