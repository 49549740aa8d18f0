"""How a board that is held at its limit slows its work down, learned from its own throttled rows.

A throttled row tells two times of one kernel: of a short burst, before the board's regulator acts
(about a second, ``h200_power_steps``), and held at the limit for seconds. Their ratio, the stretch,
grows with what the kernel would draw without a limit, and less for kernels that wait for memory,
since the regulator lowers the clock of the multiprocessors alone::

    stretch = 1 + depth * (1 - memory_share ** exponent)
    depth   = reach * (uncapped / held - 1) ** bend                     0 where uncapped <= held

A step of many kernels shorter than the regulator's second is held as a whole: its mean decides the
one depth, and each kernel stretches by its own sensitivity to the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from capacity.bench.measurement_row import MeasurementRow
from capacity.kernels import Kernel
from capacity.roofs import Roofs

Floats = npt.NDArray[np.float64]

FREE_BURST_SECONDS: Final = 1.5e-3
"""Ten bursts of longer kernels last long enough for the regulator to act inside them."""

STEADY_BURST: Final = 0.985
"""A 10th percentile below this share of the median: the clock fell while the burst was timed."""

BENDS: Final = np.linspace(0.3, 1.0, 15)
EXPONENTS: Final = np.geomspace(0.5, 10.0, 25)
"""Where the two bent parameters are looked for; the reach is linear and is solved. Draw falls at
least in proportion to the clock, so the clock never has to fall faster than the excess grows: a
bend above 1 fits the small excesses of a run (an H100's asked for 1.5) and halves speeds at low
caps."""

UNKNOWN_RESPONSE: Final = (0.28, 0.8, 2.5)
"""Reach, bend and exponent between own H100 and H200 rows: for a board that was never throttled."""

DEFAULT_HELD_SHARE: Final = 0.99
"""Mean draw over limit of throttled rows of H200 (0.988) and H100 (0.994)."""


@dataclass(frozen=True, slots=True)
class Regulator:
    """One GPU's response to its limit.

    Attributes:
        reach: Depth for work that would draw twice what the board is held at.
        bend: How depth grows with the excess; below 1, the first watts cost the most.
        exponent: How soon waiting for memory makes a kernel insensitive to the clock.
        held_share: Mean draw over limit while the board regulates.
        held_p95_share: 95th percentile of the instantaneous draw over limit meanwhile.
    """

    reach: float
    bend: float
    exponent: float
    held_share: float = DEFAULT_HELD_SHARE
    held_p95_share: float = 1.1

    def depth(self, uncapped_watts: Floats | float, limit_watts: float) -> Floats:
        """How far the clock has to fall; 0 for work that the limit does not touch."""
        excess = np.maximum(0.0, np.asarray(uncapped_watts) / (self.held_share * limit_watts) - 1)
        return np.asarray(self.reach * excess**self.bend)

    def clock_sensitivity(self, memory_share: Floats) -> Floats:
        """1 for work that never waits for memory, 0 for work that does nothing else."""
        return np.asarray(1 - np.clip(memory_share, 0, 1) ** self.exponent)

    def stretch(self, uncapped_watts: Floats, memory_share: Floats, limit_watts: float) -> Floats:
        """Time at the limit over time without one, of kernels that run alone."""
        depth = self.depth(uncapped_watts, limit_watts)
        return np.asarray(1 + depth * self.clock_sensitivity(memory_share))

    @classmethod
    def from_rows(
        cls, rows: Sequence[MeasurementRow], uncapped_watts: Floats, roofs: Roofs
    ) -> Self:
        """Fitted on rows with power whose bursts ran at full clock.

        Args:
            rows: Single kernels of one GPU under one limit, all with power.
            uncapped_watts: What each would draw without a limit, shape (n_rows,).
        """
        held = [row for row in rows if "throttled" in row.flags]
        if not held:
            return cls(*UNKNOWN_RESPONSE)
        free = np.array([burst_was_free(row) for row in rows])
        limit = rows[0].identity.power_limit_watts
        held_share = float(np.median([_held_share(row) for row in held]))
        excess = np.maximum(0.0, uncapped_watts / (held_share * limit) - 1)
        seconds = np.array([row.latency.median_seconds for row in rows])
        memory = memory_shares([row.kernel for row in rows], seconds, roofs)
        measured = np.array([row.power.sustained_seconds for row in rows if row.power]) / seconds
        shape = _fitted_shape(excess[free], memory[free], measured[free] - 1)
        instants = np.concatenate([_instants(row) for row in held])
        return cls(*shape, held_share, float(np.quantile(instants, 0.95)))


def _fitted_shape(excess: Floats, memory: Floats, slowdown: Floats) -> tuple[float, float, float]:
    """Reach, bend and exponent with the least mean absolute error."""
    best = (np.inf, UNKNOWN_RESPONSE)
    for bend, exponent in product(BENDS, EXPONENTS):
        shape = excess**bend * (1 - memory**exponent)
        reach = max(0.0, float(shape @ slowdown) / max(float(shape @ shape), 1e-12))
        error = float(np.abs(reach * shape - slowdown).mean())
        if error < best[0]:
            best = (error, (reach, float(bend), float(exponent)))
    return best[1]


def burst_was_free(row: MeasurementRow) -> bool:
    """Whether the burst's median is a time at full clock."""
    if not row.throttle_reasons:
        return True
    steady = row.latency.p10_seconds >= STEADY_BURST * row.latency.median_seconds
    return steady and row.latency.median_seconds < FREE_BURST_SECONDS


def memory_shares(kernels: Sequence[Kernel], seconds: Floats, roofs: Roofs) -> Floats:
    """Share of its time for which each kernel would need the whole memory bandwidth."""
    moved = np.array([kernel.bytes_moved for kernel in kernels])
    return np.asarray(np.minimum(1.0, moved / seconds / roofs.bytes_per_second))


def _held_share(row: MeasurementRow) -> float:
    return row.power.mean_watts / row.identity.power_limit_watts if row.power else float("nan")


def _instants(row: MeasurementRow) -> Floats:
    instants = row.power.instant_watts if row.power else ()
    return np.array(instants, dtype=np.float64) / row.identity.power_limit_watts
