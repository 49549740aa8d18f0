"""How much longer a kernel takes at a lower clock of the multiprocessors.

Operations wait for the clock, memory does not: with the operations' time over the clock share in
the roofline's smooth maximum, a kernel far below the ridge keeps its speed, one above it loses
in proportion. A launch takes what it takes. No clock sweep of a data-centre GPU is published under
a licence that permits use, so the response is assumed from the roofline's own constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.kernels import Attention, Collective, DecoderStep, Gemm, Kernel
from capacity.model.roofline import SHARPNESS, TYPICAL_LOGS
from capacity.roofs import Roofs

Floats = npt.NDArray[np.float64]

_LAUNCH_SECONDS, _COMPUTE_EFFICIENCY, _BANDWIDTH_EFFICIENCY = np.exp(TYPICAL_LOGS).tolist()

ATTENTION_EFFICIENCY: Final = 0.55
"""Of the roof that prefill attention reaches (own H200 rows: 0.45 to 0.65); softmax takes part of
the multiprocessors' time."""


def roof_seconds(kernels: Sequence[Kernel], roofs: Roofs) -> tuple[Floats, Floats]:
    """Attainable time of operations and of bytes, each of shape (n_kernels,)."""
    compute = np.array([kernel.flops / _attainable(kernel, roofs) for kernel in kernels])
    moved = np.array([kernel.bytes_moved for kernel in kernels])
    return compute, moved / (roofs.bytes_per_second * _BANDWIDTH_EFFICIENCY)


def clock_stretch(kernels: Sequence[Kernel], clock_share: float, roofs: Roofs) -> Floats:
    """Time at ``clock_share`` of the sustained clock over time at the sustained clock, (n,)."""
    compute, memory = roof_seconds(kernels, roofs)
    return np.asarray(
        (_LAUNCH_SECONDS + _smooth(compute / clock_share, memory))
        / (_LAUNCH_SECONDS + _smooth(compute, memory))
    )


def is_compute_bound(kernels: Sequence[Kernel], weights: Floats, roofs: Roofs) -> bool:
    """Whether operations take longer than bytes over all kernels, each counted by its weight."""
    compute, memory = roof_seconds(kernels, roofs)
    return float(compute @ weights) > float(memory @ weights)


def _attainable(kernel: Kernel, roofs: Roofs) -> float:
    if isinstance(kernel, Attention):
        return roofs.peak_flops["bf16"] * ATTENTION_EFFICIENCY
    if isinstance(kernel, Gemm | DecoderStep):
        peak = roofs.flops_per_second(kernel.number_format) or roofs.peak_flops["bf16"]
        return peak * float(_COMPUTE_EFFICIENCY)
    assert not isinstance(kernel, Collective), "collectives are traffic"
    return roofs.peak_flops["bf16"]


def _smooth(a: Floats, b: Floats) -> Floats:
    return np.asarray((a**SHARPNESS + b**SHARPNESS) ** (1 / SHARPNESS))
