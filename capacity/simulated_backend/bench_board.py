"""The board that ``SimulatedBackend`` runs on: time and power of a kernel, a limit that is held.

A kernel's time is a smooth maximum of its compute and memory time; its draw grows with how busy
each of the two is and with the clock. Where that passes the limit the clock falls until it fits,
and the draw then swings as a recorded H200's does after a step (``model/capping_loop.py``). All
other constants are assumed; they give products of this shape 500 to 700 W, near the measured rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from capacity.kernels import Attention, Collective, DecoderStep, Gemm, Kernel, LaunchChain
from capacity.model.capping_loop import RECORDED_LOOP, Floats
from wattpack.units import NS_PER_SECOND

ENERGY_STEP_NS: Final = 100_000_000
"""The counter of a Hopper board moves in steps of about this."""

TICK_NS: Final = 10_000_000
BEATS_SECONDS: Final = 8.0
STEP_FROM, STEP_TO = 0.2, 1.3
"""Of the limit, that a step begins from and would draw without one."""

SMOOTHNESS: Final = 4.0
LAUNCH_SECONDS: Final = {"eager": 6.0e-6, "graph": 1.0e-6}
KERNEL_START_SECONDS: Final = 3.0e-6
WARM_SPEEDUP: Final = 2.5
LOWEST_CLOCK: Final = 0.15
TIME_NOISE: Final = 0.002
POWER_NOISE: Final = 0.005

POWER_CAP: Final = 0x4
CLOCK_SETTING: Final = 0x2
IDLE: Final = 0x1


@dataclass(frozen=True, slots=True)
class BoardConstants:
    """One simulated type.

    Attributes:
        flops_per_second: Reached by large products at the highest clock, by number format.
        bytes_per_second: Reached by large streams.
        compute_watts: Added by busy matrix units at the highest clock; likewise ``memory_watts``.
    """

    product: str = "NVIDIA H200"
    multiprocessors: int = 132
    memory_bytes: int = 140 * 2**30
    l2_bytes: int = 50 * 2**20
    max_clock_mhz: int = 1980
    default_limit_watts: float = 700.0
    idle_watts: float = 80.0
    active_watts: float = 60.0
    compute_watts: float = 720.0
    memory_watts: float = 380.0
    bf16_flops_per_second: float = 700e12
    fp8_flops_per_second: float = 1300e12
    bytes_per_second: float = 4.35e12


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """What is wrong with a board, planted from outside.

    Attributes:
        clock_share: Upper end of a clock lock as a share of the highest clock.
        tells_clock_setting: The lock shows in the throttle reasons.
        limit_share: The limit that is held, as a share of the default.
        tells_limit: The driver tells the lowered limit; else it was lowered after the gate.
        neighbour_share: Share of time that another process's kernels take.
        neighbour_watts: Draw meanwhile.
        compute_slice: Share of the multiprocessors; ``memory_slice`` likewise of the memory.
    """

    clock_share: float = 1.0
    tells_clock_setting: bool = False
    limit_share: float = 1.0
    tells_limit: bool = False
    neighbour_share: float = 0.0
    neighbour_watts: float = 600.0
    neighbour_period_seconds: float = 0.004
    compute_slice: float = 1.0
    memory_slice: float = 1.0


@dataclass(frozen=True, slots=True)
class KernelWay:
    """How a kernel is run.

    Attributes:
        warm: Its operands lie in the cache.
        eager: The host launches each of a step's kernels.
    """

    warm: bool = False
    eager: bool = False


@dataclass(frozen=True, slots=True)
class _Operation:
    """How the board runs one kernel at the clock that its limit allows."""

    seconds: float
    draw_watts: float
    clock_share: float
    throttled: bool


class BenchBoard:
    """One board: queued work, draw, energy. Virtual time is given with every call.

    Args:
        seed: Of this board's own spread (time 0.3 %, power 2 %) and its noise.
    """

    def __init__(self, constants: BoardConstants, fault: PlantedFault, seed: int) -> None:
        self.constants = constants
        self.fault = fault
        self._rng = np.random.default_rng(seed)
        self._time_factor = 1.0 + 0.003 * self._rng.standard_normal()
        self._power_factor = 1.0 + 0.02 * self._rng.standard_normal()
        self._queue_end_ns = 0
        self._busy_since_ns = 0
        self._running: _Operation | None = None
        self._energy_joules = 0.0
        self._told_joules = 0.0
        self._now_ns = 0
        self.limit_watts = constants.default_limit_watts * fault.limit_share
        self.lock_share = fault.clock_share

    def queue(self, kernel: Kernel, runs: int, way: KernelWay, now_ns: int) -> tuple[int, int]:
        """Queue work; when it starts and ends."""
        self.advance(now_ns)
        operation = self._operation(kernel, way)
        start_ns = max(now_ns, self._queue_end_ns)
        if now_ns >= self._queue_end_ns:
            self._busy_since_ns = now_ns
        noise = 1.0 + TIME_NOISE * self._rng.standard_normal()
        busy_seconds = runs * operation.seconds * self._time_factor * noise
        end_ns = start_ns + math.ceil(self._with_neighbour(busy_seconds, start_ns) * NS_PER_SECOND)
        self._queue_end_ns = end_ns
        self._running = operation
        return start_ns, end_ns

    def advance(self, now_ns: int) -> None:
        """Energy up to now."""
        while self._now_ns < now_ns:
            step_ns = min(TICK_NS, now_ns - self._now_ns)
            before = self._now_ns // ENERGY_STEP_NS
            self._energy_joules += self.draw_watts(self._now_ns) * step_ns / NS_PER_SECOND
            self._now_ns += step_ns
            if self._now_ns // ENERGY_STEP_NS != before:
                self._told_joules = self._energy_joules

    def told_joules(self) -> float:
        """The counter as it last moved."""
        return self._told_joules

    def draw_watts(self, now_ns: int) -> float:
        """Draw at this moment."""
        if self._running is None or now_ns >= self._queue_end_ns:
            return self._neighbours_draw(self.constants.idle_watts)
        watts = self._neighbours_draw(self._running.draw_watts)
        watts *= 1.0 + POWER_NOISE * self._rng.standard_normal()
        if self._running.throttled:
            watts *= _regulation((now_ns - self._busy_since_ns) / NS_PER_SECOND)
        return watts

    def clock_mhz(self, now_ns: int) -> float:
        """SM clock at this moment."""
        busy = self._running is not None and now_ns < self._queue_end_ns
        share = self._running.clock_share if busy and self._running else self.lock_share
        return round(share * self.constants.max_clock_mhz / 15) * 15.0

    def reasons(self, now_ns: int) -> int:
        """NVML clock event bits."""
        if self._running is None or now_ns >= self._queue_end_ns:
            return IDLE
        reasons = POWER_CAP if self._running.throttled else 0
        locked = self.lock_share < 1.0 and (
            self.fault.tells_clock_setting or self.lock_share != self.fault.clock_share
        )
        return reasons | (CLOCK_SETTING if locked else 0)

    def _neighbours_draw(self, own_watts: float) -> float:
        share = self.fault.neighbour_share
        return min(self.limit_watts, (1 - share) * own_watts + share * self.fault.neighbour_watts)

    def _with_neighbour(self, busy_seconds: float, start_ns: int) -> float:
        """Time from start to end when the other process has the first part of each period."""
        taken = self.fault.neighbour_share * self.fault.neighbour_period_seconds
        if taken == 0.0:
            return busy_seconds
        period = self.fault.neighbour_period_seconds
        phase = (start_ns / NS_PER_SECOND) % period
        own = period - taken
        wait = max(0.0, taken - phase)
        first = min(own, period - max(phase, taken))
        if busy_seconds <= first:
            return wait + busy_seconds
        return wait + busy_seconds + taken * math.ceil((busy_seconds - first) / own)

    def _operation(self, kernel: Kernel, way: KernelWay) -> _Operation:
        """The highest clock at which the draw fits below the limit."""
        highest = self.lock_share
        free = self._at_clock(kernel, way, highest)
        if free.draw_watts <= self.limit_watts:
            return free
        low, high = LOWEST_CLOCK, highest
        for _ in range(20):
            middle = (low + high) / 2
            fits = self._at_clock(kernel, way, middle).draw_watts <= self.limit_watts
            low, high = (middle, high) if fits else (low, middle)
        held = self._at_clock(kernel, way, low)
        return _Operation(held.seconds, held.draw_watts, low, throttled=True)

    def _at_clock(self, kernel: Kernel, way: KernelWay, clock: float) -> _Operation:
        compute, memory, fixed = self._parts(kernel, way.warm)
        compute /= clock * self.fault.compute_slice
        memory /= self.fault.memory_slice
        work = (compute**SMOOTHNESS + memory**SMOOTHNESS) ** (1 / SMOOTHNESS)
        seconds = work + fixed
        if way.eager and isinstance(kernel, DecoderStep):
            launches = sum(count for _, count in kernel.kernel_mix())
            seconds = max(seconds, launches * LAUNCH_SECONDS["eager"])
        board = self.constants
        compute_watts = board.compute_watts * self.fault.compute_slice * compute / seconds
        memory_watts = board.memory_watts * self.fault.memory_slice * memory / seconds
        watts = board.idle_watts + board.active_watts * clock
        watts += compute_watts * clock**2.5 + memory_watts * clock**0.8
        return _Operation(seconds, watts * self._power_factor, clock, throttled=False)

    def _parts(self, kernel: Kernel, warm: bool) -> tuple[float, float, float]:
        """Compute, memory and fixed seconds at the highest clock on the whole board."""
        board = self.constants
        match kernel:
            case LaunchChain():
                return 0.0, 0.0, kernel.kernels * LAUNCH_SECONDS[kernel.mode]
            case DecoderStep():
                every = [(self._parts(k, False), count) for k, count in kernel.kernel_mix()]
                compute, memory, fixed = (
                    sum(count * part[i] for part, count in every) for i in range(3)
                )
                return compute, memory, fixed
            case Collective():
                raise ValueError("one simulated board has no links")
            case Gemm() | Attention():
                narrow = kernel.number_format == "fp8"
                peak = board.fp8_flops_per_second if narrow else board.bf16_flops_per_second
                compute = kernel.flops / peak
            case _:
                compute = 0.0
        rate = board.bytes_per_second * (WARM_SPEEDUP if warm else 1.0)
        return compute, kernel.bytes_moved / rate, KERNEL_START_SECONDS


def _regulation(busy_seconds: float) -> float:
    """Draw of a board at its limit, as a share of it, this long after heavy work began."""
    response = _step_response()
    return float(response[min(int(busy_seconds * NS_PER_SECOND / TICK_NS), len(response) - 1)])


@cache
def _step_response() -> Floats:
    """In ticks, until beats have died down."""
    tick = TICK_NS / NS_PER_SECOND
    state = RECORDED_LOOP.settled(np.array([STEP_FROM]), 1.0, tick)
    ticks = round(BEATS_SECONDS / tick)
    return RECORDED_LOOP.play(state, np.full((ticks, 1), STEP_TO), 1.0)[1][:, 0]
