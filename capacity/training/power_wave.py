"""The power wave of a training step: levels of its phases, mean, peak and dip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capacity.model.kernel_samples import Floats, Indices
from capacity.training.step_time import StepTimes
from capacity.training.step_work import TrainingGpu

__all__ = ["PowerPhase", "StepPower", "mean_draw_watts", "power_of"]


@dataclass(frozen=True, slots=True)
class PowerPhase:
    """A stretch of the step at one level: mean draw of one GPU."""

    name: str
    seconds: float
    draw_watts: float


@dataclass(frozen=True, slots=True)
class StepPower:
    """One GPU's mean over all ranks, phase by phase; the wave repeats every ``period_seconds``."""

    phases: tuple[PowerPhase, ...]

    @property
    def period_seconds(self) -> float:
        """Of the wave: one step."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def mean_watts(self) -> float:
        """Over the step."""
        return sum(p.seconds * p.draw_watts for p in self.phases) / self.period_seconds

    @property
    def peak_watts(self) -> float:
        """Of the highest phase."""
        return max(phase.draw_watts for phase in self.phases)

    @property
    def dip_watts(self) -> float:
        """Of the lowest phase."""
        return min(phase.draw_watts for phase in self.phases)


def mean_draw_watts(
    gpu: TrainingGpu, times: StepTimes, draw_watts: Floats, away: Indices
) -> Floats:
    """Mean draw of a GPU over the step, all ranks together, shape (n,).

    Args:
        draw_watts: While layers run, shape (n,).
        away: Above 0 where the update runs on the host and the GPU waits, shape (n,).
    """
    waits, works = _pipeline_parts(times)
    update_watts = np.where(away > 0, gpu.wait_watts, gpu.update_watts)
    joules = (
        works[0] * draw_watts
        + works[1] * gpu.exchange_watts
        + waits * gpu.wait_watts
        + times.gradient * gpu.exchange_watts
        + times.update * update_watts
    )
    mean: Floats = joules / times.total
    return mean


def power_of(
    gpu: TrainingGpu, times: StepTimes, draw_watts: Floats, index: int = 0, away: bool = False
) -> StepPower:
    """The wave of one layout.

    Micro-batches follow each other faster than boards regulate, so the pipeline is one level.

    Args:
        away: The update runs on the host: the GPU waits.
    """
    waits, works = _pipeline_parts(times)
    pipeline = float(times.pipeline[index])
    level = (
        float(works[0][index]) * float(draw_watts[index])
        + float(works[1][index]) * gpu.exchange_watts
        + float(waits[index]) * gpu.wait_watts
    ) / pipeline
    update = gpu.wait_watts if away else gpu.update_watts
    phases = (
        PowerPhase("pipeline", pipeline, level),
        PowerPhase("gradients", float(times.gradient[index]), gpu.exchange_watts),
        PowerPhase("update", float(times.update[index]), update),
    )
    return StepPower(tuple(phase for phase in phases if phase.seconds > 0))


def _pipeline_parts(times: StepTimes) -> tuple[Floats, tuple[Floats, Floats]]:
    """Seconds that a mean rank waits, computes and exchanges before the gradient sums end."""
    busy, exchange = times.stage_busy.mean(axis=1), times.stage_exchange.mean(axis=1)
    return np.maximum(0.0, times.pipeline - busy - exchange), (busy, exchange)
