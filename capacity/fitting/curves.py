"""Cap → throughput and cap → draw, fitted from the power-limit sweeps.

Written as functions of x = cap / uncapped draw, the sweeps of four GPU types from three
architectures fall on one line above x = 0.55 (median throughput 0.83-0.85 at x = 0.70); that is
why a type without a sweep may borrow the line, and why its error is measured by leaving each
swept type out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from capacity.fitting.reference_files import number, read_csv

Floats = NDArray[np.float64]

KNOTS: Final[Floats] = np.round(np.arange(0.35, 1.3001, 0.05), 2)
"""x = cap / uncapped draw at which curves are kept; below the first they fall to the origin."""

BINDING: Final = 1.05
"""Caps above this multiple of the uncapped draw do not bind and are left out of the errors."""

BANDWIDTH: Final = 0.035
"""Standard deviation of the smoothing window in x; the sweeps step by 0.1 in x."""

MIN_DRAW_SHARE: Final = 0.4
"""Jobs that draw less than this share of the limit are idle-bound: no cap of the sweep binds."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One job at one power limit.

    Attributes:
        gpu: GPU type as the file names it.
        job: Data set and network.
        limit_watts: The power limit.
        max_limit_watts: The highest limit of the sweep.
        uncapped_watts: Mean draw at that highest limit.
        throughput: Relative to the highest limit.
        draw: Mean draw relative to ``uncapped_watts``.
        batch_size: Of the job; 1 where the file has none.
    """

    gpu: str
    job: str
    limit_watts: float
    max_limit_watts: float
    uncapped_watts: float
    throughput: float
    draw: float
    batch_size: float = 1.0

    @property
    def x(self) -> float:
        """Cap over uncapped draw."""
        return self.limit_watts / self.uncapped_watts

    @property
    def share(self) -> float:
        """Uncapped draw over the highest limit."""
        return self.uncapped_watts / self.max_limit_watts


@dataclass(frozen=True, slots=True)
class Curve:
    """Throughput and draw at ``KNOTS``, both rising and ending at 1.

    Attributes:
        throughput: Shape (knots,).
        draw: Shape (knots,).
        samples: Sweep rows behind it.
    """

    throughput: Floats
    draw: Floats
    samples: int

    def at(self, x: Floats) -> tuple[Floats, Floats]:
        """Throughput and draw at cap / uncapped draw; below the sweeps in proportion to x."""
        below = np.minimum(1.0, x / KNOTS[0])
        return (
            np.interp(x, KNOTS, self.throughput) * below,
            np.interp(x, KNOTS, self.draw) * below,
        )


def zeus_points(file: Path) -> list[SweepPoint]:
    """Every job of the Zeus sweeps, relative to its own run at the highest limit."""
    columns = ("gpu", "dataset", "network", "batch_size", "optimizer", "power_limit_w",
               "time_per_epoch_s", "average_power_w")  # fmt: skip
    runs: dict[tuple[str, ...], dict[float, tuple[float, float]]] = {}
    for row in read_csv(file, columns):
        key = tuple(row[c] for c in columns[:5])
        limit = number(row, "power_limit_w", file.name)
        runs.setdefault(key, {})[limit] = (
            number(row, "time_per_epoch_s", file.name),
            number(row, "average_power_w", file.name),
        )
    highest: dict[str, float] = {}
    for key, run in runs.items():
        highest[key[0]] = max(highest.get(key[0], 0.0), *run)
    points = []
    for key, run in sorted(runs.items()):
        if highest[key[0]] not in run:
            continue
        seconds, watts = run[highest[key[0]]]
        for limit, (t, w) in sorted(run.items()):
            points.append(
                SweepPoint(
                    key[0],
                    f"{key[1]}/{key[2]}",
                    limit,
                    highest[key[0]],
                    watts,
                    seconds / t,
                    w / watts,
                    float(key[3]),
                )
            )
    return points


def mmbt_points(file: Path) -> list[SweepPoint]:
    """The vLLM sweep of an RTX PRO 6000, kept out of every fit as a check on a newer GPU."""
    columns = ("gpu", "workload", "power_limit_w", "rel_throughput", "power_w")
    rows = read_csv(file, columns)
    top = max(number(row, "power_limit_w", file.name) for row in rows)
    uncapped = {
        row["workload"]: number(row, "power_w", file.name)
        for row in rows
        if number(row, "power_limit_w", file.name) == top
    }
    return [
        SweepPoint(
            row["gpu"], row["workload"], number(row, "power_limit_w", file.name), top,
            uncapped[row["workload"]], number(row, "rel_throughput", file.name),
            number(row, "power_w", file.name) / uncapped[row["workload"]],
        )
        for row in rows
    ]  # fmt: skip


def fit_curve(points: Iterable[SweepPoint]) -> Curve:
    """Smoothed mean of each GPU type at each knot, median over types, made monotone."""
    usable = [p for p in points if p.share >= MIN_DRAW_SHARE and p.x >= KNOTS[0] - 0.05]
    gpus = sorted({p.gpu for p in usable})
    arrays = {
        g: np.array([(p.x, p.throughput, p.draw) for p in usable if p.gpu == g]) for g in gpus
    }
    fitted: list[Floats] = []
    for column in (1, 2):
        per_gpu = np.array([_smoothed(arrays[g][:, 0], arrays[g][:, column]) for g in gpus])
        known = np.any(np.isfinite(per_gpu), axis=0)
        median = np.nanmedian(per_gpu[:, known], axis=0)
        line = np.interp(KNOTS, KNOTS[known], median)
        lowest = KNOTS[known][0]
        line = np.where(lowest > KNOTS, line * KNOTS / lowest, line)
        line[-1] = 1.0
        fitted.append(np.clip(monotone(line), 0.02, 1.0))
    return Curve(fitted[0], fitted[1], len(usable))


def _smoothed(x: Floats, y: Floats) -> Floats:
    """The mean of y around each knot, Gaussian weights; NaN where the sweep has too little."""
    weights = np.exp(-0.5 * ((x[None, :] - KNOTS[:, None]) / BANDWIDTH) ** 2)
    near = np.sum(np.abs(x[None, :] - KNOTS[:, None]) <= 2 * BANDWIDTH, axis=1)
    mean = (weights @ y) / np.maximum(np.sum(weights, axis=1), 1e-12)
    result: Floats = np.where(near >= 3, mean, np.nan)
    return result


def monotone(values: Floats) -> Floats:
    """The nearest rising sequence in least squares (pool adjacent violators)."""
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([float(value), 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, weight = blocks.pop()
            before = blocks[-1]
            before[0] = (before[0] * before[1] + mean * weight) / (before[1] + weight)
            before[1] += weight
    return np.concatenate([np.full(round(weight), mean) for mean, weight in blocks])


def curve_error(curve: Curve, points: Sequence[SweepPoint], *, above_share: float = 0.0) -> float:
    """Mean absolute relative error of throughput over the points whose cap binds.

    Args:
        curve: The prediction.
        points: Held-out measurements.
        above_share: Only caps of at least this share of the highest limit.
    """
    binding = [
        p
        for p in points
        if p.share >= MIN_DRAW_SHARE
        and p.x < BINDING
        and p.limit_watts / p.max_limit_watts >= above_share
    ]
    measured = np.array([p.throughput for p in binding])
    predicted, _ = curve.at(np.array([p.x for p in binding]))
    return float(np.mean(np.abs(predicted / measured - 1)))


def leave_one_gpu_out(
    points: Sequence[SweepPoint], *, above_share: float = 0.0
) -> dict[str, float]:
    """Error on each GPU type of the curve fitted from all the others."""
    errors = {}
    for gpu in sorted({p.gpu for p in points}):
        curve = fit_curve(p for p in points if p.gpu != gpu)
        errors[gpu] = curve_error(
            curve, [p for p in points if p.gpu == gpu], above_share=above_share
        )
    return errors


def leave_one_job_out(points: Sequence[SweepPoint]) -> float:
    """Error on each network of one GPU type of the curve fitted from its other networks."""
    errors, weights = [], []
    for job in sorted({p.job for p in points}):
        held_out = [p for p in points if p.job == job]
        binding = sum(p.share >= MIN_DRAW_SHARE and p.x < BINDING for p in held_out)
        if binding:
            errors.append(curve_error(fit_curve(p for p in points if p.job != job), held_out))
            weights.append(binding)
    return float(np.average(errors, weights=weights))
