"""Which pod holds which GPUs: the twin's part of the kubelet and its device plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulation.pod_work import Work, WorkKind
from wattpack.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_KINDS = {WorkKind.SERVING: 1, WorkKind.TRAINING: 2, WorkKind.BATCH: 3}
IDLE, SERVING, TRAINING, BATCH = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod that runs.

    Attributes:
        work: What it does.
        node: Number of its server.
        gpus: GPU numbers that it holds.
        slot: Of the serving or job fleet.
    """

    work: Work
    node: int
    gpus: tuple[int, ...]
    slot: int


@dataclass(frozen=True, slots=True)
class PlacementEvent:
    """A pod began to hold GPUs, or was taken off them before its work was done."""

    time_ns: int
    work: Work
    node: int
    gpus: tuple[int, ...]
    placed: bool


@dataclass(frozen=True, slots=True)
class PodUseView:
    """A pod and the GPUs that it holds on one node."""

    namespace: str
    name: str
    uid: str
    gpu_uuids: tuple[str, ...]


class GpuAssignment:
    """Kind and slot of every GPU, and the pods behind them.

    Args:
        node_of_gpu: Server of each GPU, (n_gpus,).
    """

    def __init__(self, node_of_gpu: Integers) -> None:
        self._node_of_gpu = node_of_gpu
        self.kind = np.zeros(len(node_of_gpu), dtype=np.int64)
        self.slot = np.zeros(len(node_of_gpu), dtype=np.int64)
        self.pods: dict[str, Placed] = {}
        self._changes = 0
        self._by_node: tuple[int, dict[int, tuple[Placed, ...]]] = (0, {})

    def on_node(self, node: int) -> tuple[Placed, ...]:
        """The pods on a server; the same tuple as long as no pod comes or goes anywhere."""
        changes, by_node = self._by_node
        if changes != self._changes:
            changes = self._changes
            found: dict[int, list[Placed]] = {}
            for placed in tuple(self.pods.values()):
                found.setdefault(placed.node, []).append(placed)
            by_node = {number: tuple(pods) for number, pods in found.items()}
            self._by_node = (changes, by_node)
        return by_node.get(node, ())

    def free(self, node: int) -> list[int]:
        """Unused GPUs of a server, lowest first."""
        return [int(g) for g in np.flatnonzero((self._node_of_gpu == node) & (self.kind == IDLE))]

    def choose(self, work: Work, node: int) -> tuple[int, ...]:
        """The GPUs that a pod would get on a server.

        Raises:
            InputError: if they are not free; the binder has bound too much there.
        """
        free = self.free(node)
        if len(free) < work.gpus:
            raise InputError(work.name, f"a server with {work.gpus} free GPUs", f"{node}: {free}")
        return tuple(free[: work.gpus])

    def place(self, work: Work, node: int, gpus: Sequence[int], slot: int) -> None:
        """Let a pod hold GPUs."""
        self.kind[list(gpus)] = _KINDS[work.kind]
        self.slot[list(gpus)] = slot
        self.pods[work.name] = Placed(work, node, tuple(gpus), slot)
        self._changes += 1

    def release(self, name: str) -> Placed:
        """Let a pod go; what it held."""
        placed = self.pods.pop(name)
        self._changes += 1
        self.kind[list(placed.gpus)] = IDLE
        self.slot[list(placed.gpus)] = 0
        return placed

    def slowest(self, kind: int, speed: Floats, n_slots: int) -> Floats:
        """Speed of the slowest GPU of each slot, 1 where a slot has none, (n_slots,)."""
        result = np.ones(n_slots)
        mine = self.kind == kind
        np.minimum.at(result, self.slot[mine], speed[mine])
        return result


def bound_pods(pods: Sequence[Mapping[str, object]], label: str) -> dict[str, str]:
    """Node by name of the twin's work, for pods that are bound and not finished or going."""
    bound: dict[str, str] = {}
    for pod in pods:
        metadata, spec, status = (pod.get(key) or {} for key in ("metadata", "spec", "status"))
        if not all(isinstance(part, Mapping) for part in (metadata, spec, status)):
            raise InputError("pod", "an object with metadata, spec and status", pod)
        assert isinstance(metadata, Mapping)
        assert isinstance(spec, Mapping)
        assert isinstance(status, Mapping)
        labels = metadata.get("labels") or {}
        name = labels.get(label) if isinstance(labels, Mapping) else None
        node = spec.get("nodeName")
        gone = metadata.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed")
        if name and node and not gone:
            bound[str(name)] = str(node)
    return bound
