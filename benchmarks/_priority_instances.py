"""Instances of the "Priority Matters" experiments, and where a default scheduler puts their pods.

The generator is the published one, bit by bit: ReplicaSets of one to four pods, drawn from a seed,
on identical nodes whose capacity follows from the wanted usage. The default scheduler is our own
simulation of kube-scheduler's LeastAllocated and BalancedAllocation, in the integers that it
rounds to, and of a score by name (100 for the first of the nodes that fit, 0 for the last) that
the published fork adds so that ties have one outcome.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final

__all__ = ["COMBINATIONS", "Case", "Combination", "Instance", "default_placement", "draw_case"]

Placement = dict[int, int]
"""Node of each pod that has one, both by index."""

REPLICAS: Final = (1, 4)
MILLI_CPU: Final = (100, 1000)
MEMORY_BYTES: Final = (10**8, 10**9)
#: Below full usage the published seeds are those in which a pod waits; 32 nodes of 8 pods at 0.90
#: had none at all, so a search for one has to end.
MOST_TRIES: Final = 50
WAITS_BY_CHANCE: Final = 1.0
_SCORE: Final = 100


@dataclass(frozen=True, slots=True)
class Combination:
    """One cell of the published grid."""

    nodes: int
    pods_per_node: int
    priorities: int
    usage: float


COMBINATIONS: Final = tuple(
    Combination(*cell)
    for cell in product((4, 8, 16, 32), (4, 8), (1, 2, 4), (0.9, 0.95, 1.0, 1.05))
)


@dataclass(frozen=True, slots=True)
class PodAsk:
    """What a pod asks for.

    Attributes:
        replica_set: Whose it is, by index; its pods are alike.
        priority: Higher is more important.
    """

    replica_set: int
    milli_cpu: int
    memory_bytes: int
    priority: int


@dataclass(frozen=True)
class Instance:
    """Pods in the order in which they are made, and identical nodes."""

    nodes: int
    pods: tuple[PodAsk, ...]
    node_milli_cpu: int
    node_memory_bytes: int

    @classmethod
    def drawn(cls, of: Combination, seed: int) -> Instance:
        """The published generator's instance of a seed."""
        sizes = list(_sizes(_random(seed, "rs-sizes"), of.nodes * of.pods_per_node))
        draws = {
            label: _ints(seed, label, bounds, len(sizes))
            for label, bounds in (
                ("rs-cpu", MILLI_CPU),
                ("rs-mem", MEMORY_BYTES),
                ("base", (1, of.priorities)),
            )
        }
        asks = zip(draws["rs-cpu"], draws["rs-mem"], draws["base"], strict=True)
        pods = tuple(
            PodAsk(index, *ask)
            for index, (size, ask) in enumerate(zip(sizes, asks, strict=True))
            for _ in range(size)
        )
        return cls(
            of.nodes,
            pods,
            _capacity([pod.milli_cpu for pod in pods], of),
            _capacity([pod.memory_bytes for pod in pods], of),
        )

    @cached_property
    def priorities(self) -> tuple[int, ...]:
        """Those that pods have, the most important first."""
        return tuple(sorted({pod.priority for pod in self.pods}, reverse=True))

    def counts(self, placement: Placement) -> tuple[int, ...]:
        """Placed pods of each priority, the most important first: compared as a tuple."""
        return tuple(
            sum(self.pods[pod].priority == priority for pod in placement)
            for priority in self.priorities
        )


def _random(seed: int, label: str) -> random.Random:
    made = hashlib.blake2b(seed.to_bytes(16, "big") + b"\0" + label.encode(), digest_size=16)
    return random.Random(int.from_bytes(made.digest(), "big"))


def _sizes(draw: random.Random, pods: int) -> Iterator[int]:
    while pods:
        size = draw.randint(REPLICAS[0], min(REPLICAS[1], pods))
        pods -= size
        yield size


def _ints(seed: int, label: str, bounds: tuple[int, int], count: int) -> list[int]:
    draw = _random(seed, label)
    return [draw.randint(*bounds) for _ in range(count)]


def _capacity(asks: list[int], of: Combination) -> int:
    return max(max(asks), math.ceil(math.ceil(sum(asks) / of.usage) / of.nodes))


# -- the default scheduler -------------------------------------------------------------------------


def default_placement(instance: Instance) -> Placement:
    """Where the pods are before anybody plans: the more important first, then as they are made."""
    cpu, memory = instance.node_milli_cpu, instance.node_memory_bytes
    free = [(cpu, memory)] * instance.nodes
    placement: Placement = {}
    for index in sorted(range(len(instance.pods)), key=lambda i: -instance.pods[i].priority):
        pod = instance.pods[index]
        left = {
            node: (c - pod.milli_cpu, m - pod.memory_bytes)
            for node, (c, m) in enumerate(free)
            if c >= pod.milli_cpu and m >= pod.memory_bytes
        }
        if not left:
            continue
        scores = [
            _resource_score(now, cpu, memory) + _name_score(rank, len(left))
            for rank, now in enumerate(left.values())
        ]
        node = list(left)[scores.index(max(scores))]
        free[node] = left[node]
        placement[index] = node
    return placement


def _resource_score(left: tuple[int, int], cpu: int, memory: int) -> int:
    """LeastAllocated and BalancedAllocation, each of 0 to 100 and of weight 1."""
    least = (left[0] * _SCORE // cpu + left[1] * _SCORE // memory) // 2
    # Of two resources the standard deviation of the used shares is half of their difference.
    apart = abs((cpu - left[0]) / cpu - (memory - left[1]) / memory) / 2
    return least + int((1 - apart) * _SCORE)


def _name_score(rank: int, count: int) -> int:
    return _SCORE if count == 1 else _SCORE - _SCORE * rank // (count - 1)


# -- cases -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """An instance with its start."""

    of: Combination
    instance: Instance
    start: Placement
    instance_seed: int

    @property
    def all_placed(self) -> bool:
        """Nobody has to be called."""
        return len(self.start) == len(self.instance.pods)


def draw_case(of: Combination, seed: int, number: int) -> Case:
    """Our own instances of a cell; below full usage the first in which a pod waits.

    Args:
        of: The cell.
        seed: Of the whole benchmark.
        number: Of the instance within its cell.
    """
    for attempt in range(MOST_TRIES):
        label = f"{of.nodes} {of.pods_per_node} {of.priorities} {of.usage} {number} {attempt}"
        instance_seed = _random(seed, label).getrandbits(63)
        instance = Instance.drawn(of, instance_seed)
        case = Case(of, instance, default_placement(instance), instance_seed)
        if of.usage >= WAITS_BY_CHANCE or not case.all_placed:
            break
    return case
