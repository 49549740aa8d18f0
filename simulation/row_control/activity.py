"""How busy units are from moment to moment: levels, drift, bursts and noise, made in blocks.

Cells of 0.25 s, constant within; a step takes the cell in its middle, so plants of other steps see
the same work.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from simulation.row_control.work_layout import SERVICES, WorkKind, WorkLayout

Floats = NDArray[np.float64]

CELL_SECONDS: Final = 0.25
BLOCK_CELLS: Final = 256
LEAST: Final = 0.12
"""Of serving: a server that waits for requests."""


class Swings(Protocol):
    """What is needed of the settings."""

    serving_level_lowest: float
    serving_level_highest: float
    drift_ratio: float
    drift_seconds: float
    swing_ratio: float
    swing_seconds: float
    replica_ratio: float
    replica_seconds: float
    batch_jump_seconds: float
    batch_lowest_ratio: float
    board_noise_ratio: float


class _Wander:
    """n independent first-order processes around 0, spread ``ratio``, in cells."""

    def __init__(
        self, n: int, ratio: float, seconds: float, generator: np.random.Generator
    ) -> None:
        self._keep = float(np.exp(-CELL_SECONDS / seconds))
        self._push = ratio * np.sqrt(1.0 - self._keep**2)
        self._generator = generator
        self._last = ratio * generator.standard_normal(n)

    def block(self) -> Floats:
        """The next cells, (BLOCK_CELLS, n)."""
        pushes = self._push * self._generator.standard_normal((BLOCK_CELLS, len(self._last)))
        begin = self._keep * self._last[np.newaxis]
        values, _ = lfilter([1.0], [1.0, -self._keep], pushes, axis=0, zi=begin)
        self._last = values[-1]
        return np.asarray(values)


class Activity:
    """Activity of all units and noise of all boards.

    Args:
        swings: Levels and spreads.
        layout: Who does what.
        generator: Of everything.
    """

    def __init__(self, swings: Swings, layout: WorkLayout, generator: np.random.Generator) -> None:
        self._swings, self._layout, self._generator = swings, layout, generator
        n = layout.n_units
        self._level = generator.uniform(swings.serving_level_lowest, swings.serving_level_highest)
        self._drift = _Wander(1, swings.drift_ratio, swings.drift_seconds, generator)
        self._services = _Wander(SERVICES, swings.swing_ratio, swings.swing_seconds, generator)
        self._replicas = _Wander(n, swings.replica_ratio, swings.replica_seconds, generator)
        self._batch = self._batch_levels(n)
        self._serves = layout.kind == WorkKind.SERVING
        self._works_batch = layout.kind == WorkKind.BATCH
        self._block = -1
        self._activity = np.zeros((0, n))
        self._noise = np.zeros((0, len(layout.unit_of_gpu)))

    def at(self, seconds: float) -> tuple[Floats, Floats]:
        """Activity, (n_units,), and noise around 1, (n_gpus,), at a time; time does not go back."""
        cell = int(seconds / CELL_SECONDS)
        while self._block < cell // BLOCK_CELLS:
            self._next_block()
        row = cell - self._block * BLOCK_CELLS
        return self._activity[row], self._noise[row]

    def _next_block(self) -> None:
        swing = self._services.block()[:, self._layout.service]
        serving = self._level + self._drift.block() + swing + self._replicas.block()
        busy = np.where(self._works_batch, self._jumps(), 0.0)
        self._activity = np.where(self._serves, np.clip(serving, LEAST, 1.0), busy)
        shape = (BLOCK_CELLS, len(self._layout.unit_of_gpu))
        ratio = self._swings.board_noise_ratio
        noise = self._generator.standard_normal(shape)
        np.clip(noise, -3.0, 3.0, out=noise)
        noise *= ratio
        noise += 1.0
        self._noise = noise
        self._block += 1

    def _jumps(self) -> Floats:
        """Levels of batch boards, (BLOCK_CELLS, n_units)."""
        n = self._layout.n_units
        chance = CELL_SECONDS / self._swings.batch_jump_seconds
        jump = self._generator.random((BLOCK_CELLS, n)) < chance
        drawn = np.vstack([self._batch, self._batch_levels((BLOCK_CELLS, n))])
        cells = np.arange(1, BLOCK_CELLS + 1)[:, np.newaxis]
        newest = np.maximum.accumulate(np.where(jump, cells, 0), axis=0)
        levels = np.take_along_axis(drawn, newest, axis=0)
        self._batch = levels[-1]
        return levels

    def _batch_levels(self, size: int | tuple[int, int]) -> Floats:
        return self._generator.uniform(self._swings.batch_lowest_ratio, 1.0, size)
