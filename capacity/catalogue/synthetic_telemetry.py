"""Telemetry that catalogue entries would show, for fitting the classifier: seeded.

Drawn at random: the load of a service (requests come and go), where the cycle is caught, the
board's gain, the meter's noise, how much of the memory is filled. The classifier is judged on
another generator (``benchmarks/workload_classes.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.catalogue.priced_gpu import PricedGpu
from capacity.catalogue.telemetry_features import Floats, Telemetry
from capacity.catalogue.workload_classifier import WorkClass
from capacity.catalogue.workload_kernels import phase_work
from capacity.catalogue.workload_memory import memory_use
from capacity.catalogue.workload_model import price_cycle
from capacity.catalogue.workload_schema import Workload

WINDOW_SECONDS: Final = 120
STEP_SECONDS: Final = 0.05
LIGHT_LOAD: Final = 0.5
"""Least share of the time that a service has requests to work on."""

IDLE_SHARE: Final = 0.17
"""Draw over limit of a board that waits with a context open (own H200: 114 W of 700)."""


@dataclass(frozen=True, slots=True)
class PhaseSignals:
    """What a board shows during one phase; shares.

    Attributes:
        memory_busy: Of the time, that memory is read or written.
        clock: Of the highest.
    """

    seconds: float
    draw: float
    busy: float
    memory_busy: float
    clock: float


@dataclass(frozen=True, slots=True)
class WorkSignals:
    """One entry on one GPU type."""

    phases: tuple[PhaseSignals, ...]
    memory_used: float
    interactive: bool


def work_class(workload: Workload, gpu: PricedGpu) -> WorkClass:
    """What the board waits for most of the time."""
    times: dict[WorkClass, float] = {}
    for phase in price_cycle(workload, gpu).phases:
        name: WorkClass = "outside"
        if phase.binds == "compute" or phase.binds == "bandwidth":
            name = phase.binds
        elif phase.binds in ("launch", "latency"):
            name = "starved"
        times[name] = times.get(name, 0.0) + phase.seconds
    return max(times, key=lambda name: times[name])


def work_signals(workload: Workload, gpu: PricedGpu) -> WorkSignals:
    """From the entry's price on the GPU type."""
    phases = []
    for phase, price in zip(workload.phases, price_cycle(workload, gpu).phases, strict=True):
        work = phase_work(workload, phase, gpu.roofs)
        moved = sum(part.kernel.bytes_moved * part.count for part in work.kernels) * phase.repeats
        rate = moved / (gpu.roofs.bytes_per_second * price.seconds)
        slowed = min(1.0, price.mean_watts / max(price.uncapped_watts, 1.0))
        phases.append(
            PhaseSignals(
                price.seconds, price.mean_watts / gpu.limit_watts,
                min(1.0, price.busy_seconds / price.seconds), min(1.0, rate), slowed**0.4,
            )
        )  # fmt: skip
    used = memory_use(workload).gpu_bytes / gpu.roofs.memory_bytes
    return WorkSignals(tuple(phases), min(used, 0.98), workload.kind == "Serving")


def draw_telemetry(
    signals: WorkSignals, limit_watts: float, generator: np.random.Generator
) -> Telemetry:
    """One window of one board."""
    load = generator.uniform(LIGHT_LOAD, 1.0) if signals.interactive else 1.0
    columns = _played(signals, load, generator)
    gain = 1 + 0.03 * generator.standard_normal()
    noise = 1 + 0.015 * generator.standard_normal(WINDOW_SECONDS)
    draw = np.minimum(columns[0] * gain, 1.0) * noise
    fill = np.clip(signals.memory_used * generator.uniform(0.7, 1.2), 0.01, 0.98)
    return Telemetry(
        draw * limit_watts,
        limit_watts,
        np.clip(columns[1] + 0.01 * generator.standard_normal(WINDOW_SECONDS), 0, 1),
        np.clip(columns[2] * generator.uniform(0.8, 1.1), 0, 1),
        np.full(WINDOW_SECONDS, fill),
        np.clip(columns[3], 0, 1),
    )


def _played(signals: WorkSignals, load: float, generator: np.random.Generator) -> Floats:
    """Draw, busy, memory busy and clock of each second, shape (4, WINDOW_SECONDS)."""
    lengths = np.array([phase.seconds for phase in signals.phases])
    values = np.array([
        (phase.draw, phase.busy, phase.memory_busy, phase.clock) for phase in signals.phases
    ]).T  # fmt: skip
    edges = np.concatenate([[0.0], np.cumsum(lengths)])
    period = float(edges[-1])
    areas = np.concatenate([np.zeros((4, 1)), np.cumsum(values * lengths, axis=1)], axis=1)
    steps = round(WINDOW_SECONDS / STEP_SECONDS)
    working = _working(steps, load, generator)
    at = generator.uniform(0, period) + np.cumsum(working) * STEP_SECONDS
    turns, rest = np.divmod(np.concatenate([at[:1] - working[:1] * STEP_SECONDS, at]), period)
    spent = np.array([
        turns * area[-1] + np.interp(rest, edges, area) for area in areas
    ])  # fmt: skip
    idle = np.array([[IDLE_SHARE], [0.0], [0.0], [1.0]]) * (~working)
    each = np.diff(spent, axis=1) / STEP_SECONDS + idle
    return np.asarray(each.reshape(4, WINDOW_SECONDS, -1).mean(axis=2))


def _working(steps: int, load: float, generator: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Busy and idle spells of exponential length, idle ones half a second on average."""
    if load >= 1:
        return np.ones(steps, dtype=np.bool_)
    idle_mean = 0.5 / STEP_SECONDS
    busy_mean = idle_mean * load / (1 - load)
    spells = np.maximum(1, generator.exponential([busy_mean, idle_mean], (steps, 2)).astype(int))
    pattern = np.repeat(np.tile([True, False], steps), spells.ravel())
    return np.asarray(pattern[:steps])
