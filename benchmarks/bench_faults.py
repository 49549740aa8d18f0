"""Does the benchmark notice that a board is locked, capped, shared or sliced?

Faults are planted into simulated boards from outside (``capacity.simulated_backend``); the finder
(``capacity.bench.fault_finder``) sees rows alone and shares no code with them. Half of the boards
are of a type without a datasheet: there the rows of another sound board of the type stand in.
Real rows are judged by the same finder: eight files of H200 and H100 boards, one of them measured
beside a busy process, with the gate's own flags taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from benchmarks.runner import Options, Result, Target
from capacity.bench.bench_plan import bench_plan
from capacity.bench.bench_point import BenchPoint
from capacity.bench.bench_runner import run_bench
from capacity.bench.fault_finder import Fault, find_faults
from capacity.bench.measurement_row import MeasurementRow
from capacity.bench.point_bench import BenchRig, BenchSettings
from capacity.bench.shipped_rows import shipped_rows, shipped_runs
from capacity.simulated_backend import BoardConstants, PlantedFault, SimulatedBackend
from wattpack.clock import ManualClock

NAME = "bench_faults"
SUMMARY = "planted clock locks, caps, neighbours and slices that the benchmark finds"
CLEAN_RUNS, FAULTY_RUNS = 500, 100
QUICK_CLEAN_RUNS, QUICK_FAULTY_RUNS = 16, 4
PRODUCTS = ("NVIDIA H200", "Unlisted GPU")
SLICES = ((1 / 7, 1 / 8), (2 / 7, 2 / 8), (3 / 7, 4 / 8), (4 / 7, 4 / 8))
REAL_BUSY = "h200-busy-neighbour"

TARGETS = {
    "found_ratio_min": Target(at_least=0.95),
    "false_alarm_ratio": Target(at_most=0.02),
    "real_busy_neighbour_found": Target(at_least=1),
    "real_sound_files_accused": Target(at_most=0),
}

Planter = Callable[[np.random.Generator], PlantedFault]


def _clock_lock(rng: np.random.Generator) -> PlantedFault:
    return PlantedFault(clock_share=0.7, tells_clock_setting=bool(rng.integers(2)))


def _cap(rng: np.random.Generator) -> PlantedFault:
    return PlantedFault(limit_share=0.6, tells_limit=bool(rng.integers(2)))


def _neighbour(rng: np.random.Generator) -> PlantedFault:
    return PlantedFault(
        neighbour_share=rng.uniform(0.1, 0.6),
        neighbour_watts=rng.uniform(200, 690),
        neighbour_period_seconds=rng.uniform(0.001, 0.010),
    )


def _slice(rng: np.random.Generator) -> PlantedFault:
    compute, memory = SLICES[rng.integers(len(SLICES))]
    return PlantedFault(compute_slice=compute, memory_slice=memory)


PLANTERS: Mapping[Fault, Planter] = {
    "clock_lock": _clock_lock,
    "cap": _cap,
    "busy_neighbour": _neighbour,
    "mig_slice": _slice,
}


def run(options: Options) -> Result:
    """Plant, measure, judge."""
    rng = np.random.default_rng(options.seed)
    lab = _Lab(rng)
    clean = QUICK_CLEAN_RUNS if options.quick else CLEAN_RUNS
    faulty = QUICK_FAULTY_RUNS if options.quick else FAULTY_RUNS
    alarms = sum(bool(lab.judged(PlantedFault())) for _ in range(clean))
    options.progress(f"{alarms} of {clean} sound boards accused")
    figures: dict[str, float | int | str] = {
        "clean_runs": clean,
        "faulty_runs_of_each": faulty,
        "false_alarm_ratio": alarms / clean,
    }
    for fault, plant in PLANTERS.items():
        judged = [lab.judged(plant(rng)) for _ in range(faulty)]
        figures[f"{fault}_found_ratio"] = sum(fault in found for found in judged) / faulty
        figures[f"{fault}_named_alone_ratio"] = sum(found == {fault} for found in judged) / faulty
        options.progress(f"{fault}: {figures[f'{fault}_found_ratio']:.3f} found")
    figures["found_ratio_min"] = min(float(figures[f"{f}_found_ratio"]) for f in PLANTERS)
    return Result(figures | _real_boards(), TARGETS)


class _Lab:
    """Measures simulated boards by a quick run's products and streams."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._points = self._plan()
        self._sound = {product: self._rows(product, PlantedFault()) for product in PRODUCTS}

    def judged(self, fault: PlantedFault) -> set[Fault]:
        """The faults that are found on a new board."""
        product = PRODUCTS[self._rng.integers(len(PRODUCTS))]
        known = self._sound[product] if product == PRODUCTS[1] else ()
        return {finding.fault for finding in find_faults(self._rows(product, fault), known)}

    def _rows(self, product: str, fault: PlantedFault) -> tuple[MeasurementRow, ...]:
        clock = ManualClock()
        seed = int(self._rng.integers(2**31))
        board = SimulatedBackend(clock, BoardConstants(product=product), fault, seed)
        meter = board.meter()
        rig = BenchRig(board, meter, clock, meter.state())
        return run_bench(self._points, rig, BenchSettings("simulated", seed)).rows

    def _plan(self) -> tuple[BenchPoint, ...]:
        facts = SimulatedBackend(ManualClock()).facts()
        return bench_plan(facts, ("bandwidth", "gemm"), quick=True, seed=1)


def _real_boards() -> dict[str, float | int | str]:
    accused, found = 0, 0
    for run in shipped_runs():
        rows = [_without_the_gate(row) for row in shipped_rows(run)]
        faults = {finding.fault for finding in find_faults(rows)}
        if run == REAL_BUSY:
            found = int(faults == {"busy_neighbour"})
        else:
            accused += bool(faults)
    return {"real_busy_neighbour_found": found, "real_sound_files_accused": accused}


def _without_the_gate(row: MeasurementRow) -> MeasurementRow:
    return replace(row, flags=tuple(flag for flag in row.flags if flag != "shared_gpu"))
