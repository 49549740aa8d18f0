"""At which power cap each kind of work runs on each GPU type: a price of a watt decides.

    offered levels (cap, watts, speed) ─┐
    waiting GPUs by kind ───────────────┼─ linear program: most work ──> price of a watt
    free GPUs by type, room for watts ──┘                                      │
                    of each offer the level with most speed less its watts' price ──> snapshot

Where power is plenty the price is 0 and everything runs uncapped. Where it binds, a cap that costs
a tenth of the speed and saves a fifth of the watts lets more work in than it takes. The plan is
then made with the watts of the chosen levels; whoever carries it out has to set these caps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import linprog

from capacity.gpu_profile import GpuProfile
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, PodState, Snapshot
from scheduler_plugin.packing.domain_rooms import counted_watts
from scheduler_plugin.packing.policy_values import free_gpus

__all__ = ["CapLevel", "at_levels", "chosen_levels", "offered_levels"]

LEVELS: Final = 5
"""Caps offered from the profile's knee to its default limit, both included."""
UNLIMITED: Final = 1e12
Offers = Mapping[tuple[str, str], Sequence["CapLevel"]]
"""Levels by GPU model and kernel class."""
Chosen = Mapping[tuple[str, str], "CapLevel"]


@dataclass(frozen=True, slots=True)
class CapLevel:
    """One cap and what the work does there.

    Attributes:
        cap_watts: Of the board.
        mean_watts: Mean draw of the board; a cap may be drawn to its last watt.
        p95_watts: 95th percentile of its draw; a cap cuts it.
        added_watts: What the planner counts: ``p95_watts`` above idle, AC, rounded up.
        speed: Relative to no cap, in (0, 1].
    """

    cap_watts: float
    mean_watts: float
    p95_watts: float
    added_watts: int
    speed: float


def offered_levels(
    profile: GpuProfile, kernel_class: str, efficiency: float = 1.0
) -> tuple[CapLevel, ...]:
    """Caps from the default limit down to the knee, where training keeps 85 % of its speed.

    Args:
        profile: Of the GPU type.
        kernel_class: One of the profile's.
        efficiency: DC at the board over AC at the breaker.
    """
    kernel = profile.kernel_classes[kernel_class]
    made = []
    for cap in np.linspace(profile.default_limit_watts, profile.knee_watts, LEVELS).tolist():
        fraction = cap / profile.default_limit_watts
        speed = float(np.interp(fraction, kernel.cap_fractions, kernel.throughput))
        p95 = min(kernel.power_p95_watts, cap)
        added = math.ceil(max(0.0, p95 - profile.idle_watts) / efficiency)
        made.append(CapLevel(cap, min(kernel.power_p50_watts, p95), p95, added, speed))
    return tuple(made)


def chosen_levels(snapshot: Snapshot, offers: Offers) -> dict[tuple[str, str], CapLevel]:
    """Of each offer the level whose work is worth most at the price that watts have here.

    The program places parts of pods on types, not on nodes: it is a guide, and plans are checked
    against every domain. Pods that are bound count as what their domains use.

    Args:
        snapshot: With waiting pods and power domains.
        offers: Levels of each GPU model and kernel class; at least one each.
    """
    price = _watt_price(snapshot, offers)
    return {
        key: max(
            levels, key=lambda level: (level.speed - price * level.added_watts, -level.added_watts)
        )
        for key, levels in offers.items()
    }


def at_levels(snapshot: Snapshot, chosen: Chosen) -> Snapshot:
    """The snapshot in which pods of each kind count what they draw at their level."""
    nodes = []
    for node in snapshot.nodes:
        watts = {
            name: chosen[node.gpu_model, name].added_watts
            if (node.gpu_model, name) in chosen
            else w
            for name, w in node.class_watts_per_gpu.items()
        }
        nodes.append(node.model_copy(update={"class_watts_per_gpu": watts}))
    return snapshot.model_copy(update={"nodes": tuple(nodes)})


# -- the price of a watt ---------------------------------------------------------------------------


def _watt_price(snapshot: Snapshot, offers: Offers) -> float:
    """Work (uncapped GPUs) that one watt more would let in; 0 where power does not bind."""
    demand = _waiting_gpus(snapshot)
    rooms = free_gpus(snapshot)
    columns = [
        (row, model, level)
        for row, (kind, models) in enumerate(demand)
        for model in rooms
        if not models or model in models
        for level in offers.get((model, kind), ())
    ]
    if not columns:
        return 0.0
    types = {model: number for number, model in enumerate(rooms)}
    rows = np.zeros((len(demand) + len(types) + 1, len(columns)))
    for column, (row, model, level) in enumerate(columns):
        rows[row, column] = rows[len(demand) + types[model], column] = 1.0
        rows[-1, column] = level.added_watts
    limits = [*demand.values(), *rooms.values(), _power_room(snapshot)]
    found = linprog([-level.speed for _, _, level in columns], A_ub=rows, b_ub=limits)
    return max(0.0, -float(found.ineqlin.marginals[-1]))


def _waiting_gpus(snapshot: Snapshot) -> dict[tuple[str, tuple[str, ...]], float]:
    """GPUs that wait, by kernel class and allowed models."""
    waiting: dict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
    for pod in snapshot.pods:
        if pod.state in (PodState.PENDING, PodState.ABSENT) and pod.gpu_milli:
            waiting[pod.kernel_class, pod.gpu_models] += pod.gpu_milli / MILLI_PER_GPU
    return waiting


def _power_room(snapshot: Snapshot) -> float:
    """Watts for new pods of the whole tree: no domain passes on more than those below it take."""
    counted = counted_watts(snapshot)
    own = {d.name: max(0, d.limit_watts - counted[d.name]) for d in snapshot.domains}
    children: dict[str, list[str]] = defaultdict(list)
    for domain in snapshot.domains:
        children[domain.parent].append(domain.name)
    feeds_nodes = {node.domain for node in snapshot.nodes if node.gpu_milli}
    if "" in feeds_nodes:
        return UNLIMITED

    def room(name: str) -> float:
        if name in feeds_nodes:
            return float(own[name])
        return min(float(own[name]), _sum(room(child) for child in children[name]))

    return _sum(room(name) for name in children[""])


def _sum(watts: Iterable[float]) -> float:
    return float(sum(watts))
