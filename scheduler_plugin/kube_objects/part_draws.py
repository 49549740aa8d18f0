"""Of how many boards a pod draws watts whose instances and replicas are resources of a node.

Such a pod has no boards in a snapshot, but its work draws: an instance its part of the board's
compute, an AMD partition its part of the board's dies, a replica of a time-sliced board all of it,
since one alone draws that much. What nobody knows counts as a whole board.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from scheduler_plugin.documents.mig_geometry import PARTS_PER_BOARD, is_profile, parts_of
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.documents.snapshot_limits import MAX_GPUS
from wattpack.device_requests import CLASS_PREFIX
from wattpack.gpu_resources import GpuKind, gpu_kind

__all__ = ["drawn_milli"]

_PROFILE: Final = re.compile(r"nvidia\.com/mig-(?P<profile>[^/]+?)(?:\.shared)?")
_CLAIMED: Final = re.compile(re.escape(CLASS_PREFIX) + r"mig\.nvidia\.com(?:/(?P<profile>.+))?")
_DIES: Final = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 6}
"""Partitions of a board by AMD's compute modes; ``cpx`` has 8 on MI300X, 6 on MI300A. Source: AMD
Instinct documentation, "GPU partitioning"."""


def drawn_milli(amounts: Mapping[str, int]) -> int:
    """Thousandths of boards, rounded up, at most those of the largest pod.

    Args:
        amounts: What the pod asks for, by resource name, claimed devices too.
    """
    found = sum(amount * _each(name) for name, amount in amounts.items())
    # A claim by profile counts under its class, too, as a board whose profile nobody knows.
    found -= sum(
        amount * MILLI_PER_GPU
        for name, amount in amounts.items()
        if (claimed := _CLAIMED.fullmatch(name)) and claimed["profile"]
    )
    return min(found, MAX_GPUS * MILLI_PER_GPU)


def _each(name: str) -> int:
    profile = _PROFILE.fullmatch(name) or _CLAIMED.fullmatch(name)
    if profile is not None:
        # As a resource name a profile has dots for what cannot be in one: 1g.10gb.me.
        known = str(profile["profile"] or "").replace(".me", "+me")
        return (
            -(-parts_of([known]) * MILLI_PER_GPU // PARTS_PER_BOARD)
            if is_profile(known)
            else MILLI_PER_GPU
        )
    kind = gpu_kind(name)
    if kind is GpuKind.SLICE:
        mode = name.partition("/")[2].partition("_")[0]
        return -(-MILLI_PER_GPU // _DIES.get(mode, 1))
    return MILLI_PER_GPU if kind is GpuKind.SHARED else 0
