"""priority_matters: published instances come out exactly, and its judge counts for itself."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import priority_matters
from benchmarks._priority_arms import ARMS, Job, one_solve
from benchmarks._priority_figures import DATA, arm_figures, published, table_rows
from benchmarks._priority_instances import (
    COMBINATIONS,
    Case,
    Combination,
    Instance,
    PodAsk,
    default_placement,
    draw_case,
)
from benchmarks._priority_judge import Outcome, Turn, best_counts, judge, outcome
from benchmarks.runner import Options
from wattpack.clock import Clock
from wattpack.errors import InputError

SMALL = Combination(4, 4, 4, 0.95)


def published_instances(name: str) -> list[dict[str, Any]]:
    """Of a file of the data folder."""
    found: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))["instances"]
    return found


def running(one: dict[str, Any]) -> dict[int, int]:
    """Pods that the published default scheduler ran, by priority."""
    return {int(p): n for p, n in one["default_scheduler_running_by_priority"].items()}


@pytest.mark.parametrize("one", published_instances("generator_check.json"))
def test_published_instances_are_drawn_bit_by_bit(one: dict[str, Any]) -> None:
    instance = Instance.drawn(SMALL, one["seed"])
    sizes = Counter(pod.replica_set for pod in instance.pods)
    sets = {pod.replica_set: pod for pod in instance.pods}
    assert [sizes[i] for i in range(len(sizes))] == one["replicas"]
    assert [sets[i].milli_cpu for i in range(len(sets))] == one["cpu_m"]
    assert [sets[i].memory_bytes for i in range(len(sets))] == one["mem_bytes"]
    assert [sets[i].priority for i in range(len(sets))] == one["priority"]
    assert instance.node_milli_cpu == one["node_cpu_m"]
    assert instance.node_memory_bytes == one["node_mem_bytes"]


@pytest.mark.parametrize("one", published_instances("generator_check.json"))
def test_the_default_scheduler_runs_as_many_of_each_priority(one: dict[str, Any]) -> None:
    instance = Instance.drawn(SMALL, one["seed"])
    placed = Counter(instance.pods[pod].priority for pod in default_placement(instance))
    assert placed == running(one)


@pytest.mark.parametrize("one", published_instances("further_starts.json"))
def test_elsewhere_it_is_off_by_a_pod_at_most(one: dict[str, Any]) -> None:
    of = Combination(one["nodes"], one["pods_per_node"], one["priorities"], one["usage"])
    start = default_placement(Instance.drawn(of, one["seed"]))
    assert abs(len(start) - sum(running(one).values())) <= 1


def two_nodes(*asks: tuple[int, int]) -> Instance:
    """Nodes of 10 by 10; CPU and priority of pods that need no memory to speak of."""
    pods = tuple(PodAsk(i, cpu, 1, priority) for i, (cpu, priority) in enumerate(asks))
    return Instance(2, pods, 10, 10)


def test_the_score_by_name_is_added_and_does_not_only_break_ties() -> None:
    # By resources alone the second small pod would go to the empty node.
    assert default_placement(two_nodes((2, 1), (2, 1))) == {0: 0, 1: 0}
    # The more important one comes first, the other where it still fits.
    assert default_placement(two_nodes((8, 1), (5, 2))) == {1: 0, 0: 1}


def test_the_judge_counts_moves_and_refuses_what_does_not_fit() -> None:
    instance = two_nodes((6, 1), (4, 2), (7, 2))
    start = {0: 0, 1: 1}
    moved = (Turn(1, 1, False), Turn(1, 0, True), Turn(2, 1, True))
    found = judge(instance, start, moved)
    assert (found.complaint, found.counts, found.moved, found.evicted) == ("", (2, 1), 1, 0)
    thrown = judge(instance, start, (Turn(0, 0, False), Turn(2, 0, True)))
    assert (thrown.complaint, thrown.counts, thrown.evicted) == ("", (2, 0), 1)
    # The same end in an order in which the arriving pod finds no room.
    assert "no room" in judge(instance, start, (moved[2], *moved[:2])).complaint
    assert "it has a place" in judge(instance, start, (Turn(0, 1, True),)).complaint
    assert "not there" in judge(instance, start, (Turn(0, 1, False),)).complaint
    assert "no such" in judge(instance, start, (Turn(3, 0, True),)).complaint


def test_memory_counts_like_cpu() -> None:
    full = replace(two_nodes((1, 1), (1, 1)), node_memory_bytes=1)
    assert default_placement(full) == {0: 0, 1: 1}
    assert "no room" in judge(full, {0: 0}, (Turn(1, 0, True),)).complaint


def test_more_important_pods_decide_before_the_number_does() -> None:
    def found(counts: tuple[int, ...], *, proved: bool = False, failed: bool = False) -> Outcome:
        return outcome((2, 5), counts, failed=failed, proved=proved)

    assert found((3, 0)) is Outcome.BETTER
    assert found((1, 9)) is Outcome.WORSE
    assert found((2, 6), proved=True) is Outcome.BETTER_AND_OPTIMAL
    assert found((2, 5), proved=True) is Outcome.DEFAULT_OPTIMAL
    assert found((2, 5)) is Outcome.UNCHANGED
    assert found((9, 9), proved=True, failed=True) is Outcome.FAILURE


def test_the_exact_solver_knows_a_case_by_hand() -> None:
    assert best_counts(two_nodes((6, 1), (4, 2), (6, 2), (6, 1))) == (2, 1)
    assert best_counts(two_nodes((10, 2), (5, 1), (5, 1), (5, 1))) == (1, 2)


@pytest.mark.parametrize("arm", ["with_moves", "from_scratch"])
def test_no_plan_beats_the_optimum_and_what_is_called_proved_reaches_it(arm: str) -> None:
    proofs = 0
    for number in range(8):
        row = one_solve(Job(arm, 0.5, True, 7, number))
        case = draw_case(COMBINATIONS[number], 7, 0)
        best = best_counts(case.instance)
        assert not row["complaint"]
        assert row["counts"] <= best
        if row["outcome"] in (Outcome.DEFAULT_OPTIMAL, Outcome.BETTER_AND_OPTIMAL):
            proofs += 1
            assert row["counts"] == best
    assert proofs


class Broken:
    """A planner that breaks."""

    proves = True

    def start(self, case: Case) -> dict[int, int]:
        return case.start

    def propose(self, case: Case, limit_seconds: float, clock: Clock) -> Any:
        raise RuntimeError(f"{limit_seconds} s were too few")


def test_a_planner_that_breaks_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks._priority_arms._warm", lambda: None)
    monkeypatch.setitem(ARMS, "broken", Broken())
    row = one_solve(Job("broken", 1.0, False, 1, 1))
    assert row["outcome"] == Outcome.FAILURE
    assert "too few" in row["complaint"]


def test_below_full_usage_somebody_waits_and_draws_do_not_depend_on_others() -> None:
    for number in (0, 1, 12):
        case = draw_case(COMBINATIONS[number], 1, 3)
        assert not case.all_placed
        assert draw_case(COMBINATIONS[number], 1, 3) == case


def row_of(number: int, found: Outcome, moved: int = 0) -> dict[str, Any]:
    """As ``one_solve`` makes it."""
    gap = 0 if found is Outcome.DEFAULT_OPTIMAL else 2
    return {
        "number": number,
        "default": (10, 10),
        "outcome": found,
        "gap_pods": gap,
        "gap_share": gap / 22,
        "moved": moved,
        "evicted": 0,
        "seconds": 1.25,
        "cpu_seconds": 0.5,
    }


def test_figures_count_each_node_count_alone() -> None:
    rows = [
        row_of(0, Outcome.BETTER, moved=4),
        row_of(95, Outcome.UNCHANGED),
        row_of(94, Outcome.DEFAULT_OPTIMAL),
    ]
    told = arm_figures("arm", rows, 1.0)
    assert told["arm_better_or_proved_share"] == pytest.approx(2 / 3)
    assert told["arm_better_or_proved_share_at_4_nodes"] == 1.0
    assert told["arm_better_or_proved_share_at_32_nodes"] == 0.5
    assert told["arm_near_or_proved_share"] == pytest.approx(1 / 3)
    assert told["arm_moved_share_p50"] == 0.0
    assert told["arm_seconds_over_the_limit_max"] == pytest.approx(0.25)
    by_cpu = arm_figures("arm", rows, 0.4, counts_cpu=True)
    assert by_cpu["arm_seconds_over_the_limit_max"] == pytest.approx(0.1)
    first = table_rows(rows, 1)[0]
    assert (first["nodes"], first["better_pct"], first["published_failures_pct"]) == (4, 100, 3.0)


def test_the_published_table_has_every_cell() -> None:
    for seconds in (1, 10, 20):
        cells = published(seconds)
        assert set(cells) == set(COMBINATIONS)
        assert all(abs(sum(shares.values()) - 100) <= 0.5 for shares in cells.values())


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--seeds", "5:5"), "--seeds"),
        (("--seeds", "-1:5"), "arguments"),
        (("--limit-seconds", "0"), "--limit-seconds"),
        (("--limit-seconds", "nan"), "--limit-seconds"),
        (("--arms", "with_moves,other"), "--arms"),
        (("--sample", "--seeds", "0:2"), "--sample"),
        (("--processes", "0"), "--processes"),
        (("--other",), "arguments"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: tuple[str, ...], field: str) -> None:
    with pytest.raises(InputError, match=field):
        priority_matters.run(Options(arguments=arguments))


def test_what_is_finished_is_not_solved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved: list[int] = []

    def solve(job: Job) -> dict[str, Any]:
        solved.append(job.number)
        return row_of(job.number, Outcome.BETTER)

    monkeypatch.setattr(priority_matters, "one_solve", solve)
    monkeypatch.setattr(priority_matters, "_sources", lambda: "0123456789ab")

    def result(seeds: str) -> Any:
        arguments = ("--seeds", seeds, "--arms", "with_moves", "--processes", "1")
        return priority_matters.run(
            Options(resume=tmp_path, arguments=arguments, progress=lambda _: None)
        )

    assert result("0:1").figures["with_moves_instances"] == 96
    told = result("0:2")
    assert told.figures["with_moves_instances"] == 192
    assert solved == list(range(192))
    assert "from_scratch_worse_share" not in told.targets
    assert told.met()
