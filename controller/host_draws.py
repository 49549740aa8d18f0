"""What servers draw beside their GPUs, from what their BMCs say of the whole server.

    BMC, AC watts, seconds late ──┐
    boards, DC watts, each tick ──┴─> differences of a minute ─> mean, margin, change ─> host watts

A single difference is worth little: a BMC (IPMI, Redfish) tells a moment that is some seconds old,
or a mean of some seconds, and nothing of how old. So each reading is held against what the boards
drew over several times past (``BOARD_SPANS``), and the one whose differences of a minute vary least
counts (``controller/host_differences.py``): with twice the standard error of its mean on top, and
with what regulators bring at once, and fans will, where boards have risen since. What stands out
above all before it counts at once: CPUs start to work without the boards. No reading of a server at
all are three within 20 s, old ones, less than the boards and the declared idle draw, and one number
for ever while boards move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from controller.board_sums import BoardSums
from controller.host_differences import HostDifferences, NewReadings
from controller.tick_values import Observations, Topology
from wattpack.masks import every
from wattpack.power.domain_tree import FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = [
    "HOST_PER_GPU_WATT",
    "READINGS_MAX_AGE_SECONDS",
    "HostDraws",
    "ServerReading",
    "ServerReadings",
    "readings_by_node",
]

READINGS_MAX_AGE_SECONDS: Final = 30.0
"""Readings of BMCs that are older count as missing, unless the settings say otherwise."""

_RECENT_NS: Final = 10 * NS_PER_SECOND
# A scale that is off, another server's BMC, or one of several supplies tells less than a server
# draws at rest; BMCs are off by a few per cent of all of it. Assumed.
_CREDIBLE_OF_IDLE: Final = 0.8
HOST_PER_GPU_WATT: Final = 0.25
"""What a server of eight A100 draws beside them for each watt that they draw: 0.245 W of AC. Fans
take the larger part of it within half a minute, regulators 0.1 at once (Acme's quantiles;
simulation/data/plant.json derives both)."""

_AT_ONCE_PER_GPU_WATT = 0.1


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
        self._boards, self._differences = BoardSums(0), HostDifferences.of(0)

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
        if topology.node_names != self._names:
            self._move(topology.node_names)
        self._boards.take(topology, seen, now_ns)
        efficiency = topology.tree.supply_efficiency[topology.domain_of_node]
        self._take(readings, efficiency)
        newest_ns = self._differences.newest_ns
        known = now_ns - newest_ns <= readings.max_age_ns
        known &= (readings.time_ns >= 0) & (newest_ns >= 0)
        return replace(
            seen,
            host_watts=np.where(known, self._shown_watts(topology, now_ns), np.nan),
            host_time_ns=np.where(known, newest_ns, -1),
        )

    def _take(self, readings: ServerReadings, efficiency: FloatArray) -> None:
        """Hold readings that are newer than the last against what their boards drew."""
        (nodes,) = (readings.time_ns > self._differences.newest_ns).nonzero()
        if not nodes.size:
            return
        time_ns = readings.time_ns[nodes]
        boards = self._boards.before(nodes, time_ns)
        paired = ~np.isnan(boards[:, 0])
        if not every(paired):
            nodes, time_ns, boards = nodes[paired], time_ns[paired], boards[paired]
        watts = readings.watts[nodes]
        new = NewReadings(nodes, time_ns, watts, watts * efficiency[nodes], boards)
        self._differences.take(new)

    def _shown_watts(self, topology: Topology, now_ns: int) -> FloatArray:
        """DC watts beside the boards, NaN where too little is known, (n_nodes,)."""
        shown = self._differences.shown
        recent, newest = (self._boards.since(now_ns - age_ns) for age_ns in (_RECENT_NS, 1))
        follows = HOST_PER_GPU_WATT * np.maximum(recent - shown.boards_watts, 0.0)
        at_once = _AT_ONCE_PER_GPU_WATT * (newest - shown.boards_watts)
        # What is not known for sure is at most what was declared.
        likely = shown.likely_watts + np.maximum(follows, at_once)
        most = np.minimum(likely, topology.node_worst_watts)
        watts = np.maximum(shown.mean_watts, most)
        if topology.node_idle_watts.size:
            with np.errstate(invalid="ignore"):
                little = shown.mean_watts < _CREDIBLE_OF_IDLE * topology.node_idle_watts
            watts = np.where(little, np.nan, watts)
        return np.asarray(watts)

    def _move(self, names: tuple[str, ...]) -> None:
        """Servers come and go; those that stay keep what is remembered."""
        before = {name: node for node, name in enumerate(self._names)}
        kept = [(node, before[name]) for node, name in enumerate(names) if name in before]
        new, old = np.array(kept, dtype=np.int64).reshape(-1, 2).T
        self._boards = self._boards.moved(new, old, len(names))
        self._differences = self._differences.moved(new, old, len(names))
        self._names = names
