"""The checker's count of boards: plain Python, no code shared with planners.

Of MIG only the published table is common: where a profile may begin and how long it is.
"""

from __future__ import annotations

import math
from collections import Counter

from scheduler_plugin.documents.mig_geometry import GEOMETRIES
from scheduler_plugin.documents.plan_document import Placement, Step
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot

__all__ = [
    "NodeBoards",
    "Places",
    "boards_in_use",
    "expected_places",
    "part_of_watts",
    "worth_milli",
]

Places = tuple[tuple[str, int, int], ...]
"""Of each part of boards that a pod has: profile or nothing, board, first slice or 0."""


def boards_in_use(snapshot: Snapshot) -> dict[str, Places] | None:
    """Places of running pods, where somebody asks for a part; the snapshot says how to guess."""
    if not [pod for pod in snapshot.pods if 0 < pod.gpu_milli < 1000 or pod.mig_profiles]:
        return None
    nodes = {node.name: NodeBoards(node) for node in snapshot.nodes}
    found: dict[str, Places] = {}
    runs = [p for p in snapshot.pods if p.state.value in ("bound", "promised")]
    for pod in sorted(runs, key=lambda p: (not _says(p), -worth_milli(p), p.uid)):
        if pod.node in nodes and (pod.gpu_milli or pod.mig_profiles):
            found[pod.uid] = _says(pod) or nodes[pod.node].guess(pod)
            nodes[pod.node].add(pod, found[pod.uid])
    return found


