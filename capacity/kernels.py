"""Kernels as values: what each one computes and the least it must move.

The benchmark measures these, the capacity model predicts them, and a workload is a mix of them.
Operation and byte counts are the algorithm's own: each input read once, each output written once,
so that ``flops / seconds`` and ``bytes_moved / seconds`` can never honestly pass the roofs.

Kernel
├── Gemm            y = x W^T, the linear layer
├── Attention       softmax(Q K^T) V, prefill or decode, four masks
├── MemoryStream    copy, triad or read: bandwidth
├── Elementwise     what a decoder does between its products: norm, rotation, gate
├── Idle            nothing runs; with and without a context
├── LaunchChain     n empty kernels, eager or replayed as one graph
├── Collective      all-reduce and friends over the GPUs of one host
└── DecoderStep     one whole forward pass of a decoder stack, made of the ones above
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, get_args

import numpy as np

from wattpack.errors import InputError
from wattpack.units import require_number

NumberFormat = Literal["bf16", "fp16", "fp8", "fp32"]
Phase = Literal["prefill", "decode"]
Mask = Literal["full", "causal", "window", "document"]
StreamPattern = Literal["copy", "triad", "read"]
ElementwiseOp = Literal["norm", "rotate", "gate"]
ContextState = Literal["none", "open"]
LaunchMode = Literal["eager", "graph"]
CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]

FORMAT_BYTES: Final[Mapping[str, int]] = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}
"""Bytes of one element."""

OUTPUT_BYTES: Final = 2
"""Products of narrow formats leave the matrix units as 16-bit numbers."""

_LARGEST: Final = 2**40


@dataclass(frozen=True, slots=True)
class Gemm:
    """A linear layer: ``m`` tokens, ``k`` inputs, ``n`` outputs."""

    m: int
    n: int
    k: int
    number_format: NumberFormat = "bf16"

    def __post_init__(self) -> None:
        _check(self)

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
        _check(self, zero_ok=("window",))
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


@dataclass(frozen=True, slots=True)
class MemoryStream:
    """``buffer_bytes`` passed once through the memory: b = a, c = a + s b, or sum(a)."""

    pattern: StreamPattern
    buffer_bytes: int

    def __post_init__(self) -> None:
        _check(self)

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


_ARRAYS: Final[Mapping[str, int]] = {"norm": 4, "rotate": 2, "gate": 3}
"""Arrays of ``tokens x width`` that an element-wise operation reads or writes."""


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
        _check(self)

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
        size = FORMAT_BYTES[self.number_format]
        return float(_ARRAYS[self.op] * size * self.tokens * self.width)


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing runs: what the board draws before a process opens it, and after."""

    context: ContextState

    def __post_init__(self) -> None:
        _check(self)

    @property
    def kernel_class(self) -> str:
        """``idle``."""
        return "idle"

    @property
    def flops(self) -> float:
        """None."""
        return 0.0

    @property
    def bytes_moved(self) -> float:
        """None."""
        return 0.0


@dataclass(frozen=True, slots=True)
class LaunchChain:
    """``kernels`` launches that do nothing: what the host and the queue cost."""

    kernels: int
    mode: LaunchMode

    def __post_init__(self) -> None:
        _check(self)

    @property
    def kernel_class(self) -> str:
        """``launch``."""
        return "launch"

    @property
    def flops(self) -> float:
        """None."""
        return 0.0

    @property
    def bytes_moved(self) -> float:
        """None."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective over ``gpus`` GPUs; ``message_bytes`` is what each GPU contributes."""

    op: CollectiveOp
    message_bytes: int
    gpus: int

    def __post_init__(self) -> None:
        _check(self)
        if self.gpus < 2:
            raise InputError("gpus", "at least 2", self.gpus)

    @property
    def kernel_class(self) -> str:
        """``collective``."""
        return "collective"

    @property
    def flops(self) -> float:
        """None worth counting."""
        return 0.0

    @property
    def bytes_moved(self) -> float:
        """What crosses one GPU's links (nccl-tests' bus convention).

        Each GPU contributes ``message_bytes``: gathered from all, that is n - 1 messages in.
        """
        share = (self.gpus - 1) / self.gpus
        factors = {"all_reduce": 2 * share, "all_gather": self.gpus - 1.0, "send_recv": 1.0}
        return self.message_bytes * factors.get(self.op, share)


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
        _check(self)
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

    def kernel_mix(self) -> tuple[tuple[Kernel, int], ...]:
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


