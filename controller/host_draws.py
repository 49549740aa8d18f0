"""What servers draw beside their GPUs, from what their BMCs say of the whole server.

    BMC, AC watts, seconds late ──┐
    boards, DC watts, each tick ──┴─> differences of a minute ─> mean, margin, change ─> host watts

A single difference is worth little: a BMC (IPMI, Redfish) tells a moment that is some seconds old,
and a step of the boards shows there later. Over a minute the lag evens out, so the mean counts,
with twice its standard error on top where boards swing, and with what fans will bring where boards
have risen since. What stands out above all before it counts at once: CPUs start to work
without the boards. No reading of a server at all are three within 20 s, old ones, less than the
boards and the declared idle draw, and one number for ever while boards move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from controller.tick_values import Observations, Topology
from wattpack.power.board_trust import STALE_AFTER_SAME
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = [
    "READINGS_MAX_AGE_SECONDS",
    "HostDraws",
    "ServerReading",
    "ServerReadings",
    "readings_by_node",
]

READINGS_MAX_AGE_SECONDS: Final = 30.0
"""Readings of BMCs that are older count as missing, unless the settings say otherwise."""

_WINDOW_NS: Final = 60 * NS_PER_SECOND
_READINGS: Final = 64
"""Kept of each server: those of a minute, unless they come more often than once a second."""

_TICKS: Final = 128
# A row is told two seconds late (POLCA, arXiv 2308.12908, Table 1); a BMC is assumed to be no
# younger, and to tell a mean of such a time.
_LAG_NS: Final = 3 * NS_PER_SECOND
_HEARD_NS: Final = 3 * NS_PER_SECOND
_RECENT_NS: Final = 10 * NS_PER_SECOND
_LEAST_READINGS: Final = 3
# Of fewer seconds the lag of a step does not even out. Assumed: several steps of a training job.
_LEAST_SPAN_NS: Final = 20 * NS_PER_SECOND
# A scale that is off, another server's BMC, or one of several supplies tells less than a server
# draws at rest; BMCs are off by a few per cent of all of it. Assumed.
_CREDIBLE_OF_IDLE: Final = 0.8
_STANDARD_ERRORS: Final = 2.0
_LEAST_NEWEST: Final = 2
# Of servers of eight A100: 0.245 W of AC a watt of GPU, fans and regulators together (Acme's
# quantiles; simulation/data/plant.json derives it).
_HOST_PER_GPU_WATT: Final = 0.25
# A server whose boards move by more than this must not tell one number for ever. Assumed.
_MOVED_WATTS: Final = 100.0


@dataclass(frozen=True, slots=True)
class ServerReading:
    """What a BMC says of its server.

    Attributes:
        watts: AC, GPUs included.
        time_ns: When it was read, on the controller's monotonic clock.
    """

    watts: float
    time_ns: int


@dataclass(frozen=True, slots=True)
class ServerReadings:
    """The newest that BMCs say of a row's servers, in the topology's order.

    Attributes:
        watts: AC, GPUs included; NaN for servers that none speaks of, (n_nodes,).
        time_ns: When each was read, on the controller's monotonic clock, -1 without, (n_nodes,).
        max_age_ns: Older ones count as missing.
    """

    watts: FloatArray
    time_ns: IntArray
    max_age_ns: int


def readings_by_node(
    names: Sequence[str], readings: Mapping[str, ServerReading], max_age_ns: int
) -> ServerReadings:
    """The readings in the order of the names; of servers that are not among them none."""
    none = ServerReading(np.nan, -1)
    found = [readings.get(name, none) for name in names]
    return ServerReadings(
        np.array([reading.watts for reading in found], dtype=np.float64),
        np.array([reading.time_ns for reading in found], dtype=np.int64),
        max_age_ns,
    )


class HostDraws:
    """Remembers a minute of boards and BMC readings; told the time, it reads no clock."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._servers = _nothing_yet(0)
        self._times_ns: IntArray = np.full(_TICKS, -1, dtype=np.int64)
        self._boards: FloatArray = np.zeros((_TICKS, 0))
        self._next = 0

    def told(
        self, topology: Topology, seen: Observations, readings: ServerReadings, now_ns: int
    ) -> Observations:
        """What is seen at this tick, with what BMCs show of servers beside their boards.

        Args:
            topology: Servers, their boards and supplies.
            seen: Boards' readings.
            readings: The newest of each BMC.
            now_ns: Of the tick.
        """
        self._remember(topology, seen, now_ns)
        efficiency = topology.tree.supply_efficiency[topology.domain_of_node]
        self._take(readings, efficiency)
        watts = self._shown_watts(topology, now_ns)
        fresh = now_ns - self._servers.newest_ns <= readings.max_age_ns
        known = fresh & (readings.time_ns >= 0) & (self._servers.newest_ns >= 0)
        return replace(
            seen,
            host_watts=np.where(known, watts, np.nan),
            host_time_ns=np.where(known, self._servers.newest_ns, -1),
        )

    def _take(self, readings: ServerReadings, efficiency: FloatArray) -> None:
        """Pair readings that are newer than the last with what their boards drew by then."""
        (nodes,) = (readings.time_ns > self._servers.newest_ns).nonzero()
        if not nodes.size:
            return
        time_ns = readings.time_ns[nodes]
        boards = self._boards_between(nodes, time_ns - _LAG_NS, time_ns)
        paired = ~np.isnan(boards)
        if not paired.all():
            nodes, time_ns, boards = nodes[paired], time_ns[paired], boards[paired]
        watts = readings.watts[nodes]
        self._servers.take(nodes, time_ns, watts, watts * efficiency[nodes] - boards, boards)

    def _shown_watts(self, topology: Topology, now_ns: int) -> FloatArray:
        """DC watts beside the boards, NaN where too little is known, (n_nodes,)."""
        servers = self._servers
        recent = self._recent_boards(now_ns)
        fans = _HOST_PER_GPU_WATT * np.maximum(recent - servers.shown_boards, 0.0)
        # What is not known for sure is at most what was declared.
        most = np.minimum(servers.shown_likely + fans, topology.node_worst_watts)
        watts = np.maximum(servers.shown_mean, most)
        if topology.node_idle_watts.size:
            with np.errstate(invalid="ignore"):
                little = servers.shown_mean < _CREDIBLE_OF_IDLE * topology.node_idle_watts
            watts = np.where(little, np.nan, watts)
        return np.asarray(watts)

    def _remember(self, topology: Topology, seen: Observations, now_ns: int) -> None:
        """One more row of what each server's boards draw, NaN where one cannot be read."""
        if topology.node_names != self._names:
            self._move(topology.node_names)
        sums = np.bincount(topology.node_of_gpu, seen.gpu_draw_watts, topology.n_nodes)
        silent = now_ns - seen.node_received_ns > _HEARD_NS
        self._boards[self._next] = np.where(silent, np.nan, sums)
        self._times_ns[self._next] = now_ns
        self._next = (self._next + 1) % _TICKS

    def _move(self, names: tuple[str, ...]) -> None:
        """Servers come and go; those that stay keep what is remembered."""
        before = {name: node for node, name in enumerate(self._names)}
        kept = [(node, before[name]) for node, name in enumerate(names) if name in before]
        new, old = np.array(kept, dtype=np.int64).reshape(-1, 2).T
        boards = np.full((_TICKS, len(names)), np.nan)
        boards[:, new] = self._boards[:, old]
        servers = _nothing_yet(len(names))
        for column in fields(_Servers):
            getattr(servers, column.name)[new] = getattr(self._servers, column.name)[old]
        self._names, self._boards, self._servers = names, boards, servers

    def _recent_boards(self, now_ns: int) -> FloatArray:
        """Mean draw of each server's boards of late, NaN if one tick lacks it, (n_nodes,)."""
        inside = (self._times_ns > now_ns - _RECENT_NS) & (self._times_ns <= now_ns)
        return np.asarray(self._boards[inside & (self._times_ns >= 0)].mean(axis=0))

    def _boards_between(
        self, nodes: IntArray, after_ns: IntArray, until_ns: IntArray
    ) -> FloatArray:
        """Mean draw of the boards of servers, each over its own time; NaN if one tick lacks, (k,)."""
        times_ns = self._times_ns[None, :]
        inside = (times_ns > after_ns[:, None]) & (times_ns <= until_ns[:, None]) & (times_ns >= 0)
        count = inside.sum(axis=1)
        sums = np.where(inside, self._boards.T[nodes], 0.0).sum(axis=1)
        return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


