"""Time and draw of a mix of kernels on one GPU under one limit, from what single kernels take.

A step is the sum of its kernels: seconds add up, and so do joules, so the mean draw is the kernels'
draws weighted by their time. There are no classes such as prefill or decode: batch, context and
widths enter through the kernels alone. The board regulates over about a second, longer than a step:
if the step's mean without a limit lies above the limit, one depth of throttling is shared by all of
its kernels; a hot kernel inside a cool step is not slowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from capacity.kernels import DecoderStep, Kernel, LaunchMode
from capacity.model.launch_costs import LaunchCosts
from capacity.model.regulator import Floats, Regulator, memory_shares
from capacity.roofs import Roofs
from wattpack.errors import InputError
from wattpack.units import require_number

KernelMix = Sequence[tuple[Kernel, int]]
"""Kernels with how often each runs in one step."""


class KernelTimes(Protocol):
    """Predicted times at full clock."""

    def seconds(self, kernels: Sequence[Kernel]) -> Floats:
        """One run of each kernel inside a graph, shape (n_kernels,)."""
        ...


class KernelDraws(Protocol):
    """Predicted draws without a limit."""

    def uncapped_watts(self, kernels: Sequence[Kernel]) -> Floats:
        """Mean draw of the board while nothing but each kernel runs, shape (n_kernels,)."""
        ...


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """One step, back to back with itself.

    Attributes:
        seconds: Under the limit.
        uncapped_seconds: At full clock.
        mean_watts: Under the limit.
        uncapped_watts: What the step's mean would be without a limit.
        p95_watts: Not exceeded by 95 % of 100 ms samples, with the model's own error counted in.
        kernel_seconds: All runs of each kernel of the mix at full clock, shape (n_kernels,).
        kernel_watts: Each kernel's own draw without a limit, shape (n_kernels,).
    """

    seconds: float
    uncapped_seconds: float
    mean_watts: float
    uncapped_watts: float
    p95_watts: float
    kernel_seconds: Floats
    kernel_watts: Floats

    @property
    def joules(self) -> float:
        """Energy of one step."""
        return self.seconds * self.mean_watts


@dataclass(frozen=True, slots=True)
class StepModel:
    """One GPU.

    Attributes:
        gap_watts: Drawn between kernels where the host cannot launch them fast enough.
        p95_ratio: Instantaneous over predicted draw that 95 % of held-out samples keep below.
    """

    times: KernelTimes
    draws: KernelDraws
    regulator: Regulator
    launches: LaunchCosts
    roofs: Roofs
    gap_watts: float
    p95_ratio: float

    def predict(
        self, mix: KernelMix, limit_watts: float, mode: LaunchMode = "graph"
    ) -> StepPrediction:
        """The step under a limit.

        Raises:
            InputError: an empty mix, a count below 1, or a limit that is not above 0.
        """
        kernels, counts = _parts(mix)
        require_number("limit_watts", limit_watts, exclusive_minimum=0)
        watts = self.draws.uncapped_watts(kernels)
        single = self.times.seconds(kernels)
        busy = single * counts
        free_seconds = self.launches.step_seconds(float(busy.sum()), int(counts.sum()), mode)
        gap_joules = (free_seconds - float(busy.sum())) * self.gap_watts
        uncapped = (float(busy @ watts) + gap_joules) / free_seconds
        depth = float(self.regulator.depth(uncapped, limit_watts))
        sensitivity = self.regulator.clock_sensitivity(memory_shares(kernels, single, self.roofs))
        slowed = float(busy @ (1 + depth * sensitivity))
        seconds = self.launches.step_seconds(slowed, int(counts.sum()), mode)
        held = self.regulator.held_share * limit_watts
        return StepPrediction(
            seconds=seconds,
            uncapped_seconds=free_seconds,
            mean_watts=min(uncapped, held),
            uncapped_watts=uncapped,
            p95_watts=min(self.p95_ratio * uncapped, self.regulator.held_p95_share * limit_watts),
            kernel_seconds=busy,
            kernel_watts=watts,
        )


def mix_of(kernel: Kernel) -> KernelMix:
    """A step's kernels; a single kernel is a mix of one."""
    return kernel.kernel_mix() if isinstance(kernel, DecoderStep) else ((kernel, 1),)


def _parts(mix: KernelMix) -> tuple[list[Kernel], Floats]:
    if not mix:
        raise InputError("mix", "at least one kernel", 0)
    for kernel, count in mix:
        require_number(f"mix[{kernel.kernel_class}]", count, minimum=1)
    return [kernel for kernel, _ in mix], np.array([count for _, count in mix], dtype=np.float64)
