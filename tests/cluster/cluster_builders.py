"""Short ways to say a pod, a node and their parts in cluster tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.cluster_connection import Answer
from tests.cluster.control_plane import ControlPlane

GATE = "wattpack.io/placement"
Body = dict[str, Any]


def pod(name: str, *, gates: Sequence[str] = (), gpus: int = 0, **spec: Any) -> Body:
    """A pod of one container; ``spec`` is laid over the pod's spec."""
    container: Body = {"name": "main", "image": "registry.example/work:1"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    body: Body = {"containers": [container], **spec}
    if gates:
        body["schedulingGates"] = [{"name": gate} for gate in gates]
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": body}


def node(
    name: str,
    *,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Body] = (),
    cpu: str = "64",
    pods: str = "110",
) -> Body:
    """A node that kwok plays; the tests' own label keeps other tests' pods off it."""
    room = {"cpu": cpu, "memory": "512Gi", "nvidia.com/gpu": str(gpus), "pods": pods}
    return {
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
        },
        "spec": {"taints": list(taints)},
        "status": {"allocatable": room, "capacity": room},
    }


def term(expressions: Mapping[str, Sequence[str]] | None = None, names: Sequence[str] = ()) -> Body:
    """A node selector term: label In values, and metadata.name In one name each."""
    out: Body = {}
    if expressions:
        out["matchExpressions"] = [
            {"key": key, "operator": "In", "values": list(values)}
            for key, values in expressions.items()
        ]
    if names:
        out["matchFields"] = [
            {"key": "metadata.name", "operator": "In", "values": [name]} for name in names
        ]
    return out


def required(*terms: Body) -> Body:
    """An affinity whose required node terms are these."""
    terms_body = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms_body}}


def create(plane: ControlPlane, path: str, body: Body) -> Body:
    """Create an object that must be accepted; return it as stored."""
    answer = plane.request("POST", path, body)
    assert answer.status == 201, answer.message
    return answer.body


def bind(plane: ControlPlane, namespace: str, name: str, node_name: str, **extra: Any) -> Answer:
    """Ask for a binding of the pod to the node."""
    body = {"metadata": {"name": name, **extra}, "target": {"kind": "Node", "name": node_name}}
    return plane.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)
