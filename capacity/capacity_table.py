"""Vectorised answers for many GPUs at once: throughput, power and value of a watt under a cap.

A ``ProfileTable`` stacks profiles into arrays; every function takes arrays with one entry a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capacity.gpu_profile import KERNEL_CLASSES, GpuProfile
from wattpack.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """Profiles as arrays on one common grid of cap fractions.

    Attributes:
        models: Names in the order of the first axis, length m.
        grid: Cap as a share of the default limit, even steps, shape (g,).
        throughput_grid: Relative throughput, shape (m, classes, g).
        draw_grid: Mean draw relative to the uncapped median, shape (m, classes, g).
        p50_watts: Uncapped median draw, shape (m, classes).
        p95_watts: Uncapped 95th percentile, shape (m, classes).
        default_limit_watts: Shape (m,).
        min_limit_watts: Shape (m,).
        knee_watts: Shape (m,).
        idle_watts: Shape (m,).
    """

    models: tuple[str, ...]
    grid: Floats
    throughput_grid: Floats
    draw_grid: Floats
    p50_watts: Floats
    p95_watts: Floats
    default_limit_watts: Floats
    min_limit_watts: Floats
    knee_watts: Floats
    idle_watts: Floats

    @classmethod
    def of(cls, profiles: Sequence[GpuProfile]) -> ProfileTable:
        """The table of these profiles, in their order."""
        if not profiles:
            raise InputError("profiles", "at least one profile", profiles)
        grid = np.linspace(0.1, 1.0, 73)

        def stack(field: str) -> Floats:
            return np.array(
                [
                    [
                        np.interp(grid, kernel.cap_fractions, getattr(kernel, field))
                        for kernel in (p.kernel_classes[name] for name in KERNEL_CLASSES)
                    ]
                    for p in profiles
                ]
            )

        def scalars(field: str) -> Floats:
            return np.array([float(getattr(p, field)) for p in profiles])

        def powers(field: str) -> Floats:
            return np.array(
                [
                    [float(getattr(p.kernel_classes[c], field)) for c in KERNEL_CLASSES]
                    for p in profiles
                ]
            )

        return cls(
            models=tuple(p.model for p in profiles),
            grid=grid,
            throughput_grid=stack("throughput"),
            draw_grid=stack("draw"),
            p50_watts=powers("power_p50_watts"),
            p95_watts=powers("power_p95_watts"),
            default_limit_watts=scalars("default_limit_watts"),
            min_limit_watts=scalars("min_limit_watts"),
            knee_watts=scalars("knee_watts"),
            idle_watts=scalars("idle_watts"),
        )

    def index_of(self, models: Sequence[str]) -> Integers:
        """Positions of model names on the first axis, shape (n,)."""
        position = {name: i for i, name in enumerate(self.models)}
        unknown = [name for name in models if name not in position]
        if unknown:
            raise InputError("models", f"names out of {self.models}", unknown[0])
        return np.array([position[name] for name in models], dtype=np.intp)


def class_index(names: Sequence[str]) -> Integers:
    """Positions of kernel class names in ``KERNEL_CLASSES``, shape (n,)."""
    unknown = [name for name in names if name not in KERNEL_CLASSES]
    if unknown:
        raise InputError("kernelClass", f"one of {KERNEL_CLASSES}", unknown[0])
    return np.array([KERNEL_CLASSES.index(name) for name in names], dtype=np.intp)


def throughput(table: ProfileTable, model: Integers, kernel: Integers, cap_watts: Floats) -> Floats:
    """Throughput relative to uncapped, in (0, 1], never falling as the cap rises.

    Args:
        table: The profiles.
        model: Position of each GPU's type, shape (n,).
        kernel: Position of each GPU's kernel class, shape (n,).
        cap_watts: Power limit of each GPU, shape (n,).

    Returns:
        Shape (n,).
    """
    fraction = cap_watts / table.default_limit_watts[model]
    return _interpolate(table.grid, table.throughput_grid, model, kernel, fraction)


def power(
    table: ProfileTable,
    model: Integers,
    kernel: Integers,
    cap_watts: Floats,
    *,
    high: bool = False,
) -> Floats:
    """Board draw in watts under a cap.

    Args:
        table: The profiles.
        model: Position of each GPU's type, shape (n,).
        kernel: Position of each GPU's kernel class, shape (n,).
        cap_watts: Power limit of each GPU, shape (n,).
        high: The 95th percentile instead of the median.

    Returns:
        Shape (n,). It can exceed a cap near the minimum limit, as real boards do.
    """
    p50 = table.p50_watts[model, kernel]
    fraction = cap_watts / table.default_limit_watts[model]
    drawn = p50 * _interpolate(table.grid, table.draw_grid, model, kernel, fraction)
    if high:
        p95 = table.p95_watts[model, kernel]
        # The curve is one of cap over uncapped draw; a hotter kernel reads it at a lower fraction.
        hotter = _interpolate(table.grid, table.draw_grid, model, kernel, fraction * (p50 / p95))
        drawn = np.maximum(drawn, p95 * hotter)
    return np.maximum(drawn, np.minimum(table.idle_watts[model], p50))


def _interpolate(
    grid: Floats, values: Floats, model: Integers, kernel: Integers, fraction: Floats
) -> Floats:
    """Linear interpolation on an even grid, held at its ends; shape (n,)."""
    step = grid[1] - grid[0]
    place = np.clip((fraction - grid[0]) / step, 0.0, len(grid) - 1.0)
    low = np.minimum(place.astype(np.intp), len(grid) - 2)
    weight = place - low
    result: Floats = (1 - weight) * values[model, kernel, low] + weight * values[
        model, kernel, low + 1
    ]
    return result
