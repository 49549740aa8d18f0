"""Figures of random fault runs from rows, and one short run of a small row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import no_trip
from benchmarks._fault_runs import FaultRun, one_run
from benchmarks._kept_runs import KeptRuns, RunsKind, chance_bound, read_runs, together
from benchmarks._row_cases import work_of
from benchmarks.no_trip import figures
from benchmarks.runner import Options
from simulation.scenario import Scenario, load_scenario
from tests.simulation.row_control.rows import small_row
from wattpack.errors import InputError
from wattpack.sweep.sweep import OneByOne


def made_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "number": 0,
        "causes": ["api_down"],
        "trips": 0,
        "heat": 0.1,
        "began_heat": 0.0,
        "hidden_share": 0.01,
        "hidden_heat": 0.002,
        "metered": True,
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
    assert chance_bound(0, 2000) == pytest.approx(3.0 / 2000, rel=0.01)
    assert chance_bound(1, 100) == pytest.approx(0.0466, abs=0.0005)
    assert chance_bound(5, 5) == 1.0


def test_figures_sum_work_by_class_and_count_runs() -> None:
    tripped = made_row(trips=2, heat=1.0, back_seconds=None, violations={"I2": 3})
    told = figures([made_row(), tripped, made_row(back_seconds=90.0, hidden_heat=0.03)])
    assert told["trips"] == 2
    assert told["runs_with_a_trip"] == 1
    assert told["causes_of_trips"] == "api_down 1"
    assert told["low_work_of_oracle"] == pytest.approx(0.8)
    assert told["high_work_of_oracle"] == pytest.approx(0.99)
    assert told["work_of_oracle"] == pytest.approx(0.895)
    assert told["back_within_60_seconds_share"] == pytest.approx(1 / 3)
    assert told["runs_not_back_at_all"] == 1
    assert told["invariant_violations"] == 3
    assert told["hidden_heat_max"] == 0.03
    assert 0.002 < told["hidden_heat_p99"] < 0.03
    assert told["polca_runs_braked"] == 3
    assert told["runs_without_any_meter"] == 0
    assert told["cap_changes_per_gpu_hour"] == pytest.approx(5.0)


def test_runs_tell_their_own_time_and_those_that_do_not_are_left_out() -> None:
    timed = [
        made_row(wall_seconds=8.0, cpu_seconds=6.0),
        made_row(wall_seconds=4.0, cpu_seconds=3.0),
    ]
    told = figures([*timed, made_row()])
    assert told["runs_timed"] == 2
    assert told["runs_wall_seconds"] == 12.0
    assert told["runs_cpu_seconds"] == 9.0
    assert told["minutes_of_2000_runs_on_two_cores_wall"] == pytest.approx(100.0)
    assert told["minutes_of_2000_runs_on_two_cores_cpu"] == pytest.approx(75.0)
    assert figures([made_row()])["runs_timed"] == 0


def test_runs_without_any_meter_are_told_apart() -> None:
    blind = made_row(metered=False, back_seconds=300.0, work=[60.0, 60.0])
    told = figures([made_row(), blind])
    assert told["back_within_60_seconds_share"] == 0.5
    assert told["back_within_60_seconds_share_with_a_meter"] == 1.0
    assert told["runs_without_any_meter"] == 1
    assert told["work_of_oracle_without_any_meter"] == pytest.approx(0.6)
    assert "work_of_oracle_without_any_meter_of_declared_worst" not in told


def test_runs_without_any_meter_stand_beside_an_oracle_of_declared_worsts() -> None:
    blind = made_row(
        metered=False,
        back_seconds=None,
        work=[60.0, 60.0],
        declared_oracle_work=[60.0, 65.0],
        declared_back_seconds=8.0,
    )
    rows = [made_row(), blind, made_row(metered=False, back_seconds=None)]
    told = figures(rows)
    assert told["work_of_oracle_without_any_meter_of_declared_worst"] == pytest.approx(0.96)
    assert told["back_within_60_seconds_share_without_any_meter_of_declared_worst"] == 1.0
    assert told["back_within_60_seconds_share"] == pytest.approx(1 / 3)


def test_the_oracle_of_declared_worsts_does_no_more_than_the_one_that_knows_draws() -> None:
    scenario = small_row()
    metered = [_metered(scenario, number) for number in range(100)]
    row = one_run(scenario, 1, metered.index(False), 55.0)
    assert 0.0 < sum(row["declared_oracle_work"]) <= sum(row["oracle_work"])
    known = one_run(scenario, 1, metered.index(True), 55.0)
    assert known["declared_oracle_work"] is known["declared_back_seconds"] is None


def _metered(scenario: Scenario, number: int) -> bool:
    draw = FaultRun.of(scenario, 1, number, 900.0).draw
    return draw.meters or draw.bmcs


def test_a_run_is_a_function_of_its_seed_and_compares_outside_of_its_faults() -> None:
    scenario = small_row()
    run = FaultRun.of(scenario, 1, 2, 900.0)
    assert run.spans()[0] == (45.0, run.draw.onset_seconds)
    assert run.spans()[1] == (run.draw.end_seconds + 60.0, 900.0)
    first, again = (one_run(scenario, 1, 2, 55.0) for _ in range(2))
    assert first == again
    assert first["oracle_work"] >= first["work"]
    assert one_run(scenario, 1, 3, 55.0)["oracle_work"] != first["oracle_work"]


STRUCK = [
    {"at_seconds": 5, "kind": "ignore_cap", "duration_seconds": 20, "share": 0.25},
    {"at_seconds": 10, "kind": "api_down", "duration_seconds": 30},
]


def test_the_faults_of_a_scenario_take_the_place_of_drawn_ones() -> None:
    scenario = small_row(faults=STRUCK)
    runs = [FaultRun.of(scenario, 1, number, 900.0) for number in range(6)]
    assert {run.draw.causes for run in runs} == {("ignore_cap", "api_down")}
    assert {(run.draw.onset_seconds, run.draw.end_seconds) for run in runs} == {(5.0, 40.0)}
    struck = {tuple(run.draw.faults.faults[0].struck.tolist()) for run in runs}
    assert len(struck) > 1
    row = one_run(scenario, 1, 0, 55.0)
    assert row["causes"] == ["ignore_cap", "api_down"]


def test_another_mix_of_work_is_that_of_its_file(tmp_path: Path) -> None:
    scenario = small_row()
    file = tmp_path / "work.yaml"
    file.write_text("training_share: 1.0\n", encoding="utf-8")
    own, other = (one_run(scenario, 1, 2, 55.0, work) for work in (None, work_of(file)))
    assert other["oracle_work"] != own["oracle_work"]
    file.write_text("training_share: 2.0\n", encoding="utf-8")
    with pytest.raises(InputError, match="training_share") as refused:
        no_trip.run(Options(arguments=("--work", str(file)), quick=True))
    assert refused.value.source == str(file)


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("{at_seconds: 60, kind: node_reboot, target: nowhere}", "nowhere"),
        ("{at_seconds: 60, kind: planner_down, duration_seconds: 30}", "faults"),
    ],
)
def test_faults_that_strike_nobody_on_the_row_are_refused_with_their_file(
    tmp_path: Path, fault: str, named: str
) -> None:
    file = tmp_path / "row.yaml"
    file.write_text(f"faults:\n- {fault}\n", encoding="utf-8")
    asked = Options(arguments=("--scenario", str(file)), progress=lambda _: None)
    with pytest.raises(InputError, match=named) as refused:
        no_trip.run(asked)
    assert refused.value.source == str(file)


def kind_of(sources: str = "abc", seed: int = 1) -> RunsKind:
    return RunsKind.of(load_scenario(), seed, sources)


def test_runs_that_are_kept_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, kind = load_scenario(), kind_of()
    monkeypatch.setattr(no_trip, "Processes", lambda count: OneByOne())
    monkeypatch.setattr(no_trip, "one_run", lambda *asked: made_row(number=asked[2]))
    asked = no_trip._arguments(["--runs", "12", "--first", "3"])
    rows = no_trip._all_rows(Options(resume=tmp_path), asked, scenario, kind)
    assert [row["number"] for row in rows] == list(range(3, 15))
    monkeypatch.setattr(no_trip, "one_run", lambda *_: pytest.fail("run again"))
    assert no_trip._all_rows(Options(resume=tmp_path), asked, scenario, kind) == rows
    assert [f.name for f in tmp_path.iterdir()] == [kind.file_name]


def test_a_line_that_was_cut_off_is_lost_and_nothing_else(tmp_path: Path) -> None:
    kind = kind_of()
    KeptRuns(kind, tmp_path).add([made_row(number=0), made_row(number=1, heat=0.123456789)])
    file = tmp_path / kind.file_name
    text = file.read_text(encoding="utf-8")
    assert KeptRuns(kind, tmp_path).rows[1]["heat"] == 0.123457
    file.write_text(text[:-20], encoding="utf-8")
    again = KeptRuns(kind, tmp_path)
    assert set(again.rows) == {0}
    again.add([made_row(number=1, heat=0.123456789)])
    assert file.read_text(encoding="utf-8") == text


def test_runs_of_other_sources_rows_and_seeds_have_their_own_files(tmp_path: Path) -> None:
    kinds = [kind_of(), kind_of("def"), kind_of(seed=2)]
    other_row = load_scenario(None, row={"external_watts": 1.0})
    kinds.append(RunsKind.of(other_row, 1, "abc"))
    for kind in kinds:
        KeptRuns(kind, tmp_path).add([made_row()])
    assert len({kind.file_name for kind in kinds}) == len(kinds)
    # Of this row and plant; a draw that two codes ran counts once.
    kept = read_runs(tmp_path, kinds[0])
    told = together(kept, "trips")
    assert (told["kept_runs"], told["kept_codes"], told["kept_draws"]) == (3, 2, 2)
    assert read_runs(tmp_path / "none", kinds[0]) == []


def test_a_draw_that_tripped_under_any_code_counts_as_one_that_trips() -> None:
    rows = [("a", made_row(seed=1)), ("b", made_row(seed=1, trips=1)), ("b", made_row(seed=2))]
    told = together(rows, "trips")
    assert told["kept_draws_with_a_trip"] == 1
    assert told["kept_trip_chance_upper_95"] == chance_bound(1, 2)
    assert together([], "trips")["kept_trip_chance_upper_95"] == 1.0


def test_unknown_arguments_are_refused_by_what_is_known() -> None:
    for arguments in (("--run", "x"), ("--runs", "0"), ("--runs", "many")):
        with pytest.raises(InputError, match="runs"):
            no_trip.run(Options(arguments=arguments))
