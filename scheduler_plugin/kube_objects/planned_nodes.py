"""Whether a node still is what a plan was made for: the same object, as inviting, as empty. Pure.

A node's resourceVersion changes with every heartbeat of its kubelet, so what planning reads is
compared instead, and only where the version differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.hami_boards import registered_boards
from scheduler_plugin.kube_objects.node_facts import is_leaving, is_ready
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["PlannedNodes"]


@dataclass(frozen=True, slots=True)
class PlannedNodes:
    """What one cycle planned for.

    Attributes:
        bodies: Nodes by name, as they were read.
        placed: Uids of pods that had a node, a pin or a nomination then.
    """

    bodies: Mapping[str, JsonObject]
    placed: frozenset[str]

    @classmethod
    def of(cls, nodes: Iterable[JsonObject], pods: Iterable[JsonObject]) -> PlannedNodes:
        """Read no later than the snapshot was, so that no change falls between."""
        bodies = {str(body["metadata"]["name"]): body for body in nodes}
        return cls(bodies, frozenset(pod_facts.uid(pod) for pod in pods if _has_place(pod)))

    def changed(self, name: str, now: JsonObject | None, bound: Iterable[JsonObject]) -> str:
        """Why nothing planned for the node may be promised there; empty if it may.

        Args:
            name: Of the node.
            now: The node as last seen; None if it is gone.
            bound: Pods that are bound to it, as last seen.
        """
        planned = self.bodies.get(name)
        if planned is None or now is None:
            return "it is gone"
        if planned["metadata"]["uid"] != now["metadata"]["uid"]:
            return "another node has its name now"
        if _version(planned) != _version(now) and _as_planned(planned) != _as_planned(now):
            return "it changed"
        for pod in bound:
            if self._came_unplanned(pod, name):
                return f"{pod_facts.key(pod)} was bound there by others"
        return ""

    def _came_unplanned(self, pod: JsonObject, node: str) -> bool:
        """Somebody took boards that the plan saw free.

        Pods without GPUs come and go on GPU nodes all the time: were each of them a change, a busy
        cluster would never be planned to the end. Our own pins were counted when they were made.
        """
        if pod_facts.uid(pod) in self.placed or pod_facts.pinned_node(pod) == node:
            return False
        try:
            return pod_facts.may_ask_for_gpus(pod)
        except InputError:
            return False


def _has_place(pod: JsonObject) -> bool:
    nominated = (pod.get("status") or {}).get("nominatedNodeName")
    return bool(pod_facts.node_name(pod) or nominated or pod_facts.pinned_node(pod))


def _version(body: JsonObject) -> str:
    return str(body["metadata"].get("resourceVersion"))


def _as_planned(body: JsonObject) -> tuple[Any, ...]:
    """What a snapshot reads of a node (``NodeReader``)."""
    spec = body.get("spec") or {}
    return (
        body["metadata"].get("labels") or {},
        (body.get("status") or {}).get("allocatable") or {},
        spec.get("taints") or [],
        bool(spec.get("unschedulable")),
        is_ready(body),
        is_leaving(body),
        registered_boards(body),
    )
