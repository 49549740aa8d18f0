"""A small random plant: boards, actuators with leases, a network that loses and delays, a breaker.

It is written from the Promises of docs/architecture.md, board by board, and judges the product: the
breaker here integrates the true draw by the oracle's own arithmetic, the actuator checks epoch,
sequence and nonce age by itself and lets leases run out. Of the product it knows only the values
that go in and out of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from controller.tick_values import Commands, Observations, Topology
from tests.controller.oracle import Tree, house_of

NS = 1_000_000_000
NONCE_SECONDS = 2.0
TRUE_OVERSHOOT = 1.02
FULL_WATTS = 700.0
HOST_IDLE_WATTS = 500.0
ENERGY_WINDOW_SECONDS = 3


@dataclass(frozen=True)
class Faults:
    """Chances, each a tick; ``frozen_from`` stops every power reading at what it then says."""

    report_lost: float = 0.0
    batch_lost: float = 0.0
    batch_delay_seconds: int = 0
    silent_write_failure: float = 0.0
    ignores_cap_share: float = 0.0
    reboot: float = 0.0
    sensor_gain: float = 0.0
    leader_change: float = 0.0
    outage_start: int = -1
    outage_seconds: int = 0
    frozen_from: int = 1_000_000
    counter_offered: bool = True
    frozen_jitter_watts: float = 0.0


@dataclass
class Board:
    """One GPU: what it holds, what it draws, and what it last told."""

    node: int
    guaranteed: float
    default: float
    cap: float
    deadline: int = -1
    confirmed: int = 0
    ignores: bool = False
    gain: float = 1.0
    demand: float = 100.0
    draw: float = 100.0
    joules: deque[float] = field(default_factory=lambda: deque([0.0], maxlen=4))
    sensed: float = np.nan
    told: float = np.nan
    told_mean: float = np.nan
    told_cap: float = np.nan
    told_confirmed: int = 0

    def move(self) -> None:
        """One second: two thirds of the way to what is asked for and allowed."""
        allowed = FULL_WATTS if self.ignores else self.cap * TRUE_OVERSHOOT
        self.draw += 0.67 * (min(self.demand, allowed) - self.draw)
        self.joules.append(self.joules[-1] + self.draw)

    def mean_watts(self) -> float:
        """By the counter, over at most 3 s."""
        return (self.joules[-1] - self.joules[0]) / (len(self.joules) - 1)


@dataclass
class Server:
    """One node: its actuator's memory and its newest report."""

    has_host_unit: bool
    idle: float
    worst: float
    epoch: int = 0
    boots: int = 0
    told_boots: int = 0
    received: int = -1


