"""What one layer and the output cost on one GPU.

ComputeCosts            the port
├── RooflineCosts       the datasheet and three constants
├── MeasuredCosts       the kernels of a measured GPU (``gpu_costs``)
└── ProfileCosts        a type known by other types' kernels and its profile (``gpu_costs``)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, Self

import numpy as np

from capacity.decoder_kernels import DecoderShare, TokenGroup
from capacity.kernels import Attention, Collective, Elementwise, Gemm, Kernel
from capacity.model.kernel_samples import Floats
from capacity.roofs import Roofs
from capacity.training.training_job import TrainingJob

__all__ = ["ComputeCosts", "LayerCosts", "RooflineCosts", "layer_kernels", "output_kernel"]

ATTENTION_BACKWARD: Final = 2.5
"""Of the forward pass: five products instead of two (Dao 2023, arXiv 2307.08691, section 3.1)."""


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """One micro-batch on one GPU under its limit, without communication.

    Attributes:
        forward_seconds: Of one layer; ``attention_seconds`` and ``light_seconds`` (norms,
            rotation, activation function) are parts of it.
        output_seconds: The output layer, forward.
        draw_watts: While layers run.
    """

    forward_seconds: float
    attention_seconds: float
    light_seconds: float
    output_seconds: float
    draw_watts: float

    @classmethod
    def of(
        cls, kernels: Sequence[Kernel], times: Floats, output_seconds: float, draw_watts: float
    ) -> Self:
        """The sums over a forward layer's kernels, ``times`` of shape (n_kernels,)."""
        is_attention = np.array([isinstance(k, Attention) for k in kernels])
        is_light = np.array([isinstance(k, Elementwise) for k in kernels])
        return cls(
            forward_seconds=float(times.sum()),
            attention_seconds=float(times[is_attention].sum()),
            light_seconds=float(times[is_light].sum()),
            output_seconds=output_seconds,
            draw_watts=draw_watts,
        )

    @property
    def backward_seconds(self) -> float:
        """Twice the products and passes, attention by its own ratio."""
        return (
            2 * (self.forward_seconds - self.attention_seconds)
            + ATTENTION_BACKWARD * self.attention_seconds
        )


class ComputeCosts(Protocol):
    """Where layer costs come from."""

    def layer(
        self, job: TrainingJob, micro_batch: int, tensor: int, context: int, expert: int = 1
    ) -> LayerCosts:
        """Costs of one GPU's share of a mean layer; the job's shape divides by these cuts."""
        ...


@dataclass(frozen=True, slots=True)
class RooflineCosts:
    """Prices from the datasheet and three constants.

    Attributes:
        product_share: Of the peak that a large matrix product attains.
        half_width: Width of a product at which half of that is attained.
        memory_share: Of the memory bandwidth that passes over memory attain.
        draw_watts: While layers run.
    """

    roofs: Roofs
    product_share: float
    half_width: float
    memory_share: float
    draw_watts: float

    def layer(
        self, job: TrainingJob, micro_batch: int, tensor: int, context: int, expert: int = 1
    ) -> LayerCosts:
        """Each kernel at its own roof."""
        kernels, counts = layer_kernels(job, micro_batch, tensor, context, expert)
        times = counts * np.array([self._seconds(kernel) for kernel in kernels])
        output = self._seconds(output_kernel(job, micro_batch, tensor, context))
        return LayerCosts.of(kernels, times, output, self.draw_watts)

    def _seconds(self, kernel: Kernel) -> float:
        moved = kernel.bytes_moved / (self.memory_share * self.roofs.bytes_per_second)
        if isinstance(kernel, Gemm):
            peak = self.product_share * self.roofs.flops_per_second(kernel.number_format)
            narrow = min(kernel.n, kernel.k)
            return max(moved, kernel.flops * (1 + self.half_width / narrow) / peak)
        if isinstance(kernel, Attention):
            peak = self.product_share * self.roofs.flops_per_second(kernel.number_format)
            return max(moved, kernel.flops / peak)
        return moved


def layer_kernels(
    job: TrainingJob, micro_batch: int, tensor: int, context: int, expert: int = 1
) -> tuple[list[Kernel], Floats]:
    """Kernels of a mean layer's forward pass with how often each runs, collectives left out."""
    tokens = job.sequence_tokens // context
    uneven = job.expert_imbalance if expert > 1 else 1.0
    part = DecoderShare(job.model, tensor, job.number_format, expert, uneven)
    mix = part.mix((TokenGroup("prefill", micro_batch, tokens, tokens),))
    kernels: list[Kernel] = []
    counts: list[float] = []
    for kernel, count in mix[:-1]:
        if isinstance(kernel, Collective):
            continue
        share = 1.0
        if isinstance(kernel, Attention):
            sequence = job.sequence_tokens
            kernel = replace(kernel, query_tokens=sequence, kv_tokens=sequence)
            share = 1.0 / context
        # With sequence parallelism each GPU of the tensor group norms its part of the tokens.
        if isinstance(kernel, Elementwise) and kernel.op == "norm":
            share = 1.0 / tensor
        kernels.append(kernel)
        counts.append(count * share / job.model.layers)
    return kernels, np.array(counts)


def output_kernel(job: TrainingJob, micro_batch: int, tensor: int, context: int) -> Gemm:
    """The output layer over all tokens of a micro-batch."""
    tokens = micro_batch * job.sequence_tokens // context
    width = -(-job.model.vocabulary // tensor)
    return Gemm(tokens, width, job.model.hidden, job.number_format)
