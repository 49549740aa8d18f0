"""What kube-scheduler is told about a pod's nodes, from the plan of the last cycle. Pure.

The wire format is ``k8s.io/kube-scheduler/extender/v1`` with ``nodeCacheCapable``: names of nodes
only. A pod that the plan places has one node; one that waits has none, with the cause; one that no
plan has seen yet waits a moment for it. What is not ours to place passes, and so does everything
once no plan was made for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject
from wattpack.times import parse_rfc3339

__all__ = ["HOLD_SECONDS", "MAX_SCORE", "STALE_SECONDS", "PlanTable", "filtered", "prioritized"]

#: A pod that is younger is not known to any plan yet: batching, a cycle, and some patience.
HOLD_SECONDS = 10.0
#: After this without a plan nobody is held up any more, as by the watchdog.
STALE_SECONDS = 30.0
#: ``MaxExtenderPriority``.
MAX_SCORE = 10


@dataclass(frozen=True, slots=True)
class PlanTable:
    """What the last plan says.

    Attributes:
        nodes: By uid of pods that it places.
        causes: Why a pod waits, by uid.
        spaces: Namespaces whose pods are planned.
    """

    nodes: Mapping[str, str] = field(default_factory=dict)
    causes: Mapping[str, str] = field(default_factory=dict)
    spaces: frozenset[str] = frozenset()


def filtered(table: PlanTable, arguments: object, wall_seconds: float) -> JsonObject:
    """The ``ExtenderFilterResult`` to ``ExtenderArgs``.

    Args:
        table: Of the last plan.
        arguments: Parsed JSON.
        wall_seconds: Unix time.

    Raises:
        InputError: if these are no arguments with names of nodes.
    """
    pod, names = _read(arguments)
    uid = pod_facts.uid(pod)
    node = table.nodes.get(uid)
    if node is not None:
        return _only(node, names, f"planned for {node}")
    cause = table.causes.get(uid, "")
    if not cause and _is_new(table, pod, wall_seconds):
        cause = "waits for its first plan"
    return _only("", names, cause) if cause else _only("", names, "", every=True)


def prioritized(table: PlanTable, arguments: object) -> list[JsonObject]:
    """The ``HostPriorityList``: the planned node has the highest score, all others none.

    Raises:
        InputError: as ``filtered``.
    """
    pod, names = _read(arguments)
    node = table.nodes.get(pod_facts.uid(pod))
    return [{"Host": name, "Score": MAX_SCORE if name == node else 0} for name in names]


def _only(node: str, names: list[str], why: str, *, every: bool = False) -> JsonObject:
    """Preemption would not help: the plan knows who runs where, so others are unresolvable."""
    kept = [name for name in names if every or name == node]
    failed = {name: f"wattpack: {why}" for name in names if name not in kept}
    return {
        "Nodes": None,
        "NodeNames": kept,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": failed,
        "Error": "",
    }


def _is_new(table: PlanTable, pod: JsonObject, wall_seconds: float) -> bool:
    space = pod_facts.namespace(pod)
    try:
        if space not in table.spaces or pod_facts.unmanaged_reason(pod):
            return False
        created = parse_rfc3339(str(pod["metadata"].get("creationTimestamp"))).timestamp()
    except (InputError, ValueError):
        return False
    return wall_seconds - created < HOLD_SECONDS


def _read(arguments: object) -> tuple[JsonObject, list[str]]:
    """Pod and names; keys of Go's JSON are not told apart by case."""
    if not isinstance(arguments, dict):
        raise InputError("ExtenderArgs", "an object", arguments)
    given: dict[str, Any] = {str(key).lower(): value for key, value in arguments.items()}
    pod, names = given.get("pod"), given.get("nodenames")
    if not isinstance(pod, dict) or not isinstance(pod.get("spec"), dict):
        raise InputError("Pod", "a pod", pod)
    if not isinstance(pod.get("metadata"), dict) or not pod["metadata"].get("uid"):
        raise InputError("Pod.metadata.uid", "the uid of a pod", pod.get("metadata"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError("NodeNames", "names of nodes (nodeCacheCapable: true)", names)
    return pod, names
