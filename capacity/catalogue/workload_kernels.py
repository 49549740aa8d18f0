"""A phase's kernels as the capacity model knows them, with the entry's parameters applied.

Stored widths and sparsity become an *equivalent product*: the product of 16-bit numbers that has
the same operations and the same weight bytes. Four-bit weights of (m, n, k) move like those of
(4 m, n, k / 4), so time, draw and the batch from which more tokens cost more come out of the model
that was fitted on 16-bit products (MARLIN, arXiv 2408.11743, shows that kernels come close).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from capacity.catalogue.workload_schema import (
    AttentionPart,
    DecoderPart,
    GemmPart,
    KernelPart,
    LaunchesPart,
    Parameters,
    SequencePart,
    StreamPart,
    Workload,
    WorkPhase,
)
from capacity.kernels import (
    FORMAT_BYTES,
    Attention,
    Collective,
    Elementwise,
    Gemm,
    Kernel,
    LaunchChain,
    MemoryStream,
)
from capacity.language_models import LanguageModel, find_language_model
from capacity.roofs import Roofs

SPARSE_ARCHITECTURES: Final = frozenset(
    {"Ampere", "Ada", "Hopper", "Blackwell", "Blackwell Ultra", "CDNA3"}
)
"""With matrix units that skip two of four weights."""

FUSED_PASSES: Final = 0.4
"""Share of element-wise bytes that stays once kernels are fused: what Liger's published kernels
(arXiv 2410.10989) still read and write once; assumed for others."""

BACKWARD_ATTENTION: Final = 2.5
"""Operations of the backward pass over the forward's: five products for two (FlashAttention-2,
arXiv 2307.08691)."""


@dataclass(frozen=True, slots=True)
class KernelWork:
    """One kernel of a phase.

    Attributes:
        count: Runs in one repeat of the phase; a share where a pipeline stage has some layers.
        speed: Relative to the library that the GPU's rows were measured with.
        share: Of the multiprocessors that it runs on.
    """

    kernel: Kernel
    count: float
    speed: float = 1.0
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class PhaseWork:
    """One repeat of a phase on one GPU.

    Attributes:
        sequence_cycles: Dependent cycles: nothing but the clock shortens them.
        link_bytes: What its collectives send over the links of the host.
    """

    kernels: tuple[KernelWork, ...]
    sequence_cycles: float
    link_bytes: float


def phase_work(workload: Workload, phase: WorkPhase, roofs: Roofs) -> PhaseWork:
    """What one repeat of the phase asks of one GPU of this type.

    Raises:
        InputError: an unknown language model, or sizes that no kernel can have.
    """
    model = find_language_model(workload.model) if workload.model else None
    kernels: list[KernelWork] = []
    cycles = links = 0.0
    for part in phase.kernels:
        if isinstance(part, SequencePart):
            cycles += part.steps * part.cycles * part.count
            continue
        for work in _expanded(part, model):
            if isinstance(work.kernel, Collective):
                links += work.kernel.bytes_moved * work.count
            else:
                kernels.extend(_adapted(work, part, workload, model, roofs))
    return PhaseWork(tuple(kernels), cycles, links)


def imbalance(model: LanguageModel | None, skew: float, gpus: int) -> float:
    """Load of the busiest GPU over the mean, experts dealt out in the order of their load."""
    if model is None or model.experts is None or skew == 0 or gpus == 1:
        return 1.0
    loads = [math.pow(rank, -skew) for rank in range(1, model.experts.count + 1)]
    return max(sum(loads[first::gpus]) for first in range(gpus)) * gpus / sum(loads)


def _expanded(part: KernelPart, model: LanguageModel | None) -> Iterator[KernelWork]:
    if isinstance(part, GemmPart):
        yield KernelWork(Gemm(part.m, part.n, part.k, part.number_format), part.count)
    elif isinstance(part, AttentionPart):
        shape = part.model_dump(exclude={"kernel", "count"})
        yield KernelWork(Attention(**shape), part.count)
    elif isinstance(part, StreamPart):
        stream = MemoryStream(part.pattern, round(part.buffer_bytes))
        yield KernelWork(stream, part.count, part.efficiency)
    elif isinstance(part, LaunchesPart):
        yield KernelWork(LaunchChain(1, "graph"), part.count)
    elif isinstance(part, DecoderPart) and model is not None:
        yield from _decoder(part, model)


def _decoder(part: DecoderPart, model: LanguageModel) -> Iterator[KernelWork]:
    mix = model.step_mix(
        part.phase, part.batch, part.query_tokens, part.kv_tokens,
        tensor_parallel=part.tensor_parallel, number_format=part.number_format,
    )  # fmt: skip
    for kernel, count in mix:
        passes = 1.0 + part.recompute
        if part.training:
            passes += BACKWARD_ATTENTION if isinstance(kernel, Attention) else 2.0
        yield KernelWork(kernel, count * part.layer_share * passes * part.count)


def _adapted(
    work: KernelWork,
    part: KernelPart,
    workload: Workload,
    model: LanguageModel | None,
    roofs: Roofs,
) -> Iterator[KernelWork]:
    parameters, kernel = workload.parameters, work.kernel
    speed = work.speed * _library_speed(parameters, kernel)
    share = 1.0
    if parameters.multiprocessor_share < 1:
        decodes = getattr(part, "phase", "prefill") == "decode"
        own = parameters.multiprocessor_share
        share = 1 - own if decodes else own
    work = replace(work, speed=speed, share=share)
    if isinstance(kernel, Elementwise | MemoryStream):
        fused = parameters.fusion
        yield replace(work, count=work.count * (FUSED_PASSES if fused else 1.0))
    elif isinstance(kernel, Gemm) and getattr(part, "weights", True):
        if model is not None and _is_expert(kernel, model):
            skew = imbalance(model, parameters.expert_skew, workload.gpus)
            work = replace(work, speed=speed / skew)
        yield from _weighed(work, kernel, parameters, roofs)
    else:
        yield work


def _weighed(
    work: KernelWork, gemm: Gemm, parameters: Parameters, roofs: Roofs
) -> Iterator[KernelWork]:
    """The product with its stored width and sparsity."""
    if parameters.sparsity == "butterfly":
        passes = max(1, math.ceil(math.log2(max(gemm.n, gemm.k))))
        size = FORMAT_BYTES[gemm.number_format] * gemm.m * max(gemm.n, gemm.k)
        yield replace(work, kernel=MemoryStream("copy", size), count=work.count * passes)
        return
    if parameters.sparsity == "2:4" and roofs.architecture in SPARSE_ARCHITECTURES:
        gemm = replace(gemm, k=max(1, gemm.k // 2))
    narrower = 8 * FORMAT_BYTES[gemm.number_format] / parameters.weight_bits
    if narrower > 1:
        rows, depth = round(gemm.m * narrower), max(1, round(gemm.k / narrower))
        gemm = replace(gemm, m=rows, k=depth)
    yield replace(work, kernel=gemm)


def _library_speed(parameters: Parameters, kernel: Kernel) -> float:
    if parameters.library is None:
        return 1.0
    speeds: Mapping[str, float] = parameters.kernel_efficiency[parameters.library]
    return speeds.get(kernel.kernel_class.replace("_", "-"), 1.0)


def _is_expert(gemm: Gemm, model: LanguageModel) -> bool:
    if model.experts is None:
        return False
    width = model.experts.intermediate
    return gemm.n % width == 0 or gemm.k % width == 0
