"""When what was seen of a board's units counts: means of minutes, and changes that last.

A choice of the actuator that came and went would cost more than a wrong one. So a board is judged
two minutes after its pod came, and what counts changes when another finding has lasted: a minute
if the work waits more for the clock than was thought, five if it waits less.

Arrays by GPU; a board is forgotten with its pod, and when its units are not told any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from controller.seen_work import SeenWork, Units, work_of_units
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["SeenBoard", "UnitsWatch"]

SETTLE_NS: Final = seconds_to_ns(120)
"""After a pod came: a mean of a minute may be told for a minute."""

LOOK_NS: Final = seconds_to_ns(10)
SMOOTHING_NS: Final = seconds_to_ns(60)
DOUBT_NS: Final = seconds_to_ns(60)
TRUST_NS: Final = seconds_to_ns(300)
FORGET_NS: Final = seconds_to_ns(300)

SAME: Final = 0.06
"""Two findings whose clock-bound shares differ by no more are one."""

ROWS: Final = 5
"""Of ``Units``, in its order."""


@dataclass(frozen=True, slots=True)
class SeenBoard:
    """What counts of one board.

    Attributes:
        units: The means when it was found.
        source: ``board`` or ``dcgm``.
    """

    work: SeenWork
    units: Units
    source: str


@dataclass(slots=True)
class _Column:
    """One board: what counts, and what was found since when."""

    counts: SeenBoard | None = None
    other: SeenBoard | None = None
    since_ns: int = 0


@dataclass(slots=True)
class UnitsWatch:
    """The boards of a fleet.

    Attributes:
        version: Rises when anything that counts has changed.
    """

    version: int = 0
    _uuids: tuple[str, ...] = ()
    #: The last named pod of each board: an agent that comes back names its pods a little later.
    _pods: tuple[str, ...] = ()
    _means: FloatArray = field(default_factory=lambda: np.zeros((ROWS, 0)))
    _came_ns: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _told_ns: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _columns: dict[str, _Column] = field(default_factory=dict)
    _looked_ns: int | None = None

    def look(
        self,
        uuids: Sequence[str],
        pods: Sequence[str],
        units: FloatArray,
        from_dcgm: Sequence[bool],
        now_ns: int,
    ) -> None:
        """Take the newest of every board in; nothing sooner than ``LOOK_NS`` after the last time.

        Args:
            pods: Of each board, empty for none, (n_gpus,).
            units: Fields of ``Units`` in its order, NaN where unknown, (5, n_gpus).
            from_dcgm: Whose values are not their own agent's, (n_gpus,).
        """
        if self._looked_ns is not None and now_ns - self._looked_ns < LOOK_NS:
            return
        self._follow(tuple(uuids), tuple(pods), now_ns)
        passed = SMOOTHING_NS if self._looked_ns is None else now_ns - self._looked_ns
        self._looked_ns = now_ns
        told = np.isfinite(units[:4]).all(axis=0) & np.array([bool(pod) for pod in pods])
        settled = now_ns - self._came_ns >= SETTLE_NS
        weight = -np.expm1(-max(passed, 0) / SMOOTHING_NS)
        fresh = np.where(told & settled & np.isfinite(units), units, np.nan)
        begun = np.isfinite(self._means)
        moved = np.where(begun, self._means + weight * (fresh - self._means), fresh)
        self._means = np.where(np.isfinite(fresh), moved, self._means)
        self._told_ns = np.where(told & settled, now_ns, self._told_ns)
        silent = now_ns - self._told_ns > FORGET_NS
        self._means[:, silent] = np.nan
        self._judge(from_dcgm, now_ns)

    def seen(self) -> dict[str, SeenBoard]:
        """What counts, by UUID."""
        found = ((uuid, column.counts) for uuid, column in self._columns.items())
        return {uuid: counts for uuid, counts in found if counts is not None}

    def _judge(self, from_dcgm: Sequence[bool], now_ns: int) -> None:
        known: BoolArray = np.asarray(np.isfinite(self._means[:4]).all(axis=0))
        means_of = self._means.T.tolist()
        columns = zip(self._uuids, known.tolist(), means_of, from_dcgm, strict=True)
        for uuid, is_known, means, is_dcgm in columns:
            column = self._columns.get(uuid)
            if not is_known and column is None:
                continue
            column = self._columns.setdefault(uuid, _Column())
            units = Units(*means)
            work = work_of_units(units) if is_known else None
            found = None if work is None else SeenBoard(work, units, "dcgm" if is_dcgm else "board")
            if _same(found, column.counts):
                column.other = None
                continue
            if column.other is None or not _same(found, column.other):
                column.since_ns = now_ns
            column.other = found
            patience = TRUST_NS if _is_trust(found, column.counts) else DOUBT_NS
            if not is_known or now_ns - column.since_ns >= patience:
                column.counts, column.other = found, None
                self.version += 1

    def _follow(self, uuids: tuple[str, ...], pods: tuple[str, ...], now_ns: int) -> None:
        """Columns in the new order; boards with another pod begin anew."""
        known = {uuid: i for i, uuid in enumerate(self._uuids)}
        pods = tuple(
            pod or (self._pods[known[uuid]] if uuid in known else "")
            for uuid, pod in zip(uuids, pods, strict=True)
        )
        if (uuids, pods) == (self._uuids, self._pods):
            return
        means = np.full((ROWS, len(uuids)), np.nan)
        came = np.full(len(uuids), now_ns, dtype=np.int64)
        told = np.full(len(uuids), now_ns - FORGET_NS - NS_PER_SECOND, dtype=np.int64)
        for i, (uuid, pod) in enumerate(zip(uuids, pods, strict=True)):
            old = known.get(uuid)
            if old is not None and self._pods[old] == pod:
                means[:, i], came[i], told[i] = (
                    self._means[:, old], self._came_ns[old], self._told_ns[old],
                )  # fmt: skip
            elif self._columns.pop(uuid, _Column()).counts is not None:
                self.version += 1
        for uuid in self._columns.keys() - set(uuids):
            self.version += self._columns.pop(uuid).counts is not None
        self._uuids, self._pods = uuids, pods
        self._means, self._came_ns, self._told_ns = means, came, told


def _same(one: SeenBoard | None, other: SeenBoard | None) -> bool:
    if one is None or other is None:
        return one is other
    near = abs(one.work.clock - other.work.clock) <= SAME
    return one.work.waits_for_clock == other.work.waits_for_clock and near


def _is_trust(found: SeenBoard | None, counts: SeenBoard | None) -> bool:
    """Whether the board would be held by its clock more than so far."""
    if found is None or counts is None:
        return False
    return found.work.clock < counts.work.clock
