"""Rows, boards and runs of the benchmark for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from capacity.bench.bench_identity import BenchIdentity
from capacity.bench.bench_plan import FULL, bench_plan
from capacity.bench.bench_point import BenchPoint, Section
from capacity.bench.bench_runner import BenchOutcome, run_bench
from capacity.bench.measurement_row import Latency, MeasurementRow, PowerWindow
from capacity.bench.point_bench import BenchRig, BenchSettings
from capacity.kernels import Gemm
from capacity.simulated_backend import BoardConstants, PlantedFault, SimulatedBackend
from wattpack.clock import ManualClock

IDENTITY = BenchIdentity(
    "run", "NVIDIA H200", "0" * 16, "sm_90", "v", "d", "13.0", "2.11", "", "f" * 64, 700.0
)  # fmt: skip


def a_row(**changes: Any) -> MeasurementRow:
    row = MeasurementRow(
        identity=IDENTITY,
        section="gemm",
        kernel=Gemm(4096, 4096, 4096),
        cache_state="cold",
        timing_mode="continuous",
        implementation="cublas",
        data_distribution="normal",
        latency=Latency(0.2 / 1e3, 0.19 / 1e3, 0.21 / 1e3, 0.01, 100),
        power=PowerWindow(600.0, 601.0, 640.0, 900.0, 1.5, 0.21 / 1e3, (600.0, 640.0)),
        sm_clock_mhz=1980.0,
        temperature_start_celsius=40.0,
        temperature_end_celsius=50.0,
        throttle_reasons=0,
        started_at="2026-11-22T05:00:00Z",
    )
    return replace(row, **changes)


def a_rig(
    fault: PlantedFault | None = None, *, seed: int = 1, product: str = "NVIDIA H200"
) -> BenchRig:
    clock = ManualClock()
    backend = SimulatedBackend(clock, BoardConstants(product=product), fault, seed)
    return BenchRig(backend, backend.meter(), clock, backend.meter().state())


def quick_points(rig: BenchRig, *sections: Section, seed: int = 1) -> tuple[BenchPoint, ...]:
    return bench_plan(rig.backend.facts(), sections or FULL, quick=True, seed=seed)


def run_on(
    rig: BenchRig, points: Iterable[BenchPoint] | None = None, **settings: Any
) -> BenchOutcome:
    known = settings.pop("known", ())
    report = settings.pop("report", lambda progress: None)
    chosen = quick_points(rig) if points is None else points
    return run_bench(chosen, rig, BenchSettings("test", 1, **settings), known=known, report=report)
