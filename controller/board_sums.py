"""What the boards of each server drew over the last two minutes, as running sums a tick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from controller.tick_values import Observations, Topology
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = ["BOARD_SPANS", "BoardSums", "sums_by_node"]

_LONGEST_LAG: Final = 20
BOARD_SPANS: Final = np.array(
    [(0, 3)]
    + [(lag, lag + 1) for lag in range(_LONGEST_LAG + 1)]
    + [(lag, lag + 3) for lag in range(2, _LONGEST_LAG + 1, 2)]
    + [(lag, lag + 15) for lag in range(0, _LONGEST_LAG, 5)]
)
"""Seconds before a BMC's stamp that its reading may be of, from and to, (n_spans, 2). The first is
that of a row that is told two seconds late (POLCA, arXiv 2308.12908, Table 1). That BMC and scrape
tell a moment or a mean, and are no later than 20 s together, is assumed."""

_TICKS: Final = 128
_HEARD_NS: Final = 3 * NS_PER_SECOND


def sums_by_node(topology: Topology, gpu_watts: FloatArray) -> FloatArray:
    """Sums over each server's boards, NaN where one of them is, (n_nodes,)."""
    sums = np.bincount(topology.node_of_gpu, gpu_watts, topology.n_nodes)
    return sums.astype(np.float64, copy=False)


@dataclass(slots=True)
class BoardSums:
    """Of the newest ticks, and of the time before the first of them.

    Args:
        n_nodes: Servers.
    """

    n_nodes: int
    _time_ns: IntArray = field(init=False)
    _joint_watts: FloatArray = field(init=False)
    _unread: IntArray = field(init=False)
    _end: int = 1

    def __post_init__(self) -> None:
        # Twice the room: the newest half moves to the front when all is full.
        self._time_ns = np.full(2 * _TICKS, -1, dtype=np.int64)
        self._joint_watts = np.zeros((2 * _TICKS, self.n_nodes))
        self._unread = np.zeros((2 * _TICKS, self.n_nodes), dtype=np.int64)

    def moved(self, new: IntArray, old: IntArray, n_nodes: int) -> BoardSums:
        """Of other servers: those at ``new`` were at ``old``, the others were not read."""
        other = BoardSums(n_nodes)
        other._time_ns, other._end = self._time_ns.copy(), self._end
        other._unread[:] = np.arange(2 * _TICKS)[:, None]
        other._joint_watts[:, new] = self._joint_watts[:, old]
        other._unread[:, new] = self._unread[:, old]
        return other

    def take(self, topology: Topology, seen: Observations, now_ns: int) -> None:
        """One more tick; a server that has fallen silent, or has a silent board, is not read."""
        if self._end == 2 * _TICKS:
            for rows in (self._time_ns, self._joint_watts, self._unread):
                rows[:_TICKS] = rows[_TICKS:]
            self._end = _TICKS
        sums = sums_by_node(topology, seen.gpu_draw_watts)
        unread = np.isnan(sums) | (now_ns - seen.node_received_ns > _HEARD_NS)
        end = self._end
        self._time_ns[end] = now_ns
        self._joint_watts[end] = self._joint_watts[end - 1] + np.where(unread, 0.0, sums)
        self._unread[end] = self._unread[end - 1] + unread
        self._end += 1

    def since(self, after_ns: int) -> FloatArray:
        """Mean of the ticks after a time, NaN if one of them lacks a server, (n_nodes,)."""
        last = self._end - 1
        # A tick lies between two rows; the time before the first is nobody's.
        after = max(int(self._ticks().searchsorted(max(after_ns, -1), side="right")) - 1, 0)
        whole = self._unread[last] == self._unread[after]
        mean = (self._joint_watts[last] - self._joint_watts[after]) / max(last - after, 1)
        return np.asarray(np.where(whole & (last > after), mean, np.nan))

    def before(self, nodes: IntArray, stamp_ns: IntArray) -> FloatArray:
        """Means over every one of ``BOARD_SPANS`` before the stamps, (k, n_spans).

        NaN where no tick lies in a span, where one lacks the server, and where the memory does not
        reach back so far.
        """
        stamps, which = np.unique(stamp_ns, return_inverse=True)
        edges_ns = stamps[:, None, None] - BOARD_SPANS * NS_PER_SECOND
        ticks = self._ticks()
        rows = np.maximum(ticks.searchsorted(edges_ns, side="right") - 1, 0)
        reached = edges_ns[:, :, 1] >= ticks[min(1, len(ticks) - 1)] - NS_PER_SECOND
        until, after = rows[which, :, 0], rows[which, :, 1]
        count, each = until - after, nodes[:, None]
        whole = self._whole(until, after, each) & reached[which] & (count > 0)
        sums = self._joint_watts[until, each] - self._joint_watts[after, each]
        return np.where(whole, sums / np.maximum(count, 1), np.nan)

    def _whole(self, until: IntArray, after: IntArray, each: IntArray) -> BoolArray:
        return np.asarray(self._unread[until, each] == self._unread[after, each])

    def _ticks(self) -> IntArray:
        """Times of the ticks that are remembered, -1 or that of the tick before them first."""
        return self._time_ns[: self._end]
