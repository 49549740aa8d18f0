"""How a process is told to end: the signal is noted, never lost, and obeyed at once when repeated.

What a signal handler may do is little: an exception that it raises is lost when it meets a
finaliser, a lock that it takes may be held by the thread that it interrupts, and it runs only once
the main thread runs. So the interpreter's own note of a signal (``signal.set_wakeup_fd``, a byte
from whichever thread was given it) goes to a thread that waits for nothing else.

    serving verbs         ``end_noted``: noted; the main thread looks, and ends in order
    everything else       ``interruptible``: SIGTERM and SIGHUP unwind as Ctrl-C does
    told a second time    ``last_step`` after ``last_step``, exit status 128 + number, at once
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from enum import Enum, auto
from types import FrameType
from typing import Protocol

from wattpack.clock import Clock
from wattpack.errors import Terminated
from wattpack.units import NS_PER_MS

log = logging.getLogger(__name__)
LOOK_NS = 500 * NS_PER_MS
#: Wrappers say it twice: coreutils' ``timeout`` signals its child, then its whole group.
SAME_WORD_NS = 500 * NS_PER_MS
#: A terminal that closes says SIGHUP.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_CLOSE = b"\0"
_LAST_STEPS: list[Callable[[], None]] = []


class EndNotice(Protocol):
    """What the process was told."""

    @property
    def number(self) -> int | None:
        """The signal that came first; None while nobody told."""
        ...

    def told(self) -> bool:
        """Whether the process shall end."""
        ...

    def call(self, step: Callable[[], None]) -> None:
        """Run this in another thread once told, at once if told already; it must be quick."""
        ...


class Word(Enum):
    """What a signal says, after those before it."""

    END = auto()
    ECHO = auto()
    AT_ONCE = auto()


class EndNote:
    """Notes signals; from any thread."""

    def __init__(self) -> None:
        self._first: tuple[int, int] | None = None
        self._steps: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def number(self) -> int | None:
        """The signal that came first; None while nobody told."""
        return self._first[0] if self._first else None

    def told(self) -> bool:
        """Whether the process shall end."""
        return self._first is not None

    def call(self, step: Callable[[], None]) -> None:
        """Run this in another thread once told, at once if told already; it must be quick."""
        with self._lock:
            if self._first is None:
                self._steps.append(step)
                return
        step()

    def heard(self, number: int, now_ns: int) -> Word:
        """Note a signal; what it says."""
        with self._lock:
            if self._first is None:
                self._first = (number, now_ns)
                return Word.END
            echo = now_ns - self._first[1] < SAME_WORD_NS
            return Word.ECHO if echo else Word.AT_ONCE

    def run_steps(self) -> None:
        """Run what waits for the first signal; one that fails keeps no other from running."""
        with self._lock:
            steps, self._steps = self._steps, []
        for step in steps:
            try:
                step()
            except Exception:
                log.exception("%r failed when the process was told to end", step)


def until_told_to_end(end: EndNotice, clock: Clock) -> None:
    """Wait until the process is told to end; looks twice a second, whoever wakes it or not."""
    wake = clock.new_wake()
    end.call(wake.set)
    while not end.told():
        clock.wait_until(clock.monotonic_ns() + LOOK_NS, wake)


@contextlib.contextmanager
def end_noted(clock: Clock, *, can_be_cut_short: bool = True) -> Iterator[EndNotice]:
    """Inside, no signal to end interrupts anything: who serves looks at the notice.

    Args:
        clock: Tells a repeated signal from the same one said twice.
        can_be_cut_short: False where ending in order is what keeps a row safe.
    """
    with _ears(clock) as ears:
        before = ears.raises, ears.cut_short
        ears.raises, ears.cut_short = False, can_be_cut_short
        try:
            yield ears.note
        finally:
            ears.raises, ears.cut_short = before


@contextlib.contextmanager
def interruptible(clock: Clock) -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise ``Terminated``, Ctrl-C ``KeyboardInterrupt``, once.

    For computations without a loop that could look. Where the exception is lost in a finaliser the
    note remains: an ``end_noted`` further inside ends, and a second signal ends the process.
    """
    with _ears(clock) as ears:
        before = ears.raises
        ears.raises = True
        try:
            yield
        finally:
            ears.raises = before


def last_step(step: Callable[[], None]) -> Callable[[], None]:
    """Run this before the process ends at once: it takes no lock and waits for nobody.

    Returns:
        What takes the step back, once it has nothing to do any more.
    """
    _LAST_STEPS.append(step)

    def take_back() -> None:
        with contextlib.suppress(ValueError):
            _LAST_STEPS.remove(step)

    return take_back


class _Ears:
    """Hears the process's signals while open; at most one pair a process."""

    def __init__(self, clock: Clock) -> None:
        self.note = EndNote()
        self.raises = False
        self.cut_short = True
        self._clock = clock
        self._handled = 0
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._earlier_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._earlier = {number: signal.signal(number, self._handle) for number in _heard()}
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        atexit.register(_leave_the_last_word)

    def close(self) -> None:
        """Signals do what they did before."""
        atexit.unregister(_leave_the_last_word)
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._earlier_fd)
        os.write(self._write, _CLOSE)
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._handled += 1
        if self.raises and self._handled == 1:
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    def _listen(self) -> None:
        while _CLOSE not in (said := os.read(self._read, 64)):
            for number in said:
                if number not in SIGNALS:
                    continue
                word = self.note.heard(number, self._clock.monotonic_ns())
                if word is Word.END:
                    # A step may have to wait for a lock; the next signal must not wait for it.
                    threading.Thread(target=self.note.run_steps, name="told", daemon=True).start()
                elif word is Word.AT_ONCE and self.cut_short:
                    _end_at_once(number)


def _heard() -> list[signal.Signals]:
    """All but a SIGHUP that ``nohup`` has told us to ignore."""
    deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in SIGNALS if not (deaf and number is signal.SIGHUP)]


_OPEN: list[_Ears] = []


@contextlib.contextmanager
def _ears(clock: Clock) -> Iterator[_Ears]:
    """Those that are open, or a new pair for the block."""
    if _OPEN:
        yield _OPEN[0]
        return
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("signals are heard for the main thread")
    ears = _Ears(clock)
    _OPEN.append(ears)
    try:
        yield ears
    finally:
        # Who was told listens to its last moment: the interpreter has yet to take things away.
        if not ears.note.told():
            _OPEN.remove(ears)
            ears.close()


_ENDING_AT_ONCE = threading.Event()
_LAST_WORD_SECONDS = 10.0


def _leave_the_last_word() -> None:
    """Signals do nothing to a process that is over, and its end at once has its own status.

    After this the interpreter would give them back their default deed, and one that is repeated
    would end the process by itself. The last steps end what the main thread waits for, so it may
    come here while they still run.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if _ENDING_AT_ONCE.is_set():
        threading.Event().wait(_LAST_WORD_SECONDS)


def _end_at_once(number: int) -> None:
    _ENDING_AT_ONCE.set()
    for step in reversed(tuple(_LAST_STEPS)):
        with contextlib.suppress(Exception):
            step()
    with contextlib.suppress(OSError):
        os.write(2, b"told twice: ended at once\n")
    os._exit(128 + number)
