"""Whole servers less their boards over the last minute, and what these differences show.

Each reading of a BMC is kept less what the boards drew over each of ``BOARD_SPANS`` before it. Of
the span that the reading is really of, the differences hardly vary: what boards do cancels. So the
span with the least variance is judged, anew with every reading.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, NamedTuple, Self

import numpy as np

from controller.board_sums import BOARD_SPANS
from wattpack.masks import every
from wattpack.power.board_trust import STALE_AFTER_SAME
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = ["HostDifferences", "NewReadings", "Shown"]

_WINDOW_NS: Final = 60 * NS_PER_SECOND
_KEPT: Final = 32
"""Readings of each server: those of a minute, where the controller asks every 2 s."""

_LEAST_READINGS: Final = 3
# Of fewer seconds nobody can say what a reading is of. Assumed: several steps of a training job.
_LEAST_SPAN_NS: Final = 20 * NS_PER_SECOND
# Of a few readings one of the spans fits by chance: of four it told 2 kW too much.
_LEAST_TO_CHOOSE: Final = 10
_STANDARD_ERRORS: Final = 2.0
_LEAST_NEWEST: Final = 2
# A server whose boards move by more than this must not tell one number for ever. Assumed.
_MOVED_WATTS: Final = 100.0


class NewReadings(NamedTuple):
    """Readings of some servers, (k,) each.

    Attributes:
        nodes: Of which.
        time_ns: When they were read.
        watts: What the BMC said, AC.
        whole_watts: The same behind the supplies, DC.
        boards_watts: What the boards drew over each of ``BOARD_SPANS``, DC, (k, n_spans).
    """

    nodes: IntArray
    time_ns: IntArray
    watts: FloatArray
    whole_watts: FloatArray
    boards_watts: FloatArray

    def some(self, which: BoolArray) -> NewReadings:
        """Those of some of the servers."""
        return NewReadings(
            self.nodes[which],
            self.time_ns[which],
            self.watts[which],
            self.whole_watts[which],
            self.boards_watts[which],
        )


@dataclass(slots=True)
class Shown:
    """What a minute of differences shows, DC, NaN for nothing, (n_nodes,) each.

    Attributes:
        mean_watts: Their mean.
        likely_watts: What is likely drawn beside the boards now.
        boards_watts: Mean draw of the boards meanwhile.
    """

    mean_watts: FloatArray
    likely_watts: FloatArray
    boards_watts: FloatArray


@dataclass(slots=True)
class HostDifferences:
    """Differences of each server, in the order in which its slots are filled.

    Attributes:
        newest_ns: When its BMC was read last, -1 for never, (n_nodes,).
        newest_watts: What it said, AC, (n_nodes,).
        same: How often in a row, (n_nodes,).
        lowest_boards: Least that its boards drew since it began to say so, (n_nodes,).
        highest_boards: The most, (n_nodes,).
        slot: Which of its slots is filled next, (n_nodes,).
        time_ns: When each difference was read, -1 for none, (n_nodes, _KEPT).
        watts: Differences, DC, NaN where the boards are not known, (n_nodes, _KEPT, n_spans).
        boards: What boards drew just before, DC, (n_nodes, _KEPT).
        sums: Number, sum and sum of squares of the differences of a minute, (3, n_nodes, n_spans).
        shown: What they show.
    """

    newest_ns: IntArray
    newest_watts: FloatArray
    same: IntArray
    lowest_boards: FloatArray
    highest_boards: FloatArray
    slot: IntArray
    time_ns: IntArray
    watts: FloatArray
    boards: FloatArray
    sums: FloatArray
    shown: Shown

    @classmethod
    def of(cls, n_nodes: int) -> Self:
        """Nothing was read yet."""
        unknown = [np.full(n_nodes, np.nan) for _ in range(6)]
        none = [np.zeros(n_nodes, dtype=np.int64) for _ in range(2)]
        spans = len(BOARD_SPANS)
        return cls(
            np.full(n_nodes, -1, dtype=np.int64),
            unknown[0],
            none[0],
            unknown[1],
            unknown[2],
            none[1],
            np.full((n_nodes, _KEPT), -1, dtype=np.int64),
            np.full((n_nodes, _KEPT, spans), np.nan),
            np.zeros((n_nodes, _KEPT)),
            np.zeros((3, n_nodes, spans)),
            Shown(*unknown[3:]),
        )

    def moved(self, new: IntArray, old: IntArray, n_nodes: int) -> HostDifferences:
        """Of other servers: those at ``new`` were at ``old``, of the others nothing is known."""
        other = HostDifferences.of(n_nodes)
        other.sums[:, new] = self.sums[:, old]
        for there, here in ((other, self), (other.shown, self.shown)):
            for column in fields(there):
                if column.name not in ("sums", "shown"):
                    getattr(there, column.name)[new] = getattr(here, column.name)[old]
        return other

    def take(self, new: NewReadings) -> None:
        """Readings that are newer than the last of their servers, at most one of each."""
        nodes, slot = new.nodes, self.slot[new.nodes]
        times = self.time_ns[nodes]
        gone = new.time_ns[:, None] - times > _WINDOW_NS
        gone[np.arange(len(nodes)), slot] = True
        stuck = self._is_stuck(new)
        gone[stuck] = True
        self._forget(nodes, gone & (times >= 0))
        self._keep(new.some(~stuck), slot[~stuck])
        self.slot[nodes] = (slot + 1) % _KEPT
        shown = self._shown(nodes)
        self.shown.mean_watts[nodes] = shown.mean_watts
        self.shown.likely_watts[nodes] = shown.likely_watts
        self.shown.boards_watts[nodes] = shown.boards_watts

    def _is_stuck(self, new: NewReadings) -> BoolArray:
        """BMCs that give one number while boards move, (k,)."""
        nodes, boards = new.nodes, new.boards_watts[:, 0]
        repeated = new.watts == self.newest_watts[nodes]
        same = np.where(repeated, self.same[nodes] + 1, 1)
        low = np.where(repeated, np.minimum(self.lowest_boards[nodes], boards), boards)
        high = np.where(repeated, np.maximum(self.highest_boards[nodes], boards), boards)
        self.newest_watts[nodes], self.newest_ns[nodes] = new.watts, new.time_ns
        self.same[nodes], self.lowest_boards[nodes], self.highest_boards[nodes] = same, low, high
        return np.asarray((same >= STALE_AFTER_SAME) & (high - low > _MOVED_WATTS))

    def _forget(self, nodes: IntArray, gone: BoolArray) -> None:
        """Take differences out of the sums, (k, _KEPT)."""
        which, slots = gone.nonzero()
        if not which.size:
            return
        servers = nodes[which]
        for moment, terms in enumerate(_moments(self.watts[servers, slots])):
            np.subtract.at(self.sums[moment], servers, terms)
        self.time_ns[servers, slots] = -1
        # Nothing is left of what rounding left.
        empty = nodes[(self.time_ns[nodes] < 0).all(axis=1)]
        self.sums[:, empty] = 0.0

    def _keep(self, new: NewReadings, slot: IntArray) -> None:
        nodes = new.nodes
        differences = new.whole_watts[:, None] - new.boards_watts
        self.time_ns[nodes, slot], self.watts[nodes, slot] = new.time_ns, differences
        self.boards[nodes, slot] = new.boards_watts[:, 0]
        for moment, terms in enumerate(_moments(differences)):
            self.sums[moment, nodes] += terms

    def _shown(self, nodes: IntArray) -> Shown:
        """What differences show; NaN where they are too few or less than nothing, (k,) each."""
        order = (self.slot[nodes][:, None] + np.arange(_KEPT)) % _KEPT
        each = nodes[:, None]
        time_ns = self.time_ns[each, order]
        kept = time_ns >= 0
        span = self._of_least_variance(nodes)
        watts = self.watts[each, order, span[:, None]]
        long = self._spanned_ns(nodes, time_ns, watts) >= _LEAST_SPAN_NS
        if not every(long):
            watts = np.where(long[:, None], watts, self.watts[each, order, 0])
            long = self._spanned_ns(nodes, time_ns, watts) >= _LEAST_SPAN_NS
        here = kept & ~np.isnan(watts)
        n = here.sum(axis=1)
        count = np.maximum(n, _LEAST_READINGS)
        mean = np.where(here, watts, 0.0).sum(axis=1) / count
        off = np.where(here, watts - mean[:, None], 0.0)
        error = np.sqrt((off * off).sum(axis=1) / (count - 1) / count)
        likely = mean + np.maximum(_STANDARD_ERRORS * error, _stands_out(here, n, off))
        boards = np.where(kept, self.boards[each, order], 0.0).sum(axis=1)
        shows = (n >= _LEAST_READINGS) & (mean >= 0.0) & long
        beside = boards / np.maximum(kept.sum(axis=1), 1)
        return Shown(*(np.where(shows, what, np.nan) for what in (mean, likely, beside)))

    def _spanned_ns(self, nodes: IntArray, time_ns: IntArray, watts: FloatArray) -> IntArray:
        """How far the oldest of these differences lies back, 0 without any, (k,)."""
        newest_ns = self.newest_ns[nodes]
        here = (time_ns >= 0) & ~np.isnan(watts)
        oldest_ns = np.where(here, time_ns, newest_ns[:, None]).min(axis=1)
        return np.asarray(newest_ns - oldest_ns)

    def _of_least_variance(self, nodes: IntArray) -> IntArray:
        """The span whose differences vary least; of few readings the first, (k,).

        One that reaches further back is known of fewer readings at first: of half at least.
        """
        n, total, squares = self.sums[:, nodes]
        known = (n >= _LEAST_TO_CHOOSE) & (n >= 0.5 * n[:, :1])
        n = np.maximum(n, 2.0)
        variance = (squares - total * total / n) / (n - 1.0)
        return np.asarray(np.where(known, variance, np.inf).argmin(axis=1))


def _moments(differences: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Number, sum and sum of squares that differences bring, 0 for those that are not known."""
    known = ~np.isnan(differences)
    watts = np.where(known, differences, 0.0)
    return known.astype(np.float64), watts, watts * watts


def _stands_out(here: BoolArray, n: IntArray, off: FloatArray) -> FloatArray:
    """How far the newest differences are surely above the mean; -inf where all are alike, (k,).

    Args:
        here: Which there are, oldest first, (k, r).
        n: How many, (k,).
        off: How far each is off their mean, 0 for those that are not there, (k, r).
    """
    before = here.cumsum(axis=1)
    newest = n[:, None] - before
    judged = here & (before >= _LEAST_READINGS) & (newest >= _LEAST_NEWEST)
    before, newest = np.maximum(before, 2), np.maximum(newest, 1)
    sums = off.cumsum(axis=1)
    spread = np.maximum((off * off).cumsum(axis=1) - sums * sums / before, 0.0) / (before - 1)
    level = -sums / newest - _STANDARD_ERRORS * np.sqrt(spread / newest)
    return np.asarray(np.where(judged, level, -np.inf).max(axis=1, initial=-np.inf))
