"""One child process at a time, with a folder for what it is told and what it leaves."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from wattpack.clock import Clock
from wattpack.scratch_folder import ScratchFolder
from wattpack.units import seconds_to_ns

log = logging.getLogger(__name__)


class SideProcess:
    """Starts, watches and ends a child.

    Args:
        clock: Time.
        deadline_seconds: After which the child is ended.
        command: What is run, followed by the folder.
        name: Of its work, for logs and folders.

    Attributes:
        problem: Why the last child failed; empty if it did not.
    """

    def __init__(
        self, clock: Clock, deadline_seconds: float, command: Sequence[str], name: str
    ) -> None:
        self.problem = ""
        self._clock = clock
        self._deadline_ns = seconds_to_ns(deadline_seconds)
        self._command = tuple(command)
        self._name = name
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: ScratchFolder | None = None
        self._began_ns = 0

    @property
    def is_begun(self) -> bool:
        """Whether a child runs, or has ended and nobody has looked at it yet."""
        return self._child is not None

    @property
    def is_over(self) -> bool:
        """Whether what was begun has ended or is past its deadline."""
        return self._child is not None and (self._child.poll() is not None or self._is_late)

    def begin(self, fill: Callable[[Path], None]) -> bool:
        """Start a child; False if the last one still runs or none can be started.

        Args:
            fill: Writes into the folder what the child needs.
        """
        if self._child is not None:
            return False
        try:
            self._folder = ScratchFolder(f"wattpack-{self._name}-")
            folder = self._folder.path
            fill(folder)
            with (folder / "told").open("wb") as told:
                self._child = subprocess.Popen(
                    [*self._command, str(folder)],
                    stdin=subprocess.DEVNULL, stdout=told, stderr=told,
                )  # fmt: skip
        except OSError as error:
            self.fail(f"no {self._name} could be begun: {error}")
            return False
        self._began_ns = self._clock.monotonic_ns()
        return True

    def left(self) -> Path | None:
        """The folder of a child that ended well; one past its deadline is ended here.

        Whoever takes it says ``done`` or ``fail`` next.
        """
        if self._child is None or self._folder is None:
            return None
        code = self._child.poll()
        if code is None:
            if self._is_late:
                self._child.kill()
                self._child.wait()
                self.fail(f"a {self._name} was ended at its deadline")
            return None
        if code != 0:
            self.fail(f"a {self._name} ended with {code}: {self._last_words()}")
            return None
        return self._folder.path

    def done(self) -> None:
        """What the child left was taken."""
        self.problem = ""
        self._forget()

    def fail(self, problem: str) -> None:
        """The child was of no use; told once, not every time."""
        if problem != self.problem:
            log.warning("%s: %s", self._name, problem)
        self.problem = problem
        self._forget()

    def close(self) -> None:
        """End what runs and delete its folder."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._forget()

    @property
    def _is_late(self) -> bool:
        return self._clock.monotonic_ns() - self._began_ns > self._deadline_ns

    def _forget(self) -> None:
        self._child = None
        if self._folder is not None:
            self._folder.close()
        self._folder = None

    def _last_words(self) -> str:
        folder = self._folder.path if self._folder else Path()
        lines = (folder / "told").read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1][:200] if lines else "nothing said"
