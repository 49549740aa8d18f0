"""Which running pods a plan may move or evict: who opted in, and whom nothing forbids. Pure.

A namespace opts in by the label ``wattpack.io/moves: enabled`` beside that of placement (where
there is no webhook the successor would not wait for its place); a pod's own label overrides it. A
pod stays where its disruption budget allows nobody to go now, and on nodes where another scheduler
places pods, which would take the room that is made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.kube.port import JsonObject
from wattpack.object_names import DEFAULT_SCHEDULER, OPT_IN_LABEL, OPT_IN_VALUE

__all__ = ["MOVES_LABEL", "Permits", "has_opted_in", "held_by_budgets", "may_be_moved"]

MOVES_LABEL: Final = "wattpack.io/moves"
"""On a namespace, or on a pod of one that opted in to placement: ``enabled``, all else forbids."""


@dataclass(frozen=True, slots=True)
class Permits:
    """What decides, beside the pods themselves.

    Attributes:
        namespaces: Labels by name.
        budgets: PodDisruptionBudgets of all namespaces.
        longest_grace_seconds: Pods that may take longer to end are left alone.
    """

    namespaces: Mapping[str, Mapping[str, str]]
    budgets: tuple[JsonObject, ...] = ()
    longest_grace_seconds: float = 600.0


def may_be_moved(pods: Iterable[JsonObject], permits: Permits) -> frozenset[str]:
    """Uids of pods that a plan may move or evict now."""
    pods = tuple(pods)
    foreign = _shared_nodes(pods)
    willing = [
        pod
        for pod in pods
        if pod_facts.node_name(pod)
        and pod_facts.node_name(pod) not in foreign
        and has_opted_in(pod, permits.namespaces)
        and _runs_and_may_go(pod, permits)
    ]
    if not willing:
        return frozenset()
    held = held_by_budgets(willing, permits.budgets)
    return frozenset(map(pod_facts.uid, willing)) - held


def has_opted_in(pod: JsonObject, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """By its own label, else by its namespace's; placement must be on there in any case."""
    metadata = pod["metadata"]
    space = namespaces.get(pod_facts.namespace(pod), {})
    own = (metadata.get("labels") or {}).get(MOVES_LABEL)
    said = space.get(MOVES_LABEL) if own is None else own
    return space.get(OPT_IN_LABEL) == OPT_IN_VALUE and said == OPT_IN_VALUE


def held_by_budgets(pods: Iterable[JsonObject], budgets: Iterable[JsonObject]) -> frozenset[str]:
    """Uids of pods that the Eviction API would not let go now.

    Like the API server: a budget that allows nobody, or that its controller has not looked at since
    it was changed, holds; and so do two budgets over one pod.
    """
    by_space: dict[str, list[JsonObject]] = defaultdict(list)
    for budget in budgets:
        by_space[pod_facts.namespace(budget)].append(budget)
    held = set()
    for pod in pods:
        metadata = pod["metadata"]
        mine = [
            budget
            for budget in by_space.get(pod_facts.namespace(pod), ())
            if _selects((budget.get("spec") or {}).get("selector"), metadata.get("labels") or {})
        ]
        if len(mine) > 1 or (mine and not _allows(mine[0])):
            held.add(pod_facts.uid(pod))
    return frozenset(held)


def _runs_and_may_go(pod: JsonObject, permits: Permits) -> bool:
    metadata, spec = pod["metadata"], pod["spec"]
    grace = spec.get("terminationGracePeriodSeconds", 30)
    return (
        (pod.get("status") or {}).get("phase") == "Running"
        and not metadata.get("deletionTimestamp")
        and not pod_facts.is_bare(pod)
        and grace <= permits.longest_grace_seconds
    )


def _shared_nodes(pods: Iterable[JsonObject]) -> frozenset[str]:
    """Nodes with pods that another scheduler placed; a DaemonSet's go wherever their node is."""
    return frozenset(
        pod_facts.node_name(pod)
        for pod in pods
        if pod["spec"].get("schedulerName", DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER
        and not pod_facts.is_finished(pod)
        and not any(
            owner.get("kind") == "DaemonSet"
            for owner in pod["metadata"].get("ownerReferences") or ()
        )
    )


def _allows(budget: JsonObject) -> bool:
    status = budget.get("status") or {}
    generation = budget["metadata"].get("generation")
    seen = generation is None or int(status.get("observedGeneration", 0)) >= int(generation)
    return seen and int(status.get("disruptionsAllowed", 0)) > 0


def _selects(selector: Any, labels: Mapping[str, str]) -> bool:  # noqa: ANN401
    """As in policy/v1: none selects no pod, an empty one selects all; unknown operators hold."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    rules = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(rule, labels) for rule in rules
    )


def _holds(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(str(rule.get("key"))), rule.get("values") or ()
    match rule.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "DoesNotExist":
            return value is None
        case "Exists":
            return value is not None
        case _:
            return True
