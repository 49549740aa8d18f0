"""Starts, watches and ends the process that fits forests."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Final

from forecasting.side_training.fit_child import read_forests, write_sample
from forecasting.tiers.boosted_features import Sample
from forecasting.tiers.boosted_fit import Forests
from wattpack.clock import Clock
from wattpack.scratch_folder import ScratchFolder
from wattpack.units import seconds_to_ns

DEADLINE_SECONDS: Final = 600.0
"""A fit takes about 15 s of one core; one that takes so much longer will not come."""

log = logging.getLogger(__name__)


class ChildTraining:
    """``Training`` in a child process, one fit at a time.

    Args:
        clock: Time.
        deadline_seconds: After which a fit is ended.
        command: What is run, followed by the folder; tests run something else.

    Attributes:
        problem: Why the last fit failed; empty if it did not.
    """

    def __init__(
        self,
        clock: Clock,
        deadline_seconds: float = DEADLINE_SECONDS,
        command: tuple[str, ...] = (sys.executable, "-m", "forecasting.side_training.fit_child"),
    ) -> None:
        self.problem = ""
        self._clock = clock
        self._deadline_ns = seconds_to_ns(deadline_seconds)
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: ScratchFolder | None = None
        self._began_ns = 0

    def submit(self, sample: Sample, until_seconds: int) -> bool:
        """Begin a fit; False if the last one still runs or none can be begun."""
        if self._child is not None:
            return False
        try:
            self._folder = ScratchFolder("wattpack-fit-")
            folder = self._folder.path
            write_sample(folder, sample, until_seconds)
            with (folder / "told").open("wb") as told:
                self._child = subprocess.Popen(
                    [*self._command, str(folder)],
                    stdin=subprocess.DEVNULL, stdout=told, stderr=told,
                )  # fmt: skip
        except OSError as error:
            self._fail(f"no fit could be begun: {error}")
            return False
        self._began_ns = self._clock.monotonic_ns()
        return True

    def take(self) -> Forests | None:
        """Forests that came since the last call; a fit past its deadline is ended here."""
        if self._child is None or self._folder is None:
            return None
        code = self._child.poll()
        if code is None:
            if self._clock.monotonic_ns() - self._began_ns > self._deadline_ns:
                self._child.kill()
                self._child.wait()
                self._fail("a fit was ended at its deadline")
            return None
        if code != 0:
            self._fail(f"a fit ended with {code}: {self._last_words()}")
            return None
        try:
            made = read_forests(self._folder.path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._fail(f"a fit left nothing to read: {error}")
            return None
        self.problem = ""
        self._forget()
        return made

    def close(self) -> None:
        """End what runs and delete its folder."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._forget()

    def _fail(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("boosted trees: %s", problem)
        self.problem = problem
        self._forget()

    def _forget(self) -> None:
        self._child = None
        if self._folder is not None:
            self._folder.close()
        self._folder = None

    def _last_words(self) -> str:
        folder = self._folder.path if self._folder else Path()
        lines = (folder / "told").read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1][:200] if lines else "nothing said"
