"""Random houses, and the controller driven against the faulty plant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import HealthCheck
from hypothesis import strategies as st

from controller.step import State, initial_state, step
from controller.tick_values import Commands, Decisions, Observations, Tick, Topology
from tests.controller.builders import SETTINGS, make_topology, seconds
from tests.controller.faulty_plant import Faults, Plant
from tests.examples import examples

CHEAP = examples(100)
LOOPS = examples(15, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 2**32 - 1)


def random_topology(rng: np.random.Generator, **changes: object) -> Topology:
    """A tree of two or three levels with a random shape, classes, gangs and oversubscription."""
    parents = [-1, 0, 0, *([1, 1] if rng.random() < 0.5 else [])]
    leaves = [i for i in range(len(parents)) if i not in parents]
    n_nodes = int(rng.integers(len(leaves), 9))
    nodes = [leaves[i % len(leaves)] for i in range(n_nodes)]
    n_gpus = n_nodes * 4
    gang = np.full(n_gpus, -1)
    request = rng.choice([500.0, 600.0, 700.0], n_gpus)
    priority = rng.integers(0, 4, n_gpus) * 10
    for number in range(int(rng.integers(0, 3))):
        members = rng.choice(n_gpus, size=3, replace=False)
        members = members[gang[members] < 0]
        gang[members], priority[members] = number, 10 * int(rng.integers(0, 4))
        request[members] = 600.0
    options: dict[str, object] = {
        "parents": parents,
        "nodes": nodes,
        "oversubscription": float(rng.uniform(1.0, 1.45)),
        "priority": priority.tolist(),
        "gang": gang.tolist(),
        "request_watts": request.tolist(),
        "value_per_watt": rng.random(n_gpus).tolist(),
    }
    return make_topology(**{**options, **changes})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Row:
    """One tick of a run."""

    plant: Plant
    observed: Observations
    commands: Commands
    decisions: Decisions
    state: State


def drive(
    topology: Topology, faults: Faults, rng: np.random.Generator, ticks: int, jump: bool = False
) -> Iterator[Row]:
    """Run controller and plant against each other, a row a tick."""
    plant = Plant(topology, faults, rng)
    state = initial_state(topology, SETTINGS)
    for tick in range(ticks):
        plant.advance(tick)
        if tick % 20 == 0:
            low, high = rng.choice([100.0, 690.0], 2)
            for board in plant.boards:
                board.demand = float(low if rng.random() < 0.7 else high)
            if jump and tick >= 40:
                plant.ask(690.0 if tick % 60 else 100.0)
        observed = plant.observe(tick)
        if rng.random() < faults.leader_change:
            # The other replica takes over and knows nothing at all.
            plant.leader_epoch += 1
            state = initial_state(topology, SETTINGS)
            observed = replace(
                observed,
                epoch=plant.leader_epoch,
                gpu_confirmed_sequence=np.zeros(topology.n_gpus, dtype=np.int64),
            )
        state, commands, decisions = step(Tick(topology, observed, SETTINGS, seconds(tick)), state)
        plant.send(tick, commands)
        yield Row(plant, observed, commands, decisions, state)
