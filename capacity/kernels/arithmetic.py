"""Arithmetic: the products and the attention that the matrix units run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capacity.kernels.fields import (
    FORMAT_BYTES,
    OUTPUT_BYTES,
    Mask,
    NumberFormat,
    Phase,
    require_fields,
)
from wattpack.errors import InputError


@dataclass(frozen=True, slots=True)
class Gemm:
    """A linear layer: ``m`` tokens, ``k`` inputs, ``n`` outputs."""

    m: int
    n: int
    k: int
    number_format: NumberFormat = "bf16"

    def __post_init__(self) -> None:
        require_fields(self)

    @property
    def kernel_class(self) -> str:
        """``gemm``."""
        return "gemm"

    @property
    def flops(self) -> float:
        """2 m n k."""
        return 2.0 * self.m * self.n * self.k

    @property
    def bytes_moved(self) -> float:
        """Both operands read, the result written."""
        size = FORMAT_BYTES[self.number_format]
        out = max(OUTPUT_BYTES, size)
        return float(size * (self.m * self.k + self.n * self.k) + out * self.m * self.n)

    @property
    def bytes_read(self) -> float:
        """Of ``bytes_moved`` those of the operands: all but the result."""
        return float(FORMAT_BYTES[self.number_format] * self.k * (self.m + self.n))


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of ``query_tokens`` new tokens a sequence over ``kv_tokens`` in all.

    Attributes:
        batch: Sequences, all of one length.
        window: Keys that a query sees, counted back from itself; for mask ``window``.
        documents: Equal blocks that do not see each other; for mask ``document``.
    """

    phase: Phase
    batch: int
    query_tokens: int
    kv_tokens: int
    heads: int
    kv_heads: int
    head_dim: int = 128
    mask: Mask = "causal"
    window: int = 0
    documents: int = 1
    number_format: NumberFormat = "bf16"

    def __post_init__(self) -> None:
        require_fields(self, zero_ok=("window",))
        if self.heads % self.kv_heads:
            raise InputError("heads", f"a multiple of kv_heads = {self.kv_heads}", self.heads)
        if self.query_tokens > self.kv_tokens:
            raise InputError("query_tokens", f"at most {self.kv_tokens}", self.query_tokens)
        if (self.mask == "window") != (self.window > 0):
            raise InputError("window", "above 0 for mask window, else 0", self.window)
        if self.mask == "document" and self.query_tokens != self.kv_tokens:
            raise InputError("documents", "query_tokens = kv_tokens", self.query_tokens)

    @property
    def kernel_class(self) -> str:
        """``attention_prefill`` or ``attention_decode``."""
        return f"attention_{self.phase}"

    @property
    def visible_pairs(self) -> float:
        """Query-key pairs that the mask lets through, for one sequence and head."""
        queries, keys = self.query_tokens, self.kv_tokens
        if self.mask == "full":
            return float(queries * keys)
        if self.mask == "document":
            length = queries / self.documents
            return self.documents * length * (length + 1) / 2
        seen = np.arange(keys - queries + 1, keys + 1, dtype=np.float64)
        if self.mask == "window":
            seen = np.minimum(seen, self.window)
        return float(seen.sum())

    @property
    def flops(self) -> float:
        """Two products over the visible pairs."""
        return 4.0 * self.batch * self.heads * self.head_dim * self.visible_pairs

    @property
    def bytes_moved(self) -> float:
        """Queries and result once, each visible key and value once."""
        size = FORMAT_BYTES[self.number_format]
        keys = self.kv_tokens
        if self.mask == "window":
            keys = min(keys, self.query_tokens + self.window)
        queries = 2 * self.batch * self.query_tokens * self.heads * self.head_dim
        return float(size * (queries + 2 * self.batch * keys * self.kv_heads * self.head_dim))

    @property
    def bytes_read(self) -> float:
        """Of ``bytes_moved`` those of the operands: all but the result."""
        queries = self.batch * self.query_tokens * self.heads * self.head_dim
        return self.bytes_moved - FORMAT_BYTES[self.number_format] * queries
