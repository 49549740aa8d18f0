"""Faults are found in rows, of simulated and of real boards; sound boards are left alone."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from capacity.bench.fault_finder import Fault, find_faults
from capacity.bench.measurement_row import MeasurementRow, read_rows
from capacity.simulated_backend import PlantedFault
from tests.capacity.bench_builders import a_rig, quick_points, run_on

ROOT = Path(__file__).parents[2]
REAL = sorted((ROOT / "capacity/data/profiles").glob("*.jsonl.gz"))


def rows_of(fault: PlantedFault | None, product: str = "NVIDIA H200") -> list[MeasurementRow]:
    rig = a_rig(fault, product=product)
    return list(run_on(rig, quick_points(rig, "bandwidth", "gemm")).rows)


def faults(rows: list[MeasurementRow], known: tuple[MeasurementRow, ...] = ()) -> set[Fault]:
    return {finding.fault for finding in find_faults(rows, known)}


PLANTED = [
    (PlantedFault(clock_share=0.7), "clock_lock"),
    (PlantedFault(clock_share=0.7, tells_clock_setting=True), "clock_lock"),
    (PlantedFault(limit_share=0.6), "cap"),
    (PlantedFault(limit_share=0.6, tells_limit=True), "cap"),
    (PlantedFault(neighbour_share=0.15), "busy_neighbour"),
    (PlantedFault(neighbour_share=0.5, neighbour_watts=200), "busy_neighbour"),
    (PlantedFault(compute_slice=3 / 7, memory_slice=0.5), "mig_slice"),
]


@pytest.mark.parametrize(("fault", "name"), PLANTED)
def test_a_planted_fault_is_found_and_no_other(fault: PlantedFault, name: Fault) -> None:
    assert faults(rows_of(fault)) == {name}


def test_a_type_without_a_datasheet_is_judged_by_another_board_s_rows() -> None:
    sound = tuple(rows_of(None, "Unlisted GPU"))
    for fault, name in PLANTED:
        assert faults(rows_of(fault, "Unlisted GPU"), sound) == {name}
    assert faults(rows_of(None, "Unlisted GPU"), sound) == set()


def test_a_slice_is_seen_in_the_rates_where_no_count_of_processors_tells() -> None:
    rows = rows_of(PlantedFault(compute_slice=3 / 7, memory_slice=0.5))
    silent = [replace(row, flags=()) for row in rows]
    assert faults(silent) == {"mig_slice"}


def test_a_sound_board_is_left_alone() -> None:
    assert faults(rows_of(None)) == set()
    assert faults([]) == set()


@pytest.mark.parametrize("file", REAL, ids=lambda file: file.name)
def test_real_boards_are_judged_right_by_their_rows_alone(file: Path) -> None:
    rows = [replace(row, flags=tuple(set(row.flags) - {"shared_gpu"})) for row in read_rows(file)]
    assert faults(rows) == ({"busy_neighbour"} if "neighbour" in file.name else set())


def test_who_finds_shares_no_code_with_who_plants() -> None:
    finder = ROOT / "capacity/bench/fault_finder.py"
    imported = {
        node.module
        for node in ast.walk(ast.parse(finder.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    assert not any("simulated" in str(name) for name in imported)
    for file in (ROOT / "capacity/simulated_backend").glob("*.py"):
        assert "fault_finder" not in file.read_text()
        assert "quality" not in file.read_text()