@dataclass(slots=True)
class _Servers:
    """Differences of the last minute of each server, and the boards' draw beside each.

    Attributes:
        newest_watts: What its BMC said last, AC, (n_nodes,).
        newest_ns: When, -1 for never, (n_nodes,).
        same: How often in a row, (n_nodes,).
        lowest_boards: Least that its boards drew since it began to say so, (n_nodes,).
        highest_boards: The most, (n_nodes,).
        pair_ns: When each difference was read, oldest first, -1 for none, (n_nodes, _READINGS).
        pair_hosts: Differences, DC, (n_nodes, _READINGS).
        pair_boards: What boards drew then, DC, (n_nodes, _READINGS).
        shown_mean: Mean of the differences, NaN where they show nothing, (n_nodes,).
        shown_likely: What the rest likely draws now, (n_nodes,).
        shown_boards: Mean draw of the boards beside them, (n_nodes,).
    """

    newest_watts: FloatArray
    newest_ns: IntArray
    same: IntArray
    lowest_boards: FloatArray
    highest_boards: FloatArray
    pair_ns: IntArray
    pair_hosts: FloatArray
    pair_boards: FloatArray
    shown_mean: FloatArray
    shown_likely: FloatArray
    shown_boards: FloatArray

    def take(
        self,
        nodes: IntArray,
        time_ns: IntArray,
        watts: FloatArray,
        hosts: FloatArray,
        boards: FloatArray,
    ) -> None:
        """Add a reading of each of some servers, (k,) each."""
        repeated = watts == self.newest_watts[nodes]
        self.same[nodes] = np.where(repeated, self.same[nodes] + 1, 1)
        low = np.where(repeated, np.minimum(self.lowest_boards[nodes], boards), boards)
        high = np.where(repeated, np.maximum(self.highest_boards[nodes], boards), boards)
        self.lowest_boards[nodes], self.highest_boards[nodes] = low, high
        self.newest_watts[nodes], self.newest_ns[nodes] = watts, time_ns
        times = np.concatenate((self.pair_ns[nodes, 1:], time_ns[:, None]), axis=1)
        times = np.where(time_ns[:, None] - times > _WINDOW_NS, -1, times)
        stuck = (self.same[nodes] >= STALE_AFTER_SAME) & (high - low > _MOVED_WATTS)
        times[stuck] = -1
        pair_hosts = np.concatenate((self.pair_hosts[nodes, 1:], hosts[:, None]), axis=1)
        pair_boards = np.concatenate((self.pair_boards[nodes, 1:], boards[:, None]), axis=1)
        self.pair_ns[nodes] = times
        self.pair_hosts[nodes], self.pair_boards[nodes] = pair_hosts, pair_boards
        shown = _shown(times, pair_hosts, pair_boards)
        self.shown_mean[nodes], self.shown_likely[nodes], self.shown_boards[nodes] = shown


