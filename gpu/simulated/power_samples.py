"""Boards whose power fields show samples: the mean of 25 ms, taken anew each 100 ms.

Three quarters of the time nobody looks, so work that beats in step with the samples is seen at one
phase of its beat, for as long as it keeps step. Over long times, and over boards that sample out of
step, the mean is right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu.simulated.board_spec import (
    SAMPLE_PERIOD_SECONDS,
    SAMPLE_SECONDS,
    BoardSpec,
    Floats,
    PowerSensor,
)
from gpu.simulated.recent_draws import RecentDraws

SAMPLE_PHASE_STEP = 0.6180339887498949
"""Boards sample out of step with one another: spread evenly over the period. Assumed."""


class PowerSamples:
    """The sensors of a bank's boards.

    Attributes:
        of_average: Whose field for the average shows samples, (n,).
        of_latest: Whose field for the latest window does, (n,).
        any_average, any_latest: Whether one does.

    Args:
        specs: Of the boards.
    """

    def __init__(self, specs: Sequence[BoardSpec]) -> None:
        sensors = [spec.sensor for spec in specs]
        self.of_average = np.array([one is PowerSensor.SAMPLED for one in sensors])
        self.of_latest = np.array([one is not PowerSensor.AVERAGED for one in sensors])
        self.any_average = bool(self.of_average.any())
        self.any_latest = bool(self.of_latest.any())
        phase = np.arange(len(sensors)) * SAMPLE_PHASE_STEP % 1.0
        self._phase_seconds = SAMPLE_PERIOD_SECONDS * phase

    def newest_watts(self, draws: RecentDraws, since_start_seconds: float) -> Floats:
        """Mean draw of each board over the last 25 ms that its sensor looked at, (n,).

        Args:
            draws: Of the last second, up to now.
            since_start_seconds: Now.
        """
        since = since_start_seconds - self._phase_seconds
        ago = np.asarray(since % SAMPLE_PERIOD_SECONDS, dtype=np.float64)
        return draws.mean_watts_each(ago + SAMPLE_SECONDS, ago)
