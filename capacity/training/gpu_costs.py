"""GPUs as training sees them: from a board's measured kernels, or from what is known of a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.gpu_profile import GpuProfile, KernelClass
from capacity.kernels import Elementwise, Kernel, MemoryStream
from capacity.model.gpu_model import GpuModel
from capacity.model.kernel_samples import Floats, TimeSamples
from capacity.model.regulator import memory_shares
from capacity.model.time_model import TimeModel, fit_time_model
from capacity.roofs import Roofs
from capacity.training.layer_costs import LayerCosts, layer_kernels, output_kernel
from capacity.training.step_work import UPDATE_MEMORY_SHARE, HostResources, TrainingGpu
from capacity.training.training_job import TrainingJob
from wattpack.units import require_number

__all__ = ["measured_gpu", "profiled_gpu"]

EXCHANGE_SHARE: Final = 0.3
"""Of the way from idle to the limit that a board draws while it only moves data; assumed."""

UPDATE_STREAM: Final = MemoryStream("triad", 2**30)
"""What the optimiser's pass looks like to the memory."""

UPDATE_SHARE: Final = 0.6
"""Draw of that pass relative to the limit where none was measured; assumed (measured on H200 and
H100: 0.55 to 0.75)."""

WAIT_OVER_CONTEXT: Final = 1.2
"""A board that spins in a collective over one with an idle context; assumed."""


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Layer costs of a measured board under a limit."""

    model: GpuModel
    limit_watts: float

    def layer(
        self, job: TrainingJob, micro_batch: int, tensor: int, context: int, expert: int = 1
    ) -> LayerCosts:
        """As ``StepModel.predict``: the mean draw of the layer decides how deep it is throttled."""
        kernels, counts = layer_kernels(job, micro_batch, tensor, context, expert)
        single = self.model.seconds(kernels)
        watts = self.model.uncapped_watts(kernels)
        times = counts * single
        uncapped = float(times @ watts / times.sum())
        output = output_kernel(job, micro_batch, tensor, context)
        output_seconds = self.model.seconds([output])
        regulator, roofs = self.model.steps.regulator, self.model.steps.roofs
        depth = float(regulator.depth(uncapped, self.limit_watts))
        slow = 1 + depth * regulator.clock_sensitivity(memory_shares(kernels, single, roofs))
        late = regulator.clock_sensitivity(memory_shares([output], output_seconds, roofs))
        return LayerCosts.of(
            kernels,
            times * slow,
            float((output_seconds * (1 + depth * late))[0]),
            min(uncapped, regulator.held_share * self.limit_watts),
        )


@dataclass(frozen=True, slots=True)
class ProfileCosts:
    """Layer costs of a type without rows: other types' residuals, the profile's curve."""

    times: TimeModel
    roofs: Roofs
    work: KernelClass
    limit_share: float

    def layer(
        self, job: TrainingJob, micro_batch: int, tensor: int, context: int, expert: int = 1
    ) -> LayerCosts:
        """The cap slows all kernels alike."""
        kernels, counts = layer_kernels(job, micro_batch, tensor, context, expert)
        output = output_kernel(job, micro_batch, tensor, context)
        speed = float(np.interp(self.limit_share, self.work.cap_fractions, self.work.throughput))
        draw = float(np.interp(self.limit_share, self.work.cap_fractions, self.work.draw))
        return LayerCosts.of(
            kernels,
            counts * self._seconds(kernels) / speed,
            float(self._seconds([output])[0]) / speed,
            draw * self.work.power_p50_watts,
        )

    def _seconds(self, kernels: list[Kernel]) -> Floats:
        passes = np.array([isinstance(kernel, Elementwise) for kernel in kernels])
        made = np.array([kernel.bytes_moved for kernel in kernels])
        made = made / (UPDATE_MEMORY_SHARE * self.roofs.bytes_per_second)
        rest = [k for k, is_pass in zip(kernels, passes, strict=True) if not is_pass]
        made[~passes] = self.times.seconds(rest)
        return made


def measured_gpu(
    model: GpuModel,
    profile: GpuProfile,
    limit_watts: float | None = None,
    host: HostResources | None = None,
) -> TrainingGpu:
    """The board that the model was fitted on, under a limit (its own if None).

    Raises:
        InputError: a limit that the profile's type cannot be set to.
    """
    limit = _limit(profile, limit_watts)
    update = float(model.uncapped_watts([UPDATE_STREAM])[0])
    return _gpu(profile, model.steps.roofs, limit, update, MeasuredCosts(model, limit), host)


def profiled_gpu(
    profile: GpuProfile,
    roofs: Roofs,
    others: tuple[TimeSamples, ...],
    limit_watts: float | None = None,
    host: HostResources | None = None,
) -> TrainingGpu:
    """A type of which no rows are at hand.

    Raises:
        InputError: as ``measured_gpu``.
    """
    limit = _limit(profile, limit_watts)
    nothing = TimeSamples(roofs.model, (), np.array([]))
    costs = ProfileCosts(
        fit_time_model(nothing, roofs, others),
        roofs,
        profile.kernel_classes["training"],
        limit / profile.default_limit_watts,
    )
    return _gpu(profile, roofs, limit, UPDATE_SHARE * profile.default_limit_watts, costs, host)


def _limit(profile: GpuProfile, limit_watts: float | None) -> float:
    if limit_watts is None:
        return profile.default_limit_watts
    return require_number(
        "limit_watts",
        limit_watts,
        minimum=profile.min_limit_watts,
        maximum=profile.max_limit_watts,
        unit="W",
    )


def _gpu(
    profile: GpuProfile,
    roofs: Roofs,
    limit: float,
    update_watts: float,
    costs: MeasuredCosts | ProfileCosts,
    host: HostResources | None,
) -> TrainingGpu:
    exchange = profile.idle_watts + EXCHANGE_SHARE * (
        profile.default_limit_watts - profile.idle_watts
    )
    return TrainingGpu(
        model=profile.model,
        memory_bytes=roofs.memory_bytes,
        bytes_per_second=roofs.bytes_per_second,
        limit_watts=limit,
        idle_watts=profile.idle_watts,
        wait_watts=min(limit, WAIT_OVER_CONTEXT * profile.context_watts),
        exchange_watts=min(limit, exchange),
        update_watts=min(limit, update_watts),
        costs=costs,
        host=host or HostResources(),
    )
