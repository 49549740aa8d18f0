"""A thread that writes every so often what the newest tick found, and survives its own defects."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from wattpack.clock import Clock

log = logging.getLogger(__name__)


class PeriodicWriter(ABC):
    """Calls ``write_once`` every period, on its own thread, beside the tick.

    Args:
        clock: Paces the thread.
        name: Of the thread and in the log.
        period_ns: Between two calls.

    Attributes:
        failures: Calls that ended in a defect.
    """

    def __init__(self, clock: Clock, name: str, period_ns: int) -> None:
        self._clock, self._name, self._period_ns = clock, name, period_ns
        self._wake = clock.new_wake()
        self._stopping = False
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def write_once(self) -> None:
        """Write what is due."""

    def start(self) -> None:
        """Write in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what was written stays."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.write_once()
            except Exception:
                # The next outcome is judged anew; a dead thread would show old figures, and keep
                # arrivals tainted, for ever.
                self.failures += 1
                log.exception("%s not written", self._name)
            self._clock.wait_until(self._clock.monotonic_ns() + self._period_ns, self._wake)
