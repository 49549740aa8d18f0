"""A forecast as a picture shows it: what came before, the steps' quantiles, the promised peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from forecasting.series_source import Floats
from wattpack.errors import InputError
from wattpack.times import parse_rfc3339


@dataclass(frozen=True, slots=True)
class Fan:
    """One window of one series.

    Attributes:
        title: What it is of.
        start_seconds: Start of the window, Unix time; the past ends here.
        step_seconds: Width of a bin, before and after.
        past: What was observed before, shape (n_past,), oldest first; NaN for gaps.
        levels: Of the quantiles, ascending.
        quantiles: Of each step, shape (horizon, n_levels).
        peak_p99: Promised p99 of the window's highest bin.
        realised: What came, shape (horizon,); None where nobody knows yet.

    Raises:
        InputError: for quantiles that are not one column a level.
    """

    title: str
    start_seconds: int
    step_seconds: int
    past: Floats
    levels: tuple[float, ...]
    quantiles: Floats
    peak_p99: float
    realised: Floats | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.quantiles)
        if len(shape) != 2 or shape[0] == 0 or shape[1] != len(self.levels) or not self.levels:
            raise InputError("quantiles", f"shape (horizon, {len(self.levels)})", shape)

    def middle(self) -> Floats:
        """The quantile nearest to the median, shape (horizon,)."""
        path: Floats = self.quantiles[:, int(np.argmin(np.abs(np.array(self.levels) - 0.5)))]
        return path

    def highest(self) -> float:
        """The largest value that the picture has to hold."""
        shown = [self.past, self.quantiles.ravel(), np.array([self.peak_p99])]
        if self.realised is not None:
            shown.append(self.realised)
        values = np.concatenate(shown)
        return float(np.max(values[np.isfinite(values)], initial=0.0))


def fan_of(title: str, status: Mapping[str, Any], step_seconds: int, past: Floats) -> Fan:
    """The picture of a DemandForecast's status.

    Args:
        title: What it is of.
        status: With figures, as ``forecasting.forecast_status.status_of`` writes it.
        step_seconds: Width of a bin.
        past: Bins that end where the window starts.
    """
    paths = status["quantiles"]
    return Fan(
        title=title,
        start_seconds=int(parse_rfc3339(status["windowStart"]).timestamp()),
        step_seconds=step_seconds,
        past=past,
        levels=tuple(float(path["level"]) for path in paths),
        quantiles=np.array([path["values"] for path in paths], dtype=np.float64).T,
        peak_p99=float(status["p99"]),
    )


def readable(value: float, digits: int = 5) -> str:
    """The figure with so many digits, in thousands where people read them so: ``353,750``."""
    if 1e4 <= abs(value) < 1e7:
        return f"{float(f'{value:.{digits}g}'):,.0f}"
    return f"{value:.{digits}g}"
