"""Stand-ins for kube-scheduler and kubelet around the embedded object store.

Deliberately simple: the binder takes, by name, the first node that a pod's selector and required
node affinity allow and that has room, nodes that the pod prefers first; the kubelet sets Running.
They prove the protocol (gate, pin, bind), not Kubernetes' scheduling. They only use the API.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from simulation.kube.embedded_api import EmbeddedKube
from wattpack.kube.port import NODES, PODS, JsonObject, KubeError
from wattpack.quantities import pod_requests, resources

log = logging.getLogger(__name__)
FINISHED = frozenset({"Succeeded", "Failed"})


class ClusterStandIn:
    """Binds ungated pods and lets bound ones run.

    Args:
        api: The embedded store.
    """

    def __init__(self, api: EmbeddedKube) -> None:
        self._api = api
        self.bound = 0

    def step(self) -> list[JsonObject]:
        """One pass over all pods; returns them as they are after it."""
        nodes = {str(n["metadata"]["name"]): n for n in self._api.list(NODES).items}
        pods = list(self._api.list(PODS).items)
        free = free_by_node(nodes, pods)
        waiting = [pod for pod in pods if is_waiting(pod)]
        waiting.sort(key=lambda pod: (-int(pod["spec"].get("priority", 0)), _name(pod)))
        changed = False
        for pod in waiting:
            node = choose_node(pod, nodes, free)
            if node is not None and self._bind(pod, node):
                free[node].subtract(pod_requests(pod))
                changed = True
        return list(self._api.list(PODS).items) if changed else pods

    def _bind(self, pod: JsonObject, node: str) -> bool:
        name, namespace = _name(pod), str(pod["metadata"]["namespace"])
        try:
            stored = self._api.bind(name, namespace, node)
            stored["status"] = {**stored.get("status", {}), "phase": "Running"}
            self._api.replace(PODS, stored, namespace, subresource="status")
        except KubeError as error:
            log.warning("pod %s not bound to %s: %s", name, node, error)
            return False
        self.bound += 1
        return True


def is_waiting(pod: Mapping[str, Any]) -> bool:
    """Ungated, unbound, not finished and not being deleted."""
    spec, status = pod["spec"], pod.get("status", {})
    return not (
        spec.get("schedulingGates")
        or spec.get("nodeName")
        or pod["metadata"].get("deletionTimestamp")
        or status.get("phase") in FINISHED
    )


def free_by_node(
    nodes: Mapping[str, JsonObject], pods: Iterable[JsonObject]
) -> dict[str, Counter[str]]:
    """What each node has left of its allocatable resources."""
    free = {
        name: resources("status.allocatable", node["status"]["allocatable"])
        for name, node in nodes.items()
    }
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node in free and pod.get("status", {}).get("phase") not in FINISHED:
            free[node].subtract(pod_requests(pod))
    return free


def choose_node(
    pod: JsonObject, nodes: Mapping[str, JsonObject], free: Mapping[str, Counter[str]]
) -> str | None:
    """The node to bind to, or None."""
    wanted = pod_requests(pod)
    fitting = [
        name
        for name, node in nodes.items()
        if is_allowed(pod, node) and all(free[name][key] >= n for key, n in wanted.items())
    ]
    return min(fitting, key=lambda name: (-preference(pod, nodes[name]), name), default=None)


def is_allowed(pod: JsonObject, node: JsonObject) -> bool:
    """Node selector and required node affinity, with the operators that the twin's pods use."""
    labels = node["metadata"].get("labels", {})
    if any(labels.get(k) != v for k, v in pod["spec"].get("nodeSelector", {}).items()):
        return False
    required = _node_affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(
        _term_holds(term, node) for term in required.get("nodeSelectorTerms", [])
    )


def preference(pod: JsonObject, node: JsonObject) -> int:
    """Sum of the weights of the preferences that the node meets."""
    terms = _node_affinity(pod).get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return sum(int(t["weight"]) for t in terms if _term_holds(t["preference"], node))


def _node_affinity(pod: JsonObject) -> dict[str, Any]:
    return dict((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {})


def _term_holds(term: Mapping[str, Any], node: JsonObject) -> bool:
    metadata = node["metadata"]
    rules = [(r, metadata.get("labels", {})) for r in term.get("matchExpressions", [])]
    rules += [(r, {"metadata.name": metadata["name"]}) for r in term.get("matchFields", [])]
    return bool(rules) and all(
        rule["operator"] == "In" and values.get(rule["key"]) in rule["values"]
        for rule, values in rules
    )


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])
