"""openb: the published sample, FGD's fragmentation by hand, a judge that finds planted faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import openb
from benchmarks._go_random import GoRandom
from benchmarks._openb_fgd import Fgd, RandomTask
from benchmarks._openb_judge import Batch, Verdict, judge
from benchmarks._openb_planner import PlannerAtOnce, PlannerOneByOne
from benchmarks._openb_policies import BestFit, Binding, Policy, RandomFit, Told
from benchmarks._openb_runs import ARMS, Case, KeptRows, published_curve
from benchmarks._openb_trace import (
    LOAD,
    TRACES,
    Kind,
    Node,
    openb_nodes,
    read_trace,
    sample,
    shipped_trace,
)
from benchmarks.expected import outside, read_ranges
from benchmarks.runner import Options
from wattpack.errors import InputError

SHARE = Kind(4000, 1000, 1, 500, ())
WHOLE = Kind(8000, 1000, 1, 1000, ())
PAIR = Kind(8000, 1000, 2, 1000, ("T4",))
CPU = Kind(8000, 1000, 0, 0, ())
KINDS = (CPU, SHARE, WHOLE, PAIR)
NODES = (
    Node("a", 16_000, 4_000, 2, "T4"),
    Node("b", 16_000, 4_000, 2, "P100"),
    Node("c", 8_000, 4_000, 1, "T4"),
)


def told(mix: tuple[int, ...] = (25, 25, 25, 25)) -> Told:
    return Told(NODES, KINDS, np.array(mix), np.arange(len(NODES)), seed=1)


# -- the sample ------------------------------------------------------------------------------------


def test_go_draws_what_go_draws() -> None:
    # Printed by Go 1.26: rand.New(rand.NewSource(42)), then each call in this order.
    random = GoRandom(42)
    items = list(range(10))
    random.shuffle(items)
    drawn = (random.int63(), random.below(1000), random.below(64))
    assert items == [2, 5, 7, 9, 6, 8, 1, 4, 0, 3]
    assert drawn == (5961769557461764184, 929, 47)
    assert random.permutation(6) == [1, 3, 4, 0, 2, 5]
    assert GoRandom(0).int63() == 8717895732742165505


@pytest.mark.parametrize(
    ("trace", "seed"), [("default", 42), ("cpu250", 47), ("gpushare100", 51), ("multigpu50", 42)]
)
def test_the_sample_is_the_published_one(trace: str, seed: int) -> None:
    # While nothing is dropped, published allocation is what had arrived: it tells the order.
    tasks = shipped_trace(trace)
    drawn = sample(tasks, seed, openb_nodes())
    milli = np.array([kind.gpu_milli for kind in tasks.kinds])[drawn.arrivals]
    arrived = np.cumsum(milli) / 62_120
    curve = published_curve(arrived, arrived)
    theirs = openb.published_fgd_runs()[trace, seed]
    assert curve[:60] == [theirs[percent] for percent in range(60)]
    assert curve[:60] != published_curve(np.sort(arrived), np.sort(arrived)[::-1])[:60]
    # The last task may exceed the load by all but one of its boards.
    assert LOAD * 100 - 1 < arrived[-1] <= LOAD * 100 + 100 * 7 / 6212


def test_another_seed_is_another_sample() -> None:
    first, other = (sample(shipped_trace("multigpu20"), s, openb_nodes()) for s in (42, 43))
    assert first.arrivals.tolist() != other.arrivals.tolist()
    assert sorted(first.node_rank.tolist()) == list(range(1213))


def test_every_trace_and_its_published_means_are_there() -> None:
    assert len(TRACES) == 17
    assert {(arm, trace) for arm in openb.PUBLISHED for trace in TRACES} == set(openb.published())
    assert len(openb.published_fgd_runs()) == 170
    assert openb.published()["fgd", "default"][130] == 95.391
    assert len(shipped_trace("default").kind_of) == 8152


# -- fragmentation ---------------------------------------------------------------------------------


def test_fragmentation_of_nodes_counted_by_hand() -> None:
    # A quarter each: CPU only, half a board, one board, two boards of a T4.
    task = RandomTask.of(KINDS, (25, 25, 25, 25), ("P100", "T4"))
    model, milli_cpu = np.array([1, 1, 1, 0]), np.array([16_000, 16_000, 6_000, 16_000])
    free = np.array([[1000, 1000], [1000, 400], [1000, 1000], [600, 0]])
    made = task.fragmented_milli(model, milli_cpu, free)
    # 1: only the CPU-only task cannot use its 2000.
    # 2: CPU 1400; the half board leaves 400, so does the whole one; the pair finds nothing, 1400.
    # 3: 6 cores serve the half board alone: 2000 for the other three.
    # 4: CPU 600; the half board takes all; a whole one and a pair (and its model) find nothing.
    assert made == pytest.approx([500.0, 900.0, 1500.0, 450.0])


def test_the_random_task_is_of_the_kinds_that_make_up_95_percent() -> None:
    task = RandomTask.of(KINDS, (1, 60, 36, 3), ("T4",))
    assert task.chance == pytest.approx([60 / 96, 36 / 96])
    assert task.levels[task.level_of].tolist() == [500, 1000]


def test_fgd_goes_where_fragmentation_grows_least() -> None:
    # Half of a board of c strands less than of a or b, which serve pairs and whole boards twice.
    policy = Fgd(told())
    (first,) = policy.arrive((1,))
    expected = _gradients(1)
    assert first.node == int(np.argmax(expected))
    (second,) = policy.arrive((1,))
    assert (second.node, second.boards) == (first.node, first.boards)


def _gradients(number: int) -> list[float]:
    """By the definition, in a loop over nodes, tasks and boards."""

    def unusable(node: Node, milli_cpu: int, free: list[int]) -> float:
        total = 0.0
        for kind in KINDS:
            suffices = [level for level in free if level >= kind.board_milli]
            fits = (
                0 < kind.boards <= len(suffices)
                and milli_cpu >= kind.milli_cpu
                and (not kind.models or node.model in kind.models)
            )
            total += 0.25 * (sum(free) - (sum(suffices) if fits else 0))
        return total

    kind = KINDS[number]
    return [
        unusable(node, node.milli_cpu, free := [1000] * node.boards)
        - unusable(node, node.milli_cpu - kind.milli_cpu, [1000 - kind.board_milli, *free[1:]])
        for node in NODES
    ]


# -- policies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [RandomFit, BestFit, Fgd, PlannerOneByOne, PlannerAtOnce])
def test_policies_fill_a_small_cluster_without_a_fault(policy: type[Policy]) -> None:
    arrivals = (1, 3, 0, 2, 1, 1, 2, 0, 3, 2, 1)
    at_once = policy is PlannerAtOnce
    made = policy(told())  # type: ignore[call-arg]
    if at_once:
        batches = [Batch(len(arrivals), list(made.arrive(arrivals)))]
    else:
        batches = [Batch(i, list(made.arrive((kind,)))) for i, kind in enumerate(arrivals, 1)]
    verdict = judge(NODES, [KINDS[kind] for kind in arrivals], batches)
    assert verdict.faults == []
    assert verdict.gpu_milli[-1] >= 2500
    assert 5 <= verdict.placed < len(arrivals)


def test_best_fit_takes_the_fullest_node_and_board() -> None:
    policy = BestFit(told())
    assert [next(iter(policy.arrive((1,)))) for _ in range(2)] == [
        Binding(0, 2, (0,)),
        Binding(1, 2, (0,)),
    ]


# -- the judge -------------------------------------------------------------------------------------


def verdict_on(*bindings: Binding, may_move: bool = False) -> Verdict:
    arrivals = [SHARE, WHOLE, PAIR, CPU, CPU, CPU]
    return judge(NODES, arrivals, [Batch(6, bindings)], may_move=may_move)


def test_a_run_without_fault_is_counted() -> None:
    verdict = verdict_on(Binding(0, 0, (1,)), Binding(1, 1, (0,)), Binding(3, 2, ()))
    assert (verdict.gpu_milli, verdict.placed, verdict.faults) == ([1500], 3, [])


@pytest.mark.parametrize(
    ("bindings", "fault"),
    [
        ([Binding(6, 0, (0,))], "has not come"),
        ([Binding(0, 3, (0,))], "no node"),
        ([Binding(0, -1, (0,))], "no node"),
        ([Binding(0, 2, (1,))], "no board"),
        ([Binding(0, 0, (-1,))], "no board"),
        ([Binding(0, 0, ())], "asks for 1 boards"),
        ([Binding(2, 0, (0, 0))], "asks for 2 boards"),
        ([Binding(2, 1, (0, 1))], "allowed is T4"),
        ([Binding(0, 0, (0,)), Binding(1, 0, (0,))], "more than a whole board"),
        ([Binding(3, 0, ()), Binding(4, 0, ()), Binding(5, 0, ())], "not enough CPU"),
        ([Binding(0, 0, (0,)), Binding(0, 1, (0,))], "bound twice"),
    ],
)
def test_the_judge_finds_planted_faults(bindings: list[Binding], fault: str) -> None:
    verdict = verdict_on(*bindings)
    assert len(verdict.faults) == 1
    assert fault in verdict.faults[0]
    assert verdict.placed == len(bindings) - 1


def test_memory_is_recounted() -> None:
    large = CPU._replace(milli_cpu=1, memory_mib=2500)
    batch = Batch(2, [Binding(0, 0, ()), Binding(1, 0, ())])
    assert "memory" in judge(NODES, [large, large], [batch]).faults[0]


def test_late_and_moved_tasks_are_faults_or_counted() -> None:
    batches = [Batch(1, []), Batch(2, [Binding(0, 0, (0,)), Binding(1, 1, (0,))])]
    assert "late" in judge(NODES, [SHARE, WHOLE], batches).faults[0]
    batches.append(Batch(2, [Binding(0, 2, (0,)), Binding(0, 2, (1,))]))
    verdict = judge(NODES, [SHARE, WHOLE], batches, may_move=True)
    assert (verdict.late, verdict.moves, verdict.moved) == (1, 1, 1)
    assert len(verdict.faults) == 1  # the second move goes nowhere, and the task stays
    assert verdict.gpu_milli == [0, 1500, 1500]


# -- input and figures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "line 2"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1,9,1000\n", "num_gpu"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1,1,0\n", "gpu_milli"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1,2,500\n", "gpu_milli"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,-1,1,1,500\n", "cpu_milli"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1e3,1,500\n", "memory_mib"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1,0,0\n", "num_gpu"),
        ("name\nx\n", "num_gpu"),
    ],
)
def test_a_wrong_trace_is_refused_by_line_and_column(text: str, field: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read_trace(file)
    assert field in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [("--seeds", "5:4"), ("--seeds", "x"), ("--traces", "none"), ("--processes", "0"), ("more",)],
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        openb.run(Options(arguments=arguments))


def test_slow_policies_run_all_seeds_on_the_default_trace_only() -> None:
    cases = openb._cases(openb._arguments(()))
    counts = {arm: sum(case.arm == arm for case in cases) for arm in ARMS}
    assert counts == {arm: 26 if arm in ("ours_batch", "ours_moves") else 170 for arm in ARMS}


def test_the_short_form_lies_in_its_ranges() -> None:
    made = openb.run(Options(quick=True))
    assert outside(read_ranges()["openb"], made.figures, quick=True) == {}
    # What knows shares fills more than what rounds them up, and best fit more than chance.
    at = {arm: made.figures[f"{arm}_multigpu50_130"] for arm in ARMS}
    assert at["fgd"] > at["best_fit"] > at["random"] > 80.0  # type: ignore[operator]


def row(arm: str, trace: str, seed: int, at: float, **changes: Any) -> dict[str, Any]:
    made = {
        "arm": arm,
        "trace": trace,
        "seed": seed,
        "at": {"100": at, "130": at},
        "arrivals": 1000,
        "policy_cpu_seconds": 0.5,
        "wall_seconds": 1.0,
        "faults": 0,
        "first_faults": [],
        "placed": 100,
        "moved": 0,
    }
    return made | changes


def test_figures_compare_with_fgd_by_seed_and_with_the_published_mean() -> None:
    rows = [row("fgd", "default", seed, 95.0 + 0.01 * (seed % 3)) for seed in range(42, 52)]
    ours = [row("ours_online", "default", r["seed"], r["at"]["100"] + 0.3) for r in rows]
    told = openb.figures(rows + ours)
    assert told["ours_online_traces_not_below_fgd"] == 1
    assert told["ours_online_traces_surely_better"] == 1
    assert told["ours_online_traces_surely_over_published_fgd"] == 0
    assert told["fgd_off_published_worst"] == pytest.approx(95.391 - 95.009, abs=1e-6)
    assert told["fgd_cpu_milliseconds_a_task"] == pytest.approx(0.5)
    worse = [row("ours_online", "default", r["seed"], r["at"]["100"] - 0.06) for r in rows]
    told = openb.figures(rows + worse)
    assert told["ours_online_traces_not_below_fgd"] == 0
    assert told["ours_online_traces_surely_better"] == 0


def test_a_few_seeds_of_fgd_compare_with_the_published_runs_of_those_seeds() -> None:
    theirs = openb.published_fgd_runs()
    rows = [row("fgd", "default", s, theirs["default", s][100] + 0.2) for s in (42, 45)]
    told = openb.figures([*rows, row("random", "default", 42, 90.0)])
    off = [r["at"]["130"] - theirs["default", r["seed"]][130] for r in rows]
    assert told["fgd_off_published_worst"] == pytest.approx(0.2)
    assert told["fgd_off_published_mean"] == pytest.approx((0.2 + sum(off) / 2) / 2)
    assert "random_off_published_worst" not in told
    assert "ours_moves_default_100" not in told


def test_finished_cases_are_kept_by_code_and_data(tmp_path: Path) -> None:
    kept, case = KeptRows(tmp_path), Case("fgd", "multigpu50", 42)
    assert kept.of(case) is None
    kept.keep(case, {"seed": 42})
    assert KeptRows(tmp_path).of(case) == {"seed": 42}
    assert kept.of(case._replace(seed=43)) is None
    assert kept.of(case._replace(arm="random")) is None
    tasks = tmp_path / "openb_pod_list_multigpu50.csv"
    tasks.write_text("name\n", encoding="utf-8")
    assert kept.of(case._replace(file=tasks)) is None
