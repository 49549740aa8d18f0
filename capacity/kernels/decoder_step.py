"""A whole forward pass of a decoder stack, as a mix of kernels."""

from __future__ import annotations

from dataclasses import dataclass

from capacity.kernels.arithmetic import Attention, Gemm
from capacity.kernels.fields import FORMAT_BYTES, NumberFormat, Phase, require_fields
from capacity.kernels.passes import Elementwise


@dataclass(frozen=True, slots=True)
class DecoderStep:
    """One forward pass of one GPU's share of a dense decoder: ``batch`` sequences at once.

    Attributes:
        heads: Query heads on this GPU, after tensor parallelism; ``kv_heads`` likewise.
        intermediate: Width of the gated feed-forward layer on this GPU.
        vocabulary: Rows of the output layer on this GPU; it runs for one token a sequence.
        query_tokens: New tokens a sequence: 1 in decode, the prompt in prefill.
        kv_tokens: Context after the step.
    """

    phase: Phase
    batch: int
    query_tokens: int
    kv_tokens: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    number_format: NumberFormat = "bf16"

    def __post_init__(self) -> None:
        require_fields(self)
        self.attention()

    @property
    def kernel_class(self) -> str:
        """``step_prefill`` or ``step_decode``."""
        return f"step_{self.phase}"

    def attention(self) -> Attention:
        """The attention of one layer."""
        return Attention(
            self.phase,
            self.batch,
            self.query_tokens,
            self.kv_tokens,
            self.heads,
            self.kv_heads,
            self.head_dim,
            number_format=self.number_format,
        )

    def kernel_mix(self) -> tuple[tuple[Gemm | Attention | Elementwise, int], ...]:
        """The kernels of one step with how often each runs."""
        tokens = self.batch * self.query_tokens
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        fmt = self.number_format
        return (
            (Gemm(tokens, qkv, self.hidden, fmt), self.layers),
            (self.attention(), self.layers),
            (Gemm(tokens, self.hidden, self.heads * self.head_dim, fmt), self.layers),
            (Gemm(tokens, 2 * self.intermediate, self.hidden, fmt), self.layers),
            (Gemm(tokens, self.hidden, self.intermediate, fmt), self.layers),
            (Elementwise("norm", tokens, self.hidden), 2 * self.layers),
            (Elementwise("rotate", tokens, qkv), self.layers),
            (Elementwise("gate", tokens, self.intermediate), self.layers),
            (Gemm(self.batch, self.vocabulary, self.hidden, fmt), 1),
        )

    @property
    def flops(self) -> float:
        """Sum over the mix."""
        return sum(count * kernel.flops for kernel, count in self.kernel_mix())

    @property
    def bytes_moved(self) -> float:
        """Sum over the mix: what crosses the caches between kernels is counted once each."""
        return sum(count * kernel.bytes_moved for kernel, count in self.kernel_mix())

    @property
    def weight_bytes(self) -> int:
        """Weights of this GPU's share, without the embedding table."""
        layer = self.hidden * (self.heads + 2 * self.kv_heads) * self.head_dim
        layer += self.heads * self.head_dim * self.hidden + 3 * self.hidden * self.intermediate
        total = self.layers * layer + self.vocabulary * self.hidden
        return total * FORMAT_BYTES[self.number_format]

    @property
    def cache_bytes(self) -> int:
        """Keys and values of all sequences and layers."""
        tokens = self.batch * self.kv_tokens
        size = FORMAT_BYTES[self.number_format]
        return 2 * self.layers * tokens * self.kv_heads * self.head_dim * size
