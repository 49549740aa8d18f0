"""What makes one assignment better than another: value by tier, then fewer moves, then cost.

In each tier GPUs come first, then pods without GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_plugin.packing.problem import Assignment, Problem, placed_counts
from scheduler_plugin.room.resource_columns import GPUS

#: Price of breaking into a wholly idle GPU node, in watts, so that among equally many placed pods
#: and similar watts the plan that keeps whole nodes free wins. Assumed: about a server's fans.
OPENED_NODE_COST_WATTS = 100


def placed_values(problem: Problem, assignment: Assignment) -> tuple[int, ...]:
    """Placed value of each tier, most important first."""
    return _values(problem, [(key[0], count) for key, count in assignment.items()])


def demanded_values(problem: Problem) -> tuple[int, ...]:
    """What all pods of each tier are worth that wait or may be moved."""
    return _values(problem, [(i, c.count) for i, c in enumerate(problem.classes)])


def placed_by_stage(problem: Problem, assignment: Assignment) -> tuple[int, ...]:
    """Placed value of each stage, as objectives compare them."""
    return _by_stage(problem, placed_counts(problem, assignment))


def demanded_by_stage(problem: Problem) -> tuple[int, ...]:
    """What all pods of each stage are worth that wait or may be moved."""
    return _by_stage(problem, [pod_class.count for pod_class in problem.classes])


def _by_stage(problem: Problem, counts: Sequence[int]) -> tuple[int, ...]:
    return tuple(
        sum(value * counts[c] for c, value in stage.items()) for stage in problem.value_stages
    )


def objective(problem: Problem, assignment: Assignment) -> tuple[int, ...]:
    """Compared as a tuple, larger is better: value by stage, moves negated, worth, watts negated.

    The worth of GPU models is a stage only where pods tell them apart.
    """
    added = sum(
        int(problem.watts[key]) * (count - problem.start.get(key, 0))
        for key, count in assignment.items()
        if count > problem.start.get(key, 0)
    )
    used = {node for class_index, node in assignment if problem.gpu_milli[class_index]}
    opened = sum(is_idle_gpu_node(problem, node) for node in used)
    cost = added + OPENED_NODE_COST_WATTS * opened
    moved = disruption(problem, assignment)
    return (*placed_by_stage(problem, assignment), -moved, *_worth(problem, assignment), -cost)


def _worth(problem: Problem, assignment: Assignment) -> tuple[int, ...]:
    if problem.worth is None:
        return ()
    return (sum(int(problem.worth[key]) * count for key, count in assignment.items()),)


def disruption(problem: Problem, assignment: Assignment) -> int:
    """GPU seconds that the moves and evictions of an assignment cost."""
    return sum(
        sum(prices[: max(0, len(prices) - assignment.get(key, 0))])
        for key, prices in problem.prices.items()
    )


def is_idle_gpu_node(problem: Problem, node: int) -> bool:
    """All GPUs of the node are free before this plan."""
    gpus = int(problem.total[node, GPUS])
    return gpus > 0 and int(problem.free[node, GPUS]) == gpus


def _values(problem: Problem, counts: list[tuple[int, int]]) -> tuple[int, ...]:
    position = {priority: i for i, priority in enumerate(problem.tiers)}
    values = [0] * len(problem.tiers)
    for class_index, count in counts:
        pod_class = problem.classes[class_index]
        values[position[pod_class.priority]] += pod_class.value * count
    return tuple(values)
