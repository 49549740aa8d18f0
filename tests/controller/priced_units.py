"""What the units of an H200 would show under catalogue entries, by the capacity model alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.priced_gpu import priced_gpu
from capacity.catalogue.workload_kernels import PhaseWork, phase_work
from capacity.catalogue.workload_model import Conditions, price_cycle
from capacity.catalogue.workload_schema import Workload
from capacity.kernels import Attention, DecoderStep, Gemm
from controller.seen_work import Units

GPU = priced_gpu("H200-SXM")
SM_FILLED = 0.95


@dataclass(frozen=True)
class Shown:
    """Units over one cycle, and how long the cycle takes at shares of the clock."""

    units: Units
    work: Workload

    def speed(self, clock_share: float) -> float:
        full = price_cycle(self.work, GPU).seconds
        return full / price_cycle(self.work, GPU, Conditions(clock_share=clock_share)).seconds


def shown(entry: str) -> Shown:
    """Bytes, operations and busy time of the entry's kernels over the time of its cycle."""
    work = shipped_catalogue()[entry]
    cycle = price_cycle(work, GPU)
    engine = flops = moved = 0.0
    for phase, price in zip(work.phases, cycle.phases, strict=True):
        parts = phase_work(work, phase, GPU.roofs)
        device = _device_seconds(parts) * phase.repeats
        gaps = phase.launch_mode == "eager"
        engine += min(price.busy_seconds, device) if gaps else price.busy_seconds
        for part in parts.kernels:
            moved += part.kernel.bytes_moved * part.count * phase.repeats
            if isinstance(part.kernel, Gemm | Attention | DecoderStep):
                flops += part.kernel.flops * part.count * phase.repeats
    share = engine / cycle.seconds
    units = Units(
        engine=min(1.0, share),
        sm=min(1.0, SM_FILLED * share),
        tensor=min(1.0, flops / cycle.seconds / GPU.roofs.peak_flops["bf16"]),
        dram=min(1.0, moved / cycle.seconds / GPU.roofs.bytes_per_second),
    )
    return Shown(units, work)


def _device_seconds(work: PhaseWork) -> float:
    sequence = work.sequence_cycles / (GPU.roofs.max_clock_mhz * 1e6)
    if not work.kernels:
        return sequence
    times = GPU.times.seconds([part.kernel for part in work.kernels])
    counts = np.array([part.count / part.speed for part in work.kernels])
    return sequence + float(times @ counts)
