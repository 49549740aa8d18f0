"""Preferred pod (anti-)affinity and ``ScheduleAnyway`` spread of a Kubernetes pod, as wishes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from scheduler_plugin.documents.peer_wish import PeerWish
from scheduler_plugin.kube_objects.pod_selections import (
    Selection,
    Spaces,
    canonical,
    spread_selection,
)
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["Wished", "wishes_of"]

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
MOST_WISHES: Final = 100
"""Of one pod; those behind are not looked at (assumed)."""
SPREAD_WEIGHT: Final = 100
"""Of a soft spread: of the heaviest preferred term (assumed; kube-scheduler has no weight for it
and lets spread and terms of pods count alike)."""
Wished = tuple[Selection, PeerWish]


def wishes_of(pod: JsonObject, spaces: Spaces) -> list[Wished]:
    """Whom a pod would rather have near or far; what cannot be read is no wish."""
    return list(islice(_each(pod, spaces), MOST_WISHES))


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
