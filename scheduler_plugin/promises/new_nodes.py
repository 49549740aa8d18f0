"""Nodes that have just come are left to the pods that they were brought for. Pure.

An autoscaler brings a node for pods that kube-scheduler found no place for, and keeps to itself
which node is for whom. A pod at our gate that were pinned to it first would send the autoscaler for
another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.node_facts import is_leaving, is_ready
from wattpack.errors import InputError
from wattpack.gpu_resources import board_count
from wattpack.kube.port import JsonObject
from wattpack.units import NS_PER_SECOND

__all__ = ["LEFT_TO_OTHERS_NS", "NewNodes"]

#: kube-scheduler tries a pod again after 10 s at most (its default ``podMaxBackoffSeconds``);
#: three tries.
LEFT_TO_OTHERS_NS = 30 * NS_PER_SECOND


class NewNodes:
    """Since when nodes are ready with their boards; those of the first look are old."""

    def __init__(self) -> None:
        self._since_ns: dict[str, int | None] | None = None

    def see(self, nodes: Iterable[JsonObject], now_ns: int) -> None:
        """What nodes there are now."""
        usable = [str(n["metadata"]["name"]) for n in nodes if _is_usable(n)]
        if self._since_ns is None:
            self._since_ns = dict.fromkeys(usable)
        self._since_ns = {name: self._since_ns.get(name, now_ns) for name in usable}

    def left(
        self, nodes: Iterable[JsonObject], unserved: Collection[JsonObject], now_ns: int
    ) -> tuple[JsonObject, ...]:
        """The nodes as a planner may use them: new ones as if they were cordoned.

        Args:
            nodes: All nodes.
            unserved: Pods without our gate that kube-scheduler has no node for.
            now_ns: Now, on the monotonic clock.
        """
        asked = [boards for pod in unserved if (boards := _boards(pod)) is not None]
        least = min(asked, default=None)
        new = {
            name
            for name, since in (self._since_ns or {}).items()
            if since is not None and now_ns - since < LEFT_TO_OTHERS_NS
        }
        if least is None or not new:
            return tuple(nodes)
        return tuple(
            _cordoned(node)
            if node["metadata"]["name"] in new and board_count(node) >= least
            else node
            for node in nodes
        )


def _is_usable(node: JsonObject) -> bool:
    return is_ready(node) and not is_leaving(node) and board_count(node) > 0


def _boards(pod: JsonObject) -> int | None:
    try:
        return pod_facts.gpus(pod).whole
    except InputError:
        return None


def _cordoned(node: JsonObject) -> dict[str, Any]:
    return {**node, "spec": {**(node.get("spec") or {}), "unschedulable": True}}
