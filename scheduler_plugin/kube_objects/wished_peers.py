"""Preferred pod (anti-)affinity and ``ScheduleAnyway`` spread of a Kubernetes pod, as wishes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from scheduler_plugin.documents.peer_wish import PeerWish
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.pod_selections import (
    Selection,
    Spaces,
    canonical,
    spread_selection,
)
from scheduler_plugin.kube_objects.rule_budget import RuleBudget
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["Wished", "affordable_wishes"]

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
MOST_WISHES: Final = 20
"""Of one pod; those behind are not looked at (assumed)."""
MOST_WISHED_GROUPS: Final = 500
"""Of all pods; who would bring more has no wishes (assumed)."""
SPREAD_WEIGHT: Final = 100
"""Of a soft spread: of the heaviest preferred term (assumed; kube-scheduler has no weight for it
and lets spread and terms of pods count alike)."""
Wished = tuple[Selection, PeerWish]


def affordable_wishes(
    waiting: Iterable[JsonObject], alive: Sequence[JsonObject], spaces: Spaces
) -> dict[str, list[Wished]]:
    """Whom pods would rather have near or far, by uid; what cannot be read is no wish.

    Args:
        waiting: Pods without a node.
        alive: All whom a wish may count.
        spaces: Which namespaces terms mean.
    """
    budget, found = RuleBudget(alive), dict[str, list[Wished]]()
    for pod in waiting:
        each = list(islice(_each(pod, spaces), MOST_WISHES))
        room = MOST_WISHED_GROUPS - len(budget) >= len(each)
        if each and room and budget.admits(pod, (selection for selection, _ in each)):
            found[pod_facts.uid(pod)] = each
    return found


def _each(pod: JsonObject, spaces: Spaces) -> Iterator[Wished]:
    affinity = pod["spec"].get("affinity") or {}
    for kind, near in (("podAntiAffinity", False), ("podAffinity", True)):
        for each in (affinity.get(kind) or {}).get(_PREFERRED) or ():
            term, weight = each.get("podAffinityTerm") or {}, each.get("weight")
            try:
                whom = Selection(((spaces.of(pod, term), canonical(term.get("labelSelector"))),))
                yield whom, _wish(whom, term, weight, near)
            except (InputError, ValueError):
                continue
    for constraint in pod["spec"].get("topologySpreadConstraints") or ():
        if constraint.get("whenUnsatisfiable") == "ScheduleAnyway":
            try:
                whom = spread_selection(pod, constraint)
                yield whom, _wish(whom, constraint, SPREAD_WEIGHT, near=False)
            except (InputError, ValueError):
                continue


def _wish(whom: Selection, term: Mapping[str, Any], weight: object, near: bool) -> PeerWish:
    key = str(term.get("topologyKey") or "")
    said = {"weight": weight, "group": whom.name, "topology_key": key, "near": near}
    return PeerWish.model_validate(said)
