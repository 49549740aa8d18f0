"""What the parts of a snapshot must be; each raises ValueError with what was expected."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scheduler_plugin.documents.host_resources import HOST_RESOURCES, MAX_HOST_AMOUNT
from scheduler_plugin.documents.mig_geometry import GEOMETRIES

if TYPE_CHECKING:
    from scheduler_plugin.documents.snapshot_node import Node
    from scheduler_plugin.documents.snapshot_pod import Pod

_MILLI_PER_GPU = 1000
_PROFILES = frozenset(name for geometry in GEOMETRIES.values() for name in geometry.profiles)


def whole(value: int, or_else: str = "") -> int:
    """Whole boards in thousandths."""
    if value % _MILLI_PER_GPU:
        raise ValueError(f"{or_else}whole GPUs, a multiple of {_MILLI_PER_GPU} milliGPU")
    return value


def beside_the_core(value: dict[str, int]) -> dict[str, int]:
    """Resources that have no field of their own, by name."""
    for name in ("cpu", "memory", "pods"):
        if name in value:
            raise ValueError(f"resources other than {name}, which has a field of its own")
    return dict(sorted(value.items()))


def within_a_host(value: dict[str, int]) -> dict[str, int]:
    """Of host resources no more than a node without a limit bears, whoever else is there."""
    for name in value.keys() & HOST_RESOURCES.keys():
        if value[name] > MAX_HOST_AMOUNT:
            raise ValueError(f"at most {MAX_HOST_AMOUNT} of {name}")
    return value


def instances(pod: Pod, *, has_node: bool) -> None:
    """A pod's MIG instances are of known profiles, and those with places are all of them."""
    if not pod.mig_profiles and not pod.mig_placements:
        return
    unknown = sorted(set(pod.mig_profiles) - _PROFILES)
    if unknown:
        raise ValueError(f"mig_profiles: MIG profiles such as 1g.10gb, {unknown[0]!r} is none")
    if pod.gpu_milli:
        raise ValueError("mig_profiles: none beside gpu_milli")
    placed = Counter(at.profile for at in pod.mig_placements)
    if placed and (not has_node or placed != Counter(pod.mig_profiles)):
        raise ValueError("mig_placements: none, or one for each instance of a pod with a node")


def boards_there(nodes: Sequence[Node], pods: Sequence[Pod]) -> None:
    """Boards that pods have are boards of their nodes, and cut as those can be."""
    known = {node.name: node for node in nodes}
    whole: set[tuple[str, int]] = set()
    for pod in pods:
        node = known.get(pod.node) if pod.gpu_boards else None
        if node is None:
            continue
        boards = node.gpu_milli // _MILLI_PER_GPU
        if max(pod.gpu_boards) >= boards:
            raise ValueError(f"pods.gpu_boards: boards that {node.name} has, which are {boards}")
        whole |= {(node.name, number) for number in pod.gpu_boards}
    taken: dict[tuple[str, int], int] = defaultdict(int)
    for pod in pods:
        for at in pod.mig_placements if pod.node in known else ():
            node, key = known[pod.node], (pod.node, at.board)
            geometry = GEOMETRIES.get(node.mig_geometry)
            profile = None if geometry is None else geometry.profiles.get(at.profile)
            boards = node.gpu_milli // _MILLI_PER_GPU
            if profile is None or at.board >= boards or at.start not in profile.starts:
                where = f"places that {pod.node} has for {at.profile}"
                raise ValueError(f"pods.mig_placements: {where}")
            slices = profile.slices(at.start)
            if taken[key] & slices or key in whole:
                raise ValueError(f"pods.mig_placements: board {at.board} of {pod.node} once only")
            taken[key] |= slices
