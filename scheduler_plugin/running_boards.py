"""On which boards of its node each running pod is, where anybody asks for a share of a board.

Pods that say so are there. Of the others, on each node, the largest come first and of equals the
first by uid: whole boards are the first that nobody uses, a share is on the fullest board that
still has it. What a node cannot hold is on the boards with most left: they are overfull.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from scheduler_plugin.board_shares import NO_BOARD, Boards, IntArray, board_for
from scheduler_plugin.resource_columns import share_milli, whole_boards
from scheduler_plugin.snapshot import MILLI_PER_GPU, Pod, PodState, Snapshot

__all__ = ["boards_of_running", "milli_left"]

_RUNS = (PodState.BOUND, PodState.PROMISED)


def boards_of_running(snapshot: Snapshot) -> dict[str, Boards] | None:
    """Boards by pod; None where nobody asks for a share, so that counting whole ones is enough."""
    if not any(0 < pod.gpu_milli < MILLI_PER_GPU for pod in snapshot.pods):
        return None
    there: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.state in _RUNS and pod.gpu_milli:
            there[pod.node].append(pod)
    found: dict[str, Boards] = {}
    for node in snapshot.nodes:
        left = np.full(node.gpu_milli // MILLI_PER_GPU, MILLI_PER_GPU, dtype=np.int64)
        for pod in sorted(there[node.name], key=_rank):
            found[pod.uid] = pod.gpu_boards or _taken(pod, left)
            left[list(found[pod.uid])] -= share_milli(pod) or MILLI_PER_GPU
    return found


def _rank(pod: Pod) -> tuple[bool, int, str]:
    """Who says where it is comes first."""
    return (not pod.gpu_boards, -pod.gpu_milli, pod.uid)


def _taken(pod: Pod, left: IntArray) -> Boards:
    boards = board_for(share_milli(pod), whole_boards(pod), left)
    if boards or not len(left):
        return boards
    emptiest = np.argsort(-left, kind="stable")[: whole_boards(pod) or 1]
    return tuple(sorted(emptiest.tolist()))


def milli_left(
    snapshot: Snapshot, boards: Mapping[str, Boards], fixed: Mapping[str, int]
) -> IntArray:
    """Of each board beside the pods that stay as they are, shape (n, b).

    Args:
        snapshot: With the pods.
        boards: Of those that run.
        fixed: Node by pod, of those that stay as they are.
    """
    counts = [node.gpu_milli // MILLI_PER_GPU for node in snapshot.nodes]
    left = np.full((len(counts), max(counts, default=0)), NO_BOARD, dtype=np.int64)
    for node, count in enumerate(counts):
        left[node, :count] = MILLI_PER_GPU
    for pod in snapshot.pods:
        if pod.uid in fixed and pod.uid in boards:
            left[fixed[pod.uid], list(boards[pod.uid])] -= share_milli(pod) or MILLI_PER_GPU
    return left
