"""When a figure is not believed: the gate before a run, and the flags of each row.

BenchRefused   the board is not in a state that a profile could be measured in
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.bench.measurement_row import Flag, Latency
from capacity.bench.timing import POWER_CAP_REASON, BoardWatch
from capacity.kernels import (
    Attention,
    DecoderStep,
    Elementwise,
    Gemm,
    Idle,
    Kernel,
    LaunchChain,
    MemoryStream,
)
from capacity.roofs import Roofs
from gpu.board_meter import BoardSample, BoardState
from wattpack.errors import PermanentError

ROOF_TOLERANCE: Final = 1.03
"""A clock counter and a datasheet agree no better; boost clocks pass the sheet's by this much."""

LEAST_LAUNCH_SECONDS: Final = 0.8e-6
"""Three quarters of an empty kernel in a recorded graph: 1.05 us (H200), 1.17 us (H100), of 200 in
a row. The shortest kernel with work took 1.06 us."""

SLOW_CLOCK: Final = 0.9
"""Share of the highest clock below which a board that gives no reason for it is locked."""

DRIFT: Final = 0.03
"""Largest change of a repeated point between the start and the end of a run."""

IDLE_REASON: Final = 0x1
"""nvmlClocksEventReasonGpuIdle."""

BUSY_UTILISATION: Final = 0.05


class BenchRefused(PermanentError):
    """The board cannot be measured as it stands; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate found.

    Attributes:
        flags: Carried by every row of the run.
        remarks: The same in words.
    """

    flags: tuple[Flag, ...]
    remarks: tuple[str, ...]


def judge_gate(state: BoardState, multiprocessors: int, roofs: Roofs | None) -> Gate:
    """What speaks against measuring on this board, before anything ran on it.

    Args:
        state: The board before this process opened it.
        multiprocessors: As the runtime counts them; 0 if not known.
        roofs: The datasheet's, None for a product that is not in the table.
    """
    flags: list[Flag] = []
    remarks: list[str] = []
    if state.processes or (state.utilisation or 0.0) > BUSY_UTILISATION:
        flags.append("shared_gpu")
        remarks.append(
            f"{state.processes} other processes hold the GPU, "
            f"utilisation {100 * (state.utilisation or 0):.0f} %"
        )
    whole = roofs.multiprocessors if roofs else 0
    if state.mig_enabled or (multiprocessors and whole and multiprocessors < 0.95 * whole):
        flags.append("mig_slice")
        remarks.append(f"{multiprocessors} of {whole or 'unknown'} multiprocessors: a slice")
    if state.power_limit_watts < 0.99 * state.default_limit_watts:
        flags.append("capped")
        remarks.append(
            f"limit {state.power_limit_watts:.0f} W, default {state.default_limit_watts:.0f} W"
        )
    return Gate(tuple(flags), tuple(remarks))


@dataclass(frozen=True, slots=True)
class TimedPoint:
    """What was measured of one kernel.

    Attributes:
        settled: The time was known within the stop rule's noise.
        watch: None where only time was measured.
    """

    kernel: Kernel
    cache_is_cold: bool
    latency: Latency
    settled: bool
    watch: BoardWatch | None


def judge_row(point: TimedPoint, roofs: Roofs | None, max_clock_mhz: int) -> tuple[Flag, ...]:
    """The flags of one row."""
    flags: list[Flag] = []
    watch, settled = point.watch, point.settled
    fastest = point.latency.median_seconds
    if watch:
        fastest = min(fastest, watch.power.sustained_seconds)
    if roofs and above_roof(point.kernel, point.cache_is_cold, fastest, roofs):
        flags.append("above_peak")
    throttled = watch is not None and any(
        s.throttle_reasons & POWER_CAP_REASON for s in watch.samples
    )
    if not settled and not throttled:  # a board held at its limit changes its clock all the time
        flags.append("unstable_time")
    if watch:
        if not watch.agrees:
            flags.append("unstable_power")
        if throttled:
            flags.append("throttled")
        elif not isinstance(point.kernel, Idle) and _is_slow(watch.samples, max_clock_mhz):
            flags.append("slow_clock")
    return tuple(flags)


def above_roof(kernel: Kernel, cache_is_cold: bool, seconds: float, roofs: Roofs) -> bool:
    """Whether the time is less than physics allows.

    Only cold kernels are held against the memory's roof: a warm one may pass it.
    """
    if seconds < least_launch_seconds(kernel):
        return True
    peak = roofs.flops_per_second(getattr(kernel, "number_format", "bf16"))
    if kernel.flops and peak and kernel.flops / seconds > ROOF_TOLERANCE * peak:
        return True
    if not cache_is_cold:
        return False
    return _memory_bytes(kernel, roofs) / seconds > ROOF_TOLERANCE * roofs.bytes_per_second


def least_launch_seconds(kernel: Kernel) -> float:
    """What starting the kernel alone takes; 0 where nothing is started."""
    match kernel:
        case Idle():
            return 0.0
        case LaunchChain():
            return kernel.kernels * LEAST_LAUNCH_SECONDS
        case _:
            return LEAST_LAUNCH_SECONDS


def _memory_bytes(kernel: Kernel, roofs: Roofs) -> float:
    """What a cold kernel has to take through the memory, whatever the cache keeps.

    Operands come from memory: the benchmark's copies of them fill the cache several times over.
    A result may stay in the cache as long as all of it would fit; so may what a step's kernels
    hand on, but not its weights.
    """
    match kernel:
        case Gemm() | Attention() | MemoryStream() | Elementwise():
            fits = kernel.bytes_moved < 2 * roofs.l2_bytes
            return kernel.bytes_read if fits else kernel.bytes_moved
        case DecoderStep():
            cache = kernel.cache_bytes if kernel.phase == "decode" else 0
            return max(0.0, kernel.weight_bytes + cache - roofs.l2_bytes)
        case _:
            return 0.0


def drifted(before_seconds: Sequence[float], after_seconds: Sequence[float]) -> bool:
    """Whether the repeated points moved as a family (median ratio)."""
    if not before_seconds:
        return False
    ratio = np.median(np.array(after_seconds) / np.array(before_seconds))
    return bool(abs(ratio - 1) > DRIFT)


def _is_slow(samples: Sequence[BoardSample], max_clock_mhz: int) -> bool:
    """A loaded board below its clock, with no reason given, is locked."""
    clocks = [
        s.sm_clock_mhz for s in samples
        if s.sm_clock_mhz is not None and not s.throttle_reasons & ~IDLE_REASON
    ]  # fmt: skip
    return bool(clocks) and float(np.median(clocks)) < SLOW_CLOCK * max_clock_mhz
