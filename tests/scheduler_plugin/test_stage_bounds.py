"""What is called proved is best in every stage: GPUs of a tier first, then its pods without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.app.plan_text import describe
from scheduler_plugin.documents.plan_document import Plan, Tier
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.solve import plan
from scheduler_plugin.solver.bounds import cumulative_bounds, tightened
from scheduler_plugin.solver.improving import improve_all
from scheduler_plugin.solver.search import Attempt, Search, SearchSettings, cumulative
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import node, pod, snapshot

CORE = 1000


def one_or_the_other() -> Snapshot:
    """A node whose cores are enough for the pod with a GPU or for the one without."""
    parts = [pod("gpu", 1, milli_cpu=4 * CORE), pod("host", 0, milli_cpu=4 * CORE)]
    return snapshot(node("a", 1, milli_cpu=4 * CORE), *parts)


def test_a_pod_without_gpus_in_the_place_of_one_with_a_gpu_ends_no_search() -> None:
    """Both plans reach the bound of the tier's sum."""
    problem = compile_problem(one_or_the_other())
    search = Search(problem, 1.0, 0, SearchSettings(), 0)
    search.bounds = tightened(problem, cumulative_bounds(problem), lambda: False)
    with_gpu, host = ({(c, 0): 1} for c in sorted((0, 1), key=lambda c: -int(problem.gpu_milli[c])))
    search.packing.become(host)
    assert not search.done()
    search.packing.become(with_gpu)
    assert search.done()


def test_people_are_told_which_gpus_could_be_placed_besides() -> None:
    lacking = Tier(
        priority=0,
        demanded_value=2000,
        placed_value=1000,
        cumulative_value=1000,
        bound_value=1000,
        cumulative_gpu_value=0,
        bound_gpu_value=1000,
    )
    assert lacking.gap == pytest.approx(1.0)
    s = one_or_the_other()
    told = describe(s, Plan(snapshot_digest=s.digest(), method="greedy", tiers=(lacking,)))
    assert "at most 1 possible (without pods that need no GPU 0 of 1)" in told


def test_a_call_that_ends_early_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine, where CP-SAT's wall time is over long before a limit of CPU time."""
    parts = [pod(f"p{i}", 1, milli_cpu=3 * CORE) for i in range(2)]
    parts += [pod(f"q{i}", 1, milli_cpu=2 * CORE) for i in range(4)]
    problem = compile_problem(snapshot(node("a", 4, milli_cpu=7 * CORE), *parts))
    search = Search(problem, 1.0, 0, SearchSettings(), 0)
    search.packing.become({})
    found = iter([False, False, True])
    monkeypatch.setattr(search, "attempt", lambda *_: Attempt(better=False, proved=next(found)))
    improve_all(search)
    assert search.proved


PODS = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 2]), st.integers(1, 4), st.sampled_from([0, 0, 10])),
    min_size=1,
    max_size=6,
)
NODES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), min_size=1, max_size=2)


@examples(150)
@given(NODES, PODS)
def test_a_plan_without_a_gap_is_the_best_of_all(
    nodes: list[tuple[int, int]], pods: list[tuple[int, int, int]]
) -> None:
    s = snapshot(
        *(node(f"n{i}", gpus, milli_cpu=cpu * CORE) for i, (gpus, cpu) in enumerate(nodes)),
        *(
            pod(f"p{i}", gpus, milli_cpu=cpu * CORE, priority=priority)
            for i, (gpus, cpu, priority) in enumerate(pods)
        ),
    )
    problem = compile_problem(s)
    best = max(_all_values(nodes, pods))
    bounds = tightened(problem, cumulative_bounds(problem), lambda: False)
    assert all(b >= v for b, v in zip(bounds, cumulative(best), strict=True))
    for seconds in (0.0, 0.3):
        made = plan(s, deadline_seconds=seconds)
        if made.gap == 0.0:
            assert made.objective[: len(best)] == best
        if seconds:
            assert made.gap == 0.0


def _all_values(
    nodes: list[tuple[int, int]], pods: list[tuple[int, int, int]]
) -> Iterator[tuple[int, ...]]:
    """By tier GPUs, then pods without, of every way to place pods, one by one."""
    tiers = sorted({priority for _, _, priority in pods}, reverse=True)

    def ways(
        i: int, left: list[tuple[int, int]], values: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        if i == len(pods):
            yield values
            return
        yield from ways(i + 1, left, values)
        gpus, cpu, priority = pods[i]
        stage = 2 * tiers.index(priority) + (not gpus)
        worth = 1000 * (gpus or 1)
        more = tuple(v + worth * (s == stage) for s, v in enumerate(values))
        for n, (gpus_left, cpu_left) in enumerate(left):
            if gpus <= gpus_left and cpu <= cpu_left:
                after = [*left[:n], (gpus_left - gpus, cpu_left - cpu), *left[n + 1 :]]
                yield from ways(i + 1, after, more)

    yield from ways(0, nodes, (0,) * (2 * len(tiers)))
