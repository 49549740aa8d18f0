"""Processes of the test control plane: started on loopback, watched until ready, ended by pid.

Whoever starts one is told once to end and stops it politely; told twice, it is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from wattpack.clock import SystemClock
from wattpack.ending import last_step
from wattpack.errors import DeadlineExceededError, PermanentError
from wattpack.units import NS_PER_SECOND

POLL_SECONDS = 0.02
STOP_SECONDS = 10.0
LOG_TAIL_CHARACTERS = 3000

T = TypeVar("T")
_clock = SystemClock()


def eventually(what: str, probe: Callable[[], T | None], seconds: float = 20.0) -> T:
    """The first answer of the probe that is neither None nor False.

    Args:
        what: What is waited for, for the error's text.
        probe: Asked again and again.
        seconds: How long to ask, in seconds.

    Raises:
        DeadlineExceededError: The probe never gave such an answer.
    """
    deadline_ns = _clock.monotonic_ns() + round(seconds * NS_PER_SECOND)
    while True:
        answer = probe()
        if answer is not None and answer is not False:
            return answer
        if _clock.monotonic_ns() >= deadline_ns:
            raise DeadlineExceededError(f"{what}: not within {seconds:g} s")
        _clock.wait_until(_clock.monotonic_ns() + round(POLL_SECONDS * NS_PER_SECOND))


def free_port() -> int:
    """A loopback TCP port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class ServerProcess:
    """One started program whose output goes to a file.

    Args:
        name: For messages and the name of the log file.
        command: Program and arguments.
        directory: Where the log file goes.
        environment: Added to this process's own environment.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )
        atexit.register(self.stop)
        self._take_back = last_step(self._process.kill)

    @property
    def pid(self) -> int:
        """The operating system's number of the process."""
        return self._process.pid

    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def wait_ready(self, ready: Callable[[], bool], seconds: float = 30.0) -> None:
        """Return when ready() holds.

        Raises:
            PermanentError: The process ended first; the message holds the end of its log.
            DeadlineExceededError: It did not become ready in time.
        """

        def probe() -> bool:
            if not self.running():
                raise PermanentError(
                    f"{self.name} ended with status {self._process.returncode}:\n{self.log_tail()}"
                )
            return ready()

        eventually(f"{self.name} is ready", probe, seconds)

    def log_tail(self) -> str:
        """The end of what the process wrote."""
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]

    def kill(self) -> None:
        """End the process without giving it a chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process, politely first; a second call does nothing."""
        self._end(signal.SIGTERM)

    def _end(self, first: signal.Signals) -> None:
        atexit.unregister(self.stop)
        if self.running():
            self._process.send_signal(first)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        if self.running():
            self._process.kill()
            self._process.wait()
        self._take_back()
