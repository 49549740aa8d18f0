"""Forests from a process beside: told a sample, asked for what came of it."""

from __future__ import annotations

import sys
from typing import Final

from forecasting.side_training.fit_child import read_forests, write_sample
from forecasting.side_training.side_process import SideProcess
from forecasting.tiers.boosted_features import Sample
from forecasting.tiers.boosted_fit import Forests
from wattpack.clock import Clock

DEADLINE_SECONDS: Final = 600.0
"""A fit takes about 15 s of one core; one that takes so much longer will not come."""


class ChildTraining:
    """``Training`` in a child process, one fit at a time.

    Args:
        clock: Time.
        deadline_seconds: After which a fit is ended.
        command: What is run, followed by the folder; tests run something else.
    """

    def __init__(
        self,
        clock: Clock,
        deadline_seconds: float = DEADLINE_SECONDS,
        command: tuple[str, ...] = (sys.executable, "-m", "forecasting.side_training.fit_child"),
    ) -> None:
        self._side = SideProcess(clock, deadline_seconds, command, "fit")

    @property
    def problem(self) -> str:
        """Why the last fit failed; empty if it did not."""
        return self._side.problem

    def submit(self, sample: Sample, until_seconds: int) -> bool:
        """Begin a fit; False if the last one still runs or none can be begun."""
        return self._side.begin(lambda folder: write_sample(folder, sample, until_seconds))

    def take(self) -> Forests | None:
        """Forests that came since the last call; a fit past its deadline is ended here."""
        folder = self._side.left()
        if folder is None:
            return None
        try:
            made = read_forests(folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._side.fail(f"a fit left nothing to read: {error}")
            return None
        self._side.done()
        return made

    def close(self) -> None:
        """End what runs and delete its folder."""
        self._side.close()
