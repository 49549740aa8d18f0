"""Steps and windows that are over: what was promised beside what came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forecasting.series_source import Floats
from wattpack.errors import InputError


@dataclass(frozen=True, slots=True)
class Finished:
    """Steps, or windows, that are over.

    Attributes:
        series: Names.
        promised: Uncorrected quantiles, shape (n_series, n_steps, n_levels); n_steps is 1 for
            peaks.
        published: The same as they were given out, corrected.
        scale: What misses are measured by, positive, shape (n_series,).
        realised: What came, NaN where that is unknown or not over, shape (n_series, n_steps).
        window_steps: Steps of a whole window: 1 for peaks.
        pool_size: Series in the class, those that are not here included; 0 if all are.
        told: Misses that were told early (``after_broken``), shape of ``promised``; None for none.
        until_seconds: When the newest of them was over, Unix time.
    """

    series: Sequence[str]
    promised: Floats
    published: Floats
    scale: Floats
    realised: Floats
    window_steps: int = 1
    pool_size: int = 0
    told: np.ndarray | None = None
    until_seconds: int = 0

    def __post_init__(self) -> None:
        n_series, n_steps = len(self.series), np.shape(self.promised)[1]
        for name, shape in (("scale", (n_series,)), ("realised", (n_series, n_steps))):
            if np.shape(getattr(self, name)) != shape:
                raise InputError(name, f"an array of {shape}", np.shape(getattr(self, name)))
        if np.shape(self.published) != np.shape(self.promised):
            raise InputError("published", "the shape of promised", np.shape(self.published))
        if self.window_steps < 1:
            raise InputError("window_steps", "at least one step", self.window_steps)

    @property
    def taken_back(self) -> Floats:
        """Misses told early of windows whose end nobody knows: kept alone they would bias.

        Of the shape of ``promised``.
        """
        if self.told is None:
            return np.zeros(np.shape(self.promised))
        unknown = np.isnan(self.realised)[:, :, None]
        result: Floats = np.where(unknown, self.told, 0.0)
        return result
