"""What makes one assignment better than another: value by tier, then what the snapshot names.

In each tier GPUs come first, then pods without GPUs. Stages behind are in the snapshot's order. All
but fragmentation are sums over pods, which CP-SAT has as they are; what the expected demand cannot
use of a node is no such sum, and neither are wishes about other pods, so they decide between
assignments that were found otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_plugin.documents.objective_order import ObjectiveStage
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.placement_costs import PRICED
from scheduler_plugin.packing.problem import Assignment, IntArray, Problem, placed_counts
from scheduler_plugin.room.resource_columns import GPUS

#: Price of breaking into a wholly idle GPU node, in watts, so that among equally many placed pods
#: and similar watts the plan that keeps whole nodes free wins. Assumed: about a server's fans.
OPENED_NODE_COST_WATTS = 100


#: Fragmentation is compared in such steps, so that what comes behind it has a say: a tenth of a
#: GPU, as between the nodes of a greedy order (``node_scores.STEP``).
FRAGMENTATION_STEP_MILLI = 100


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


def objective(packing: Packing) -> tuple[int, ...]:
    """Compared as a tuple, larger is better: value by stage, then the stages of the snapshot.

    Last, where pods have any, what weighs on them by wishes about other pods.
    """
    problem, assignment = packing.problem, packing.assignment
    found = {
        ObjectiveStage.DISRUPTION: lambda: -disruption(problem, assignment),
        ObjectiveStage.FRAGMENTATION: lambda: -_fragmentation_steps(packing),
        ObjectiveStage.WORTH: lambda: _sum(problem.worth, assignment),
        ObjectiveStage.WATTS: lambda: -_watts(problem, assignment),
    }
    behind = (
        -_sum(problem.placement_costs.get(stage), assignment) if stage in PRICED else found[stage]()
        for stage in problem.snapshot.objective
    )
    wishes = () if packing.wishes is None else (-packing.wishes.total(assignment),)
    return (*placed_by_stage(problem, assignment), *behind, *wishes)


def _fragmentation_steps(packing: Packing) -> int:
    return round(packing.unusable_milli() / FRAGMENTATION_STEP_MILLI)


def _sum(each: IntArray | None, assignment: Assignment) -> int:
    """Over all placed pods, shape (c, n) for one; None for nothing."""
    return 0 if each is None else sum(int(each[key]) * n for key, n in assignment.items())


def _watts(problem: Problem, assignment: Assignment) -> int:
    """Added by what comes to a node, and a price for each idle node that it opens."""
    added = sum(
        int(problem.watts[key]) * (count - problem.start.get(key, 0))
        for key, count in assignment.items()
        if count > problem.start.get(key, 0)
    )
    used = {node for class_index, node in assignment if problem.gpu_milli[class_index]}
    opened = sum(is_idle_gpu_node(problem, node) for node in used)
    return added + OPENED_NODE_COST_WATTS * opened


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
