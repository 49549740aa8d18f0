"""Measures single points: what a run needs of the world, and how it makes one row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from capacity.bench.bench_identity import BenchIdentity
from capacity.bench.bench_point import BenchPoint
from capacity.bench.board_settings import AS_IT_STANDS, BoardSetting, BoardSettings
from capacity.bench.known_numbers import require_known_numbers, shipped_identities
from capacity.bench.measurement_row import Latency, MeasurementRow
from capacity.bench.ports import KernelBackend, KernelUnavailable, Software
from capacity.bench.quality import BenchRefused, Gate, TimedPoint, judge_gate, judge_row
from capacity.bench.row_checks import at_default, require_one_fingerprint
from capacity.bench.timing import (
    ArrivalRule,
    BoardWatch,
    PowerRule,
    StopRule,
    time_arrivals,
    time_bursts,
    watch_board,
    watch_idle,
)
from capacity.kernels import Idle
from capacity.roofs import find_roofs
from gpu.board_meter import BoardMeter, BoardSample, BoardState
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND, seconds_to_ns

FINGERPRINT_DIGITS: Final = 16


SETTLE_SECONDS: Final = 3.0
"""After a new limit: one that MMBT's audit found borderline and NVML's one-second mean needs."""


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """How a run goes.

    Attributes:
        seed: Of the operands; recorded by the plan's order, too.
        allow_shared: Measure although another process holds the GPU; rows stay flagged.
        idle_seconds: The board settles so long before its idle draw is read, and is read as long.
    """

    run_id: str
    seed: int
    image_digest: str = ""
    allow_shared: bool = False
    stop: StopRule = field(default_factory=StopRule)
    loose_stop: StopRule = field(default_factory=lambda: StopRule(noise=0.05))
    power: PowerRule = field(default_factory=PowerRule)
    arrivals: ArrivalRule = field(default_factory=ArrivalRule)
    idle_seconds: float = 5.0

    def stop_rule(self, point: BenchPoint) -> StopRule:
        """Libraries that talk over links, and a host that launches, never settle within 1 %."""
        loose = point.section == "collectives" or point.launch_mode == "eager"
        return self.loose_stop if loose else self.stop


def open_gate(state: BoardState, software: Software, settings: BenchSettings) -> Gate:
    """The gate's verdict on the board as it was before this process opened it.

    Raises:
        BenchRefused: another process holds the GPU and nobody said that this is all right.
    """
    gate = judge_gate(state, software.multiprocessors, find_roofs(state.product))
    if "shared_gpu" in gate.flags and not settings.allow_shared:
        raise BenchRefused(
            "the GPU is in use: " + "; ".join(gate.remarks)
            + ". End the other work, or measure all the same with --allow-shared"
        )  # fmt: skip
    return gate


def gate_with_numbers(gate: Gate, identity: BenchIdentity, known: Sequence[BenchIdentity]) -> Gate:
    """The gate's verdict once it is known how the board computes."""
    try:
        require_known_numbers(identity, known)
    except InputError as error:
        return Gate((*gate.flags, "other_numbers"), (*gate.remarks, str(error)))
    return gate


def bench_identity(state: BoardState, software: Software, settings: BenchSettings) -> BenchIdentity:
    """What the rows of this run are true for."""
    return BenchIdentity(
        run_id=settings.run_id,
        gpu_product=state.product,
        gpu_uuid_hash=hashlib.sha256(state.uuid.encode()).hexdigest()[:16],
        architecture=software.architecture,
        vbios=state.vbios,
        driver=state.driver,
        cuda=software.cuda,
        torch=software.torch,
        image_digest=settings.image_digest,
        kernel_source_sha256=software.kernel_source_sha256,
        power_limit_watts=state.power_limit_watts,
    )


@dataclass(frozen=True, slots=True)
class BenchRig:
    """What a run needs of the world.

    Attributes:
        state: The board before this process opened it.
        remarks: What the backend has to say once the run is over.
        idle_before: Read before this process opened the board; None where nobody could.
        known: How boards are known to compute: the gate compares.
        settings: Who may hold caps and clock locks; None: everything is measured at the default.
    """

    backend: KernelBackend
    meter: BoardMeter
    clock: Clock
    state: BoardState
    remarks: Callable[[], Sequence[str]] = tuple
    idle_before: BoardWatch | None = None
    settings: BoardSettings | None = None
    known: Sequence[BenchIdentity] = field(default_factory=shipped_identities)


