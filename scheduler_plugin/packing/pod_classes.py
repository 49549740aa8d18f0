"""Identical pods as classes with counts, and what is placed together as jobs.

Pods that run and may move belong to the class of those that wait for the same: one integer a class
and node says both where new ones go and which old ones stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Pod, PodState, Snapshot
from scheduler_plugin.packing.elastic_gangs import not_yet
from scheduler_plugin.room.resource_columns import gpu_value_milli

__all__ = ["Blocked", "Job", "PodClass", "Running", "classes_of", "is_movable"]

_NOT_THE_CLASS = {
    "mig_placements",
    "uid",
    "namespace",
    "name",
    "state",
    "priority",
    "node",
    "beyond",
    "gpu_boards",
    "move_seconds",
    "expected_end_seconds",
}


class Blocked(NamedTuple):
    """A pod that cannot be planned at all."""

    uid: str
    gang: str
    reason: PendingReason
    message: str


class Running(NamedTuple):
    """A pod that runs and may be moved; the cheapest come first."""

    price: int
    uid: str
    node: int


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods that differ only in their names and places.

    Attributes:
        pod: One of them, for what all ask for.
        value: What placing one is worth, in milliGPU; a pod without GPUs counts as one GPU.
        uids: Of those that wait.
        running: Those that run and may be moved; ``price`` in GPU seconds, at least 1.
    """

    pod: Pod
    uids: tuple[str, ...]
    priority: int
    value: int
    running: tuple[Running, ...] = ()

    @property
    def count(self) -> int:
        """Of all of them."""
        return len(self.uids) + len(self.running)


@dataclass(frozen=True, slots=True)
class Job:
    """What is placed together: one class of single pods, or all classes of a gang."""

    classes: tuple[int, ...]
    priority: int
    gang: str = ""


def is_movable(pod: Pod, index: Mapping[str, int]) -> bool:
    """Whether a plan may give a running pod another node."""
    bound = pod.state is PodState.BOUND and pod.node in index
    alone = not (pod.gang or pod.groups or pod.peer_rules)
    return bound and pod.move_seconds is not None and alone


def classes_of(
    snapshot: Snapshot,
    index: Mapping[str, int],
    movable: Collection[str],
    capped: Collection[str] = (),
) -> tuple[tuple[PodClass, ...], tuple[Job, ...], tuple[Blocked, ...]]:
    """Classes by priority, jobs, and pods that no plan can place.

    Args:
        snapshot: With the pods.
        index: Of nodes by name.
        movable: Running pods that belong to classes, by uid.
        capped: Kernel classes of which waiting pods may count at a cap: those that run are classes
            of their own then, since they count without.
    """
    described: dict[str, int] = defaultdict(int)
    priority: dict[str, int] = {}
    for pod in snapshot.pods:
        if pod.gang:
            described[pod.gang] += 1
            if pod.state.waits:
                priority[pod.gang] = max(pod.priority, priority.get(pod.gang, pod.priority))
    later = not_yet(snapshot)
    size = {gang.id: gang.size for gang in snapshot.gangs}
    # Each pod for which room is held is a class of its own.
    held = {hold.work for hold in snapshot.holds}
    groups: dict[tuple[int, str, str, bool, str], list[Pod]] = defaultdict(list)
    blocked: list[Blocked] = []
    for pod in snapshot.pods:
        if not pod.state.waits and pod.uid not in movable:
            continue
        if pod.gang and described[pod.gang] < size[pod.gang]:
            text = f"{described[pod.gang]} of {size[pod.gang]} members of {pod.gang} are described"
            blocked.append(Blocked(pod.uid, pod.gang, PendingReason.GANG_INCOMPLETE, text))
            continue
        if pod.uid in later:
            blocked.append(Blocked(pod.uid, "", *later[pod.uid]))
            continue
        tier = priority[pod.gang] if pod.gang else pod.priority
        apart = pod.kernel_class in capped and pod.uid in movable
        alike = pod.model_dump_json(exclude=_NOT_THE_CLASS)
        own = pod.uid if pod.uid in held else ""
        groups[-tier, pod.gang, alike, apart, own].append(pod)
    classes = tuple(_class_of(pods, -key[0], index) for key, pods in sorted(groups.items()))
    gangs: dict[str, list[int]] = defaultdict(list)
    jobs: list[Job] = []
    for i, pod_class in enumerate(classes):
        if pod_class.pod.gang:
            gangs[pod_class.pod.gang].append(i)
        else:
            jobs.append(Job((i,), pod_class.priority))
    jobs += [Job(tuple(m), classes[m[0]].priority, gang) for gang, m in gangs.items()]
    return classes, tuple(jobs), tuple(blocked)


def _class_of(pods: list[Pod], priority: int, index: Mapping[str, int]) -> PodClass:
    value = gpu_value_milli(pods[0]) or MILLI_PER_GPU
    running = (
        Running(
            max(1, -(-value * (pod.move_seconds or 0) // MILLI_PER_GPU)), pod.uid, index[pod.node]
        )
        for pod in pods
        if pod.state is PodState.BOUND
    )
    waiting = tuple(pod.uid for pod in pods if pod.state is not PodState.BOUND)
    return PodClass(pods[0], waiting, priority, value, tuple(sorted(running)))
