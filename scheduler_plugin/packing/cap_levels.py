"""At which power cap each kind of work runs on each GPU type: a price of a watt decides.

    offered levels (cap, watts, speed) ─┐
    waiting GPUs by kind ───────────────┼─ linear program: most work ──> price of a watt
    free GPUs by type, room for watts ──┘                                      │
                    of each offer the level with most speed less its watts' price ──> snapshot

Where power is plenty the price is 0 and everything runs uncapped. Where it binds, a cap that costs
a tenth of the speed and saves a fifth of the watts lets more work in than it takes. The plan is
then made with the watts of the chosen levels, and says which; the controller sets caps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

import numpy as np

from capacity.cap_steps import cap_steps
from capacity.gpu_profile import GpuProfile
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, PodState, Snapshot
from scheduler_plugin.packing.capped_watts import NO_CAP, cap_options
from scheduler_plugin.packing.domain_rooms import counted_watts
from scheduler_plugin.packing.free_gpus import free_gpus

__all__ = ["CapLevel", "at_levels", "chosen_caps", "chosen_levels", "offered_levels"]

UNLIMITED: Final = 1e12
Chosen = Mapping[tuple[str, str], "CapLevel"]


class Priced(Protocol):
    """A level as the choice sees it."""

    @property
    def added_watts(self) -> int:
        """What the planner counts, AC watts above idle."""
        ...

    @property
    def speed(self) -> float:
        """Relative to no cap, in (0, 1]."""
        ...


L = TypeVar("L", bound=Priced)
Offers = Mapping[tuple[str, str], Sequence[L]]
"""Levels by GPU model and kernel class."""


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

    def speed_at(cap_watts: float) -> float:
        fraction = cap_watts / profile.default_limit_watts
        return float(np.interp(fraction, kernel.cap_fractions, kernel.throughput))

    return tuple(
        CapLevel(
            step.cap_watts,
            min(kernel.power_p50_watts, step.p95_watts),
            step.p95_watts,
            math.ceil(max(0.0, step.p95_watts - profile.idle_watts) / efficiency),
            step.speed,
        )
        for step in cap_steps(profile, kernel.power_p95_watts, speed_at)
    )


def chosen_levels(snapshot: Snapshot, offers: Offers[L]) -> dict[tuple[str, str], L]:
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


class _Offered(NamedTuple):
    """A cap of the snapshot, or none."""

    cap_milli: int
    added_watts: int
    speed: float


def chosen_caps(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """Caps that pay at the price of a watt, by GPU model and kernel class.

    Returns:
        Thousandths of the default limit; kinds of work that run without a cap are left out.
    """
    options = cap_options(snapshot)
    if not options:
        return {}
    full = _uncapped_watts(snapshot)
    offers = {
        key: (
            _Offered(NO_CAP, watts, 1.0),
            *(
                _Offered(o.cap_milli, math.ceil(watts * o.watts_milli / 1000), o.speed_milli / 1000)
                for o in options.get(key, ())
            ),
        )
        for key, watts in full.items()
    }
    chosen = chosen_levels(snapshot, offers)
    return {k: level.cap_milli for k, level in chosen.items() if level.cap_milli < NO_CAP}


def _uncapped_watts(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """The most that a board adds by GPU model and waiting kernel class; also of unknown work."""
    waiting = {kind for kind, _ in _waiting_gpus(snapshot)}
    found: dict[tuple[str, str], int] = {}
    for node in snapshot.nodes:
        if node.gpu_milli:
            for kind in waiting:
                watts = node.class_watts_per_gpu.get(kind, node.watts_per_gpu)
                key = (node.gpu_model, kind)
                found[key] = max(watts, found.get(key, 0))
    return found


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


def _watt_price(snapshot: Snapshot, offers: Offers[L]) -> float:
    """Work (uncapped GPUs) that one watt more would let in; 0 where power does not bind."""
    # 60 MiB and 0.2 s that no plan without cap levels should pay.
    from scipy.optimize import linprog

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
