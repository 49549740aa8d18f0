"""The parts of a decoder's iterations on a GPU with own rows, from the model of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.kernels import Attention, Collective, DecoderStep, Gemm, Kernel, NumberFormat
from capacity.language_models import LanguageModel
from capacity.model.gpu_model import GpuModel
from capacity.model.reference_kernels import reference_all_reduces
from capacity.model.regulator import memory_shares
from capacity.step_table import (
    BATCHES,
    CHUNKS,
    CONTEXTS,
    PROMPTS,
    SEQUENCES,
    TOKENS,
    Floats,
    StepPart,
)

EXCHANGE_SHARE: Final = 0.5
"""Draw over limit while GPUs exchange results; assumed as in training steps (POLCA, arXiv
2308.12908, dips to half of TDP): no row of a collective holds a draw."""

ACTIVATION_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class KernelPrices:
    """Prices lists of kernels on one GPU."""

    model: GpuModel

    def part(self, cells: Sequence[Sequence[tuple[Kernel, float]]], shape: tuple[int, ...]
             ) -> StepPart:  # fmt: skip
        """What each cell's kernels take and draw, in arrays of ``shape``."""
        kernels = [kernel for cell in cells for kernel, _ in cell]
        counts = np.array([count for cell in cells for _, count in cell])
        owner = np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])
        single = self.model.seconds(kernels)
        busy = single * counts
        regulator, roofs = self.model.steps.regulator, self.model.steps.roofs
        sensitivity = regulator.clock_sensitivity(memory_shares(kernels, single, roofs))

        def summed(values: Floats) -> Floats:
            return np.bincount(owner, values, len(cells)).astype(np.float64).reshape(shape)

        watts = self.model.uncapped_watts(kernels)
        return StepPart(summed(busy), summed(busy * watts), summed(busy * sensitivity))


def step_parts(
    model: GpuModel, shape: LanguageModel, tensor_parallel: int, number_format: NumberFormat
) -> dict[str, StepPart]:
    """The four parts of one GPU's share of a decoder."""
    prices = KernelPrices(model)
    share = _Share(shape, tensor_parallel, number_format)
    layers = prices.part([share.layers(tokens) for tokens in TOKENS], (len(TOKENS),))
    return {
        "layers": _with_exchange(layers, model, shape, tensor_parallel),
        "head": prices.part([share.head(n) for n in SEQUENCES], (len(SEQUENCES),)),
        "prompt_attention": prices.part(
            [share.prompt(tokens, length) for tokens in CHUNKS for length in PROMPTS],
            (len(CHUNKS), len(PROMPTS)),
        ),
        "decode_attention": prices.part(
            [share.decode(batch, context) for batch in BATCHES for context in CONTEXTS],
            (len(BATCHES), len(CONTEXTS)),
        ),
    }


@dataclass(frozen=True, slots=True)
class _Share:
    """One GPU's kernels of a decoder that is split over a tensor-parallel group."""

    shape: LanguageModel
    parallel: int
    number_format: NumberFormat

    def layers(self, tokens: int) -> list[tuple[Kernel, float]]:
        """All but attention and the output layer."""
        *mix, _ = self._step(tokens).kernel_mix()
        return [(kernel, count) for kernel, count in mix if not isinstance(kernel, Attention)]

    def head(self, sequences: int) -> list[tuple[Kernel, float]]:
        """The output layer, which stays in 16 bits."""
        shape = self.shape
        return [(Gemm(sequences, shape.vocabulary // self.parallel, shape.hidden), 1)]

    def prompt(self, tokens: int, length: int) -> list[tuple[Kernel, float]]:
        """Attention of ``tokens`` prompt tokens: several short prompts, or a piece of a long one.

        A piece sees on average half of what comes before it and all of itself up to each token.
        """
        shape, parallel = self.shape, self.parallel
        inside = min(tokens, length)
        kernel = Attention(
            "prefill", 1, inside, max(inside, (tokens + length) // 2 if length > tokens else 0),
            shape.heads // parallel, max(1, shape.kv_heads // parallel), shape.head_dim,
        )  # fmt: skip
        return [(kernel, shape.layers * tokens / inside)]

    def decode(self, batch: int, context: int) -> list[tuple[Kernel, float]]:
        """Attention of ``batch`` sequences over ``context`` tokens each."""
        shape, parallel = self.shape, self.parallel
        kernel = Attention(
            "decode", batch, 1, context,
            shape.heads // parallel, max(1, shape.kv_heads // parallel), shape.head_dim,
        )  # fmt: skip
        return [(kernel, shape.layers)]

    def _step(self, batch: int) -> DecoderStep:
        shape, parallel = self.shape, self.parallel
        return DecoderStep(
            "decode", batch, 1, 1, shape.layers, shape.hidden,
            shape.heads // parallel, max(1, shape.kv_heads // parallel), shape.head_dim,
            shape.intermediate // parallel, shape.vocabulary // parallel, self.number_format,
        )  # fmt: skip


def _with_exchange(
    part: StepPart, model: GpuModel, shape: LanguageModel, parallel: int
) -> StepPart:
    """The layers with the two all-reduces of each."""
    if parallel == 1:
        return part
    message = np.array(TOKENS, dtype=np.float64) * shape.hidden * ACTIVATION_BYTES
    seconds = 2 * shape.layers * all_reduce_seconds(model.gpu, parallel, message)
    return StepPart(
        part.seconds + seconds,
        part.joules + seconds * EXCHANGE_SHARE * model.limit_watts,
        part.clock_seconds,
    )


def all_reduce_seconds(gpu: str, gpus: int, message_bytes: Floats) -> Floats:
    """The faster of NCCL and an engine's own kernel, interpolated between measured sizes."""
    found = [
        _interpolated(gpu, gpus, implementation, message_bytes)
        for implementation in ("nccl", "vllm_graph")
    ]
    return np.asarray(np.min(found, axis=0), dtype=np.float64)


def _interpolated(gpu: str, gpus: int, implementation: str, message_bytes: Floats) -> Floats:
    table = reference_all_reduces(gpu, implementation)
    mine = {
        kernel.message_bytes: seconds
        for kernel, seconds in zip(table.kernels, table.seconds.tolist(), strict=True)
        if isinstance(kernel, Collective) and kernel.gpus == gpus
    }
    if not mine:
        return np.full(len(message_bytes), np.inf)
    sizes = np.array(sorted(mine), dtype=np.float64)
    times = np.array([mine[int(size)] for size in sizes])
    inside = np.exp(np.interp(np.log(message_bytes), np.log(sizes), np.log(times)))
    beyond = message_bytes / sizes[-1]
    # An engine's own kernel is for small messages; beyond its table NCCL's goes on.
    last = np.inf if implementation == "vllm_graph" else beyond
    return np.asarray(inside * np.where(beyond > 1, last, 1.0))
