"""What a minute or two of a board's telemetry says about the work on it, as numbers.

Utilisation is one of them and never trusted alone: a board is 100 % utilised by one tiny kernel
after another. What a board or its agent does not tell is NaN and takes no part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from wattpack.errors import InputError
from wattpack.units import require_number

Floats = npt.NDArray[np.float64]

LEAST_SAMPLES: Final = 60
"""Seconds of telemetry; fewer hold no whole cycle of most work."""

LONGEST_LAG: Final = 30
"""Longest period that is looked for, in samples: half of the shortest window."""

FLAT: Final = 0.02
"""Of the limit: a draw that varies less has no period."""

NAMES: Final = (
    "level", "low", "high", "variation", "regularity", "utilisation", "memory_utilisation",
    "memory_used", "clock", "watts_per_utilisation",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Telemetry:
    """One board over a window, a sample a second; each of shape (n_samples,), NaN where unknown.

    Attributes:
        draw_watts: Mean of each second.
        utilisation: Share of each second with a kernel running; ``memory_utilisation`` with memory
            being read or written.
        memory_used_share: Of the board's memory.
        clock_share: SM clock over the highest.
    """

    draw_watts: Floats
    limit_watts: float
    utilisation: Floats
    memory_utilisation: Floats
    memory_used_share: Floats
    clock_share: Floats

    def __post_init__(self) -> None:
        require_number("limit_watts", self.limit_watts, exclusive_minimum=0)
        for name in ("utilisation", "memory_utilisation", "memory_used_share", "clock_share"):
            if len(getattr(self, name)) != len(self.draw_watts):
                raise InputError(name, f"{len(self.draw_watts)} samples", len(getattr(self, name)))


def features(telemetry: Telemetry) -> Floats | None:
    """In the order of ``NAMES``; None while there are too few readings of the draw."""
    watts = telemetry.draw_watts[np.isfinite(telemetry.draw_watts)]
    if len(watts) < LEAST_SAMPLES:
        return None
    draw = watts / telemetry.limit_watts
    level = float(draw.mean())
    low, high = np.quantile(draw, [0.05, 0.95]).tolist()
    spread = float(draw.std())
    busy = _mean(telemetry.utilisation)
    return np.array([
        level, low, high, spread, _regularity(draw) if spread > FLAT else 0.0, busy,
        _mean(telemetry.memory_utilisation), _mean(telemetry.memory_used_share),
        _mean(telemetry.clock_share), level / max(busy, 0.05) if busy == busy else np.nan,
    ])  # fmt: skip


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _regularity(draw: Floats) -> float:
    """Highest autocorrelation at a lag of 2 to 30 samples: near 1 for steps of equal length."""
    centred = draw - draw.mean()
    whole = float(centred @ centred)
    lags = range(2, min(LONGEST_LAG, len(draw) // 2) + 1)
    return max(float(centred[lag:] @ centred[:-lag]) / whole * len(draw) / (len(draw) - lag)
               for lag in lags)  # fmt: skip
