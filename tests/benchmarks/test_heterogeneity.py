"""heterogeneity: a judge that finds planted faults, optima by hand, estimates that never saw."""

from __future__ import annotations

import pytest

from benchmarks import heterogeneity
from benchmarks._colocation_cases import harmful, knowledge, placed_pairs
from benchmarks._gavel_jobs import GavelJob, drawn_jobs, servers, table
from benchmarks._heterogeneity_judge import (
    Ran,
    best_smallest_ratio,
    cost_per_hour,
    least_cost,
    mean_speed,
    recount,
)
from benchmarks.expected import outside, read_ranges
from benchmarks.runner import Options
from capacity.interference.pair_model import PairModel

JOBS = (
    GavelJob(0, "gains", 1, {"v100": 4.0, "k80": 1.0}),
    GavelJob(1, "same", 1, {"v100": 1.0, "k80": 1.0}),
)
TWO = {"v100": 1, "k80": 1}


def test_servers_and_jobs_are_those_of_the_simulations() -> None:
    gpus = {model: sum(n for m, n in servers() if m == model) for model, _ in servers()}
    assert gpus == {"v100": 36, "p100": 36, "k80": 36}
    assert max(n for _, n in servers()) == 8
    assert table()["ResNet-50 (batch size 128)", 2].keys() == {"p100", "v100"}  # 1e-9 is none
    assert {job.gpus for job in drawn_jobs(1, 72)} == {1, 2, 4, 8}


def test_the_judge_finds_what_breaks_a_rule() -> None:
    nodes = [("v100", 1), ("k80", 1), ("p100", 8)]
    ran = [Ran(1, 0, 0), Ran(1, 1, 0), Ran(2, 0, 0), Ran(2, 0, 1), Ran(3, 0, 2), Ran(3, 1, 1)]
    verdict = recount(nodes, JOBS, ran)
    assert verdict.faults == [
        "round 1: server 0 gives more than 1 GPUs",
        "round 2: job 0 runs twice",
        "round 3: job 0 cannot run on p100",
    ]
    assert verdict.rounds_on == {(0, "v100"): 2, (1, "k80"): 1}
    assert mean_speed(verdict, JOBS[0], 4) == 2.0
    assert cost_per_hour(verdict, JOBS, {"v100": 3.0, "k80": 1.0}, 4) == 7.0 / 4


def test_optima_by_hand() -> None:
    # An equal share gives 2.5 and 1. The job that gains has all of the fast type for 1.6; the
    # other cannot have more than all of its time.
    assert best_smallest_ratio(JOBS, TWO) == pytest.approx(1.0)
    assert best_smallest_ratio(JOBS[:1], TWO) == pytest.approx(1.6)
    price = {"v100": 4.0, "k80": 1.0}
    assert least_cost(JOBS[:1], TWO, price, [2.5]) == pytest.approx(2.5)
    assert least_cost(JOBS[:1], TWO, price, [0.5]) == pytest.approx(0.5)


def test_an_estimate_never_saw_its_pair() -> None:
    # Predicted anew without a pair, the pair's estimate is the same whatever was measured of it.
    from benchmarks.interference import Table

    rows = Table("v100").rows
    pair = {rows[40].job, rows[40].beside}
    others = [row for row in rows if {row.job, row.beside} != pair]
    said, _ = PairModel(others).speeds(rows[40].job, rows[40].beside)
    know = knowledge("v100")
    known = [
        value for key, value in know.estimated.items() if value == pytest.approx(said, abs=1e-9)
    ]
    assert known


def test_the_planner_keeps_known_harmful_pairs_apart() -> None:
    know = knowledge("v100")
    bad = next(p for p, s in know.true.items() if p[0] != p[1] and 0 < s < 0.3)
    pairs, placed = placed_pairs([*bad], know.true, 2)
    assert (pairs, placed) == ([], 2)
    assert harmful([bad], know.true) == 1
    assert placed_pairs([*bad], know.true, 1)[1] == 1


def test_a_quick_run_stays_within_its_ranges() -> None:
    figures = heterogeneity.run(Options(quick=True, progress=lambda _: None)).figures
    assert outside(read_ranges()["heterogeneity"], figures, quick=True) == {}