class Plant:
    """Truth, one second a step.

    Args:
        topology: What hangs where; only its bare numbers are used.
        faults: What goes wrong.
        rng: All chance.
    """

    def __init__(self, topology: Topology, faults: Faults, rng: np.random.Generator) -> None:
        self.house: Tree = house_of(topology)
        self.faults, self.rng = faults, rng
        self.boards = [
            Board(int(node), float(low), float(default), cap=float(low))
            for node, low, default in zip(
                topology.node_of_gpu,
                topology.guaranteed_watts,
                topology.default_limit_watts,
                strict=True,
            )
        ]
        for board in self.boards:
            board.ignores = bool(rng.random() < faults.ignores_cap_share)
            board.gain = 1.0 + faults.sensor_gain * float(rng.uniform(-1, 1))
        self.servers = [
            Server(bool(unit), HOST_IDLE_WATTS, float(worst))
            for unit, worst in zip(topology.node_host_unit, topology.node_worst_watts, strict=True)
        ]
        self.heat = [0.0 for _ in self.house.domains()]
        self.in_flight: list[tuple[int, Commands]] = []
        self.leader_epoch = 1
        self.now_ns = 0

    # -- truth -----------------------------------------------------------------------------------

    def caps(self) -> list[float]:
        """What every board really holds."""
        return [board.cap for board in self.boards]

    def ask(self, watts: float) -> None:
        """Every board is asked for so much."""
        for board in self.boards:
            board.demand = watts

    def host_watts(self) -> list[float]:
        """Servers without GPUs: fans follow the GPUs, never above the declared worst."""
        hosts = []
        for number, server in enumerate(self.servers):
            mine = [b.draw / FULL_WATTS for b in self.boards if b.node == number]
            share = min(sum(mine) / len(mine), 1.0)
            hosts.append(server.idle + share * (server.worst - server.idle))
        return hosts

    def true_watts(self) -> list[float]:
        """AC load of each domain."""
        draws, hosts = [board.draw for board in self.boards], self.host_watts()
        return [self.house.load(d, draws, hosts) for d in self.house.domains()]

    def advance(self, tick: int) -> None:
        """One second passes."""
        self.now_ns = now = tick * NS
        arrived = [commands for at, commands in self.in_flight if at <= now]
        self.in_flight = [(at, commands) for at, commands in self.in_flight if at > now]
        for commands in arrived:
            self._apply(commands, now)
        for board in self.boards:
            if 0 <= board.deadline <= now:
                board.cap, board.deadline = board.guaranteed, -1
        for number in range(len(self.servers)):
            if self.rng.random() < self.faults.reboot:
                self._reboot(number)
        for board in self.boards:
            board.move()
        for domain, watts in enumerate(self.true_watts()):
            self.heat[domain] = self.house.heated(domain, self.heat[domain], watts)

    def _reboot(self, number: int) -> None:
        server = self.servers[number]
        server.boots += 1
        server.epoch = 0
        for board in self.boards:
            if board.node == number:
                board.cap = board.guaranteed if server.has_host_unit else board.default
                board.deadline, board.confirmed = -1, 0

    def _apply(self, commands: Commands, now: int) -> None:
        """What each actuator does with a batch: epoch, nonce and sequence before anything else."""
        for number, server in enumerate(self.servers):
            lost = self.rng.random() < self.faults.batch_lost
            # The nonce is the second in which the report was made, plus one.
            issued = (int(commands.nonce[number]) - 1) * NS
            late = now - issued > NONCE_SECONDS * NS
            if lost or late or not commands.send[number] or commands.epoch < server.epoch:
                continue
            newer = commands.epoch > server.epoch
            server.epoch = commands.epoch
            for index, board in enumerate(self.boards):
                if board.node != number:
                    continue
                board.confirmed = 0 if newer else board.confirmed
                failed = self.rng.random() < self.faults.silent_write_failure
                if commands.sequence > board.confirmed and not failed:
                    board.cap = float(commands.cap_watts[index])
                    board.confirmed = commands.sequence
                    board.deadline = issued + commands.ttl_ms * 1_000_000

    # -- what the controller is told -------------------------------------------------------------

    def send(self, tick: int, commands: Commands) -> None:
        """Put a leader's batches on the wire."""
        if commands.send.any():
            delay = int(self.rng.integers(0, self.faults.batch_delay_seconds + 1))
            self.in_flight.append((tick * NS + delay * NS + 1, commands))

    def observe(self, tick: int) -> Observations:
        """What the controller sees at this second."""
        faults = self.faults
        out = faults.outage_start <= tick < faults.outage_start + faults.outage_seconds
        rebooted = []
        for number, server in enumerate(self.servers):
            here = not (out or self.rng.random() < faults.report_lost)
            rebooted.append(here and server.boots != server.told_boots)
            if here:
                server.received, server.told_boots = tick * NS, server.boots
                for board in self.boards:
                    if board.node == number:
                        self._tell(board, server, frozen=tick >= faults.frozen_from)
        return self._observations(rebooted)

    def _tell(self, board: Board, server: Server, *, frozen: bool) -> None:
        if not frozen:
            board.sensed = board.told = board.draw * board.gain
        elif self.faults.frozen_jitter_watts:
            jitter = self.faults.frozen_jitter_watts
            board.told = board.sensed + float(self.rng.uniform(-jitter, jitter))
        board.told_mean = board.mean_watts() if self.faults.counter_offered else np.nan
        board.told_cap = board.cap
        board.told_confirmed = board.confirmed if server.epoch == self.leader_epoch else 0

    def _observations(self, rebooted: list[bool]) -> Observations:
        boards, servers = self.boards, self.servers
        received = np.array([s.received for s in servers], dtype=np.int64)
        told_cap = np.array([b.told_cap for b in boards])
        known = ~np.isnan(told_cap)
        domains = len(self.house.domains())
        return Observations(
            node_received_ns=received,
            node_nonce=np.where(received >= 0, received // NS + 1, 0).astype(np.uint64),
            node_rebooted=np.array(rebooted),
            host_watts=np.array(self.host_watts()),
            gpu_draw_watts=np.array([b.told for b in boards]),
            gpu_energy_mean_watts=np.array([b.told_mean for b in boards]),
            gpu_limit_watts=told_cap,
            gpu_guaranteed_watts=np.where(known, [b.guaranteed for b in boards], np.nan),
            gpu_confirmed_sequence=np.array([b.told_confirmed for b in boards], dtype=np.int64),
            gpu_leased=np.array([b.deadline >= 0 for b in boards]),
            gpu_controlled=known,
            meter_watts=np.full(domains, np.nan),
            meter_time_ns=np.full(domains, -1, dtype=np.int64),
            forecast_p99_watts=np.full(domains, np.nan),
            budget_watts=np.array(self.house.ratings),
            override_cap_watts=np.full(len(boards), np.nan),
            epoch=self.leader_epoch,
            leading=True,
            may_raise=True,
            node_epoch=np.array([s.epoch for s in servers], dtype=np.int64),
        )
