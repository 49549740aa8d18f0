"""One run: gate, points in the plan's order, rows as they come, drift at the end.

A run is resumable: rows that a results file already holds under the same cache key are not
measured again. Each row is written before the next point starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from capacity.bench.bench_identity import BenchIdentity
from capacity.bench.bench_point import BenchPoint
from capacity.bench.measurement_row import Latency, MeasurementRow
from capacity.bench.ports import KernelBackend, KernelUnavailable, Software
from capacity.bench.quality import BenchRefused, Gate, TimedPoint, drifted, judge_gate, judge_row
from capacity.bench.results_file import require_continuable
from capacity.bench.row_checks import require_one_fingerprint
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
from wattpack.units import NS_PER_SECOND

FINGERPRINT_DIGITS: Final = 16


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


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands, after each point.

    Attributes:
        remaining_seconds: By the mean of the points of each kind so far.
    """

    done: int
    total: int
    remaining_seconds: float
    row: MeasurementRow | None
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class BenchOutcome:
    """What a run left.

    Attributes:
        skipped: Points that this board or software cannot run, with the reason.
        drifted: The repeated points moved: the rows do not belong together.
        energy_joules: What the board took over the run; None where it does not count.
    """

    rows: tuple[MeasurementRow, ...]
    skipped: Mapping[str, str]
    gate: Gate
    fingerprint: str
    drifted: bool
    elapsed_seconds: float
    energy_joules: float | None = None


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
    """

    backend: KernelBackend
    meter: BoardMeter
    clock: Clock
    state: BoardState
    remarks: Callable[[], Sequence[str]] = tuple
    idle_before: BoardWatch | None = None


def run_bench(
    points: Iterable[BenchPoint],
    rig: BenchRig,
    settings: BenchSettings,
    *,
    known: Iterable[MeasurementRow] = (),
    report: Callable[[Progress], None] = lambda progress: None,
) -> BenchOutcome:
    """Measure every point that is not known yet.

    Args:
        points: In the order of measuring.
        known: Rows of an earlier, broken run of this board under these conditions.
        report: Called after each point; writes the row, draws the progress.

    Raises:
        InputError: if a known row is of another board, limit or software.
        BenchRefused: see ``open_gate``.
    """
    clock = rig.clock
    start_ns = clock.monotonic_ns()
    joules_before = rig.meter.sample(start_ns).energy_joules
    bench = _Bench(rig, settings)
    earlier = list(known)
    rows = {_row_key(row): row for row in earlier if bench.owns(row)}
    require_continuable(earlier, list(rows.values()))
    plan = list(points)
    skipped: dict[str, str] = {}
    pace = _Pace(plan, rows)
    for done, point in enumerate(plan, start=1):
        if point.key in rows:
            continue
        point_ns = clock.monotonic_ns()
        row, reason = None, ""
        try:
            row = bench.measure(point)
            rows[point.key] = row
        except KernelUnavailable as error:
            reason = str(error)
            skipped[point.key] = reason
        pace.note(point, clock.monotonic_ns() - point_ns)
        report(Progress(done, len(plan), pace.remaining_seconds(), row, reason))
    joules_after = rig.meter.sample(clock.monotonic_ns()).energy_joules
    counted = joules_before is not None and joules_after is not None
    kept = tuple(rows[p.key] for p in plan if p.key in rows)
    return BenchOutcome(
        rows=kept,
        skipped=skipped,
        gate=bench.gate,
        fingerprint=bench.fingerprint,
        drifted=_has_drifted(kept),
        elapsed_seconds=(clock.monotonic_ns() - start_ns) / NS_PER_SECOND,
        energy_joules=(joules_after or 0.0) - (joules_before or 0.0) if counted else None,
    )


class _Bench:
    """Measures single points."""

    def __init__(self, rig: BenchRig, settings: BenchSettings) -> None:
        software = rig.backend.software()
        self.gate = open_gate(rig.state, software, settings)
        self._rig = rig
        self._settings = settings
        self.fingerprint = rig.backend.fingerprint()
        identity = bench_identity(rig.state, software, settings)
        digits = self.fingerprint[:FINGERPRINT_DIGITS]
        self._identity = replace(identity, numeric_fingerprint=digits)
        self._roofs = find_roofs(rig.state.product)

    def owns(self, row: MeasurementRow) -> bool:
        """Whether a known row was measured under the same conditions on the same board."""
        same_board = row.identity.gpu_uuid_hash == self._identity.gpu_uuid_hash
        require_one_fingerprint(self._identity, row.identity)
        return same_board and row.identity.cache_key == self._identity.cache_key

    def measure(self, point: BenchPoint) -> MeasurementRow:
        """One row."""
        clock = self._rig.clock
        started = datetime.fromtimestamp(clock.wall_time_ns() / NS_PER_SECOND, UTC)
        before = self._rig.meter.sample(clock.monotonic_ns())
        if isinstance(point.kernel, Idle):
            timed, name = self._idle(point.kernel), "none"
        else:
            timed, name = self._loaded(point)
        return self._row(point, timed, name, before, started)

    def _idle(self, kernel: Idle) -> TimedPoint:
        """The board at rest: one "run" is the window."""
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
        return MeasurementRow(
            identity=self._identity,
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


class _Pace:
    """How long the rest will take: the mean time of the points of each kind so far."""

    FIRST_GUESS_SECONDS: Final = {True: 3.0, False: 0.6}

    def __init__(self, plan: Iterable[BenchPoint], known: Mapping[str, MeasurementRow]) -> None:
        self._left = {True: 0, False: 0}
        self._spent = {True: (0, 0), False: (0, 0)}
        for point in plan:
            self._left[point.measures_power] += point.key not in known

    def note(self, point: BenchPoint, elapsed_ns: int) -> None:
        """One point took this long."""
        kind = point.measures_power
        self._left[kind] -= 1
        count, total_ns = self._spent[kind]
        self._spent[kind] = (count + 1, total_ns + elapsed_ns)

    def remaining_seconds(self) -> float:
        """For the points that are left."""
        return sum(left * self._mean_seconds(kind) for kind, left in self._left.items())

    def _mean_seconds(self, kind: bool) -> float:
        count, total_ns = self._spent[kind]
        return total_ns / count / NS_PER_SECOND if count else self.FIRST_GUESS_SECONDS[kind]


def flag_drift(rows: Iterable[MeasurementRow]) -> tuple[MeasurementRow, ...]:
    """The rows of a drifted run, each flagged."""
    return tuple(replace(row, flags=(*row.flags, "drift")) for row in rows)


def _has_drifted(rows: tuple[MeasurementRow, ...]) -> bool:
    first = {row.kernel: row.power.sustained_seconds for row in rows
             if row.section == "gemm" and row.cache_state == "cold" and row.power}  # fmt: skip
    again = [(first[row.kernel], row.power.sustained_seconds) for row in rows
             if row.section == "repeat" and row.power and row.kernel in first]  # fmt: skip
    return drifted([a for a, _ in again], [b for _, b in again])


def _row_key(row: MeasurementRow) -> str:
    # The section is a plain word in the file; an unknown one simply matches no point.
    return BenchPoint(
        row.section,  # type: ignore[arg-type]
        row.kernel,
        row.cache_state,
        timing_mode=row.timing_mode,
        launch_mode=row.launch_mode,
    ).key


def _mean_clock(watch: BoardWatch) -> float | None:
    clocks = [s.sm_clock_mhz for s in watch.samples if s.sm_clock_mhz is not None]
    return sum(clocks) / len(clocks) if clocks else None


def _union(masks: Iterable[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total
