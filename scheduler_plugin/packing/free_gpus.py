"""How many GPUs of each model nobody has."""

from __future__ import annotations

from collections import defaultdict

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Snapshot
from scheduler_plugin.room.resource_columns import gpu_value_milli

__all__ = ["free_gpus", "open_gpus"]


def open_gpus(snapshot: Snapshot) -> dict[str, float]:
    """GPUs of nodes that take pods, by model."""
    found: dict[str, float] = defaultdict(float)
    for node in snapshot.nodes:
        if node.gpu_milli and node.is_open:
            found[node.gpu_model] += node.gpu_milli / MILLI_PER_GPU
    return found


def free_gpus(snapshot: Snapshot) -> dict[str, float]:
    """Those of them that no pod has, by model, parts of boards counted."""
    free = open_gpus(snapshot)
    models = {node.name: node.gpu_model for node in snapshot.nodes if node.is_open}
    for pod in snapshot.pods:
        if (model := models.get(pod.node)) in free:
            free[model] -= gpu_value_milli(pod) / MILLI_PER_GPU
    return {model: max(0.0, gpus) for model, gpus in free.items()}
