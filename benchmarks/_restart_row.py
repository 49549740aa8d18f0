"""A hot row in virtual time, updated as Kubernetes updates it, and what that costs.

The row is that of ``lease_safety``: the product's agents, actuators, hearing, answer desk and
``step()``. This module plays the DaemonSet's and StatefulSet's controllers, and measures from
outside: limits and draws are read off the boards, heat is the house's (``tests/controller``).
"""

from __future__ import annotations

import importlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks._lease_agent import Process
from benchmarks._lease_judge import Judge
from benchmarks._lease_kind import HOST_WATTS, RowKind, make_topology
from benchmarks._lease_node import Node
from benchmarks._lease_row import Row
from controller.tick_values import Topology
from wattpack.units import NS_PER_SECOND

#: Of each board, a new draw every 10 s: 1.02 of the rating in the mean, so the row is held by caps.
DEMAND_WATTS = (668.0, 700.0)
DEMAND_SECONDS = 10
#: Before that 0.82, which nothing holds; then everything wants its default limit at once, and the
#: breakers are warm when an update begins.
CALM_WATTS = (445.0, 565.0)
STEP_SECONDS = 15.0
#: Where a board has to come back to what it held, nothing else may cap it: 0.88 of the rating.
STEADY_WATTS = (430.0, 660.0)
#: Of the rating, for rows of a file.
PEAK_RATIO, CALM_RATIO, STEADY_RATIO = 1.02, 0.82, 0.88
#: From the pod's creation to the agent's first exchange: container and mounts 2 s, assumed; process
#: 1.0 to 1.3 s until it is ready, measured on two busy cores (eight replayed boards).
AGENT_START_SECONDS = 3.0
#: Chart: minReadySeconds, the readiness probe's period; the kubelet's and controllers' turns.
AGENT_MIN_READY_SECONDS, PROBE_SECONDS, TURN_SECONDS = 5.0, 2.0, 1.0
UPDATED_AT_ONCE = 0.05
#: A controller's pod: process and informers 8 s, assumed; minReadySeconds of the chart.
CONTROLLER_START_SECONDS, CONTROLLER_MIN_READY_SECONDS = 8.0, 30.0
FELL_WATTS = 1.5
RUN_IN_SECONDS = 60.0


@dataclass
class Account:
    """What boards and breakers did, looked at 20 times a second.

    Attributes:
        kind: Of what the row is.
        host_watts: A server without its boards, DC.
        fell: Times that a board that held more went to its guaranteed cap.
        heat: The highest of any breaker.
        heats: The hottest breaker's at the end of each second.
        above_seconds: In which any breaker's load was above its rating.
        peak_ratio: The highest load of any breaker, of its rating.
        work_joules: Above idle, of all boards. What a cap takes from it is more than what it takes
            from the work: boards that are held a little lose less speed than power.
        wanted_joules: The same without any limit.
    """

    topology: Topology
    house: Any
    kind: RowKind = field(default_factory=RowKind)
    host_watts: float = HOST_WATTS
    fell: int = 0
    heat: float = 0.0
    heats: list[float] = field(default_factory=list)
    above_seconds: int = 0
    peak_ratio: float = 0.0
    work_joules: float = 0.0
    wanted_joules: float = 0.0
    _heats: list[float] = field(default_factory=list)
    _above: list[bool] = field(default_factory=list)
    _last_ns: int = -1

    def look(self, row: Row) -> None:
        """Take the present moment into account."""
        boards, guaranteed = row.boards, self.topology.guaranteed_watts.tolist()
        above = [b.limit_watts > g + FELL_WATTS for b, g in zip(boards, guaranteed, strict=True)]
        if self._above:
            self.fell += sum(was and not is_ for was, is_ in zip(self._above, above, strict=True))
        self._above = above
        draws = [board.draw_watts() for board in boards]
        if self._last_ns >= 0:
            seconds = (row.now_ns - self._last_ns) / NS_PER_SECOND
            idle = self.kind.idle_watts
            self.work_joules += sum(w - idle for w in draws) * seconds
            self.wanted_joules += sum(b.demand_watts - idle for b in boards) * seconds
        whole = self._last_ns // NS_PER_SECOND != row.now_ns // NS_PER_SECOND
        self._last_ns = row.now_ns
        if not whole:
            return
        hosts = [self.host_watts] * self.topology.n_nodes
        self._heats = self._heats or [0.0] * len(self.house.ratings)
        highest = 0.0
        for domain, rating in enumerate(self.house.ratings):
            watts = self.house.load(domain, draws, hosts)
            self._heats[domain] = self.house.heated(domain, self._heats[domain], watts)
            self.heat = max(self.heat, self._heats[domain])
            highest = max(highest, watts / rating)
        self.heats.append(max(self._heats))
        self.above_seconds += highest > 1.0
        self.peak_ratio = max(self.peak_ratio, highest)


