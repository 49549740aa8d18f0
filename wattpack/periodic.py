"""The one loop beside the others: a thread that works every so often and survives its defects."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from wattpack.clock import Clock

log = logging.getLogger(__name__)


class PeriodicThread(ABC):
    """Calls ``run_once`` every period, on its own thread.

    Args:
        clock: Paces the thread.
        name: Of the thread and in the log.
        period_ns: Between the end of one call and the next.
        first_ns: Before the first call.

    Attributes:
        failures: Calls that ended in a defect.
    """

    def __init__(self, clock: Clock, name: str, period_ns: int, first_ns: int = 0) -> None:
        self._clock, self._name, self._period_ns = clock, name, period_ns
        self._first_ns = first_ns
        self._wake = clock.new_wake()
        self._stopping = False
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def run_once(self) -> int | None:
        """Do what is due; the pause until the next call in ns, None for the period."""

    def start(self) -> None:
        """Work in a thread."""
        self._thread.start()

    def stop(self, patience_seconds: float = 5.0) -> None:
        """End the thread, waiting at most that long for a call under way."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=patience_seconds)

    def _run(self) -> None:
        pause_ns: int | None = self._first_ns
        while True:
            if pause_ns:
                self._clock.wait_until(self._clock.monotonic_ns() + pause_ns, self._wake)
            if self._stopping:
                return
            pause_ns = self._attempt() or self._period_ns

    def _attempt(self) -> int | None:
        try:
            return self.run_once()
        except Exception:
            # What is due is judged anew next time; a dead thread would show old figures for ever.
            self.failures += 1
            log.exception("%s failed and goes on", self._name)
            return None
