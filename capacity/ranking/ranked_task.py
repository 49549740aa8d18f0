"""What a ranked kernel has to compute: operands, result, and how exact it must be.

The formulas are written once for any array library that has numpy's operators, so that the judge
evaluates them where its operands are: on the processor, or in double precision on the GPU.

A kernel is a function of a task's operands. It returns the result, or takes one argument more and
writes the result into it:

    gemm                x (m, k), w (n, k)               -> x w^T (m, n)
    attention_*         q (b, h, q, d), k, v (b, g, t, d) -> softmax(q k^T / sqrt(d)) v (b, h, q, d)
    bandwidth           a (n,), b (n,)                   -> a + b / 2
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from capacity.kernels import FORMAT_BYTES, Attention, Gemm, MemoryStream, NumberFormat
from wattpack.errors import InputError

Array = Any
"""An array of whichever library the judge uses."""

TaskName = Literal["gemm", "attention_prefill", "attention_decode", "bandwidth"]
TaskKernel = Gemm | Attention | MemoryStream
Shape = tuple[int, ...]

ROUNDING: Final = {"fp32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11}
"""What one honest rounding costs at most, relative to the value."""

PART_ROWS: Final = 8
PART_ELEMENTS: Final = 4096

SINGLE: Final = 2.0**-24
SUM_WIDTH: Final = 16
"""Products that a matrix unit adds before it truncates once (one ``mma`` of 16-bit operands)."""


class ArrayLibrary(Protocol):
    """What the formulas need besides operators."""

    def exp(self, x: Array, /) -> Array:
        """Element-wise."""
        ...

    def sqrt(self, x: Array, /) -> Array:
        """Element-wise."""
        ...

    def row_maximum(self, x: Array, /) -> Array:
        """Over the last axis."""
        ...

    def counting(self, size: int, /) -> Array:
        """0 to ``size`` - 1 in double precision."""
        ...


@dataclass(frozen=True, slots=True)
class Expected:
    """The right result in double precision, and what an honest rounding may move it by.

    Attributes:
        value: The result.
        unit: Per element, the root mean square error that the number format excuses.
    """

    value: Array
    unit: Array


@dataclass(frozen=True, slots=True)
class RankedTask:
    """One kernel that several implementations compete for."""

    name: TaskName
    kernel: TaskKernel

    def __post_init__(self) -> None:
        if isinstance(self.kernel, Attention) and self.kernel.mask != "causal":
            raise InputError("mask", "causal", self.kernel.mask)
        if self.number_format not in ROUNDING:
            raise InputError("number_format", f"one of {sorted(ROUNDING)}", self.number_format)

    @property
    def number_format(self) -> NumberFormat:
        """Of operands and result."""
        return getattr(self.kernel, "number_format", "fp32")

    @property
    def input_shapes(self) -> tuple[Shape, ...]:
        """Of the operands, in the order of a kernel's arguments."""
        kernel = self.kernel
        match kernel:
            case Gemm():
                return (kernel.m, kernel.k), (kernel.n, kernel.k)
            case Attention():
                keys = (kernel.batch, kernel.kv_heads, kernel.kv_tokens, kernel.head_dim)
                return self.output_shape, keys, keys
            case MemoryStream():
                return self.output_shape, self.output_shape

    @property
    def output_shape(self) -> Shape:
        """Of the result."""
        kernel = self.kernel
        match kernel:
            case Gemm():
                return (kernel.m, kernel.n)
            case Attention():
                return (kernel.batch, kernel.heads, kernel.query_tokens, kernel.head_dim)
            case MemoryStream():
                return (max(1, kernel.buffer_bytes // FORMAT_BYTES["fp32"]),)

    def expected(
        self, operands: tuple[Array, ...], library: ArrayLibrary, *, climbing: bool = False
    ) -> Expected:
        """The right result.

        Args:
            operands: Double precision copies of what the kernel was given.
            climbing: Whether partial sums climb far above the result before they come back.
        """
        rounding = ROUNDING[self.number_format]
        if isinstance(self.kernel, Gemm):
            return _product(operands, library, rounding, climbing=climbing)
        if isinstance(self.kernel, Attention):
            return _attention(self.kernel, operands, library, rounding)
        value = operands[0] + operands[1] * 0.5
        return Expected(value, rounding * abs(value) + SINGLE * abs(operands[0]))

    def part(self, operands: tuple[Array, ...], result: Array, where: float) -> Part:
        """A small task inside this one, with its operands and results.

        Args:
            where: 0 to 1, which part.
        """
        kernel = self.kernel
        match kernel:
            case Gemm():
                at = int(where * kernel.m) // PART_ROWS * PART_ROWS
                rows = slice(at, min(at + PART_ROWS, kernel.m))
                small: TaskKernel = replace(kernel, m=rows.stop - at)
                return Part(
                    RankedTask(self.name, small), (operands[0][rows], operands[1]), result[rows]
                )
            case Attention():
                batch, group = int(where * kernel.batch), kernel.heads // kernel.kv_heads
                # The finer digits choose the head.
                head = int(where * kernel.batch % 1 * kernel.kv_heads)
                own = slice(batch, batch + 1), slice(head * group, (head + 1) * group)
                keys = slice(batch, batch + 1), slice(head, head + 1)
                small = replace(kernel, batch=1, heads=group, kv_heads=1)
                return Part(
                    RankedTask(self.name, small),
                    (operands[0][own], operands[1][keys], operands[2][keys]),
                    result[own],
                )
            case MemoryStream():
                size = self.output_shape[0]
                at = int(where * size) // PART_ELEMENTS * PART_ELEMENTS
                cut = slice(at, min(at + PART_ELEMENTS, size))
                small = replace(kernel, buffer_bytes=(cut.stop - at) * FORMAT_BYTES["fp32"])
                return Part(
                    RankedTask(self.name, small), (operands[0][cut], operands[1][cut]), result[cut]
                )

    def neighbour(self) -> RankedTask:
        """A task of another shape, as well aligned: what only fits one shape fails on it."""
        kernel = self.kernel
        match kernel:
            case Gemm():
                other: TaskKernel = replace(
                    kernel, m=_other(kernel.m), n=_other(kernel.n), k=_other(kernel.k)
                )
            case Attention():
                added = _other(kernel.kv_tokens) - kernel.kv_tokens
                queries = kernel.query_tokens + (added if kernel.phase == "prefill" else 0)
                other = replace(kernel, query_tokens=queries, kv_tokens=kernel.kv_tokens + added)
            case MemoryStream():
                other = replace(kernel, buffer_bytes=_other(kernel.buffer_bytes))
        return RankedTask(self.name, other)

    def describe(self) -> str:
        """The shape in a few letters."""
        kernel = self.kernel
        match kernel:
            case Gemm():
                return f"{kernel.m}x{kernel.n}x{kernel.k} {kernel.number_format}"
            case Attention():
                return (
                    f"b{kernel.batch} q{kernel.query_tokens} t{kernel.kv_tokens} "
                    f"h{kernel.heads}/{kernel.kv_heads} d{kernel.head_dim} {kernel.number_format}"
                )
            case MemoryStream():
                return f"{kernel.buffer_bytes} B fp32"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows, one head or a stretch of a task."""

    task: RankedTask
    operands: tuple[Array, ...]
    result: Array


def _other(size: int) -> int:
    """Another size that the same powers of two up to 128 divide."""
    return size + min(size & -size, 128) if size > 1 else 1


def _product(
    operands: tuple[Array, ...], library: ArrayLibrary, rounding: float, *, climbing: bool
) -> Expected:
    """The product; roundings of its partial sums add up as a random walk over the steps.

    Matrix units truncate instead, and that adds up straight.
    """
    x, w = operands
    value = x @ w.T
    steps = x.shape[1]
    partial = abs(x) @ abs(w).T if climbing else library.sqrt((x * x) @ (w * w).T)
    summed = SINGLE * steps**0.5 * partial
    if rounding > SINGLE:
        summed = summed + 2 * SINGLE * steps / SUM_WIDTH * partial
    return Expected(value, rounding * abs(value) + summed)


def _attention(
    kernel: Attention, operands: tuple[Array, ...], library: ArrayLibrary, rounding: float
) -> Expected:
    q, k, v = operands
    batch, heads, queries, width = q.shape
    rows = (batch, kernel.kv_heads, heads // kernel.kv_heads * queries, width)
    scores = q.reshape(rows) @ k.swapaxes(-1, -2) * width**-0.5
    scores = scores - _hidden(kernel, library)
    shares = library.exp(scores - library.row_maximum(scores)[..., None])
    shares = shares / shares.sum(-1)[..., None]
    value = shares @ v
    # Fast kernels round the shares to the operands' format: that moves the sum as a random walk.
    walk = library.sqrt((shares * shares) @ (v * v))
    unit = rounding * (abs(value) + walk) + 16 * SINGLE * (shares @ abs(v))
    return Expected(value.reshape(q.shape), unit.reshape(q.shape))


def _hidden(kernel: Attention, library: ArrayLibrary) -> Array:
    """1e9 where a query may not look, shape (group * queries, keys)."""
    queries, keys = kernel.query_tokens, kernel.kv_tokens
    row = library.counting(kernel.heads // kernel.kv_heads * queries) % queries
    hidden = library.counting(keys)[None, :] > (row + (keys - queries))[:, None]
    return hidden * 1e9