@dataclass(frozen=True, slots=True)
class Demand:
    """What boards want at the peak, and what a server draws beside.

    Attributes:
        watts: Of a board, from and to, a new draw every 10 s.
        calm_watts: The same before the row gets hot.
        steady_watts: The same where nothing but what is measured may cap a board.
        host_watts: A server without its boards, DC.
    """

    watts: tuple[float, float] = DEMAND_WATTS
    calm_watts: tuple[float, float] = CALM_WATTS
    steady_watts: tuple[float, float] = STEADY_WATTS
    host_watts: float = HOST_WATTS

    @classmethod
    def of(cls, kind: RowKind) -> Demand:
        """The shares of the rating that the benchmark's own row has, of a file's."""
        if kind.given is None:
            return cls()
        scenario = kind.given.scenario
        row, plant = scenario.row, scenario.plant
        boards, share = row.gpus_per_server, plant.host_watts_per_gpu_watt
        racks = row.racks * scenario.rack_rating_watts
        rating = min(scenario.row_rating_watts - row.external_watts, racks)

        def spread(load_ratio: float, own: tuple[float, float]) -> tuple[float, float]:
            server = load_ratio * rating * plant.supply_efficiency / row.servers
            mean = (server - plant.host_base_watts) / (1.0 + share) / boards
            least, most = kind.idle_watts, kind.default_watts
            low, high = (np.clip(mean * watts / (0.5 * sum(own)), least, most) for watts in own)
            return float(low), float(high)

        watts = spread(PEAK_RATIO, DEMAND_WATTS)
        host = plant.host_base_watts + share * boards * 0.5 * sum(watts)
        calm, steady = spread(CALM_RATIO, CALM_WATTS), spread(STEADY_RATIO, STEADY_WATTS)
        return cls(watts, calm, steady, host)


def peak_row(
    servers: int,
    gpus: int,
    seed: int,
    *,
    steady: bool = False,
    kind: RowKind | None = None,
) -> tuple[Row, Judge, Account]:
    """A row after some time: a calm one that gets hot at once now, or a steady one.

    Args:
        servers: In both racks, where no file says how many.
        gpus: Of each server, the same.
        seed: Of all chance.
        steady: Boards go on wanting what they wanted first, which nothing holds.
        kind: Of what the row is.
    """
    kind = kind or RowKind()
    oracle = importlib.import_module("tests.controller.oracle")
    racks = [1 + i % 2 for i in range(servers)]
    topology = make_topology(kind, nodes=racks, gpus_per_node=gpus, oversubscription=1.3)
    ordinary = topology.tree.max_raise_watts_per_second
    quick = replace(topology.tree, max_raise_watts_per_second=10 * ordinary)
    house = oracle.house_of(topology)
    judge = Judge(house, house.ratings, topology.guaranteed_watts.tolist(), kind=kind)
    topology = replace(topology, tree=quick)
    row, demand = Row(topology, judge, seed, kind), Demand.of(kind)
    judge.excuse(row, topology.gpu_uuids)
    _want(row, seed, steady, demand)
    row.run(RUN_IN_SECONDS, lambda _: judge.look(row))
    quick.max_raise_watts_per_second[:] = ordinary
    if not steady:
        _get_hot(row, seed, demand)
    return row, judge, Account(topology, house, kind, demand.host_watts)


def _want(row: Row, seed: int, steady: bool, demand: Demand) -> None:
    """Boards want what they want while nothing holds them, the same in every run of a seed."""
    for number, board in enumerate(row.boards):
        watts = demand.steady_watts if steady else demand.calm_watts
        board.want(random.Random(f"{seed}/{number}/demand").uniform(*watts))


