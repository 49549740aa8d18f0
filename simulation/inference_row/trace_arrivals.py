"""Real requests to the inference row: Azure's hour of 2023 replayed, each request once.

Every arrival, prompt and answer is as it was recorded; nothing is drawn, scaled or repeated. What
is not in the traces is how they were spread: code goes to the servers that summarise, conversations
in turn to the other classes, and each class deals its requests to its servers in turn.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from capacity.phase_times import ServerTimes, bloom_on_a100
from simulation.inference_row.client_arrivals import RowRequests
from simulation.inference_row.request_classes import POLCA_CLASSES, class_of_servers
from simulation.inference_row.request_lengths import LEAST_OUTPUT, TRACE_OF_CLASS
from simulation.traces import TraceName, shipped_trace
from wattpack.errors import InputError

__all__ = ["TraceArrivals"]

Floats = NDArray[np.float64]

_TRACES: Final[tuple[TraceName, ...]] = ("code", "conversation")


class TraceArrivals:
    """The recorded requests of a row.

    Args:
        n_servers: Of the row; the requests are the same whatever it has.
        times: What a server takes and draws.
    """

    def __init__(self, n_servers: int, times: ServerTimes | None = None) -> None:
        self.times = times or bloom_on_a100()
        self.class_of_server = class_of_servers(n_servers)

    @property
    def length_seconds(self) -> float:
        """Until the first of the traces ends."""
        return min(float(shipped_trace(name).arrival_seconds[-1]) for name in _TRACES)

    def between(self, begin_seconds: float, end_seconds: float) -> RowRequests:
        """Requests that arrive in [begin, end), seconds since each trace's first.

        Raises:
            InputError: for times outside the traces.
        """
        if not 0 <= begin_seconds < end_seconds <= self.length_seconds:
            raise InputError(
                "begin_seconds, end_seconds",
                f"times within {self.length_seconds:.0f} recorded seconds",
                (begin_seconds, end_seconds),
            )
        parts = [part for name in _TRACES for part in self._dealt(name, begin_seconds, end_seconds)]
        return RowRequests.in_order(parts)

    def _dealt(self, name: TraceName, begin: float, end: float) -> list[tuple[Floats, ...]]:
        """A trace's requests of a time by class; who answers each is by its place in the trace."""
        trace = shipped_trace(name)
        inside = np.flatnonzero((trace.arrival_seconds >= begin) & (trace.arrival_seconds < end))
        classes = [k for k, one in enumerate(POLCA_CLASSES) if TRACE_OF_CLASS[one.name] == name]
        parts: list[tuple[Floats, ...]] = []
        for i, k in enumerate(classes):
            mine = inside[inside % len(classes) == i]
            servers = np.flatnonzero(self.class_of_server == k)
            parts.append(
                (
                    trace.arrival_seconds[mine],
                    np.full(len(mine), float(k)),
                    np.maximum(trace.prompt_tokens[mine], 1.0),
                    np.maximum(trace.output_tokens[mine], LEAST_OUTPUT),
                    servers[mine // len(classes) % len(servers)].astype(np.float64),
                )
            )
        return parts
