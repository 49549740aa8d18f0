"""What a pod costs on each node by the stages of the objective that are sums over placed pods.

Such stages are linear, so CP-SAT has them as they are, and a greedy pass prefers cheap nodes: those
that count before fragmentation come before what a node strands, those behind it decide between
nodes that strand as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.node_rules import TaintEffect
from scheduler_plugin.documents.objective_order import ObjectiveStage
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.rules.node_kinds import node_kinds
from scheduler_plugin.rules.preferences import unmet_preferences

if TYPE_CHECKING:
    from scheduler_plugin.packing.problem import Problem

__all__ = ["PRICED", "NodePreferences", "placement_costs"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

PRICED: Final = (ObjectiveStage.PREFERENCE, ObjectiveStage.COST, ObjectiveStage.CARBON)
"""Stages that count every placed pod at what it costs where it is."""


def placement_costs(problem: Problem) -> Mapping[ObjectiveStage, IntArray]:
    """Of one pod of each class on each node, shape (c, n), by stage; none where all are 0.

    Cost is that of the pod's GPUs, in thousandths of the currency an hour; carbon is that of the
    watts that it adds, in milligrams of CO2e an hour; preference is what the node lacks of the
    pod's preferred affinity beyond the node that suits it best, in core/v1's weights.
    """
    nodes = problem.snapshot.nodes
    price = np.array([node.gpu_hour_cost_milli for node in nodes], dtype=np.int64)
    grams = np.array([node.carbon_grams_per_kwh for node in nodes], dtype=np.int64)
    costs = {
        ObjectiveStage.PREFERENCE: _unmet_preferences(problem),
        ObjectiveStage.COST: problem.gpu_milli[:, None] * price // MILLI_PER_GPU,
        ObjectiveStage.CARBON: problem.watts * grams,
    }
    order = problem.snapshot.objective
    return {stage: cost for stage, cost in costs.items() if stage in order and cost.any()}


def _unmet_preferences(problem: Problem) -> IntArray:
    """Shape (c, n). What no node fulfils that a pod may use makes none of them better."""
    nodes, pods = problem.snapshot.nodes, [each.pod for each in problem.classes]
    found = np.zeros((len(pods), len(nodes)), dtype=np.int64)
    soft = any(t.effect is TaintEffect.PREFER_NO_SCHEDULE for node in nodes for t in node.taints)
    if not nodes or not (soft or any(pod.preferences for pod in pods)):
        return found
    kinds = node_kinds(nodes, pods)
    rows: dict[tuple[object, object], IntArray] = {}
    for c, pod in enumerate(pods):
        key = (pod.preferences, pod.tolerations)
        if key not in rows:
            rows[key] = unmet_preferences(kinds, pod)
        open_to_it = problem.eligible[c]
        if open_to_it.any():
            found[c, open_to_it] = rows[key][open_to_it] - rows[key][open_to_it].min()
    return found


class NodePreferences:
    """Which nodes are better for a pod by stages of the objective, whatever is left there.

    Args:
        problem: What is packed.

    Attributes:
        has_first: Something counts before what a node strands.
    """

    def __init__(self, problem: Problem) -> None:
        order = problem.snapshot.objective
        where = order.index(_STRANDED) if _STRANDED in order else len(order)
        terms = dict(problem.placement_costs)
        if problem.watts.any():
            terms[ObjectiveStage.WATTS] = problem.watts
        if problem.worth is not None:
            terms[ObjectiveStage.WORTH] = -problem.worth
        first = [terms[stage] for stage in order[:where] if stage in terms]
        self.has_first = any(stage in terms for stage in order[:where] if stage is not _WORTH)
        if _WORTH in terms and _WORTH not in order[:where]:
            first.append(terms[_WORTH])
        self._first = first if self.has_first else []
        self._then = [terms[stage] for stage in order[where:] if stage in terms and stage in PRICED]
        self._ranks: dict[tuple[int, bool], FloatArray] = {}

    def first(self, class_index: int) -> FloatArray | None:
        """Ranks of nodes that come before what is stranded, lower is better, (n,)."""
        return self._ranked(class_index, self._first, True) if self._first else None

    def then(self, class_index: int) -> FloatArray | None:
        """Below 1, for nodes that strand as much; lower is better, (n,)."""
        return self._ranked(class_index, self._then, False) if self._then else None

    def _ranked(self, class_index: int, terms: list[IntArray], first: bool) -> FloatArray:
        key = (class_index, first)
        if key not in self._ranks:
            rows = np.column_stack([term[class_index] for term in terms])
            kinds, rank = np.unique(rows, axis=0, return_inverse=True)
            self._ranks[key] = rank.ravel() / (1.0 if first else len(kinds))
        return self._ranks[key]


_STRANDED: Final = ObjectiveStage.FRAGMENTATION
_WORTH: Final = ObjectiveStage.WORTH
