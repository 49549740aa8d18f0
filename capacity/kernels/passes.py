"""Passes over memory: bandwidth, and what a decoder does between its products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from capacity.kernels.fields import (
    FORMAT_BYTES,
    ElementwiseOp,
    NumberFormat,
    StreamPattern,
    require_fields,
)


@dataclass(frozen=True, slots=True)
class MemoryStream:
    """``buffer_bytes`` passed once through the memory: b = a, c = a + s b, or sum(a)."""

    pattern: StreamPattern
    buffer_bytes: int

    def __post_init__(self) -> None:
        require_fields(self)

    @property
    def kernel_class(self) -> str:
        """``bandwidth``."""
        return "bandwidth"

    @property
    def flops(self) -> float:
        """One addition per element pair is not worth counting."""
        return 0.0

    @property
    def bytes_moved(self) -> float:
        """The buffer once for each array that is read or written."""
        return float(self.buffer_bytes * {"copy": 2, "triad": 3, "read": 1}[self.pattern])

    @property
    def bytes_read(self) -> float:
        """Of ``bytes_moved`` those of the operands: all but the result."""
        return float(self.buffer_bytes * {"copy": 1, "triad": 2, "read": 1}[self.pattern])


_ARRAYS: Final[Mapping[str, tuple[int, int]]] = {
    "norm": (2, 2),
    "rotate": (1, 1),
    "gate": (2, 1),
}
"""Arrays of ``tokens x width`` that an element-wise operation reads and writes."""


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Element-wise work between the products of a decoder layer, as one fused kernel.

    ``norm`` adds a result to the residual and normalises the sum; ``rotate`` turns queries and keys
    by position and writes keys and values to the cache; ``gate`` is silu(a) b.

    Attributes:
        width: Of the result: hidden size, all heads of queries, keys and values together, or the
            feed-forward layer's.
    """

    op: ElementwiseOp
    tokens: int
    width: int
    number_format: NumberFormat = "bf16"

    def __post_init__(self) -> None:
        require_fields(self)

    @property
    def kernel_class(self) -> str:
        """``elementwise``."""
        return "elementwise"

    @property
    def flops(self) -> float:
        """Not worth counting."""
        return 0.0

    @property
    def bytes_moved(self) -> float:
        """Each array once: norm two in and two out, rotation one and one, gate two and one."""
        return float(sum(_ARRAYS[self.op]) * self._array_bytes)

    @property
    def bytes_read(self) -> float:
        """Of ``bytes_moved`` those of the operands: all but the result."""
        return float(_ARRAYS[self.op][0] * self._array_bytes)

    @property
    def _array_bytes(self) -> int:
        return FORMAT_BYTES[self.number_format] * self.tokens * self.width