def _get_hot(row: Row, seed: int, demand: Demand) -> None:
    """Every board wants its default limit now, and in its next turns a draw of its own."""
    generators = [random.Random(f"{seed}/{n}/hot") for n, _ in enumerate(row.boards)]

    def change(number: int) -> None:
        row.boards[number].want(generators[number].uniform(*demand.watts))
        row.after(DEMAND_SECONDS * NS_PER_SECOND, lambda: change(number))

    for number, generator in enumerate(generators):
        row.boards[number].want(row.kind.default_watts)
        first_ns = generator.randrange(DEMAND_SECONDS * NS_PER_SECOND)
        first_ns += round(STEP_SECONDS * NS_PER_SECOND)
        row.after(first_ns, lambda number=number: change(number))  # type: ignore[misc]


class AgentUpdate:
    """The DaemonSet's controller: a share of the nodes at a time.

    Args:
        row: Whose agents are replaced.
        surge: A new agent starts beside the old one; otherwise the old one goes first.
    """

    def __init__(self, row: Row, *, surge: bool) -> None:
        self._row, self._surge = row, surge
        self._left = list(row.nodes)
        self._under_way = 0
        self.at_once = max(1, math.ceil(UPDATED_AT_ONCE * len(row.nodes)))
        self._turn()

    @property
    def done(self) -> bool:
        """Whether every node has its new agent."""
        return not self._left and not self._under_way

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._row.after(round(seconds * NS_PER_SECOND), act)

    def _turn(self) -> None:
        while self._left and self._under_way < self.at_once:
            self._under_way += 1
            self._begin(self._left.pop(0))
        if not self.done:
            self._after(TURN_SECONDS, self._turn)

    def _begin(self, node: Node) -> None:
        (old,) = node.agents
        seconds = AGENT_START_SECONDS
        if not self._surge:
            node.kill_agent(old)
            seconds += TURN_SECONDS  # The old pod is gone before the new one is made.
        self._after(seconds, lambda: self._started(node, old, node.start_agent("new")))

    def _started(self, node: Node, old: Process, new: Process) -> None:
        def ready() -> None:
            if new.readiness.missing:
                self._after(PROBE_SECONDS, ready)
            else:
                self._after(AGENT_MIN_READY_SECONDS + TURN_SECONDS, end)

        def end() -> None:
            if self._surge:
                node.kill_agent(old)
            self._under_way -= 1

        self._after(self._row.rng.uniform(0.0, PROBE_SECONDS), ready)


class ControllerUpdate:
    """The StatefulSet's controller: the standby, and some time after it is ready the leader."""

    def __init__(self, row: Row) -> None:
        self._row, self.done = row, False
        first = row.leader
        self._replace(1 - first, lambda: self._replace(first, self._finish))

    def _finish(self) -> None:
        self.done = True

    def _replace(self, number: int, then: Callable[[], None]) -> None:
        row = self._row
        if row.leader == number:
            row.end_leader(kill=False)
        else:
            row.end_replica(number)

        def start() -> None:
            row.restart_replica(number)
            row.after(round(CONTROLLER_MIN_READY_SECONDS * NS_PER_SECOND), then)

        row.after(round(CONTROLLER_START_SECONDS * NS_PER_SECOND), start)


@dataclass(frozen=True, slots=True)
class Kill:
    """What a killed leader cost, in seconds from the signal.

    Attributes:
        fell: Boards that went below what they held and wanted.
        first_seconds: Until the first of them was back.
        last_seconds: Until the last was.
    """

    fell: int
    first_seconds: float
    last_seconds: float


def kill_leader(row: Row, look: Callable[[int], None]) -> Kill:
    """SIGKILL; a board is back at its limit of before, or at all that it wants."""
    before = [board.limit_watts for board in row.boards]
    killed_ns = row.now_ns
    fell: set[int] = set()
    back: dict[int, float] = {}

    def watch(now_ns: int) -> None:
        look(now_ns)
        for number, board in enumerate(row.boards):
            held = board.limit_watts < min(before[number], board.demand_watts) - FELL_WATTS
            if held and (now_ns - killed_ns) < 8 * NS_PER_SECOND:
                fell.add(number)
            if held:
                back.pop(number, None)
            elif number in fell:
                back.setdefault(number, (now_ns - killed_ns) / NS_PER_SECOND)

    row.end_leader(kill=True)
    row.run(40.0, watch)
    missing = len(fell) - len(back)
    last = math.inf if missing else max(back.values(), default=0.0)
    return Kill(len(fell), min(back.values(), default=math.inf), last)
