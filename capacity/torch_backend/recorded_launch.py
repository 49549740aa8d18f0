"""A piece of GPU work recorded once as a CUDA graph, launched many times, timed by events."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from wattpack.clock import Clock
from wattpack.units import ns_to_seconds

Work = Callable[[int], None]
"""Queue one run; the argument says which copy of the operands it uses."""


class _TimedByEvents:
    """Launches between two events."""

    def __init__(self, first: Any, last: Any) -> None:
        self._first = first
        self._last = last

    def done(self) -> bool:
        """Whether the device has passed the last event."""
        return bool(self._last.query())

    def seconds(self) -> float:
        """Device time between the events; blocks until the last one."""
        self._last.synchronize()
        return float(self._first.elapsed_time(self._last)) / 1e3


class _TimedLater:
    """Launches that another thread is still queueing."""

    def __init__(self, queued: Future[_TimedByEvents]) -> None:
        self._queued = queued

    def done(self) -> bool:
        """Whether everything is queued and the device has passed the last event."""
        return self._queued.done() and self._queued.result().done()

    def seconds(self) -> float:
        """Device time between the events; blocks until the last one."""
        return self._queued.result().seconds()


class _TimedByHost:
    """Launches on a device without events: they ended before this was made."""

    def __init__(self, elapsed_seconds: float) -> None:
        self._elapsed_seconds = elapsed_seconds

    def done(self) -> bool:
        """Always."""
        return True

    def seconds(self) -> float:
        """Host time of the launches."""
        return self._elapsed_seconds


@dataclass(frozen=True, slots=True)
class HostAndDevice:
    """Where work runs: ``cuda:0`` records a graph, ``cpu`` calls the work directly."""

    device: torch.device
    clock: Clock


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often one launch runs the work.

    Attributes:
        copies: Operand copies that the runs take in turn: with more bytes than the L2 cache holds,
            each run finds its operands cold.
    """

    copies: int = 1
    runs: int = 1


class RecordedLaunch:
    """``runs_per_launch`` runs that start together.

    Args:
        work: Queues one run.
        repeats: Runs in one launch.
        implementation: Which code runs.
        place: Where.
        eager: Launch run by run, as a framework without graphs does.
        waits: Launches may wait for room in the device's queue, which holds about a thousand
            kernels: another thread waits, so that whoever launches can look at the board meanwhile.
    """

    def __init__(
        self,
        work: Work,
        place: HostAndDevice,
        implementation: str,
        *,
        repeats: Repeats = Repeats(),
        eager: bool = False,
        waits: bool = False,
    ) -> None:
        self._run = 0
        self._waiter = ThreadPoolExecutor(1) if waits and place.device.type == "cuda" else None
        self._device = place.device
        self.implementation = implementation
        self.runs_per_launch = repeats.runs
        self._work: Work | None = work
        self._copies = repeats.copies
        self._graph: Any = None
        self._clock = place.clock
        self._cuda = place.device.type == "cuda"
        for copy in range(repeats.copies):
            work(copy)
        if not self._cuda or eager:
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work(0)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._queue()
        self._graph.replay()
        torch.cuda.synchronize()

    def launch(self, count: int) -> _TimedByEvents | _TimedLater | _TimedByHost:
        """Queue ``count`` launches and return at once."""
        if self._waiter is not None:
            return _TimedLater(self._waiter.submit(self._launch_there, count))
        if not self._cuda:
            start_ns = self._clock.monotonic_ns()
            for _ in range(count):
                self._queue()
            return _TimedByHost(ns_to_seconds(self._clock.monotonic_ns() - start_ns))
        return self._launch_here(count)

    def close(self) -> None:
        """Give the memory back."""
        if self._waiter is not None:
            self._waiter.shutdown()
        if self._cuda:
            torch.cuda.synchronize()
        self._graph = None
        self._work = None

    def _launch_there(self, count: int) -> _TimedByEvents:
        """Queue from the other thread, which has a current device of its own."""
        torch.cuda.set_device(self._device)
        return self._launch_here(count)

    def _launch_here(self, count: int) -> _TimedByEvents:
        first = torch.cuda.Event(enable_timing=True)
        last = torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(count):
            if self._graph is None:
                self._queue()
            else:
                self._graph.replay()
        last.record()
        return _TimedByEvents(first, last)

    def _queue(self) -> None:
        if self._work is None:
            raise RuntimeError("launched after close")
        for _ in range(self.runs_per_launch):
            self._work(self._run % self._copies)
            self._run += 1
