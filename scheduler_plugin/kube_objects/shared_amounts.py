"""Pods that share boards: what objects say that they take and what nodes offer.

``capacity.interference.board_share.slow_down`` stays within a limit as long as shares add up to no
more than limit times boards, so that the limit is what a node offers, and every rule of
resources does the rest. A pod without shares counts as nothing here: no profile, no effect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from capacity.interference.board_share import BoardShare
from scheduler_plugin.documents.shared_boards import BANDWIDTH_MILLI, COMPUTE_MILLI, UNLIMITED
from wattpack.errors import InputError
from wattpack.gpu_resources import COUNT_LABEL, GpuKind, gpu_kind
from wattpack.object_names import (
    GPU_BANDWIDTH_SHARE_ANNOTATION,
    GPU_COMPUTE_SHARE_ANNOTATION,
    SHARED_SLOW_DOWN_LABEL,
)

_MOST_SLOW_DOWN = 100.0


def asked_milli(
    requests: Mapping[str, int],
    annotations: Mapping[str, str],
    known: BoardShare | None = None,
) -> dict[str, int]:
    """Thousandths of a board that a pod keeps busy; nothing unless it shares and that is known.

    Args:
        requests: What the pod asks for, by resource name.
        annotations: Of the pod; what they say counts before all else.
        known: From the kind of work that the pod does.

    Raises:
        InputError: naming the annotation that is no share, or the one that is missing.
    """
    names = (GPU_COMPUTE_SHARE_ANNOTATION, GPU_BANDWIDTH_SHARE_ANNOTATION)
    if not shares_boards(requests):
        return {}
    share = known
    if any(name in annotations for name in names):
        share = BoardShare(*(_share(name, annotations) for name in names))
    if share is None:
        return {}
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
    if not shares_boards(amounts):
        return {}
    if SHARED_SLOW_DOWN_LABEL not in labels:
        return {COMPUTE_MILLI: UNLIMITED, BANDWIDTH_MILLI: UNLIMITED}
    limit = _limit(labels)
    if limit is None:
        return {}
    # A product such as 1.1 * 1000 lies just above the whole number that is meant, or just below.
    milli = math.floor(1000.0 * limit * shared_board_count(labels, boards) + 1e-6)
    return {COMPUTE_MILLI: milli, BANDWIDTH_MILLI: milli}


def limit_milli(amounts: Mapping[str, int], labels: Mapping[str, str]) -> int:
    """The most that a node's pods may slow one another down; 0 for none that can be read."""
    limit = _limit(labels) if shares_boards(amounts) else None
    return 0 if limit is None else math.floor(1000.0 * limit + 1e-6)


def shared_board_count(labels: Mapping[str, str], boards: int) -> int:
    """Boards that a node's pods share: where no label counts them there may be one."""
    return max(1, boards) if COUNT_LABEL in labels else 1


def _limit(labels: Mapping[str, str]) -> float | None:
    limit = _number(labels.get(SHARED_SLOW_DOWN_LABEL, ""))
    return limit if 1.0 <= limit <= _MOST_SLOW_DOWN else None


def shares_boards(amounts: Mapping[str, int]) -> bool:
    """Whether shares of boards are among these resources."""
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
