"""What pods add to their domains at the caps that a plan counts on, AC watts.

A cap is an expectation, never a command: the controller sets caps, by priority. So only where it
does (``Node.caps_held``), only for whole boards, since boards have one cap, and never below what
the pod's policies keep.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.cap_option import CapOption
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Node, Pod, Snapshot
from scheduler_plugin.packing.pod_classes import PodClass
from scheduler_plugin.room.resource_columns import gpu_watts, watts_per_gpu

__all__ = [
    "CapOptions",
    "cap_options",
    "has_own_boards",
    "lowest_cap",
    "planned_cap",
    "promised_cap",
    "watts_added",
    "watts_at",
]

IntArray = npt.NDArray[np.int64]
CapOptions = Mapping[tuple[str, str], Sequence[CapOption]]
"""By GPU model and kernel class, the highest cap first."""
Chosen = Mapping[tuple[str, str], int]
"""Thousandths of the default limit by GPU model and kernel class; others run without a cap."""
NO_CAP: Final = 1000


def cap_options(snapshot: Snapshot) -> CapOptions:
    """The snapshot's caps by what they are for."""
    found: dict[tuple[str, str], list[CapOption]] = defaultdict(list)
    for option in sorted(snapshot.cap_options, key=lambda option: -option.cap_watts):
        found[option.gpu_model, option.kernel_class].append(option)
    return found


def promised_cap(pod: Pod, node: Node, options: CapOptions) -> CapOption | None:
    """The cap that a promised pod was planned at; None where it is no longer on offer."""
    if not (pod.cap_watts and _can_be_capped(pod, node)):
        return None
    offered = options.get((node.gpu_model, pod.kernel_class), ())
    return next((o for o in offered if o.cap_watts == pod.cap_watts), None)


def planned_cap(pod: Pod, node: Node, options: CapOptions, chosen: Chosen) -> CapOption | None:
    """The lowest cap on offer that is neither below the chosen one nor below what the pod keeps."""
    key = (node.gpu_model, pod.kernel_class)
    if key not in chosen or not _can_be_capped(pod, node):
        return None
    return lowest_cap(options[key], max(chosen[key], pod.least_cap_milli))


def lowest_cap(options: Sequence[CapOption], least_milli: int) -> CapOption | None:
    """The lowest cap on offer that is not below so many thousandths of the default limit."""
    return next((o for o in reversed(options) if o.cap_milli >= least_milli), None)


def watts_at(pod: Pod, node: Node, option: CapOption | None) -> int:
    """What a pod adds at the breaker above the node with its boards at a cap, AC watts."""
    per_gpu = watts_per_gpu(pod, node)
    return gpu_watts(pod, per_gpu if option is None else _at(per_gpu, option))


def watts_added(
    snapshot: Snapshot, classes: Sequence[PodClass], chosen: Chosen
) -> tuple[IntArray, IntArray | None]:
    """What a pod of each class adds on each node, and the cap of its boards there, both (c, n).

    Caps are 0 for none, and None where no class has one. Pods that run have none. One whose plan
    told a cap (``Pod.cap_watts``) counts at that, whatever is chosen.
    """
    rows: dict[tuple[str, int, int], tuple[IntArray, IntArray]] = {}
    told = any(pod_class.pod.cap_watts for pod_class in classes)
    watts = np.zeros((len(classes), len(snapshot.nodes)), dtype=np.int64)
    caps = np.zeros_like(watts) if chosen or told else None
    options = cap_options(snapshot) if chosen or told else {}
    for i, pod_class in enumerate(classes):
        pod = pod_class.pod
        if pod.expected_watts_per_gpu is not None:
            watts[i] = gpu_watts(pod, pod.expected_watts_per_gpu)
            continue
        cappable = has_own_boards(pod) and not pod_class.running
        least = pod.least_cap_milli if cappable else NO_CAP
        key = (pod.kernel_class, least, pod.cap_watts if cappable else 0)
        if key not in rows:
            rows[key] = _row(pod, snapshot.nodes, options, chosen if cappable else {})
        per_gpu, held = rows[key]
        watts[i] = gpu_watts(pod, per_gpu)
        if caps is not None:
            caps[i] = held
    return watts, caps


def _row(
    pod: Pod, nodes: Sequence[Node], options: CapOptions, chosen: Chosen
) -> tuple[IntArray, IntArray]:
    """What a board adds on each node, and its cap there, both (n,)."""
    per_gpu = [watts_per_gpu(pod, node) for node in nodes]
    held = [0] * len(nodes)
    if pod.cap_watts or any(name == pod.kernel_class for _, name in chosen):
        for j, node in enumerate(nodes):
            option = (
                promised_cap(pod, node, options)
                if pod.cap_watts
                else planned_cap(pod, node, options, chosen)
            )
            if option is not None:
                per_gpu[j], held[j] = _at(per_gpu[j], option), option.cap_watts
    return np.array(per_gpu, dtype=np.int64), np.array(held, dtype=np.int64)


def _can_be_capped(pod: Pod, node: Node) -> bool:
    known = pod.kernel_class in node.class_watts_per_gpu and pod.expected_watts_per_gpu is None
    return node.caps_held and known and has_own_boards(pod)


def has_own_boards(pod: Pod) -> bool:
    """Whether no other pod has a part of a board of this one: boards have one cap."""
    return pod.gpu_milli >= MILLI_PER_GPU and not (pod.mig_profiles or pod.drawn_milli)


def _at(per_gpu: int, option: CapOption) -> int:
    """Rounded up."""
    return -(-per_gpu * option.watts_milli // 1000)
