"""How many GPUs nobody has, by what is asked of their nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Node, Snapshot
from scheduler_plugin.room.resource_columns import gpu_value_milli

__all__ = ["free_gpus", "free_gpus_by", "open_gpus"]

K = TypeVar("K")


def open_gpus(snapshot: Snapshot) -> dict[str, float]:
    """GPUs of nodes that take pods, by model."""
    return _open_gpus_by(snapshot, lambda node: node.gpu_model)


def free_gpus(snapshot: Snapshot) -> dict[str, float]:
    """Those of them that no pod has, by model, parts of boards counted."""
    return free_gpus_by(snapshot, lambda node: node.gpu_model)


def free_gpus_by(snapshot: Snapshot, key_of: Callable[[Node], K]) -> dict[K, float]:
    """The same by anything that nodes have in common."""
    free = _open_gpus_by(snapshot, key_of)
    keys = {node.name: key_of(node) for node in snapshot.nodes if node.is_open}
    for pod in snapshot.pods:
        if pod.node in keys and (key := keys[pod.node]) in free:
            free[key] -= gpu_value_milli(pod) / MILLI_PER_GPU
    return {key: max(0.0, gpus) for key, gpus in free.items()}


def _open_gpus_by(snapshot: Snapshot, key_of: Callable[[Node], K]) -> dict[K, float]:
    found: dict[K, float] = defaultdict(float)
    for node in snapshot.nodes:
        if node.gpu_milli and node.is_open:
            found[key_of(node)] += node.gpu_milli / MILLI_PER_GPU
    return found