class PointBench:
    """Measures single points on one board."""

    def __init__(self, rig: BenchRig, settings: BenchSettings) -> None:
        software = rig.backend.software()
        gate = open_gate(rig.state, software, settings)
        self._rig = rig
        self._settings = settings
        self.fingerprint = rig.backend.fingerprint()
        identity = bench_identity(rig.state, software, settings)
        digits = self.fingerprint[:FINGERPRINT_DIGITS]
        self._identity = replace(identity, numeric_fingerprint=digits)
        self.gate = gate_with_numbers(gate, self._identity, rig.known)
        self._roofs = find_roofs(rig.state.product)
        self._setting = AS_IT_STANDS

    def owns(self, row: MeasurementRow) -> bool:
        """Whether a known row was measured under the same conditions on the same board."""
        own, theirs = self._identity, at_default(row, self._identity)
        if (theirs.gpu_product, theirs.gpu_uuid_hash) != (own.gpu_product, own.gpu_uuid_hash):
            return False
        require_one_fingerprint(own, theirs)
        return theirs.cache_key == own.cache_key

    def measure(self, point: BenchPoint) -> MeasurementRow:
        """One row."""
        clock = self._rig.clock
        self._require_settable(point.setting)
        started = datetime.fromtimestamp(clock.wall_time_ns() / NS_PER_SECOND, UTC)
        before = self._rig.meter.sample(clock.monotonic_ns())
        if isinstance(point.kernel, Idle):
            timed, name = self._idle(point.kernel), "none"
        else:
            timed, name = self._loaded(point)
        return self._row(point, timed, name, before, started)

    def _require_settable(self, setting: BoardSetting) -> None:
        if setting and self._rig.settings is None:
            raise KernelUnavailable("nobody may set caps or clock locks: default limit only")

    def _set(self, setting: BoardSetting) -> None:
        """Hold the board, wait until it follows, and hold it anew for the measurement."""
        settings, clock = self._rig.settings, self._rig.clock
        if settings is None or not (setting or self._setting):
            return
        settings.hold(setting)
        if setting != self._setting:
            clock.wait_until(clock.monotonic_ns() + seconds_to_ns(SETTLE_SECONDS))
            settings.hold(setting)
        self._setting = setting

    def _idle(self, kernel: Idle) -> TimedPoint:
        """The board at rest: one "run" is the window."""
        self._set(AS_IT_STANDS)
        watch = self._rig.idle_before
        if kernel.context == "open":
            settings = self._settings
            watch = watch_idle(
                self._rig.meter, self._rig.clock, settings.idle_seconds, settings.idle_seconds,
                settings.power,
            )  # fmt: skip
        if watch is None:
            raise KernelUnavailable("the board was not read before this process opened it")
        seconds = watch.power.window_seconds
        return TimedPoint(kernel, False, Latency(seconds, seconds, seconds, 0.0, 1), True, watch)

    def _loaded(self, point: BenchPoint) -> tuple[TimedPoint, str]:
        settings, clock = self._settings, self._rig.clock
        kernel = self._rig.backend.load(
            point.kernel, point.cache_state, settings.seed, point.launch_mode
        )
        try:
            self._set(point.setting)
            if point.timing_mode == "arrivals":
                latency, settled = time_arrivals(kernel, settings.arrivals, clock, settings.seed)
            else:
                latency, settled = time_bursts(kernel, settings.stop_rule(point))
            watch = None
            if point.measures_power:
                watch = watch_board(kernel, self._rig.meter, clock, settings.power)
        finally:
            kernel.close()
        cold = point.cache_state == "cold"
        return TimedPoint(point.kernel, cold, latency, settled, watch), kernel.implementation

    def _row(
        self, point: BenchPoint, timed: TimedPoint, name: str, before: BoardSample,
        started: datetime,
    ) -> MeasurementRow:  # fmt: skip
        after = self._rig.meter.sample(self._rig.clock.monotonic_ns())
        watch = timed.watch
        seen = (*(watch.samples if watch else ()), after)
        flags = judge_row(timed, self._roofs, self._rig.state.max_clock_mhz)
        arriving = point.timing_mode == "arrivals"
        if point.setting.lock_max_mhz is not None:  # asked for, so no fault
            flags = tuple(flag for flag in flags if flag != "slow_clock")
        return MeasurementRow(
            identity=self._identity_under(point.setting),
            section=point.section,
            kernel=point.kernel,
            cache_state=point.cache_state,
            timing_mode=point.timing_mode,
            launch_mode=point.launch_mode,
            arrivals_per_second=self._settings.arrivals.per_second if arriving else 0.0,
            implementation=name,
            data_distribution="normal",
            latency=timed.latency,
            power=watch.power if watch else None,
            sm_clock_mhz=_mean_clock(watch) if watch else after.sm_clock_mhz,
            temperature_start_celsius=before.temperature_celsius,
            temperature_end_celsius=after.temperature_celsius,
            throttle_reasons=_union(s.throttle_reasons for s in seen),
            started_at=started.isoformat(timespec="seconds").replace("+00:00", "Z"),
            flags=(*self.gate.flags, *flags),
        )

    def _identity_under(self, setting: BoardSetting) -> BenchIdentity:
        cap = setting.cap_watts
        return replace(
            self._identity,
            power_limit_watts=self._identity.power_limit_watts if cap is None else cap,
            sm_clock_lock_mhz=setting.lock_max_mhz,
        )


def _mean_clock(watch: BoardWatch) -> float | None:
    clocks = [s.sm_clock_mhz for s in watch.samples if s.sm_clock_mhz is not None]
    return sum(clocks) / len(clocks) if clocks else None


def _union(masks: Iterable[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total
