"""The benchmark's ports over numpy, float32, one process; no watts are told."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.bench.bench_point import BoardFacts
from capacity.bench.measurement_row import CacheState
from capacity.bench.ports import KernelUnavailable, Software
from capacity.kernels import (
    Attention,
    Collective,
    DecoderStep,
    Elementwise,
    Gemm,
    Idle,
    Kernel,
    LaunchChain,
    LaunchMode,
)
from gpu.board_meter import BoardSample, BoardState
from wattpack.clock import Clock
from wattpack.units import ns_to_seconds

Floats = npt.NDArray[np.float32]

LARGEST_FLOPS: Final = 4e9
LARGEST_BYTES: Final = 2**28
"""A point above these takes longer than a check on a small machine may."""

CACHE_BYTES: Final = 2**22
CPUINFO: Final = Path("/proc/cpuinfo")


class NumpyBackend:
    """This machine's processor."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def software(self) -> Software:
        """Numpy stands where torch does."""
        source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        return Software("numpy", 0, "", f"numpy {np.__version__}", source)

    def facts(self) -> BoardFacts:
        """Small sizes, no power."""
        return BoardFacts(2**30, CACHE_BYTES, tells_power=False)

    def fingerprint(self) -> str:
        """How this machine and its libraries round fixed inputs."""
        rng = np.random.default_rng(20240117)
        left, right = (rng.standard_normal((64, 4096)).astype(np.float32) for _ in range(2))
        return hashlib.sha256((left @ right.T).tobytes() + np.exp(left).tobytes()).hexdigest()

    def load(
        self, kernel: Kernel, cache_state: CacheState, seed: int, launch_mode: LaunchMode = "graph"
    ) -> _Loaded:
        """Random operands, run once; every launch is a call, there are no graphs.

        Raises:
            KernelUnavailable: for what takes a processor too long, and for collectives.
        """
        if isinstance(kernel, Collective):
            raise KernelUnavailable("one processor has no collectives")
        if kernel.flops > LARGEST_FLOPS or kernel.bytes_moved > LARGEST_BYTES:
            raise KernelUnavailable("too large for a processor")
        rng = np.random.default_rng(seed)
        wanted = 1 if cache_state == "warm" else int(3 * CACHE_BYTES / max(kernel.bytes_moved, 1))
        works = [_work(kernel, rng) for _ in range(min(16, max(1, wanted)))]
        return _Loaded(works, self._clock)

    def close(self) -> None:
        """Nothing is held."""


class HostMeter:
    """A processor behind the board's meter: a name, and no watts."""

    def state(self) -> BoardState:
        """What a processor can tell."""
        names = [
            line.partition(":")[2].strip()
            for line in (CPUINFO.read_text("utf-8").splitlines() if CPUINFO.exists() else [])
            if line.startswith("model name")
        ]
        name = names[0] if names else platform.processor() or platform.machine()
        return BoardState(
            product=f"CPU {name}",
            uuid=f"host-{platform.node()}",
            vbios="",
            driver=platform.release(),
            power_limit_watts=0.0,
            default_limit_watts=0.0,
            max_clock_mhz=0,
            mig_enabled=False,
            processes=0,
            utilisation=None,
        )

    def sample(self, now_ns: int) -> BoardSample:
        """The time alone."""
        return BoardSample(now_ns, None, None, None, None, 0)


@dataclass(frozen=True, slots=True)
class _Ended:
    elapsed_seconds: float

    def done(self) -> bool:
        """Always: numpy returns when it is done."""
        return True

    def seconds(self) -> float:
        """Host time."""
        return self.elapsed_seconds


