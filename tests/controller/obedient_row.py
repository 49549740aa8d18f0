"""A row that does at once what it is told, driven by the controller core tick by tick."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from controller.step import initial_state, step
from controller.tick_values import Commands, Decisions, Observations, Tick, Topology
from tests.controller.builders import (
    SETTINGS,
    SWITCHBOARD_THERMAL,
    make_observations,
    make_topology,
    seconds,
)
from wattpack.power.domain_tree import FloatArray


class ObedientRow:
    """A plant without faults: what is commanded is held a tick later.

    Attributes:
        demand: What each board would draw, (n_gpus,).
        deaf: Boards that keep the limit that they have, (n_gpus,).
        seen: What the last tick was told.
        decisions: What it decided.
    """

    seen: Observations
    decisions: Decisions

    def __init__(self, topology: Topology, **observation_changes: Any) -> None:
        self.topology, self.changes = topology, observation_changes
        self.state = initial_state(topology, SETTINGS)
        self.caps: FloatArray = topology.guaranteed_watts.copy()
        self.confirmed = np.zeros(topology.n_gpus, dtype=np.int64)
        self.demand: FloatArray = np.full(topology.n_gpus, 100.0)
        self.deaf = np.zeros(topology.n_gpus, dtype=np.bool_)
        self.heard_ns: dict[int, int] = {}
        self.tick = 0
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.changed = 0

    def silence(self, *nodes: int) -> None:
        """These servers report nothing any more."""
        self.heard_ns |= dict.fromkeys(nodes, seconds(self.tick))

    def fork(self) -> ObedientRow:
        """The same row once more, to go on otherwise."""
        other = copy(self)
        for name in ("caps", "confirmed", "demand", "deaf"):
            setattr(other, name, getattr(self, name).copy())
        other.changes, other.heard_ns = dict(self.changes), dict(self.heard_ns)
        other.kinds, other.texts = list(self.kinds), list(self.texts)
        return other

    def observe(self) -> Observations:
        """What the next tick is told."""
        watts = np.minimum(self.demand, self.caps)
        received = np.full(self.topology.n_nodes, seconds(self.tick))
        for node, heard_ns in self.heard_ns.items():
            received[node] = heard_ns
        return make_observations(
            self.topology,
            seconds(self.tick),
            **{
                "node_received_ns": received,
                "gpu_draw_watts": watts,
                "gpu_energy_mean_watts": watts,
                "gpu_limit_watts": self.caps.copy(),
                "gpu_confirmed_sequence": self.confirmed.copy(),
                **self.changes,
            },
        )

    def run(self, ticks: int) -> tuple[Commands, Decisions]:
        """A tick a second; what the last one commanded and decided."""
        for _ in range(ticks):
            now = seconds(self.tick)
            seen = self.observe()
            self.state, commands, decisions = step(
                Tick(self.topology, seen, SETTINGS, now), self.state
            )
            self.seen, self.decisions = seen, decisions
            reached = commands.send[self.topology.node_of_gpu] & ~self.deaf
            self.changed += int(np.sum(reached & (self.caps != commands.cap_watts)))
            self.caps = np.where(reached, commands.cap_watts, self.caps)
            self.confirmed = np.where(reached, commands.sequence, self.confirmed)
            self.kinds += [t.kind for t in decisions.transitions]
            self.texts += [t.message for t in decisions.transitions if t.subject == "band"]
            self.tick += 1
        return commands, decisions


def big_topology(**changes: Any) -> Topology:
    """Two racks of six servers each; half of the GPUs are important."""
    options: dict[str, Any] = {
        "nodes": [1, 2] * 6,
        "priority": [0, 0, 10, 10] * 12,
        "oversubscription": 1.3,
    }
    return make_topology(**{**options, **changes})


def jump_bound_topology(oversubscription: float = 1.56) -> Topology:
    """A rack of eight servers of which the row's breaker bears no full power while leases last."""
    return make_topology(
        parents=(-1, 0),
        nodes=(1,) * 8,
        priority=[0, 0, 10, 10] * 8,
        oversubscription=oversubscription,
        curve=SWITCHBOARD_THERMAL,
    )
