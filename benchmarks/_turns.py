"""Virtual time for several threads that take turns: one runs, the others wait for their moment.

Simpler than the twin's lockstep, and deterministic: the thread with the earliest deadline goes
next, the earlier starter first. Nothing here moves time but a wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from wattpack.clock import Wake
from wattpack.errors import PermanentError
from wattpack.units import NS_PER_SECOND


class _NoWake:
    def set(self) -> None:
        """Who waits in virtual time looks again at its deadline."""


class _TimeIsOverError(BaseException):
    """Unwinds a thread that waits in a time that was broken off; no handler of errors keeps it."""


class TurnClock:
    """A ``wattpack.clock.Clock`` that its own threads share."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._turn = threading.Condition()
        self._deadlines: dict[int, int] = {}
        self._running = -1
        self._is_over = False
        self._errors: list[BaseException] = []

    def run(self, *mains: Callable[[], None]) -> None:
        """Run all mains in turns until each has returned; whatever interrupts this ends them all.

        Raises:
            PermanentError: if one of them failed.
        """
        threads = [
            threading.Thread(target=self._main, args=(number, main), name=f"turn-{number}")
            for number, main in enumerate(mains)
        ]
        self._deadlines = dict.fromkeys(range(len(mains)), 0)
        self._running = 0
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            self._break_off(threads)
            raise
        if self._errors:
            raise PermanentError(f"a planner's thread failed: {self._errors[0]!r}")

    def _break_off(self, threads: list[threading.Thread]) -> None:
        """Nobody's moment comes any more: who waits, or will wait, unwinds."""
        with self._turn:
            self._is_over = True
            self._turn.notify_all()
        for thread in threads:
            if thread.ident is not None:
                thread.join()

    def _main(self, number: int, main: Callable[[], None]) -> None:
        threading.current_thread().turn = number  # type: ignore[attr-defined]
        try:
            with self._turn:
                self._await_turn(number)
            main()
        except BaseException as error:
            self._errors.append(error)
        finally:
            with self._turn:
                del self._deadlines[number]
                self._pass_on()

    def _await_turn(self, number: int) -> None:
        self._turn.wait_for(lambda: self._is_over or self._running == number)
        if self._is_over:
            raise _TimeIsOverError

    def _pass_on(self) -> None:
        if self._deadlines:
            deadline_ns, number = min((d, n) for n, d in self._deadlines.items())
            self._now_ns = max(self._now_ns, deadline_ns)
            self._running = number
        self._turn.notify_all()

    def monotonic_ns(self) -> int:
        """The present virtual time."""
        return self._now_ns

    def wall_time_ns(self) -> int:
        """The present virtual time as a calendar time."""
        return self._now_ns + 1_700_000_000 * NS_PER_SECOND

    def new_wake(self) -> Wake:
        """A handle without effect."""
        return _NoWake()

    def wait_until(self, deadline_ns: int, wake: Wake | None = None) -> bool:
        """Let the others run until the deadline."""
        number: int = threading.current_thread().turn  # type: ignore[attr-defined]
        with self._turn:
            self._deadlines[number] = max(deadline_ns, self._now_ns)
            self._pass_on()
            self._await_turn(number)
        return False

    def message_sent(self, count: int = 1) -> None:
        """One thread runs at a time: nothing is under way."""

    def message_handled(self, count: int = 1) -> None:
        """One thread runs at a time: nothing is under way."""