class _Loaded:
    implementation = "numpy"
    runs_per_launch = 1

    def __init__(self, works: list[Callable[[], object]], clock: Clock) -> None:
        self._works = works
        self._clock = clock
        for work in works:
            work()

    def launch(self, count: int) -> _Ended:
        """Run now."""
        start_ns = self._clock.monotonic_ns()
        for run in range(count):
            self._works[run % len(self._works)]()
        return _Ended(ns_to_seconds(self._clock.monotonic_ns() - start_ns))

    def close(self) -> None:
        """Give the memory back."""
        self._works = []


def _work(kernel: Kernel, rng: np.random.Generator) -> Callable[[], object]:
    def normal(*shape: int) -> Floats:
        return rng.standard_normal(shape, dtype=np.float32)

    match kernel:
        case Gemm():
            x, w = normal(kernel.m, kernel.k), normal(kernel.n, kernel.k)
            y = np.empty((kernel.m, kernel.n), dtype=np.float32)
            return lambda: np.matmul(x, w.T, out=y)
        case Attention():
            return _attention(kernel, normal)
        case LaunchChain():
            return lambda: [None for _ in range(kernel.kernels)]
        case Elementwise():
            return _elementwise(kernel, normal)
        case DecoderStep() | Collective() | Idle():
            raise KernelUnavailable("whole steps need a GPU")
        case _:
            return _stream(kernel.pattern, normal(max(1, kernel.buffer_bytes // 4)))


def _stream(pattern: str, a: Floats) -> Callable[[], object]:
    b, c = a[::-1].copy(), np.empty_like(a)
    if pattern == "copy":
        return lambda: np.copyto(c, a)
    if pattern == "read":
        return lambda: a.sum()

    def triad() -> None:
        np.multiply(b, np.float32(0.5), out=c)
        np.add(a, c, out=c)

    return triad


def _elementwise(kernel: Elementwise, normal: Callable[..., Floats]) -> Callable[[], object]:
    a, b = normal(kernel.tokens, kernel.width), normal(kernel.tokens, kernel.width)
    if kernel.op == "gate":
        return lambda: a / (1 + np.exp(-a)) * b
    if kernel.op == "rotate":
        return lambda: a * np.cos(b[:1]) + np.roll(a, kernel.width // 2, axis=1) * np.sin(b[:1])

    def norm() -> Floats:
        np.add(a, b, out=b)
        np.multiply(b, np.float32(0.5), out=b)
        result: Floats = b / np.sqrt((b * b).mean(axis=1, keepdims=True) + np.float32(1e-5))
        return result

    return norm


def _attention(kernel: Attention, normal: Callable[..., Floats]) -> Callable[[], object]:
    queries, keys, group = kernel.query_tokens, kernel.kv_tokens, kernel.heads // kernel.kv_heads
    q = normal(kernel.batch, kernel.kv_heads, group * queries, kernel.head_dim)
    k = normal(kernel.batch, kernel.kv_heads, keys, kernel.head_dim)
    v = normal(kernel.batch, kernel.kv_heads, keys, kernel.head_dim)
    hidden = np.tile(_hidden(kernel), (group, 1))

    def run() -> Floats:
        scores = q @ k.swapaxes(-1, -2) * np.float32(kernel.head_dim**-0.5)
        scores[..., hidden] = -np.inf
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        result: Floats = (scores / scores.sum(-1, keepdims=True)) @ v
        return result

    return run


def _hidden(kernel: Attention) -> npt.NDArray[np.bool_]:
    """Which keys each query may not see, shape (query_tokens, kv_tokens)."""
    row = np.arange(kernel.query_tokens)[:, None] + kernel.kv_tokens - kernel.query_tokens
    column = np.arange(kernel.kv_tokens)[None, :]
    if kernel.mask == "full":
        return np.zeros((kernel.query_tokens, kernel.kv_tokens), dtype=bool)
    if kernel.mask == "window":
        return np.asarray((column > row) | (column <= row - kernel.window))
    if kernel.mask == "document":
        length = -(-kernel.query_tokens // kernel.documents)
        return np.asarray((column > row) | (column // length != row // length))
    return np.asarray(column > row)
