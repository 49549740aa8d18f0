"""Nodes as the informers show them at this moment, without a request a pod."""

from __future__ import annotations

import threading
from collections import defaultdict

from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.kube.informer import Informer
from wattpack.kube.port import JsonObject

__all__ = ["NodeWatch"]


class NodeWatch:
    """The newest that is known of a node and of the pods that are bound to it.

    Args:
        nodes: Informer of nodes.
        pods: Informer of all pods.
        threaded: The informers run in threads of their own.
    """

    def __init__(self, nodes: Informer, pods: Informer, *, threaded: bool) -> None:
        self._nodes, self._pods = nodes, pods
        self._threaded = threaded
        self._bound: dict[str, dict[str, JsonObject]] = defaultdict(dict)
        self._lock = threading.Lock()
        pods.add_handler(self._pod_changed)

    def refresh(self) -> None:
        """Without threads nothing comes by itself: take over what changed until now."""
        if not self._threaded:
            self._nodes.pump()
            self._pods.pump()

    def node(self, name: str) -> JsonObject | None:
        """As last seen; shared, do not change it."""
        return self._nodes.get(name)

    def nodes(self) -> tuple[JsonObject, ...]:
        """All of them, as last seen."""
        return self._nodes.list()

    def bound(self, name: str) -> list[JsonObject]:
        """Pods that are bound to the node and have not finished."""
        with self._lock:
            return list(self._bound.get(name, {}).values())

    def _pod_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        with self._lock:
            if old is not None and (node := pod_facts.node_name(old)):
                there = self._bound[node]
                there.pop(pod_facts.uid(old), None)
                if not there:
                    del self._bound[node]
            if new is None or pod_facts.is_finished(new):
                return
            if node := pod_facts.node_name(new):
                self._bound[node][pod_facts.uid(new)] = new
