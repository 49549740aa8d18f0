"""The benchmark's ports over a simulated board, in the virtual time of a ``ManualClock``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from capacity.bench.bench_identity import SIMULATED_DRIVER
from capacity.bench.bench_point import BoardFacts
from capacity.bench.board_settings import BoardSetting
from capacity.bench.measurement_row import CacheState
from capacity.bench.ports import KernelUnavailable, Software
from capacity.kernels import Collective, Kernel, LaunchMode, NumberFormat
from capacity.simulated_backend.bench_board import (
    BenchBoard,
    BoardConstants,
    KernelWay,
    PlantedFault,
)
from gpu.board_meter import BoardSample, BoardState
from wattpack.clock import Clock
from wattpack.units import NS_PER_SECOND

HOST_NS: Final = 10_000
"""What a look at a finished launch costs the host."""

AIMED_LAUNCH_SECONDS: Final = 0.002
MAX_RUNS: Final = 400


class SimulatedBackend:
    """One simulated board.

    Args:
        clock: Virtual time; waiting for a launch moves it.
        fault: Planted from outside; a clean board by default.
    """

    def __init__(
        self,
        clock: Clock,
        constants: BoardConstants | None = None,
        fault: PlantedFault | None = None,
        seed: int = 1,
    ) -> None:
        self._clock = clock
        self._board = BenchBoard(constants or BoardConstants(), fault or PlantedFault(), seed)

    def meter(self) -> SimulatedMeter:
        """The board's meter."""
        return SimulatedMeter(self._board)

    def settings(self) -> SimulatedSettings:
        """Whoever may write this board's settings."""
        return SimulatedSettings(self._board)

    def software(self) -> Software:
        """What stands for versions."""
        board, share = self._board.constants, self._board.fault.compute_slice
        return Software("simulated", round(board.multiprocessors * share), "", "", "")

    def facts(self) -> BoardFacts:
        """Memory, cache and number formats."""
        board = self._board.constants
        formats: tuple[NumberFormat, ...] = ("bf16", "fp8")
        memory = int(board.memory_bytes * self._board.fault.memory_slice)
        return BoardFacts(
            memory, board.l2_bytes, formats,
            limit_watts=board.default_limit_watts, max_clock_mhz=board.max_clock_mhz,
        )  # fmt: skip

    def fingerprint(self) -> str:
        """The constants' hash: equal for equal types."""
        return hashlib.sha256(repr(self._board.constants).encode()).hexdigest()

    def load(
        self, kernel: Kernel, cache_state: CacheState, seed: int, launch_mode: LaunchMode = "graph"
    ) -> _Loaded:
        """Nothing is allocated."""
        if isinstance(kernel, Collective):
            raise KernelUnavailable("one simulated board has no links")
        way = KernelWay(cache_state == "warm", launch_mode == "eager")
        return _Loaded(self._board, self._clock, kernel, way)

    def close(self) -> None:
        """Nothing is held."""


class SimulatedSettings:
    """Writes a simulated board's limit and lock."""

    def __init__(self, board: BenchBoard) -> None:
        self._board = board
        self._before = (board.limit_watts, board.lock_share)

    def hold(self, setting: BoardSetting) -> None:
        """From now on."""
        limit, lock = self._before
        if setting.cap_watts is not None:
            limit = setting.cap_watts
        if setting.lock_max_mhz is not None:
            lock = setting.lock_max_mhz / self._board.constants.max_clock_mhz
        self._board.limit_watts, self._board.lock_share = limit, lock

    def restore(self) -> None:
        """As it was."""
        self._board.limit_watts, self._board.lock_share = self._before


class SimulatedMeter:
    """The board as a driver would tell it."""

    def __init__(self, board: BenchBoard) -> None:
        self._board = board

    def state(self) -> BoardState:
        """A neighbour is in no process list: other containers' processes are not, either."""
        board, fault = self._board.constants, self._board.fault
        told = self._board.limit_watts if fault.tells_limit else board.default_limit_watts
        return BoardState(
            product=board.product,
            uuid=f"GPU-simulated-{board.product}",
            vbios="",
            driver=SIMULATED_DRIVER,
            power_limit_watts=told,
            default_limit_watts=board.default_limit_watts,
            max_clock_mhz=board.max_clock_mhz,
            mig_enabled=False,
            processes=0,
            utilisation=0.0,
        )

    def sample(self, now_ns: int) -> BoardSample:
        """Power, energy, clock and temperature now."""
        self._board.advance(now_ns)
        draw = self._board.draw_watts(now_ns)
        return BoardSample(
            monotonic_ns=now_ns,
            instant_draw_watts=draw,
            energy_joules=self._board.told_joules(),
            sm_clock_mhz=self._board.clock_mhz(now_ns),
            temperature_celsius=round(30 + draw / 15),
            throttle_reasons=self._board.reasons(now_ns),
        )


@dataclass(frozen=True, slots=True)
class _Pending:
    clock: Clock
    start_ns: int
    end_ns: int

    def done(self) -> bool:
        """Whether virtual time has passed the end."""
        return self.clock.monotonic_ns() >= self.end_ns

    def seconds(self) -> float:
        """Device time; virtual time moves to the end."""
        if not self.done():
            self.clock.wait_until(self.end_ns + HOST_NS)
        return (self.end_ns - self.start_ns) / NS_PER_SECOND


class _Loaded:
    implementation = "simulated"

    def __init__(self, board: BenchBoard, clock: Clock, kernel: Kernel, way: KernelWay) -> None:
        self._board, self._clock, self._kernel, self._way = board, clock, kernel, way
        self.runs_per_launch = 1
        one = self.launch(1).seconds()
        if way.eager:
            return
        self.runs_per_launch = min(MAX_RUNS, max(1, round(AIMED_LAUNCH_SECONDS / one)))

    def launch(self, count: int) -> _Pending:
        """Queue and return at once."""
        now_ns = self._clock.monotonic_ns()
        runs = count * self.runs_per_launch
        start_ns, end_ns = self._board.queue(self._kernel, runs, self._way, now_ns)
        return _Pending(self._clock, start_ns, end_ns)

    def close(self) -> None:
        """Wait for what is queued: nothing is."""
