"""One run: gate, points in the plan's order, rows as they come, drift at the end.

A run is resumable: rows that a results file already holds under the same cache key are not
measured again. Each row is written before the next point starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from capacity.bench.bench_point import BenchPoint
from capacity.bench.board_settings import given_back
from capacity.bench.measurement_row import MeasurementRow
from capacity.bench.point_bench import BenchRig, BenchSettings, PointBench
from capacity.bench.ports import KernelUnavailable
from capacity.bench.quality import Gate, drifted
from capacity.bench.results_file import require_continuable
from capacity.bench.row_checks import setting_of
from wattpack.errors import read_from
from wattpack.units import NS_PER_SECOND


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


def run_bench(
    points: Iterable[BenchPoint],
    rig: BenchRig,
    settings: BenchSettings,
    *,
    known: Iterable[MeasurementRow] = (),
    known_source: str = "",
    report: Callable[[Progress], None] = lambda progress: None,
) -> BenchOutcome:
    """Measure every point that is not known yet.

    Args:
        points: In the order of measuring.
        known: Rows of an earlier, broken run of this board under these conditions.
        known_source: The file that holds them.
        report: Called after each point; writes the row, draws the progress.

    Raises:
        InputError: if a known row is of another board, limit or software.
        BenchRefused: see ``open_gate``.
    """
    clock = rig.clock
    start_ns = clock.monotonic_ns()
    joules_before = rig.meter.sample(start_ns).energy_joules
    bench = PointBench(rig, settings)
    earlier = list(known)
    with read_from(known_source):
        rows = {_row_key(row): row for row in earlier if bench.owns(row)}
        require_continuable(earlier, list(rows.values()))
    plan = list(points)
    skipped: dict[str, str] = {}
    pace = _Pace(plan, rows)
    with given_back(rig.settings):
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
        setting=setting_of(row),
    ).key
