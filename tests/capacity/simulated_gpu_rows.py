"""A GPU written down in a few lines: rows of a run, and what its steps really take.

It shares no code with the model that is fitted on its rows: time is the slower of arithmetic and
memory plus a start, energy is counted by operation and byte, and the board holds its limit by a
common clock to which dynamic power goes with the third power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capacity.bench.measurement_row import MeasurementRow
from capacity.kernels import Attention, DecoderStep, Gemm, Kernel, LaunchChain, MemoryStream
from tests.capacity.kernel_row import LIMIT_WATTS, kernel_row

START_SECONDS = 2e-6
FLOPS_PER_SECOND = 7.5e14
BYTES_PER_SECOND = 4.2e12
STATIC_WATTS = 130.0
JOULES_PER_FLOP = 1.2e-12
JOULES_PER_BYTE = 90e-12

Mix = Sequence[tuple[Kernel, int]]


@dataclass(frozen=True)
class Truth:
    """One mix, back to back with itself."""

    seconds: float
    free_seconds: float
    watts: float
    free_watts: float


def truth(mix: Mix, limit_watts: float = LIMIT_WATTS) -> Truth:
    """Found by halving the clock's range until the board draws its limit."""
    free_seconds, free_joules = _at_clock(mix, 1.0)
    free_watts = free_joules / free_seconds
    seconds, joules = free_seconds, free_joules
    if free_watts > limit_watts:
        low, high = 0.05, 1.0
        for _ in range(60):
            clock = (low + high) / 2
            seconds, joules = _at_clock(mix, clock)
            low, high = (clock, high) if joules / seconds < limit_watts else (low, clock)
    return Truth(seconds, free_seconds, joules / seconds, free_watts)


def _at_clock(mix: Mix, clock: float) -> tuple[float, float]:
    seconds = joules = 0.0
    for kernel, count in mix:
        if isinstance(kernel, LaunchChain):
            seconds += count * kernel.kernels * (1e-6 if kernel.mode == "graph" else 6e-6)
            continue
        arithmetic = kernel.flops / FLOPS_PER_SECOND / clock
        memory = kernel.bytes_moved / BYTES_PER_SECOND
        seconds += count * (START_SECONDS + max(arithmetic, memory))
        dynamic = JOULES_PER_FLOP * kernel.flops + JOULES_PER_BYTE * kernel.bytes_moved
        joules += count * dynamic * clock**2
    return seconds, joules + STATIC_WATTS * seconds


def simulated_rows() -> list[MeasurementRow]:
    """Launch, bandwidth, 60 products and 36 attentions, as a full run measures them."""
    rows = [
        kernel_row(LaunchChain(count, mode), truth([(LaunchChain(count, mode), 1)]).seconds,
                   section="launch")
        for mode in ("graph", "eager") for count in (1, 200)
    ]  # fmt: skip
    rows += [_row(MemoryStream("copy", 2**size), "bandwidth") for size in range(14, 32, 2)]
    rng = np.random.default_rng(3)
    for _ in range(60):
        m, n, k = (int(2 ** rng.uniform(low, high)) for low, high in ((0, 13), (8, 16), (8, 14)))
        rows.append(_row(Gemm(m, n, k), "gemm"))
    for batch, tokens in ((1, 512), (4, 2048), (16, 1024), (64, 4096), (128, 512), (256, 8192)):
        for heads, kv_heads in ((32, 8), (8, 1), (16, 16)):
            rows.append(_row(Attention("decode", batch, 1, tokens, heads, kv_heads), "attention"))
            prompt = Attention("prefill", 1, batch * 64, batch * 64, heads, kv_heads)
            rows.append(_row(prompt, "attention"))
    return rows


def _row(kernel: Kernel, section: str) -> MeasurementRow:
    real = truth([(kernel, 1)])
    return kernel_row(
        kernel, real.free_seconds, section=section, draw_watts=real.watts,
        sustained_seconds=real.seconds, throttled=real.free_watts > LIMIT_WATTS,
    )  # fmt: skip


def decoder(phase: str, batch: int, tokens: int, context: int) -> DecoderStep:
    """A stack of the shape of an 8B model."""
    return DecoderStep(
        phase,
        batch,
        tokens,
        context,
        32,
        4096,
        32,
        8,
        128,
        14336,
        128256,  # type: ignore[arg-type]
    )
