"""What all tiers share: they compute quantiles on the grid of levels, the rest follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from forecasting.forecast import checked_levels
from forecasting.forecaster import Provenance
from forecasting.past_changes import past_changes
from forecasting.peak_policy.coupling import PATHS, couple, path_levels
from forecasting.series_source import LONGEST_SECONDS, Floats, History
from forecasting.tiers.records import Records
from wattpack.errors import InputError


def checked_horizon(horizon: int, step_seconds: int) -> int:
    """A number of steps between one and seven days.

    Raises:
        InputError: it is not.
    """
    most = LONGEST_SECONDS // max(1, step_seconds)
    if not 1 <= horizon <= most:
        raise InputError("horizon", f"1 to {most} steps (seven days)", horizon)
    return horizon


class Tier(ABC):
    """A ``Forecaster`` from step quantiles on the grid of levels.

    Paths are order statistics of the step quantiles in the order of past hours (``couple``).

    Args:
        records: Bins shared with other tiers; None keeps them for this tier alone.
    """

    model: ClassVar[str]

    def __init__(self, records: Records | None = None) -> None:
        self.records = Records() if records is None else records

    @property
    def provenance(self) -> Provenance:
        """What stands behind the answers."""
        until_seconds = self.records.until_seconds
        return Provenance(self.model, until_seconds, min(until_seconds, self._fitted_until()))

    def update(self, batch: History) -> None:
        """Take bins in; see ``Forecaster.update``."""
        self.records.absorb(batch)
        self._learn()

    def quantiles(self, horizon: int, levels: Sequence[float]) -> Floats:
        """Step quantiles; see ``Forecaster.quantiles``. Never negative, NaN for whole rows only."""
        chosen = checked_levels(levels)
        checked_horizon(horizon, self.records.step_seconds)
        if not len(self.records.series):
            return np.empty((0, horizon, len(chosen)))
        raw = self._step_quantiles(horizon, chosen)
        np.maximum(raw, 0.0, out=raw)
        raw.sort(axis=2)
        incomplete = ~np.isfinite(raw[:, :, 0]).all(axis=1) | ~np.isfinite(raw[:, :, -1]).all(
            axis=1
        )
        raw[incomplete] = np.nan
        return raw

    def paths(self, horizon: int, n: int) -> Floats:
        """Joint paths; see ``Forecaster.paths``."""
        if n < 1:
            raise InputError("n", "at least one path", n)
        levels = tuple(path_levels(n))
        quantiles = self.quantiles(horizon, levels)
        if not len(quantiles):
            return np.empty((0, n, horizon))
        records = self.records
        changes = past_changes(records.filled, records.length, horizon, records.day_steps, n)
        return couple(quantiles, levels, changes, n)

    def peak_quantile(self, window: int, level: float) -> Floats:
        """Quantile of the window's highest bin; see ``Forecaster.peak_quantile``."""
        checked_levels((level,))
        peaks = np.max(self.paths(window, PATHS), axis=2)
        if not len(peaks):
            return np.empty(0)
        result: Floats = np.quantile(peaks, level, axis=1, method="inverted_cdf")
        return result

    def close(self) -> None:  # noqa: B027  most tiers do all they do in their calls
        """End what goes on beside the calls."""

    def _learn(self) -> None:  # noqa: B027  a tier without parameters has nothing to do
        """Renew what is cheap to renew after new bins."""

    def _fitted_until(self) -> int:
        """End of the data behind the parameters, Unix time."""
        return self.records.until_seconds

    @abstractmethod
    def _step_quantiles(self, horizon: int, levels: Floats) -> Floats:
        """Quantiles of all rows, shape (n_series, horizon, n_levels); NaN without an answer."""
