"""What work a cluster would hold at chosen caps: waiting work flows in until GPUs or watts end.

Placement serves pods by priority, size or arrival, whatever a watt of theirs does. So this count
leaves nothing out by choice, as a linear program would: all kinds of waiting work flow into every
place that they may use, in the shares in which they wait, until the place's GPUs or the watts of a
domain above it are used up. What found no room there flows on to places that have some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Node, PodState, Snapshot
from scheduler_plugin.packing.capped_watts import has_own_boards
from scheduler_plugin.packing.domain_rooms import counted_watts
from scheduler_plugin.packing.free_gpus import free_gpus_by
from scheduler_plugin.room.resource_columns import gpu_value_milli

__all__ = ["Inflow", "Place", "Work", "inflow_of"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
ROUNDS: Final = 16
"""What a domain turned away looks for another place so often at most (assumed): a cluster in which
everything is scarce takes one round, one with a single scarce domain two."""
LEAST_GPUS: Final = 1e-3
LEAST_WATTS: Final = 1.0
"""Less than that is nothing."""


class Work(NamedTuple):
    """Waiting pods that may go to the same places and count the same watts.

    Attributes:
        kernel_class, gpu_models: As on the pods.
        least_cap_milli: No cap below this; ``None`` for work that counts without caps.
        declared_watts: Of a GPU, where the pods say so.
    """

    kernel_class: str
    gpu_models: tuple[str, ...]
    least_cap_milli: int | None
    declared_watts: int | None


class Place(NamedTuple):
    """Nodes that differ in nothing that counts here."""

    domain: str
    gpu_model: str
    caps_held: bool


@dataclass(frozen=True, slots=True)
class Inflow:
    """Waiting work, places for it, and the domains above them.

    Attributes:
        works: Kinds of waiting work.
        places: Of nodes that take pods.
        waiting_gpus: Of each kind, (k,).
        free_gpus: Of each place, (p,).
        allowed: Whether a kind may use a place, (k, p).
        full_watts: Of a GPU of each kind in each place without a cap, AC above idle, (k, p).
        known: Whether that is what the work draws, and not the most that a board does, (k, p).
        room_watts: Of each domain and, last, of nodes without one, (d,).
        parent: Index of the domain above each, the last one for none, (d,).
        depths: Domains by distance from their root, the deepest first.
        domain: Directly above each place, (p,).
    """

    works: tuple[Work, ...]
    places: tuple[Place, ...]
    waiting_gpus: FloatArray
    free_gpus: FloatArray
    allowed: BoolArray
    full_watts: FloatArray
    known: BoolArray
    room_watts: FloatArray
    parent: IntArray
    depths: tuple[IntArray, ...]
    domain: IntArray

    def work(self, watts: FloatArray, speed: FloatArray) -> float:
        """GPUs' worth of work (uncapped ones) that finds GPUs and watts.

        Args:
            watts: Of a GPU of each kind in each place, AC above idle, (k, p).
            speed: Relative to no cap, (k, p).
        """
        waiting, free, room = self.waiting_gpus, self.free_gpus, self.room_watts
        done = 0.0
        for _ in range(ROUNDS):
            wanted = self._spread(waiting, free * (self._has_room(room) | (watts <= 0.0)))
            let_in = wanted * self._shares(np.einsum("kp,kp->p", wanted, watts), room)
            if let_in.sum() < LEAST_GPUS:
                break
            done += float(np.einsum("kp,kp->", let_in, speed))
            waiting = np.maximum(0.0, waiting - let_in.sum(axis=1))
            free = np.maximum(0.0, free - let_in.sum(axis=0))
            room = np.maximum(0.0, room - self._above(np.einsum("kp,kp->p", let_in, watts)))
        return done

    def _spread(self, waiting: FloatArray, free: FloatArray) -> FloatArray:
        """Each kind over the places that it may use by what is free there for it, (k, p)."""
        weight = self.allowed * free
        wanted = waiting[:, None] * weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-12)
        most = free.max(axis=0, initial=0.0) / np.maximum(wanted.sum(axis=0), 1e-12)
        spread: FloatArray = wanted * np.minimum(1.0, most)
        return spread

    def _has_room(self, room: FloatArray) -> BoolArray:
        """Whether every domain above each place has a watt left, (p,)."""
        has = room >= LEAST_WATTS
        for here in reversed(self.depths):
            has[here] &= has[self.parent[here]]
        return has[self.domain]

    def _above(self, watts: FloatArray) -> FloatArray:
        """Watts of places summed up to every domain, (d,)."""
        summed = self._directly_above(watts)
        for here in self.depths:
            np.add.at(summed, self.parent[here], summed[here])
        return summed

    def _directly_above(self, watts: FloatArray) -> FloatArray:
        summed = np.zeros(len(self.room_watts))
        np.add.at(summed, self.domain, watts)
        return summed

    def _shares(self, watts: FloatArray, room: FloatArray) -> FloatArray:
        """Part of its watts that each place may add, (p,): all below a domain give way alike."""
        last = len(room) - 1
        need = self._directly_above(watts)
        share = np.ones(len(room))
        for here in self.depths:
            short = here[need[here] > room[here]]
            share[short] = room[short] / need[short]
            np.add.at(need, self.parent[here], share[here] * need[here])
        share[last] = 1.0
        for here in reversed(self.depths):
            share[here] *= share[self.parent[here]]
        return share[self.domain]


def inflow_of(snapshot: Snapshot) -> Inflow:
    """What waits in a snapshot, and where it may go."""
    waiting = _waiting_gpus(snapshot)
    free = free_gpus_by(snapshot, _place_of)
    works, places = tuple(waiting), tuple(free)
    names = {domain.name: number for number, domain in enumerate(snapshot.domains)}
    none = len(names)
    counted = counted_watts(snapshot)
    room = [
        float(max(0, d.limit_watts - counted[d.name])) if d.guaranteed_margin_watts >= 0 else 0.0
        for d in snapshot.domains
    ]
    parent = np.array([names.get(d.parent, none) for d in snapshot.domains] + [none])
    allowed = [[not w.gpu_models or p.gpu_model in w.gpu_models for p in places] for w in works]
    full_watts, known = _draws(snapshot, works, places)
    return Inflow(
        works=works,
        places=places,
        waiting_gpus=np.array([*waiting.values()]),
        free_gpus=np.array([*free.values()]),
        allowed=np.array(allowed, dtype=np.bool_).reshape(len(works), len(places)),
        full_watts=full_watts,
        known=known,
        room_watts=np.array([*room, np.inf]),
        parent=parent,
        depths=_depths(parent),
        domain=np.array([names.get(p.domain, none) for p in places], dtype=np.int64),
    )


def _draws(
    snapshot: Snapshot, works: Sequence[Work], places: Sequence[Place]
) -> tuple[FloatArray, BoolArray]:
    """Watts of a GPU by kind and place, the most of its nodes, and whether they are the work's."""
    watts = np.zeros((len(works), len(places)))
    known = np.zeros(watts.shape, dtype=np.bool_)
    at = {place: p for p, place in enumerate(places)}
    seen = set()
    for node in snapshot.nodes:
        p = at.get(_place_of(node))
        figures = (p, node.watts_per_gpu, tuple(node.class_watts_per_gpu.items()))
        if p is None or figures in seen:
            continue
        seen.add(figures)
        for k, work in enumerate(works):
            told = node.class_watts_per_gpu.get(work.kernel_class)
            known[k, p] |= told is not None and work.declared_watts is None
            drawn = node.watts_per_gpu if told is None else told
            if work.declared_watts is not None:
                drawn = work.declared_watts
            watts[k, p] = max(watts[k, p], drawn)
    return watts, known


def _depths(parent: IntArray) -> tuple[IntArray, ...]:
    none = len(parent) - 1
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent.copy()
    while (above != none).any():
        depth[above != none] += 1
        above = parent[above]
    domains = np.arange(none)
    return tuple(domains[depth[:none] == d] for d in range(int(depth.max()), -1, -1))


def _waiting_gpus(snapshot: Snapshot) -> dict[Work, float]:
    found: dict[Work, float] = defaultdict(float)
    for pod in snapshot.pods:
        if pod.state in (PodState.PENDING, PodState.ABSENT) and (milli := gpu_value_milli(pod)):
            declared = pod.expected_watts_per_gpu
            least = pod.least_cap_milli if has_own_boards(pod) and declared is None else None
            work = Work(pod.kernel_class, pod.gpu_models, least, declared)
            found[work] += milli / MILLI_PER_GPU
    return found


def _place_of(node: Node) -> Place:
    return Place(node.domain, node.gpu_model, node.caps_held)
