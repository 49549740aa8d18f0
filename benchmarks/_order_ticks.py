"""The whole controller in a small lossy loop on a random house, and what its judge is told."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks._full_breakers import DrawMemory, Draws, may_be_full
from benchmarks._order_judge import Due, Violation, judged_between
from benchmarks._power_house import OVERSHOOT, Domain, House
from benchmarks._random_houses import Owed
from controller.step import initial_state, step
from controller.tick_values import (
    Band,
    Commands,
    Decisions,
    Observations,
    PowerSettings,
    Tick,
    Topology,
)
from wattpack.units import NS_PER_SECOND

__all__ = ["run_ticks"]

SETTINGS = PowerSettings()
_SILENT_AFTER_NS = 3 * NS_PER_SECOND
_HOST_WATTS = 300.0
_COOLING_SECONDS = 600.0
# A brake ends 5 s after the draw has come down to what caps aim at.
_BRAKES_FOR_TICKS = 10
_NEAR_RATING_SHARE = 0.97


def run_ticks(
    rng: random.Random,
    house: House,
    topology: Topology,
    owed: Owed,
    ticks: int,
    settings: PowerSettings = SETTINGS,
) -> Iterator[list[Violation]]:
    """What is wrong with the decisions of each tick."""
    plant = _Plant(rng, house, topology)
    state = initial_state(topology, settings, np.array(plant.heat))
    for number in range(ticks):
        observed = plant.observe(number)
        tick = Tick(topology, observed, settings, number * NS_PER_SECOND)
        state, commands, decisions = step(tick, state)
        active = plant.taking_part(number)
        due = _due_now(plant, owed, observed, decisions, active)
        full = _full(plant, observed, due, decisions, settings.fault_seconds)
        found = judged_between(house, due, decisions.decided_cap_watts.tolist(), full)
        plant.obey(commands)
        yield [*found, *_jumps(plant, decisions, active, settings.fault_seconds)]


class _Plant:
    """Boards that take what reaches them at once; a tenth of servers is not heard in a tick."""

    def __init__(self, rng: random.Random, house: House, topology: Topology) -> None:
        self.rng, self.house, self.topology = rng, house, topology
        self.caps = [float(watts) for watts in topology.guaranteed_watts]
        self.told = list(self.caps)
        self.confirmed = [0 for _ in house.boards]
        self.received = [0 for _ in house.servers]
        self.demand = [board.default for board in house.boards]
        self.budget_shares = [1.0 for _ in house.domains]
        self.manual = [float("nan") for _ in house.boards]
        self.heat = [rng.choice([0.0, rng.uniform(0.0, 0.3)]) for _ in house.domains]
        self.memory = DrawMemory()
        self.draws = [0.0 for _ in house.boards]
        self.loaded = [-_BRAKES_FOR_TICKS for _ in house.domains]

    def observe(self, number: int) -> Observations:
        """What the controller hears at this second."""
        rng = self.rng
        if number % 5 == 0:
            busy = rng.choice([0.2, 0.7, 1.0])
            for board in self.house.boards:
                idle = rng.uniform(60.0, board.default)
                self.demand[board.number] = board.default if rng.random() < busy else idle
                chosen = rng.random() < 0.05
                manual = rng.uniform(board.minimum, board.default) if chosen else float("nan")
                self.manual[board.number] = manual
            self.budget_shares = [
                rng.choice([1.0, rng.uniform(0.6, 1.0)]) for _ in self.house.domains
            ]
        for server in self.house.servers:
            if number == 0 or rng.random() < 0.9:
                self.received[server.number] = number * NS_PER_SECOND
                for board in server.boards:
                    self.told[board.number] = self.caps[board.number]
        observed = self._observations(number)
        self.draws = observed.gpu_draw_watts.tolist()
        self.memory.saw(float(number), self.draws)
        self._load_breakers(number, observed)
        return observed

    def taking_part(self, number: int) -> list[bool]:
        """Boards whose server was heard lately; all of them do what they are told."""
        now_ns = number * NS_PER_SECOND
        heard = [now_ns - received <= _SILENT_AFTER_NS for received in self.received]
        return [heard[int(server)] for server in self.topology.node_of_gpu]

    def rest(self, active: Sequence[bool], domain: Domain) -> float:
        """AC watts beside the boards; who is silent counts at its declared worst."""
        dc = sum(
            _HOST_WATTS if active[server.boards[0].number] else server.host_watts * part.efficiency
            for part in domain.walk()
            for server in part.servers
            if server.boards
        )
        return dc / domain.efficiency + domain.external

    def braked(self, number: int, domain: Domain) -> bool:
        """Whether a brake has any reason: the domain was near its budget or above lately."""
        return number - self.loaded[domain.number] < _BRAKES_FOR_TICKS

    def _load_breakers(self, number: int, observed: Observations) -> None:
        active = self.taking_part(number)
        everybody = [True] * len(active)
        for domain in self.house.domains:
            where, rating = domain.number, domain.rating_watts
            boards = sum(self.draws[b.number] for b in domain.all_boards) / domain.efficiency
            ratio = (boards + self.rest(everybody, domain)) / rating
            if ratio > 1.0 and number > 0:
                self.heat[where] += 1.0 / min(
                    trip.seconds(ratio) for trip in (domain.trip, domain.feed_trip) if trip
                )
            elif number > 0:
                self.heat[where] *= math.exp(-1.0 / _COOLING_SECONDS)
            silent = [
                OVERSHOOT * b.default - self.draws[b.number]
                for b in domain.all_boards
                if not active[b.number]
            ]
            most = boards + sum(silent) / domain.efficiency + self.rest(active, domain)
            if most >= _NEAR_RATING_SHARE * min(rating, float(observed.budget_watts[where])):
                self.loaded[where] = number

    def obey(self, commands: Commands) -> None:
        """A twentieth of the batches is lost."""
        for server in self.house.servers:
            if not commands.send[server.number] or self.rng.random() < 0.05:
                continue
            for board in server.boards:
                self.caps[board.number] = float(commands.cap_watts[board.number])
                self.confirmed[board.number] = commands.sequence

    def _observations(self, number: int) -> Observations:
        topology, domains = self.topology, len(self.house.domains)
        pairs = zip(self.demand, self.told, strict=True)
        draw = np.array([min(d, t) * self.rng.uniform(0.99, 1.01) for d, t in pairs])
        shares = zip(self.house.domains, self.budget_shares, strict=True)
        return Observations(
            node_received_ns=np.array(self.received, dtype=np.int64),
            node_nonce=np.full(topology.n_nodes, number + 1, dtype=np.uint64),
            node_rebooted=np.zeros(topology.n_nodes, dtype=np.bool_),
            host_watts=np.array([300.0 + self.rng.random() for _ in self.received]),
            gpu_draw_watts=draw,
            gpu_energy_mean_watts=draw,
            gpu_limit_watts=np.array(self.told),
            gpu_guaranteed_watts=topology.guaranteed_watts.copy(),
            gpu_confirmed_sequence=np.array(self.confirmed, dtype=np.int64),
            gpu_leased=np.ones(topology.n_gpus, dtype=np.bool_),
            gpu_controlled=np.ones(topology.n_gpus, dtype=np.bool_),
            meter_watts=np.full(domains, np.nan),
            meter_time_ns=np.full(domains, -1, dtype=np.int64),
            forecast_p99_watts=np.full(domains, np.nan),
            budget_watts=np.array([domain.rating_watts * share for domain, share in shares]),
            override_cap_watts=np.array(self.manual),
            epoch=1,
            leading=True,
            may_raise=True,
            node_epoch=np.ones(topology.n_nodes, dtype=np.int64),
        )


def _due_now(
    plant: _Plant,
    owed: Owed,
    observed: Observations,
    decisions: Decisions,
    active: list[bool],
) -> Due:
    """What is owed after manual caps; below a brake everybody is owed the hardware minimum."""
    house, number, most = plant.house, int(observed.node_nonce[0]) - 1, []
    for board in house.boards:
        manual = float(observed.override_cap_watts[board.number])
        ceiling = manual if manual > 0.0 else board.default
        braked = any(
            decisions.band[domain.number] == Band.BRAKE and plant.braked(number, domain)
            for domain in house.paths[board.number]
        )
        most.append(max(board.minimum if braked else min(ceiling, board.default), board.minimum))

    def kept(goals: Sequence[float]) -> list[float]:
        return [min(goal, cap) for goal, cap in zip(goals, most, strict=True)]

    return Due(
        active=active,
        guaranteed=kept(plant.topology.guaranteed_watts.tolist()),
        floor=kept(owed.floor),
        request=kept(owed.request),
        most=most,
        priority=list(owed.priority),
        gangs=owed.gangs,
    )


def _full(
    plant: _Plant,
    observed: Observations,
    due: Due,
    decisions: Decisions,
    fault_seconds: float,
) -> list[bool]:
    """Which breakers may be full, by the plant's draws, budgets and heat."""
    house = plant.house
    expected = plant.memory.most(plant.told, plant.topology.request_watts.tolist())
    decided = decisions.decided_cap_watts.tolist()
    most = [board.default for board in house.boards]
    caps = [cap if a else high for cap, high, a in zip(decided, most, due.active, strict=True)]
    expected = [e if a else high for e, high, a in zip(expected, most, due.active, strict=True)]
    base = [min(d.rating_watts, float(observed.budget_watts[d.number])) for d in house.domains]
    rest = [plant.rest(due.active, domain) for domain in house.domains]
    survivable = [d.survivable(plant.heat[d.number], fault_seconds) for d in house.domains]
    draws = Draws(expected, plant.memory.rising(), rest)
    return may_be_full(house, caps, draws, base, survivable)


def _jumps(
    plant: _Plant, decisions: Decisions, active: Sequence[bool], fault_seconds: float
) -> Iterator[Violation]:
    """I2 at the decided caps; boards that are not heard at the highest that they may hold."""
    house = plant.house
    caps = decisions.decided_cap_watts.tolist()
    counted = [caps[b.number] if active[b.number] else b.default for b in house.boards]
    least = [b.minimum if active[b.number] else b.default for b in house.boards]
    for domain in house.domains:
        worst, heat = domain.worst(counted), plant.heat[domain.number]
        lowest = worst <= domain.worst(least) + 1e-3
        if not lowest and not domain.survives(worst - 1e-3, heat, fault_seconds):
            yield Violation("jump", domain=domain.number)