Kernel = (
    Gemm | Attention | MemoryStream | Elementwise | Idle | LaunchChain | Collective | DecoderStep
)


def bytes_read(kernel: Gemm | Attention | MemoryStream | Elementwise) -> float:
    """Of ``bytes_moved`` those of the operands: all but the result."""
    match kernel:
        case Gemm():
            size = FORMAT_BYTES[kernel.number_format]
            return float(size * kernel.k * (kernel.m + kernel.n))
        case Attention():
            queries = kernel.batch * kernel.query_tokens * kernel.heads * kernel.head_dim
            return kernel.bytes_moved - FORMAT_BYTES[kernel.number_format] * queries
        case MemoryStream():
            return float(kernel.buffer_bytes * {"copy": 1, "triad": 2, "read": 1}[kernel.pattern])
        case Elementwise():
            written = {"norm": 2, "rotate": 1, "gate": 1}[kernel.op]
            return kernel.bytes_moved * (1 - written / _ARRAYS[kernel.op])


_KINDS: Final[Mapping[str, type[Any]]] = {
    "gemm": Gemm,
    "attention_prefill": Attention,
    "attention_decode": Attention,
    "bandwidth": MemoryStream,
    "elementwise": Elementwise,
    "idle": Idle,
    "launch": LaunchChain,
    "collective": Collective,
    "step_prefill": DecoderStep,
    "step_decode": DecoderStep,
}

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "number_format": get_args(NumberFormat),
    "phase": get_args(Phase),
    "mask": get_args(Mask),
    "pattern": get_args(StreamPattern),
    "mode": get_args(LaunchMode),
    "Collective.op": get_args(CollectiveOp),
    "Elementwise.op": get_args(ElementwiseOp),
    "context": get_args(ContextState),
}


def kernel_shape(kernel: Kernel) -> dict[str, Any]:
    """The kernel's fields as plain JSON values; with ``kernel_class`` it can be built again."""
    return asdict(kernel)


def kernel_from_shape(kernel_class: str, shape: object) -> Kernel:
    """The kernel that ``kernel_shape`` described.

    Raises:
        InputError: unknown class, unknown or missing key, a size that is no positive integer.
    """
    kind = _KINDS.get(kernel_class)
    if kind is None:
        raise InputError("kernel_class", f"one of {sorted(_KINDS)}", kernel_class)
    if not isinstance(shape, Mapping):
        raise InputError("shape", "a mapping", shape)
    names = {field.name for field in fields(kind)}
    for key in sorted(set(shape) ^ names, key=str):
        expected = "a known key" if key in shape else "a value"
        raise InputError(f"shape.{key}", expected, shape.get(key))
    kernel: Kernel = kind(**shape)
    if kernel.kernel_class != kernel_class:
        raise InputError("kernel_class", f"{kernel.kernel_class} by its shape", kernel_class)
    return kernel


def _check(kernel: Kernel, zero_ok: tuple[str, ...] = ()) -> None:
    """Sizes are positive integers, words are known ones."""
    for field in fields(kernel):
        value = getattr(kernel, field.name)
        own = f"{type(kernel).__name__}.{field.name}"
        choices = _CHOICES.get(own) or _CHOICES.get(field.name)
        if choices is not None:
            if value not in choices:
                raise InputError(field.name, f"one of {choices}", value)
            continue
        low = 0 if field.name in zero_ok else 1
        require_number(field.name, value, minimum=low, maximum=_LARGEST)
        if not isinstance(value, int):
            raise InputError(field.name, "an integer", value)
