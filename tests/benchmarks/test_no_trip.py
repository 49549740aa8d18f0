"""Figures of random fault runs from rows, and one short run of a small row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import no_trip
from benchmarks._fault_runs import FaultRun, one_run
from benchmarks.no_trip import figures, shard_name, trip_bound
from benchmarks.runner import Options
from simulation.scenario import load_scenario
from tests.simulation.row_control.rows import small_row
from wattpack.errors import InputError


def made_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "causes": ["api_down"],
        "trips": 0,
        "heat": 0.1,
        "peak_ratio": 0.98,
        "above_seconds": 0.0,
        "brakes": 0,
        "violations": {},
        "work": [80.0, 99.0],
        "oracle_work": [100.0, 100.0],
        "polca_work": [70.0, 99.0],
        "back_told": True,
        "back_seconds": 12.0,
        "polca_trips": 0,
        "polca_brakes": 1,
        "polca_above_seconds": 3.0,
        "cap_changes": 10,
        "gpu_hours": 2.0,
    }
    return row | changes


def test_no_trip_in_n_runs_bounds_their_chance_by_three_over_n() -> None:
    assert trip_bound(0, 2000) == pytest.approx(3.0 / 2000, rel=0.01)
    assert trip_bound(1, 100) == pytest.approx(0.0466, abs=0.0005)
    assert trip_bound(5, 5) == 1.0


def test_figures_sum_work_by_class_and_count_runs() -> None:
    tripped = made_row(trips=2, heat=1.0, back_seconds=None, violations={"I2": 3})
    told = figures([made_row(), tripped, made_row(back_seconds=90.0)])
    assert told["trips"] == 2
    assert told["runs_with_a_trip"] == 1
    assert told["causes_of_trips"] == "api_down 1"
    assert told["low_work_of_oracle"] == pytest.approx(0.8)
    assert told["high_work_of_oracle"] == pytest.approx(0.99)
    assert told["work_of_oracle"] == pytest.approx(0.895)
    assert told["back_within_60_seconds_share"] == pytest.approx(1 / 3)
    assert told["runs_not_back_at_all"] == 1
    assert told["invariant_violations"] == 3
    assert told["polca_runs_braked"] == 3
    assert told["cap_changes_per_gpu_hour"] == pytest.approx(5.0)


def test_a_run_is_a_function_of_its_seed_and_compares_outside_of_its_faults() -> None:
    scenario = small_row()
    run = FaultRun.of(scenario, 1, 2, 900.0)
    assert run.spans()[0] == (45.0, run.draw.onset_seconds)
    assert run.spans()[1] == (run.draw.end_seconds + 60.0, 900.0)
    first, again = (one_run(scenario, 1, 2, 55.0) for _ in range(2))
    assert first == again
    assert first["oracle_work"] >= first["work"]
    assert one_run(scenario, 1, 3, 55.0)["oracle_work"] != first["oracle_work"]


def test_a_finished_shard_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario()
    monkeypatch.setattr(no_trip, "one_run", lambda *_: made_row())
    job = (scenario, 1, range(2), tmp_path)
    rows = no_trip._shard(job)
    monkeypatch.setattr(no_trip, "one_run", lambda *_: pytest.fail("run again"))
    assert no_trip._shard(job) == rows
    assert [f.name for f in tmp_path.iterdir()] == [shard_name(scenario, 1, range(2))]


def test_unknown_arguments_are_refused_by_what_is_known() -> None:
    for arguments in (("--run", "x"), ("--runs", "0"), ("--runs", "many")):
        with pytest.raises(InputError, match="runs"):
            no_trip.run(Options(arguments=arguments))
