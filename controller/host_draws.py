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

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from controller.tick_values import Observations, Topology
from wattpack.power.board_trust import STALE_AFTER_SAME
from wattpack.power.domain_tree import FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = ["HostDraws", "ServerReading"]

_WINDOW_NS: Final = 60 * NS_PER_SECOND
_RING: Final = 128
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


class _Declared(NamedTuple):
    """Of one server beside its boards, DC watts."""

    idle_watts: float
    worst_watts: float


@dataclass(slots=True)
class _Server:
    """Differences of the last minute, and the boards' draw beside each."""

    newest: ServerReading = field(default_factory=lambda: ServerReading(math.nan, -1))
    same: int = 0
    boards_since_same: tuple[float, float] = (math.inf, -math.inf)
    pairs: deque[tuple[int, float, float]] = field(default_factory=deque)
    shown: _Shown | None = None

    def take(self, reading: ServerReading, host_watts: float, board_watts: float) -> None:
        """Add a reading that is newer than the last one."""
        repeated = reading.watts == self.newest.watts
        self.same = self.same + 1 if repeated else 1
        low, high = self.boards_since_same if repeated else (math.inf, -math.inf)
        self.boards_since_same = (min(low, board_watts), max(high, board_watts))
        self.newest, self.shown = reading, None
        if self._is_stuck():
            self.pairs.clear()
            return
        self.pairs.append((reading.time_ns, host_watts, board_watts))
        while reading.time_ns - self.pairs[0][0] > _WINDOW_NS:
            self.pairs.popleft()
        spanned_ns = reading.time_ns - self.pairs[0][0]
        if len(self.pairs) >= _LEAST_READINGS and spanned_ns >= _LEAST_SPAN_NS:
            boards = sum(boards for _, _, boards in self.pairs) / len(self.pairs)
            self.shown = _shown([host for _, host, _ in self.pairs], boards)

    def _is_stuck(self) -> bool:
        low, high = self.boards_since_same
        return self.same >= STALE_AFTER_SAME and high - low > _MOVED_WATTS

    def watts(self, boards_now: float, declared: _Declared) -> float:
        """DC watts beside the boards, NaN where too little is known."""
        if self.shown is None or self.shown.mean < _CREDIBLE_OF_IDLE * declared.idle_watts:
            return math.nan
        fans = _HOST_PER_GPU_WATT * max(0.0, boards_now - self.shown.boards)
        # What is not known for sure is at most what was declared.
        most = min(self.shown.likely + fans, declared.worst_watts)
        return max(self.shown.mean, most)


class _Shown(NamedTuple):
    """What a minute of readings shows: the rest's mean, its likely draw now, the boards' mean."""

    mean: float
    likely: float
    boards: float


def _shown(hosts: list[float], boards: float) -> _Shown | None:
    """What differences show, oldest first; None where the boards alone drew more.

    The newest ones may stand out from all before them, by more than chance: the draw has risen.
    """
    n, total, squares = len(hosts), 0.0, 0.0
    everything, likely = sum(hosts), -math.inf
    mean = everything / n
    for count, host in enumerate(hosts, 1):
        total, squares = total + host, squares + (host - mean) ** 2
        newest = n - count
        if count >= _LEAST_READINGS and newest >= _LEAST_NEWEST:
            centre = total / count - mean
            spread = math.sqrt(max(squares - count * centre**2, 0.0) / (count - 1))
            level = (everything - total) / newest
            likely = max(likely, level - _STANDARD_ERRORS * spread / math.sqrt(newest))
    if mean < 0.0:
        return None
    spread = math.sqrt(squares / (n - 1))
    return _Shown(mean, max(mean + _STANDARD_ERRORS * spread / math.sqrt(n), likely), boards)


class HostDraws:
    """Remembers a minute of boards and BMC readings; told the time, it reads no clock."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._servers: dict[str, _Server] = {}
        self._times_ns: IntArray = np.full(_RING, -1, dtype=np.int64)
        self._boards: FloatArray = np.zeros((_RING, 0))
        self._next = 0

    def take(
        self,
        topology: Topology,
        seen: Observations,
        readings: Mapping[str, ServerReading],
        max_age_ns: int,
        now_ns: int,
    ) -> tuple[FloatArray, IntArray]:
        """Host draws of this tick.

        Args:
            topology: Servers, their boards and supplies.
            seen: Boards' readings.
            readings: The newest of each BMC, by server.
            max_age_ns: Servers whose newest reading is older count as unread.
            now_ns: Of the tick.

        Returns:
            DC watts beside the boards, NaN for servers without, (n_nodes,), and when the newest
            reading of each was taken, -1 without, (n_nodes,).
        """
        self._remember(topology, seen, now_ns)
        efficiency = topology.tree.supply_efficiency[topology.domain_of_node]
        idle = (
            topology.node_idle_watts if topology.node_idle_watts.size else np.zeros(len(efficiency))
        )
        watts = np.full(topology.n_nodes, np.nan)
        times = np.full(topology.n_nodes, -1, dtype=np.int64)
        recent = self._mean_of_boards(now_ns - _RECENT_NS, now_ns)
        for node, name in enumerate(topology.node_names):
            reading = readings.get(name)
            if reading is None:
                continue
            server = self._servers.setdefault(name, _Server())
            if reading.time_ns > server.newest.time_ns:
                then = self._mean_of_boards(reading.time_ns - _LAG_NS, reading.time_ns, node)[0]
                if not math.isnan(then):
                    server.take(
                        reading, float(reading.watts * efficiency[node] - then), float(then)
                    )
            if now_ns - server.newest.time_ns <= max_age_ns and not math.isnan(recent[node]):
                declared = _Declared(float(idle[node]), float(topology.node_worst_watts[node]))
                watts[node] = server.watts(float(recent[node]), declared)
                times[node] = server.newest.time_ns
        return watts, times

    def _remember(self, topology: Topology, seen: Observations, now_ns: int) -> None:
        """One more row of what each server's boards draw, NaN where one cannot be read."""
        if topology.node_names != self._names:
            self._move(topology.node_names)
        sums = np.bincount(topology.node_of_gpu, seen.gpu_draw_watts, topology.n_nodes)
        silent = now_ns - seen.node_received_ns > _HEARD_NS
        self._boards[self._next] = np.where(silent, np.nan, sums)
        self._times_ns[self._next] = now_ns
        self._next = (self._next + 1) % _RING

    def _move(self, names: tuple[str, ...]) -> None:
        """Servers come and go; those that stay keep what is remembered."""
        before = {name: node for node, name in enumerate(self._names)}
        boards = np.full((_RING, len(names)), np.nan)
        for node, name in enumerate(names):
            if name in before:
                boards[:, node] = self._boards[:, before[name]]
        self._servers = {name: s for name, s in self._servers.items() if name in set(names)}
        self._names, self._boards = names, boards

    def _mean_of_boards(self, after_ns: int, until_ns: int, node: int | None = None) -> FloatArray:
        """Mean draw of the boards of all servers, or of one, over a time; NaN if one tick lacks."""
        inside = (self._times_ns > after_ns) & (self._times_ns <= until_ns) & (self._times_ns >= 0)
        rows = self._boards[inside] if node is None else self._boards[inside, node : node + 1]
        if not len(rows):
            return np.full(rows.shape[1], np.nan)
        return np.asarray(rows.mean(axis=0))
