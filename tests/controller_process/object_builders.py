"""API objects for the controller's object store."""

from __future__ import annotations

from typing import Any

from controller.app.desired_state import ObjectStore
from controller.app.forecast_reader import ForecastReader
from controller.app.running_topology import DesiredTopology
from wattpack.api import PowerDomain, PowerOverride, PowerPolicy
from wattpack.kube.port import NODES, PODS, JsonObject, Resource

DOMAINS = PowerDomain.meta.resource
OVERRIDES = PowerOverride.meta.resource
POLICIES = PowerPolicy.meta.resource


def make_object(kind: str, name: str, spec: JsonObject, **metadata: Any) -> JsonObject:
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "generation": 1, **metadata},
        "spec": spec,
    }


def make_domain(name: str = "row", **spec: Any) -> JsonObject:
    values: JsonObject = {
        "ratingWatts": 40_000.0,
        "members": {"nodeSelector": {"row": name}},
        "nonGpuPerNode": {"worstWatts": 900.0, "idleWatts": 400.0},
        "loadDeclaredComplete": True,
        "enforcement": "Enforce",
    }
    return make_object("PowerDomain", name, values | spec)


def make_node(name: str, *, gpus: int = 0, row: str = "row", **labels: str) -> JsonObject:
    capacity = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"row": row, **labels}},
        "status": {"capacity": capacity},
    }


def make_pod(name: str, *, node: str | None = None, **fields: Any) -> JsonObject:
    spec: JsonObject = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", **fields.pop("metadata", {})},
        "spec": spec | fields,
    }


class Cluster:
    """An object store that objects are put into as an informer would."""

    def __init__(self, *objects: tuple[Resource, JsonObject]) -> None:

        self.store = ObjectStore()
        self.desired = DesiredTopology(self.store, ForecastReader(self.store))
        for resource, body in objects:
            self.put(resource, body)

    def put(self, resource: Resource, body: JsonObject, old: JsonObject | None = None) -> None:
        self.store.changed(resource, old, body)

    def remove(self, resource: Resource, body: JsonObject) -> None:
        self.store.changed(resource, body, None)


def make_cluster(*nodes: JsonObject) -> Cluster:
    """One enforcing row and its nodes."""
    return Cluster((DOMAINS, make_domain()), *[(NODES, node) for node in nodes])


__all__ = [
    "DOMAINS",
    "NODES",
    "OVERRIDES",
    "PODS",
    "POLICIES",
    "Cluster",
    "make_cluster",
    "make_domain",
    "make_node",
    "make_object",
    "make_pod",
]
