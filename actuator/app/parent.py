"""The tiny parent: sets guaranteed caps at start, at SIGTERM and whenever its child dies or hangs.

It holds no socket, no driver and no lease, so there is little in it that can fail. Capping is a
short-lived process of its own: a driver that hangs takes that process down, never the parent.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Sequence

from actuator.audit_log import AuditSink
from wattpack.clock import Clock
from wattpack.ending import end_noted
from wattpack.units import NS_PER_SECOND

HEARTBEAT_TIMEOUT_SECONDS = 3.0
"""The child beats once a second; three missing beats and its leases are not being watched."""

CAPPING_TIMEOUT_SECONDS = 10.0
STOP_TIMEOUT_SECONDS = 3.0
BACK_OFF_SECONDS = (0.2, 10.0)
STABLE_SECONDS = 60.0

TAKE_BACK = "--take-back"
"""With the first capping: to start the whole is the operator's word to hold the boards again."""

EXIT_CONFIG = 2
"""The child refuses its configuration: starting it again cannot help."""


class Parent:
    """Keeps one child running.

    Args:
        serve_command: Starts the child; ``--heartbeat-fd N`` is appended.
        cap_command: Sets guaranteed caps and exits with 0 if all were read back.
        clock: Real time.
        audit: Takes one entry an event.
        heartbeat_timeout_seconds: Silence after which the child is killed.
    """

    def __init__(
        self,
        serve_command: Sequence[str],
        cap_command: Sequence[str],
        clock: Clock,
        audit: AuditSink,
        heartbeat_timeout_seconds: float = HEARTBEAT_TIMEOUT_SECONDS,
    ) -> None:
        self._serve_command = list(serve_command)
        self._cap_command = list(cap_command)
        self._clock = clock
        self._audit = audit
        self._heartbeat_timeout_seconds = heartbeat_timeout_seconds
        self._stopping = threading.Event()
        self._told_read, self._told_write = os.pipe()

    def run(self) -> int:
        """Supervise until SIGTERM or SIGINT; returns the exit status."""
        # A second signal cuts nothing short: without the capping at the end boards would keep what
        # their last lease gave them. Its time is bounded.
        with end_noted(self._clock, can_be_cut_short=False) as end:
            end.call(self._stop)
            return self._supervise()

    def _supervise(self) -> int:
        status = self._cap("start", TAKE_BACK)
        back_off_seconds = BACK_OFF_SECONDS[0]
        while not self._stopping.is_set() and status != EXIT_CONFIG:
            began_ns = self._clock.monotonic_ns()
            status = self._run_child()
            if self._stopping.is_set():
                break
            self._cap("child_died")
            lived_ns = self._clock.monotonic_ns() - began_ns
            if lived_ns > STABLE_SECONDS * NS_PER_SECOND:
                back_off_seconds = BACK_OFF_SECONDS[0]
            self._wait(back_off_seconds)
            back_off_seconds = min(2 * back_off_seconds, BACK_OFF_SECONDS[1])
        if self._stopping.is_set():
            return 0 if self._cap("stop") == 0 else 1
        return status

    def _stop(self) -> None:
        self._stopping.set()
        os.write(self._told_write, b".")

    def _wait(self, seconds: float) -> None:
        """Wait, or until told to end."""
        select.select([self._told_read], [], [], seconds)

    def _run_child(self) -> int:
        """One life of the child; its exit status, negative for a signal."""
        beat_read, beat_write = os.pipe()
        child = subprocess.Popen(
            [*self._serve_command, "--heartbeat-fd", str(beat_write)],
            pass_fds=[beat_write],
            stdin=subprocess.DEVNULL,
        )
        os.close(beat_write)
        self._audit({"event": "child_started", "pid": child.pid})
        try:
            self._watch(child, beat_read)
        finally:
            os.close(beat_read)
        status = self._reap(child)
        self._audit({"event": "child_ended", "pid": child.pid, "status": status})
        return status

    def _watch(self, child: subprocess.Popen[bytes], beat_read: int) -> None:
        """Return when the child has died, hangs (then it is killed) or the parent shall stop."""
        while not self._stopping.is_set():
            ready, _, _ = select.select(
                [beat_read, self._told_read], [], [], self._heartbeat_timeout_seconds
            )
            if not ready:
                self._audit({"event": "child_hangs", "pid": child.pid})
                child.kill()
                return
            if beat_read in ready and not os.read(beat_read, 4096):
                return
        child.terminate()

    def _reap(self, child: subprocess.Popen[bytes]) -> int:
        try:
            return child.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
        try:
            return child.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            # Stuck inside the driver: it runs no code of ours any more; go on without it.
            return -signal.SIGKILL

    def _cap(self, reason: str, *more: str) -> int:
        """Set guaranteed caps in a process of its own; its exit status.

        In a session of its own, too: a terminal tells a whole group, and nothing cuts this short.
        """
        try:
            status = subprocess.run(
                [*self._cap_command, *more],
                stdin=subprocess.DEVNULL,
                timeout=CAPPING_TIMEOUT_SECONDS,
                check=False,
                start_new_session=True,
            ).returncode
        except (subprocess.TimeoutExpired, OSError) as error:
            self._audit({"event": "capping_failed", "reason": reason, "error": str(error)})
            return 1
        self._audit({"event": "capped", "reason": reason, "status": status})
        return status
