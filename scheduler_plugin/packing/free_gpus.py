"""How many GPUs of each model nobody has."""

from __future__ import annotations

from collections import defaultdict

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Snapshot

__all__ = ["free_gpus"]


def free_gpus(snapshot: Snapshot) -> dict[str, float]:
    """GPUs of nodes that take pods which no pod has, by model, parts of boards counted."""
    free: dict[str, float] = defaultdict(float)
    models = {node.name: node.gpu_model for node in snapshot.nodes}
    for node in snapshot.nodes:
        if node.gpu_milli and node.is_open:
            free[node.gpu_model] += node.gpu_milli / MILLI_PER_GPU
    for pod in snapshot.pods:
        if (model := models.get(pod.node)) in free:
            free[model] -= pod.gpu_milli / MILLI_PER_GPU
    return {model: max(0.0, gpus) for model, gpus in free.items()}
