"""What the capacity model is fitted on: kernels of one GPU type with what was measured.

Samples carry no identity but the type: boards of one type differ by a third of a percent in time
and by 4 % in draw (own rows of two H200), which a model of the type cannot know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from capacity.bench.measurement_row import MeasurementRow
from capacity.kernels import Kernel
from capacity.roofs import require_roofs
from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TimeSamples:
    """Times of kernels on one GPU type; equal only to itself, so that fits on it can be kept.

    Attributes:
        gpu: wattpack's name of the type, for example ``H200-SXM``.
        seconds: One run of each kernel, shape (n_kernels,).
    """

    gpu: str
    kernels: tuple[Kernel, ...]
    seconds: Floats

    def __post_init__(self) -> None:
        _require_positive("seconds", self.seconds, len(self.kernels))

    def __len__(self) -> int:
        return len(self.kernels)

    def take(self, indices: Sequence[int] | Indices) -> Self:
        """These samples, in this order."""
        return type(self)(self.gpu, _taken(self.kernels, indices), self.seconds[_whole(indices)])

    def of_class(self, *kernel_classes: str) -> Self:
        """The samples of these kernel classes."""
        return self.take(_of_class(self.kernels, kernel_classes))


@dataclass(frozen=True, slots=True)
class PowerSamples:
    """Times and mean draws of kernels on one GPU type, each array of shape (n_kernels,).

    Attributes:
        draw_watts: Mean of the board while nothing but this kernel ran.
        limit_watts: The limit then in force; a draw at it says no more than "at least".
    """

    gpu: str
    kernels: tuple[Kernel, ...]
    seconds: Floats
    draw_watts: Floats
    limit_watts: Floats = field(repr=False)

    def __post_init__(self) -> None:
        for name in ("seconds", "draw_watts", "limit_watts"):
            _require_positive(name, getattr(self, name), len(self.kernels))

    def __len__(self) -> int:
        return len(self.kernels)

    def take(self, indices: Sequence[int] | Indices) -> Self:
        """These samples, in this order."""
        rows = _whole(indices)
        return type(self)(
            self.gpu,
            _taken(self.kernels, indices),
            self.seconds[rows],
            self.draw_watts[rows],
            self.limit_watts[rows],
        )

    def of_class(self, *kernel_classes: str) -> Self:
        """The samples of these kernel classes."""
        return self.take(_of_class(self.kernels, kernel_classes))

    def times(self) -> TimeSamples:
        """The same without the draw."""
        return TimeSamples(self.gpu, self.kernels, self.seconds)


def time_samples(rows: Iterable[MeasurementRow]) -> TimeSamples:
    """Unflagged rows with cold caches, timed in short bursts.

    Bursts of kernels below 1.5 ms are over before the board's regulator acts: times at full clock.
    Longer ones that draw more than the limit are slowed; ``GpuModel`` takes them back.

    Raises:
        InputError: rows of several GPU types, of one that has no roofs, or none at all.
    """
    kept = [row for row in rows if row.ok and row.cache_state == "cold"]
    seconds = np.array([row.latency.median_seconds for row in kept])
    return TimeSamples(_one_type(kept), tuple(row.kernel for row in kept), seconds)


def power_samples(rows: Iterable[MeasurementRow]) -> PowerSamples:
    """Unflagged rows that hold a power window; times are those of the window.

    Raises:
        InputError: as ``time_samples``.
    """
    kept = [(row, row.power) for row in rows if row.ok and row.power is not None]
    return PowerSamples(
        _one_type([row for row, _ in kept]),
        tuple(row.kernel for row, _ in kept),
        np.array([power.sustained_seconds for _, power in kept]),
        np.array([power.mean_watts for _, power in kept]),
        np.array([row.identity.power_limit_watts for row, _ in kept]),
    )


def _one_type(rows: Sequence[MeasurementRow]) -> str:
    products = sorted({row.identity.gpu_product for row in rows})
    if len(products) != 1:
        raise InputError("gpu_product", "usable rows of one GPU type", products)
    return require_roofs(products[0]).model


def _whole(indices: Sequence[int] | Indices) -> Indices:
    return np.asarray(indices, dtype=np.int64)


def _taken(kernels: tuple[Kernel, ...], indices: Sequence[int] | Indices) -> tuple[Kernel, ...]:
    return tuple(kernels[index] for index in _whole(indices).tolist())


def _of_class(kernels: Sequence[Kernel], wanted: Sequence[str]) -> list[int]:
    return [index for index, kernel in enumerate(kernels) if kernel.kernel_class in wanted]


def _require_positive(name: str, values: Floats, count: int) -> None:
    if values.shape != (count,):
        raise InputError(name, f"one number for each of {count} kernels", values.shape)
    if not np.all(np.isfinite(values) & (values > 0)):
        raise InputError(name, "finite numbers above 0", values)
