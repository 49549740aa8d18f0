"""The loop that every thread beside another uses."""

from __future__ import annotations

import threading

from wattpack.clock import Clock, SystemClock
from wattpack.periodic import PeriodicThread

SECOND = 1_000_000_000


class Counting(PeriodicThread):
    """Counts its calls; the first one fails, the third says when to go on."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, "counting", period_ns=1)
        self.calls = 0
        self.third = threading.Event()

    def run_once(self) -> int | None:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("a defect")
        if self.calls == 3:
            self.third.set()
            return 3600 * SECOND
        return None


def test_a_defect_is_counted_and_the_loop_goes_on_until_it_is_stopped() -> None:
    thread = Counting(SystemClock())
    thread.start()
    assert thread.third.wait(30)
    thread.stop()
    assert (thread.calls, thread.failures) == (3, 1)


def test_a_thread_that_was_stopped_first_does_nothing() -> None:
    thread = Counting(SystemClock())
    thread.stop()
    thread.start()
    thread.stop()
    assert thread.calls == 0
