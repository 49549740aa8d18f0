"""The whole controller in a small lossy loop on a random house, and what its judge is told."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks._order_judge import Due, Violation, judged_claims
from benchmarks._power_house import House
from benchmarks._random_houses import Owed
from controller.step import initial_state, step
from controller.tick_values import (
    Band,
    CapReason,
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
    heat = np.array([rng.choice([0.0, rng.uniform(0.0, 0.3)]) for _ in house.domains])
    state = initial_state(topology, settings, heat)
    for number in range(ticks):
        observed = plant.observe(number)
        tick = Tick(topology, observed, settings, number * NS_PER_SECOND)
        state, commands, decisions = step(tick, state)
        plant.obey(commands)
        active = _active(topology, decisions)
        found = _wrong(
            house, _due_now(house, owed, topology, observed, decisions, active), decisions
        )
        yield [*found, *_jumps(house, decisions, active, settings.fault_seconds)]


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
        return self._observations(number)

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


def _active(topology: Topology, decisions: Decisions) -> list[bool]:
    silent = decisions.silent_nodes[topology.node_of_gpu] | ~decisions.trusted
    taking: list[bool] = (~silent & (decisions.reason != CapReason.UNCONTROLLED)).tolist()
    return taking


def _wrong(house: House, due: Due, decisions: Decisions) -> list[Violation]:
    caps = decisions.decided_cap_watts.tolist()
    return judged_claims(house, due, caps, decisions.binding_domain.tolist())


def _due_now(
    house: House,
    owed: Owed,
    topology: Topology,
    observed: Observations,
    decisions: Decisions,
    active: list[bool],
) -> Due:
    """What is owed after manual caps; below a brake everybody is owed the hardware minimum."""
    most = []
    for board in house.boards:
        manual = float(observed.override_cap_watts[board.number])
        ceiling = manual if manual > 0.0 else board.default
        above = house.paths[board.number]
        braked = any(decisions.band[domain.number] == Band.BRAKE for domain in above)
        most.append(max(board.minimum if braked else min(ceiling, board.default), board.minimum))

    def kept(goals: Sequence[float]) -> list[float]:
        return [min(goal, cap) for goal, cap in zip(goals, most, strict=True)]

    return Due(
        active=active,
        guaranteed=kept(topology.guaranteed_watts.tolist()),
        floor=kept(owed.floor),
        request=kept(owed.request),
        most=most,
        priority=list(owed.priority),
        gangs=owed.gangs,
    )


def _jumps(
    house: House, decisions: Decisions, active: Sequence[bool], fault_seconds: float
) -> Iterator[Violation]:
    """I2 at the decided caps, boards that take no part at the highest cap they may hold."""
    highest = decisions.highest_cap_watts.tolist()
    caps = decisions.decided_cap_watts.tolist()
    counted = [caps[i] if taking else highest[i] for i, taking in enumerate(active)]
    least = [b.minimum if active[b.number] else counted[b.number] for b in house.boards]
    for domain in house.domains:
        worst, heat = domain.worst(counted), float(decisions.heat[domain.number])
        lowest = worst <= domain.worst(least) + 1e-3
        if not lowest and not domain.survives(worst - 1e-3, heat, fault_seconds):
            yield Violation("jump", domain=domain.number)
