"""The decoder stacks whose whole steps are measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Final

from capacity.kernels import DecoderStep, Phase


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """One GPU's share of a decoder stack; the names of ``DecoderStep``."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int

    def step(self, phase: Phase, batch: int, query_tokens: int, kv_tokens: int) -> DecoderStep:
        """One forward pass."""
        return DecoderStep(phase, batch, query_tokens, kv_tokens, *astuple(self))


STEP_MODELS: Final[Mapping[str, DecoderShape]] = {
    "8b": DecoderShape(32, 4096, 32, 8, 128, 14336, 128256),
    "14b": DecoderShape(40, 5120, 40, 8, 128, 17408, 151936),
    "70b-tp8": DecoderShape(80, 8192, 8, 1, 128, 3584, 16032),
}
"""Stacks of the shapes of Llama-3.1-8B, Qwen3-14B, and one of eight parts of Llama-3.1-70B."""

SMALL_MODEL: Final = DecoderShape(28, 1024, 16, 8, 128, 3072, 151936)
"""The shape of Qwen3-0.6B: so small that the host, not the GPU, sets the pace of small batches."""