def worth_milli(pod: Pod) -> int:
    """What a pod asks for of boards, thousandths; of MIG instances each rounded down."""
    return pod.gpu_milli + sum(
        count * (int(name[0]) * 1000 // (4 if _is_of_four(name) else 7))
        for name, count in pod.mig_profiles.items()
    )


def _is_of_four(profile: str) -> bool:
    return profile in GEOMETRIES["A30-24GB"].profiles


def part_of_watts(pod: Pod, watts_per_gpu: int) -> int:
    """Its part of the watts of its boards, rounded up."""
    drawn = math.ceil(watts_per_gpu * (pod.gpu_milli + pod.drawn_milli) / 1000)
    sevenths = quarters = 0
    for name, count in pod.mig_profiles.items():
        quarters += count * int(name[0]) * _is_of_four(name)
        sevenths += count * int(name[0]) * (not _is_of_four(name))
    return drawn + math.ceil((4 * sevenths + 7 * quarters) * watts_per_gpu / 28)


def _says(pod: Pod) -> Places:
    cuts = tuple((at.profile, at.board, at.start) for at in pod.mig_placements)
    return cuts or tuple(("", board, 0) for board in pod.gpu_boards)


def expected_places(placed: Placement | Step) -> Places:
    """Places that a plan expects."""
    cuts = tuple((at.profile, at.board, at.start) for at in placed.mig)
    return cuts + tuple(("", board, 0) for board in placed.boards)


class NodeBoards:
    """The boards of one node, and who has which part of them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._count = node.gpu_milli // 1000
        self._milli: Counter[int] = Counter()
        self._slices: Counter[tuple[int, int]] = Counter()
        self._media: Counter[int] = Counter()
        self._of: dict[str, Places] = {}

    def add(self, pod: Pod, places: Places) -> None:
        """A pod has these places from now on."""
        self._of[pod.uid] = places
        self._count_in(pod, places, 1)

    def remove(self, pod: Pod) -> None:
        """It has them no more."""
        self._count_in(pod, self._of.pop(pod.uid), -1)

    def places(self, pod: Pod) -> Places:
        """Of a pod that was added."""
        return self._of[pod.uid]

    def _count_in(self, pod: Pod, places: Places, sign: int) -> None:
        for profile, board, start in places:
            if not profile:
                self._milli[board] += sign * min(pod.gpu_milli, 1000)
            for number in self._length(profile, start):
                self._slices[board, number] += sign
            self._media[board] += sign * profile.endswith("+me")

    def _length(self, profile: str, start: int) -> range:
        table = GEOMETRIES[self._node.mig_geometry].profiles if self._node.mig_geometry else {}
        return range(start, start + table[profile].memory_slices) if profile in table else range(0)

    def _is_cut(self, board: int) -> bool:
        return any(self._slices[board, number] for number in range(8))

    def guess(self, pod: Pod) -> Places:
        """Where a pod is that does not say it, as the snapshot's description has it."""
        if pod.mig_profiles:
            return self._guess_cuts(pod)
        each, wanted = min(pod.gpu_milli, 1000), math.ceil(pod.gpu_milli / 1000)
        uncut = [board for board in range(self._count) if not self._is_cut(board)]
        able = [board for board in uncut if self._milli[board] + each <= 1000]
        if pod.gpu_milli < 1000:
            able.sort(key=lambda board: (-self._milli[board], board))
        if len(able) < wanted:
            able = sorted(uncut, key=lambda board: (self._milli[board], board))
        return tuple(("", board, 0) for board in sorted(able[:wanted]))

    def _guess_cuts(self, pod: Pod) -> Places:
        found: list[tuple[str, int, int]] = []
        table = GEOMETRIES[self._node.mig_geometry].profiles if self._node.mig_geometry else {}
        names = [name for name in sorted(pod.mig_profiles) for _ in range(pod.mig_profiles[name])]
        trial = NodeBoards(self._node)
        trial._milli, trial._slices = self._milli.copy(), self._slices.copy()
        trial._media = self._media.copy()
        for name in names:
            starts = table[name].starts if name in table else ()
            free = [(name, b, s) for b in range(self._count) for s in starts]
            free = [place for place in free if trial._is_free(place)]
            if not free:
                return ()
            found.append(free[0])
            trial._count_in(pod, (free[0],), 1)
        return tuple(found)

    def _is_free(self, place: tuple[str, int, int]) -> bool:
        profile, board, start = place
        media = profile.endswith("+me") and self._media[board]
        taken = [number for number in self._length(profile, start) if self._slices[board, number]]
        return not (self._milli[board] or taken or media)

    def complaints(self, new: list[Pod]) -> list[str]:
        """What is wrong with the places that the new pods are expected to get."""
        return [why for pod in new for why in (*self._asked(pod), *self._twice(pod))]

    def _asked(self, pod: Pod) -> list[str]:
        places, here = self._of[pod.uid], f"pod {pod.uid} on node {self._node.name}"
        boards = [board for profile, board, _ in places if not profile]
        if len(set(boards)) != math.ceil(pod.gpu_milli / 1000) or len(set(boards)) < len(boards):
            return [f"{here}: boards {tuple(boards)} for {pod.gpu_milli} milliGPU"]
        cuts = Counter(profile for profile, _, _ in places if profile)
        if cuts != Counter(pod.mig_profiles):
            return [f"{here}: MIG instances {dict(cuts)} for {pod.mig_profiles}"]
        return []

    def _twice(self, pod: Pod) -> list[str]:
        here, found = f"pod {pod.uid} on node {self._node.name}", []
        for profile, board, start in sorted(self._of[pod.uid]):
            used = self._milli[board]
            taken = [self._slices[board, number] for number in self._length(profile, start)]
            table = GEOMETRIES[self._node.mig_geometry].profiles if self._node.mig_geometry else {}
            if board >= self._count:
                found.append(f"{here}: there is no board {board}")
            elif profile and (profile not in table or start not in table[profile].starts):
                found.append(f"{here}: board {board} has no {profile} at slice {start}")
            elif used > 1000:
                found.append(f"{here}: {used} milli of board {board} are used")
            elif used and self._is_cut(board):
                found.append(f"{here}: board {board} is cut and used whole or in shares")
            elif max(taken, default=0) > 1 or self._media[board] > 1:
                found.append(f"{here}: slices of board {board} are used twice")
        return found
