"""What a node holds and a pod takes, as named amounts and as rows of integers.

Every resource of the node counts, because kube-scheduler compares every one: a pin to a node that
lacks one is missed. GPUs are whole boards in the first column, and a share of a board is in none;
their resource names are columns of their own beside it, so that a pod that asks for one maker's
boards never counts another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.host_resources import HOST_RESOURCES, NOT_LIMITED
from scheduler_plugin.documents.mig_geometry import PARTS_PER_BOARD, parts_of, value_milli
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Node, Pod

GPUS, MILLI_CPU, MEMORY, PODS = range(4)
_UNSTATED = dict.fromkeys(HOST_RESOURCES, NOT_LIMITED)
_CORE = ("gpus", "cpu", "memory", "pods")


def node_amounts(node: Node) -> dict[str, int]:
    """Boards, milliCPU, bytes, pods, and the units of everything else, stated or not."""
    core = (node.gpu_milli // MILLI_PER_GPU, node.milli_cpu, node.memory_bytes, node.pods)
    return _UNSTATED | node.resources | dict(zip(_CORE, core, strict=True))


def pod_amounts(pod: Pod) -> dict[str, int]:
    """The same of a pod, which takes one place among the node's pods; no share of a board."""
    core = (whole_boards(pod), pod.milli_cpu, pod.memory_bytes, 1)
    return dict(pod.resources) | dict(zip(_CORE, core, strict=True))


def share_milli(pod: Pod) -> int:
    """Of one board, from 1 to 999; 0 for a pod that asks for whole ones or for none."""
    return pod.gpu_milli if pod.gpu_milli < MILLI_PER_GPU else 0


def mig_profiles(pod: Pod) -> tuple[str, ...]:
    """Of each MIG instance that a pod asks for, by name."""
    return tuple(name for name, count in sorted(pod.mig_profiles.items()) for _ in range(count))


def asks_for_part(pod: Pod) -> bool:
    """Whether boards have to be told apart for a pod: it asks for a share or for MIG instances."""
    return bool(share_milli(pod) or pod.mig_profiles)


def gpu_value_milli(pod: Pod) -> int:
    """What a pod asks for of boards, thousandths of one; of MIG instances rounded down."""
    return pod.gpu_milli or value_milli(mig_profiles(pod))


W = TypeVar("W", int, npt.NDArray[np.int64])


def gpu_watts(pod: Pod, watts_per_gpu: W) -> W:
    """Its part of the watts of the boards that it is on, rounded up."""
    drawn = -(-(pod.gpu_milli + pod.drawn_milli) * watts_per_gpu // MILLI_PER_GPU)
    if not pod.mig_profiles:
        return drawn
    return drawn - (-parts_of(mig_profiles(pod)) * watts_per_gpu // PARTS_PER_BOARD)


def watts_per_gpu(pod: Pod, node: Node) -> int:
    """What one busy GPU of the node adds with the pod's work on it, AC watts."""
    if pod.expected_watts_per_gpu is not None:
        return pod.expected_watts_per_gpu
    return node.class_watts_per_gpu.get(pod.kernel_class, node.watts_per_gpu)


def pod_watts(pod: Pod, node: Node) -> int:
    """What a pod adds at the breaker above the node, AC watts."""
    return gpu_watts(pod, watts_per_gpu(pod, node))


def whole_boards(pod: Pod) -> int:
    """Boards that a pod has for itself."""
    return pod.gpu_milli // MILLI_PER_GPU


def columns_of(pods: Iterable[Pod]) -> tuple[str, ...]:
    """The core columns, then every other resource that one of the pods asks for, by name."""
    return _CORE + tuple(sorted({name for pod in pods for name in pod.resources}))


def row(amounts: Mapping[str, int], columns: tuple[str, ...]) -> list[int]:
    """The amounts in the order of the columns; what is not named is 0."""
    return [amounts.get(name, 0) for name in columns]


def covers(larger: Pod, pod: Pod) -> bool:
    """Whether a place made for one pod has room for another."""
    room = pod_amounts(larger)
    if share_milli(pod) and not whole_boards(larger) and share_milli(pod) > share_milli(larger):
        return False
    if any(count > larger.mig_profiles.get(name, 0) for name, count in pod.mig_profiles.items()):
        return False
    return all(amount <= room.get(name, 0) for name, amount in pod_amounts(pod).items())
