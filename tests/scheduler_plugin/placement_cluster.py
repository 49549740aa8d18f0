"""A small cluster in the embedded API: nodes, managed pods, a binder that honours pins."""

from __future__ import annotations

from typing import Any

from scheduler_plugin.app.plan_archive import PLANS
from scheduler_plugin.app.planning_cycle import PlannerSurroundings
from scheduler_plugin.app.planning_loop import PlacementLoop
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.app.solver_process import InProcessPlanner
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.admission import Mode, gate_patch
from simulation.kube import EmbeddedKube
from tests.forecasting.forecast_builders import make_forecast
from wattpack.api import DemandForecast, GPUProfile, PowerDomain
from wattpack.clock import ManualClock
from wattpack.kube.json_patch import apply_json_patch
from wattpack.kube.port import EVENTS, NODES, PODS, JsonObject, KubeApi
from wattpack.units import NS_PER_SECOND

SPACE = "team"


def node_object(name: str, gpus: int = 8, **changes: Any) -> JsonObject:
    """``offers`` adds allocatable resources; other changes go to the spec."""
    offers = changes.pop("offers", {})
    labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-H200"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | changes.pop("labels", {})},
        "spec": changes,
        "status": {
            "allocatable": {
                "cpu": "96",
                "memory": "1Ti",
                "pods": "110",
                "nvidia.com/gpu": str(gpus),
            }
            | offers,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod_object(name: str, gpus: int = 1, **changes: Any) -> JsonObject:
    """``asks`` adds limits of its container; other changes go to the spec."""
    asks = changes.pop("asks", {})
    owned = changes.pop("owned", True)
    metadata: JsonObject = {"name": name, "namespace": SPACE}
    for key in ("labels", "annotations"):
        if key in changes:
            metadata[key] = changes.pop(key)
    if owned:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "controller": True}
        metadata["ownerReferences"] = [owner | {"uid": f"owner-of-{name}"}]
    limits = {"cpu": "4", "memory": "16Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    limits |= asks
    container = {"name": "main", "image": "work", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]} | changes,
    }


def profile_object() -> JsonObject:
    kernel = {
        "name": "decode",
        "powerP50Watts": 70,
        "powerP95Watts": 370,
        "capFractions": [0.5, 1.0],
        "throughputFractions": [0.9, 1.0],
        "provenance": "assumed",
    }
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "GPUProfile",
        "metadata": {"name": "h200"},
        "spec": {
            "model": "H200-SXM",
            "productNames": ["NVIDIA H200"],
            "idleWatts": 70,
            "minLimitWatts": 200,
            "defaultLimitWatts": 700,
            "maxLimitWatts": 700,
            "kneeWatts": 400,
            "maxClockMhz": 1980,
            "kernelClasses": [kernel, kernel | {"name": "idle", "powerP95Watts": 71}],
        },
    }


def domain_object(name: str, rating_watts: float, nodes: list[str], **spec: Any) -> JsonObject:
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerDomain",
        "metadata": {"name": name},
        "spec": {"ratingWatts": rating_watts, "members": {"nodeNames": nodes}} | spec,
    }


class Cluster:
    """An embedded API with a planner in front of it."""

    def __init__(
        self, mode: Mode = Mode.MANAGE, api: KubeApi | None = None, **settings: Any
    ) -> None:
        self.clock = ManualClock()
        self.api = EmbeddedKube(self.clock)
        self.settings = PlacementSettings(mode=mode, **({"deadline_seconds": 0.1} | settings))
        self.loop = self.new_loop(api)

    def new_loop(self, api: KubeApi | None = None, epoch: int = 0) -> PlacementLoop:
        planner = InProcessPlanner(self.settings.deadline_seconds)
        around = PlannerSurroundings(self.clock, planner)
        return PlacementLoop(api or self.api, around, self.settings, epoch=epoch)

    def add_nodes(self, *names: str, **changes: Any) -> None:
        for name in names:
            body = node_object(name, **changes)
            self.api.create(NODES, body)
            self.api.replace(NODES, self._with_status(NODES, name, body), subresource="status")

    def _with_status(self, resource: Any, name: str, body: JsonObject) -> JsonObject:
        return {**self.api.get(resource, name), "status": body["status"]}

    def add(self, body: JsonObject) -> JsonObject:
        """Create through admission, as an API server with our webhook would."""
        if body["kind"] == "Pod" and self.settings.mode is Mode.MANAGE:
            body = apply_json_patch(body, gate_patch(body))
        kinds = {m.meta.kind: m.meta.resource for m in (PowerDomain, DemandForecast, GPUProfile)}
        resource = kinds.get(body["kind"], PODS)
        return self.api.create(resource, body, SPACE if resource is PODS else None)

    def add_accepted(self, body: JsonObject) -> JsonObject:
        """Create a domain and accept it, as the controller would."""
        self.add(body)
        return self.set_status(PowerDomain, body["metadata"]["name"])

    def set_status(
        self, model: type[PowerDomain | DemandForecast], name: str, **status: Any
    ) -> JsonObject:
        resource = model.meta.resource
        namespace = SPACE if resource.namespaced else None
        body = self.api.get(resource, name, namespace)
        if model is PowerDomain:
            status = {"acceptedSpec": body["spec"], **status}
        body = {**body, "status": status}
        return self.api.replace(resource, body, namespace, subresource="status")

    def add_forecast(self, p99: float, **changes: Any) -> JsonObject:
        """A forecast of the row as the forecaster leaves it."""
        now_seconds = self.clock.wall_time_ns() / NS_PER_SECOND
        body = make_forecast(now_seconds, p99, **changes)
        resource, namespace = DemandForecast.meta.resource, body["metadata"]["namespace"]
        stored = self.api.create(resource, body, namespace)
        status = {**stored, "status": body["status"]}
        return self.api.replace(resource, status, namespace, subresource="status")

    def pod(self, name: str) -> JsonObject:
        return self.api.get(PODS, name, SPACE)

    def bind(self) -> None:
        """Bind every ungated pod where its pin says, as kube-scheduler would, and start it."""
        for pod in self.api.list(PODS).items:
            pin = pod_facts.pinned_node(pod)
            if pod_facts.gates(pod) or pod_facts.node_name(pod) or not pin:
                continue
            name = pod["metadata"]["name"]
            self.api.bind(name, SPACE, pin)
            body = {**self.pod(name)}
            body["status"] = body.get("status", {}) | {"phase": "Running"}
            self.api.replace(PODS, body, SPACE, subresource="status")

    def refuse(self) -> None:
        """Find no node for any ungated pod that has none, as kube-scheduler would say it."""
        refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        for pod in self.api.list(PODS).items:
            if not (pod_facts.gates(pod) or pod_facts.node_name(pod)):
                status = {**pod.get("status", {}), "conditions": [refusal]}
                self.api.replace(PODS, {**pod, "status": status}, SPACE, subresource="status")


def events(cluster: Cluster) -> list[tuple[str, str]]:
    """What people were told: about whom, and the note."""
    return [(e["regarding"]["name"], e["note"]) for e in cluster.api.list(EVENTS).items]


def plans(cluster: Cluster) -> list[JsonObject]:
    """The PlacementPlans that are stored."""
    return list(cluster.api.list(PLANS).items)


def gang_pod(name: str, size: int, gpus: int = 8, **changes: Any) -> JsonObject:
    return pod_object(
        name,
        gpus,
        labels={"wattpack.io/gang": "g"},
        annotations={"wattpack.io/gang-size": str(size)},
        **changes,
    )
