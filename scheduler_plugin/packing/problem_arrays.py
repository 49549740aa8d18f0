"""The arrays of a problem, each from the snapshot and the classes of its pods.

Axes as in ``problem``: ``n`` nodes, ``c`` classes, ``d`` power domains, ``r`` resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Pod, Snapshot
from scheduler_plugin.packing.domain_rooms import ancestors, counted_watts
from scheduler_plugin.packing.pod_classes import PodClass
from scheduler_plugin.packing.power_rows import UNLIMITED_WATTS
from scheduler_plugin.room.resource_columns import (
    GPUS,
    MEMORY,
    MILLI_CPU,
    PODS,
    node_amounts,
    row,
    whole_boards,
)
from scheduler_plugin.rules.node_kinds import node_kinds
from scheduler_plugin.rules.static_rules import static_key, static_mask

__all__ = ["capacities", "eligibility", "headrooms", "rows", "spared", "worths"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def headrooms(snapshot: Snapshot) -> tuple[IntArray, IntArray, IntArray]:
    """Headroom after promises, the domain of each node, and which domains are above which.

    Watts; shapes (d + 1,), (n,) and (d + 1, depth), the last domain without limit.
    """
    domains = {domain.name: domain for domain in snapshot.domains}
    number = {name: i for i, name in enumerate(domains)} | {"": len(domains)}
    paths = [ancestors(domains, name) for name in number]
    above = np.full((len(number), max(map(len, paths)) + 1), len(domains), dtype=np.int64)
    for i, names in enumerate(paths):
        above[i, : len(names)] = [number[name] for name in names]
    counted = counted_watts(snapshot)
    headroom = [d.limit_watts - counted[name] for name, d in domains.items()]
    return (
        np.maximum(np.array([*headroom, UNLIMITED_WATTS], dtype=np.int64), 0),
        np.array([number[node.domain] for node in snapshot.nodes], dtype=np.int64),
        above,
    )


def spared(snapshot: Snapshot, classes: tuple[PodClass, ...]) -> BoolArray | None:
    """Domains that do not count the pods of a class, shape (c, d + 1); None if all count all."""
    if all(domain.least_priority is None for domain in snapshot.domains):
        return None
    found = [[not d.counts(k.priority) for d in snapshot.domains] + [False] for k in classes]
    return np.array(found, dtype=bool).reshape(len(classes), len(snapshot.domains) + 1)


def capacities(
    snapshot: Snapshot, columns: tuple[str, ...], fixed: Sequence[Pod], index: Mapping[str, int]
) -> tuple[IntArray, IntArray]:
    """Allocatable, and what is left beside pods that stay as they are, both (n, r)."""
    total = rows([node_amounts(node) for node in snapshot.nodes], columns)
    used = np.zeros_like(total)
    # One list a column: a dictionary and a row a pod take five times as long for 35,000 pods.
    at = np.array([index[pod.node] for pod in fixed], dtype=np.intp)
    amounts = {
        GPUS: [whole_boards(pod) for pod in fixed],
        MILLI_CPU: [pod.milli_cpu for pod in fixed],
        MEMORY: [pod.memory_bytes for pod in fixed],
        PODS: [1] * len(fixed),
    }
    for column, name in enumerate(columns):
        taken = amounts.get(column) or [pod.resources.get(name, 0) for pod in fixed]
        np.add.at(used[:, column], at, taken)
    return total, np.maximum(total - used, 0)


def rows(amounts: list[dict[str, int]], columns: tuple[str, ...]) -> IntArray:
    """Named amounts in the order of columns, shape (k, r)."""
    found = np.array([row(each, columns) for each in amounts], dtype=np.int64)
    return found.reshape(-1, len(columns))


def eligibility(snapshot: Snapshot, classes: tuple[PodClass, ...]) -> BoolArray:
    """Where each class may go by the static rules, shape (c, n).

    Pods that they treat alike are asked about once, nodes likewise.
    """
    kinds = node_kinds(snapshot.nodes, (k.pod for k in classes))
    masks: dict[str, BoolArray] = {}
    result = np.zeros((len(classes), len(snapshot.nodes)), dtype=bool)
    for i, pod_class in enumerate(classes):
        key = static_key(pod_class.pod)
        if key not in masks:
            masks[key] = static_mask(kinds, pod_class.pod)
        result[i] = masks[key]
    return result


def worths(snapshot: Snapshot, classes: tuple[PodClass, ...]) -> IntArray | None:
    """What one pod of each class is worth on each node, shape (c, n); None if all are alike."""
    if not any(k.pod.gpu_model_values or k.pod.cpu_class_values for k in classes):
        return None
    models = sorted({node.gpu_model for node in snapshot.nodes})
    number = {model: i for i, model in enumerate(models)}
    of_node = np.array([number[node.gpu_model] for node in snapshot.nodes], dtype=np.intp)
    by_model = np.zeros((len(classes), len(models)), dtype=np.int64)
    for worth, pod_class in zip(by_model, classes, strict=True):
        pod = pod_class.pod
        for model, value in pod.gpu_model_values.items():
            if model in number:
                worth[number[model]] = value * pod.gpu_milli // MILLI_PER_GPU
    found = by_model[:, of_node]
    for c, pod_class in enumerate(classes):
        if values := pod_class.pod.cpu_class_values:
            alike = pod_class.value if not pod_class.pod.gpu_model_values else found[c]
            milli = np.array([values.get(n.cpu_class, 0) for n in snapshot.nodes], dtype=np.int64)
            found[c] = alike * milli // 1000
    return found
