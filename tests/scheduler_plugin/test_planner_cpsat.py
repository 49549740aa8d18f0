"""The exact search by itself, without the incumbent and the checker around it."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given

from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.greedy_orders import incumbent
from scheduler_plugin.packing.objective import placed_values
from scheduler_plugin.packing.problem import Assignment, Problem, compile_problem
from scheduler_plugin.solver.cpsat import Improvement, SolverLimits, improve
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import domain, gang, node, pod, snapshot
from tests.scheduler_plugin.test_planner_properties import snapshots

LIMITS = SolverLimits(deterministic_time=0.3, wall_seconds=30.0)


def from_nothing(problem: Problem) -> Improvement:
    classes, nodes = range(len(problem.classes)), range(len(problem.node_names))
    return improve(Packing(problem, {}), list(classes), list(nodes), LIMITS)


def broken_rules(problem: Problem, assignment: Assignment) -> list[str]:
    packing = Packing(problem, assignment)
    placed = Counter[int]()
    for (c, n), count in assignment.items():
        placed[c] += count
        if not problem.eligible[c, n]:
            return ["eligibility"]
    found = []
    if (packing.free < 0).any():
        found.append("capacity")
    if (packing.headroom < 0).any():
        found.append("power")
    if any(placed[c] > problem.counts[c] for c in placed):
        found.append("count")
    for job in problem.jobs:
        full = {placed[c] == problem.counts[c] for c in job.classes}
        none = {placed[c] == 0 for c in job.classes}
        if job.gang and full != {True} and none != {True}:
            found.append("gang")
    return found


@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(snapshots())
def test_every_answer_keeps_every_rule_and_a_proved_one_is_at_least_greedys(s: Snapshot) -> None:
    problem = compile_problem(s)
    result = from_nothing(problem)
    assert broken_rules(problem, result.assignment) == []
    if result.proved:
        greedy = incumbent(problem, lambda _: False)
        assert placed_values(problem, result.assignment) >= placed_values(problem, greedy)


def test_power_of_the_parent_limits_what_children_could_take() -> None:
    tree = [domain("site", 2_100), domain("a", 9_000, parent="site")]
    tree += [domain("b", 9_000, parent="site")]
    nodes = [node("n1", domain="a"), node("n2", domain="b")]
    problem = compile_problem(snapshot(*tree, *nodes, *[pod(f"p{i}") for i in range(8)]))
    result = from_nothing(problem)
    assert sum(result.assignment.values()) == 3
    assert result.proved


def test_a_gang_counts_only_when_it_is_whole() -> None:
    """Six free GPUs: the gang of two fours is worth more, but only singles fit."""
    parts = (node("n1", 6), gang("g", 2, 4), pod("s1", 2), pod("s2", 3))
    problem = compile_problem(snapshot(*parts))
    result = from_nothing(problem)
    assert placed_values(problem, result.assignment) == (5_000,)
    assert broken_rules(problem, result.assignment) == []


def test_what_is_outside_the_part_stays_where_it_is() -> None:
    problem = compile_problem(
        snapshot(node("n1", 4), node("n2", 4), pod("a", 4), pod("b", 4, priority=9))
    )
    high = next(i for i, c in enumerate(problem.classes) if c.priority == 9)
    low = 1 - high
    result = improve(Packing(problem, {(high, 0): 1}), [low], [0, 1], LIMITS)
    assert result.assignment == {(high, 0): 1, (low, 1): 1}


def test_fewer_idle_nodes_are_opened_at_the_same_value() -> None:
    parts = [*[node(f"n{i}") for i in range(4)], *[pod(f"p{i}", 4) for i in range(4)]]
    problem = compile_problem(snapshot(*parts))
    spread = {(0, n): 1 for n in range(4)}
    result = improve(Packing(problem, spread), [0], [0, 1, 2, 3], LIMITS)
    assert len(result.assignment) == 2
