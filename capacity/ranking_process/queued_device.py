"""A device with streams whose work runs when somebody waits for it, over numpy.

What a GPU does with asynchronous tricks, a machine without one can show: ``launch`` queues a
function, and nothing runs until its stream or the whole device is waited for. An event on an idle
stream passes at once, as it does on a GPU.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from wattpack.clock import SystemClock

_now_ns: Final = SystemClock().monotonic_ns


class Stream:
    """Work in order."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], Any]] = deque()
        _streams.append(self)

    def add(self, work: Callable[[], Any]) -> None:
        """Behind everything that is queued."""
        self._queue.append(work)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued."""
        return not self._queue

    def synchronize(self) -> None:
        """Run everything that is queued."""
        while self._queue:
            self._queue.popleft()()


class Event:
    """A point in a stream."""

    def __init__(self) -> None:
        self._stream: Stream | None = None
        self._passed_ns: int | None = None

    def record(self) -> None:
        """Pass when the current stream gets here."""
        stream = self._stream = current_stream()
        self._passed_ns = None
        if stream.idle:
            self._pass()
        else:
            stream.add(self._pass)

    def synchronize(self) -> None:
        """Wait until the stream has passed this point."""
        if self._stream is not None and self._passed_ns is None:
            self._stream.synchronize()

    def elapsed_seconds(self, later: Event) -> float:
        """From this point to the later one."""
        if self._passed_ns is None or later._passed_ns is None:
            raise RuntimeError("an event was not passed yet")
        return (later._passed_ns - self._passed_ns) / 1e9

    def _pass(self) -> None:
        self._passed_ns = _now_ns()


_streams: list[Stream] = []
_current: list[Stream] = [Stream()]


def current_stream() -> Stream:
    """Where ``launch`` puts work."""
    return _current[-1]


@contextmanager
def using(stream: Stream) -> Iterator[None]:
    """Another current stream."""
    _current.append(stream)
    try:
        yield
    finally:
        _current.pop()


def launch(function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    """Queue a call on the current stream."""
    current_stream().add(lambda: function(*arguments, **named))


def synchronize() -> None:
    """Wait for every stream."""
    while not all(stream.idle for stream in _streams):
        for stream in tuple(_streams):
            stream.synchronize()
