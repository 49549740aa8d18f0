"""What stands against every change that could let a pod in, node by node, in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from scheduler_plugin.documents.host_resources import gpus_text
from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.explain.trial import Trial
from scheduler_plugin.packing.problem import BoolArray, IntArray
from scheduler_plugin.room.resource_columns import GPUS, MILLI_CPU
from scheduler_plugin.rules.static_rules import STATIC_RULES

__all__ = ["RULED_OUT", "what_stands_against"]

RULED_OUT: Final = {
    PendingReason.NO_GPU_MODEL: "of another GPU type",
    PendingReason.NO_CPU_CLASS: "of another CPU class",
    PendingReason.NO_NIC_CLASS: "of another NIC class",
    PendingReason.NODE_AFFINITY: "outside its node selector or affinity",
    PendingReason.TAINT_NOT_TOLERATED: "tainted",
    PendingReason.NO_READY_NODE: "on their way out",
    PendingReason.GPU_POWER_UNKNOWN: "of unknown draw",
    PendingReason.QUARANTINED: "in quarantine for it",
}
"""Of nodes for which a rule does not hold."""


def what_stands_against(trial: Trial, wanted: Sequence[tuple[int, int]]) -> str:
    """Why no node can be made to take the largest of the pods, or not all of them.

    Args:
        trial: As the plan leaves it; where requests stay, what the owner could change stands
            against nodes, too.
        wanted: Class and count of the members that wait, the largest first.
    """
    c = wanted[0][0]
    left = np.ones(len(trial.problem.node_names), dtype=np.bool_)
    if not len(left):
        return "the cluster has no nodes"
    told: list[tuple[int, str]] = []
    for nodes, text in _reasons(trial, c):
        here = left & nodes
        left &= ~nodes
        if here.any():
            told.append((int(here.sum()), text))
    told.sort(key=lambda each: -each[0])
    parts = [
        f"{count} nodes are {text}" if count > 1 else f"1 node is {text}" for count, text in told
    ]
    if left.any():
        parts.append(_of_the_rest(trial, wanted, left))
    return ", ".join(parts)


def _reasons(trial: Trial, c: int) -> Iterator[tuple[BoolArray, str]]:
    """Nodes that no change opens to a class, and what they are; each node counts once."""
    needs = trial.needs(c)
    blocked = needs.never
    if trial.requests_stay:
        blocked = blocked | (needs.asked_of_the_pod > 0)
    for i, rule in enumerate(STATIC_RULES):
        of_the_node = rule.reason in (PendingReason.NO_READY_NODE, PendingReason.GPU_POWER_UNKNOWN)
        ruled_out = needs.never if of_the_node else blocked
        yield ruled_out & (needs.failed >> i & 1 > 0), RULED_OUT[rule.reason]
    yield trial.kept_off(c), "closed by rules about other pods"
    yield trial.empty_room(c, 1, {}) == 0, f"too small even when empty{_size(trial, c)}"


def _size(trial: Trial, c: int) -> str:
    request = trial.problem.requests[c]
    most: IntArray = trial.problem.total.max(axis=0)
    if request[GPUS] > most[GPUS]:
        return f" (it asks for {gpus_text(int(request[GPUS]))}, the largest has {most[GPUS]})"
    if request[MILLI_CPU] > most[MILLI_CPU]:
        asked, largest = (each[MILLI_CPU] / 1000 for each in (request, most))
        return f" (it asks for {asked:g} CPUs, the largest has {largest:g})"
    return ""


def _of_the_rest(trial: Trial, wanted: Sequence[tuple[int, int]], able: BoolArray) -> str:
    """Of nodes that could take a member once something left."""
    problem = trial.problem
    c, count = wanted[0]
    others = f"the other {int(able.sum())}" if not able.all() else "all nodes"
    if problem.neighbours is not None and problem.sharers[c] is not None:
        return f"{others} have shared boards whose neighbours were measured"
    most = int(trial.empty_room(c, count, {})[able].sum())
    if most < count:
        return f"{others} hold {most} of {count} members when empty"
    if gang := problem.domains_of_gangs.get(problem.classes[c].pod.gang):
        return f"no {gang.key} has room for all members whatever leaves"
    return f"no set of changes was found for {others}"