def _nothing_yet(n_nodes: int) -> _Servers:
    def unknown() -> FloatArray:
        return np.full(n_nodes, np.nan)

    def never(*more: int) -> IntArray:
        return np.full((n_nodes, *more), -1, dtype=np.int64)

    pairs = [np.zeros((n_nodes, _READINGS)) for _ in range(2)]
    same = np.zeros(n_nodes, dtype=np.int64)
    told = [unknown() for _ in range(3)]
    shown = [unknown() for _ in range(3)]
    return _Servers(told[0], never(), same, *told[1:], never(_READINGS), *pairs, *shown)


def _shown(
    times_ns: IntArray, hosts: FloatArray, boards: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What differences show of servers; NaN where they are too few or less than nothing, (k,) each.

    The newest ones may stand out from all before them, by more than chance: the draw has risen.

    Args:
        times_ns: When each was read, oldest first, -1 for none, (k, r).
        hosts: Differences, (k, r).
        boards: What the boards drew then, (k, r).

    Returns:
        Mean of the differences, the likely draw now, and the boards' mean.
    """
    here = times_ns >= 0
    n = here.sum(axis=1)
    first_ns = np.take_along_axis(times_ns, here.argmax(axis=1)[:, None], axis=1)[:, 0]
    enough = (n >= _LEAST_READINGS) & (times_ns[:, -1] - first_ns >= _LEAST_SPAN_NS)
    count = np.maximum(n, _LEAST_READINGS)
    mean = np.where(here, hosts, 0.0).sum(axis=1) / count
    off = np.where(here, hosts - mean[:, None], 0.0)
    squares = (off * off).sum(axis=1)
    error = np.sqrt(squares / (count - 1) / count)
    likely = np.maximum(mean + _STANDARD_ERRORS * error, mean + _stands_out(here, n, off))
    enough &= mean >= 0.0
    beside = np.where(here, boards, 0.0).sum(axis=1) / count
    mean, likely, beside = (np.where(enough, what, np.nan) for what in (mean, likely, beside))
    return mean, likely, beside


def _stands_out(here: BoolArray, n: IntArray, off: FloatArray) -> FloatArray:
    """How far the newest differences are surely above the mean; -inf where all are alike, (k,).

    Args:
        here: Which there are, the newest at the end, (k, r).
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
