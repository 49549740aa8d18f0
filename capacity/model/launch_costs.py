"""What starting kernels costs: inside a graph, per graph, and one by one from the host.

A kernel's own row was timed inside a graph, so it holds the gap to its neighbour; what a step adds
is the start of its graph. Launched one by one, kernels shorter than a launch wait for the host:
the step then takes what the host takes (the queueing that TKLQT counts, arXiv 2504.11750).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from capacity.bench.measurement_row import MeasurementRow
from capacity.kernels import LaunchChain, LaunchMode
from wattpack.errors import InputError


@dataclass(frozen=True, slots=True)
class LaunchCosts:
    """Of one host with one GPU.

    Attributes:
        graph_seconds: Start of one recorded graph.
        graph_gap_seconds: One empty kernel inside a graph.
        eager_seconds: One empty kernel launched by the host.
    """

    graph_seconds: float
    graph_gap_seconds: float
    eager_seconds: float

    @classmethod
    def from_rows(cls, rows: Iterable[MeasurementRow]) -> Self:
        """From the chains of empty kernels among the rows.

        Raises:
            InputError: a mode without a chain of one and a longer one.
        """
        seconds: dict[tuple[LaunchMode, int], float] = {}
        for row in rows:
            if isinstance(row.kernel, LaunchChain):
                key = (row.kernel.mode, row.kernel.kernels)
                seconds[key] = row.latency.median_seconds
        graph, graph_gap = _line(seconds, "graph")
        _, eager_gap = _line(seconds, "eager")
        return cls(graph, graph_gap, eager_gap)

    def chain_seconds(self, chain: LaunchChain) -> float:
        """Empty kernels in a row."""
        if chain.mode == "graph":
            return self.graph_seconds + chain.kernels * self.graph_gap_seconds
        return chain.kernels * self.eager_seconds

    def step_seconds(self, device_seconds: float, launches: int, mode: LaunchMode) -> float:
        """A step of ``launches`` kernels that keep the device busy for ``device_seconds``."""
        if mode == "graph":
            return device_seconds + self.graph_seconds
        return max(device_seconds, launches * self.eager_seconds)


def _line(seconds: dict[tuple[LaunchMode, int], float], mode: LaunchMode) -> tuple[float, float]:
    """Fixed cost and cost of one more kernel, from the shortest and the longest chain."""
    chains = sorted(count for kind, count in seconds if kind == mode)
    if len(chains) < 2:
        raise InputError("launch", f"{mode} chains of at least two lengths", chains)
    short, long = chains[0], chains[-1]
    gap = (seconds[mode, long] - seconds[mode, short]) / (long - short)
    return max(0.0, seconds[mode, short] - short * gap), gap
