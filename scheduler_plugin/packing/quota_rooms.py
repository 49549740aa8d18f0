"""What quotas leave to the pods that wait: amounts of whole groups, wherever their members are.

A pod that moves stays in its groups, so that moves neither need nor give anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler_plugin.documents.snapshot import Pod, Snapshot
from scheduler_plugin.packing.pod_classes import PodClass
from scheduler_plugin.room.resource_columns import gpu_value_milli

__all__ = ["NO_QUOTAS", "QuotaRooms", "quota_rooms"]

_Row = tuple[str, str]
"""Quota and resource."""


@dataclass(frozen=True, slots=True)
class QuotaRooms:
    """One row for each resource of a quota of which less is left than its waiting pods ask for.

    Where more is held than the limit, who leaves gives nothing to others of the group: nobody comes
    in until it is within its quota again. So each class of it has a row of its own behind the
    others, of which as much is used as there is.

    Attributes:
        rows: Quota and resource, (q,).
        limits: Of each row, and of those of single classes, (q + r,).
        used: By everything that has a place now, those that may move too, (q + r,).
        asked: What a pod of each class takes of which row, (c,); nothing of the others.
    """

    rows: tuple[_Row, ...] = ()
    limits: tuple[int, ...] = ()
    used: tuple[int, ...] = ()
    asked: tuple[tuple[tuple[int, int], ...], ...] = ()

    def left(self, without: Mapping[int, int]) -> list[int]:
        """Of each row, never negative: what is beyond a limit stays.

        Args:
            without: Pods by class that are taken to be nowhere, of those that have a place.
        """
        found = [max(0, limit - used) for limit, used in zip(self.limits, self.used, strict=True)]
        for class_index, count in without.items():
            self.take(found, class_index, -count)
        return found

    def take(self, left: list[int], class_index: int, count: int) -> None:
        """Count pods of a class against what is left, of all rows or of the named ones."""
        for row, amount in self.asked[class_index] if self.rows else ():
            if row < len(left):
                left[row] -= amount * count

    def lacking(
        self, left: Sequence[int], wanted: Iterable[tuple[int, int]]
    ) -> list[tuple[str, str, int]]:
        """Quota, resource and amount that are missing for so many more pods of some classes."""
        rest, touched = list(left), set[int]()
        for class_index, count in wanted if self.rows else ():
            self.take(rest, class_index, count)
            touched |= {row for row, _ in self.asked[class_index]}
        named = (row for row in sorted(touched) if row < len(self.rows))
        return [(*self.rows[row], -rest[row]) for row in named if rest[row] < 0]

    def admits(self, left: Sequence[int], class_index: int, at_most: int) -> int:
        """How many more pods of a class, up to so many."""
        for row, amount in self.asked[class_index] if self.rows else ():
            if row < len(left):
                at_most = min(at_most, max(0, left[row]) // amount)
        return at_most


NO_QUOTAS = QuotaRooms()


def quota_rooms(snapshot: Snapshot, classes: Sequence[PodClass]) -> QuotaRooms:
    """Rows of the quotas that could keep a waiting pod out."""
    if not snapshot.quotas:
        return NO_QUOTAS
    limits = {(q.name, resource): n for q in snapshot.quotas for resource, n in q.limits.items()}
    used = Counter({(q.name, r): n for q in snapshot.quotas for r, n in q.used.items()})
    wanted: Counter[_Row] = Counter()
    for pod in snapshot.pods:
        if pod.quotas:
            (wanted if pod.state.waits else used).update(_taken(pod, limits))
    rows = [row for row, limit in limits.items() if wanted[row] > max(0, limit - used[row])]
    number = {row: i for i, row in enumerate(rows)}
    asked = [
        [(number[row], n) for row, n in _taken(one.pod, limits).items() if row in number]
        for one in classes
    ]
    most, taken = [limits[row] for row in rows], [used[row] for row in rows]
    beyond: set[int] = set()
    if any(one.running for one in classes):
        beyond = {i for i in range(len(rows)) if taken[i] > most[i]}
    for one, of_class in zip(classes, asked, strict=True):
        amounts = [n for row, n in of_class if row in beyond]
        if amounts:
            of_class.append((len(most), amounts[0]))
            most.append(amounts[0] * len(one.running))
            taken.append(most[-1])
    return QuotaRooms(tuple(rows), tuple(most), tuple(taken), tuple(map(tuple, asked)))


def _taken(pod: Pod, limits: Mapping[_Row, int]) -> dict[_Row, int]:
    """What a pod takes of the limits of its quotas, where that is anything."""
    if not pod.quotas:
        return {}
    amounts = {
        **pod.resources,
        "gpu_milli": gpu_value_milli(pod),
        "milli_cpu": pod.milli_cpu,
        "memory_bytes": pod.memory_bytes,
        "pods": 1,
    }
    found = {(q, name): amount for q in pod.quotas for name, amount in amounts.items() if amount}
    return {row: amount for row, amount in found.items() if row in limits}
