"""Pods that share boards: what they take of them, as two more resources of a snapshot.

``capacity.interference.board_share.slow_down`` stays within a limit as long as shares add up to no
more than limit times boards, so that the limit is what a node offers, and every rule of
resources does the rest. A pod without shares counts as nothing here: no profile, no effect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from capacity.interference.board_share import BoardShare
from wattpack.errors import InputError
from wattpack.gpu_resources import COUNT_LABEL, GpuKind, gpu_kind
from wattpack.object_names import (
    GPU_BANDWIDTH_SHARE_ANNOTATION,
    GPU_COMPUTE_SHARE_ANNOTATION,
    SHARED_SLOW_DOWN_LABEL,
)

COMPUTE_MILLI = "wattpack.io/shared-compute-milli"
BANDWIDTH_MILLI = "wattpack.io/shared-bandwidth-milli"
#: Beyond any number of pods on a node.
UNLIMITED = 10**9
_MOST_SLOW_DOWN = 100.0


def asked_milli(requests: Mapping[str, int], annotations: Mapping[str, str]) -> dict[str, int]:
    """Thousandths of a board that a pod keeps busy; nothing unless it shares and says how much.

    Args:
        requests: What the pod asks for, by resource name.
        annotations: Of the pod.

    Raises:
        InputError: naming the annotation that is no share, or the one that is missing.
    """
    names = (GPU_COMPUTE_SHARE_ANNOTATION, GPU_BANDWIDTH_SHARE_ANNOTATION)
    if not _shares(requests) or not any(name in annotations for name in names):
        return {}
    compute, bandwidth = (_share(name, annotations) for name in names)
    share = BoardShare(compute, bandwidth)
    asked = {COMPUTE_MILLI: share.compute, BANDWIDTH_MILLI: share.bandwidth}
    return {name: math.ceil(1000.0 * part) for name, part in asked.items() if part}


def offered_milli(
    amounts: Mapping[str, int], labels: Mapping[str, str], boards: int
) -> dict[str, int]:
    """What a node's pods may keep busy together; nothing where boards are not shared.

    Boards of one node count together: which of them a pod gets is the device plugin's choice.
    Where no label counts them there may be one. A limit that cannot be read offers nothing, so that
    no promise is made on a guess.
    """
    if not _shares(amounts):
        return {}
    text = labels.get(SHARED_SLOW_DOWN_LABEL)
    if text is None:
        return {COMPUTE_MILLI: UNLIMITED, BANDWIDTH_MILLI: UNLIMITED}
    limit = _number(text)
    if not 1.0 <= limit <= _MOST_SLOW_DOWN:
        return {}
    # A product such as 1.1 * 1000 lies just above the whole number that is meant, or just below.
    milli = math.floor(1000.0 * limit * (boards if COUNT_LABEL in labels else 1) + 1e-6)
    return {COMPUTE_MILLI: milli, BANDWIDTH_MILLI: milli}


def _shares(amounts: Mapping[str, int]) -> bool:
    return any(amount and gpu_kind(name) is GpuKind.SHARED for name, amount in amounts.items())


def _share(name: str, annotations: Mapping[str, str]) -> float:
    share = _number(annotations.get(name, ""))
    if not 0.0 <= share <= 1.0:
        expected = "a share of one board from 0 to 1, beside the other share"
        raise InputError(f"metadata.annotations.{name}", expected, annotations.get(name, "nothing"))
    return share


def _number(text: str) -> float:
    """NaN, which lies between no two bounds, for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
