"""The scenario as Kubernetes objects, and the parts of a cluster that no product process plays.

``install`` creates namespaces' objects, nodes, power domains, policies, profiles and forecasts.
``TwinCluster.step`` then plays users (pods come and go), the admission webhook's caller, the
kube-scheduler's binder and the kubelet, against any ``KubeApi`` with a binder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from capacity.library import gpu_profile_object, shipped_library
from scheduler_plugin.admission import gate_patch
from scheduler_plugin.names import GPU_MODEL_LABELS, GPU_RESOURCE
from scheduler_plugin.pods import is_gated, node_name, pinned_node
from simulation.scenario import Scenario
from simulation.work import NAMESPACE, WORK_LABEL, Work, pod_manifest
from simulation.world import World
from wattpack.api import DemandForecast, GPUProfile, PowerDomain, PowerPolicy
from wattpack.kube.json_patch import apply_json_patch
from wattpack.kube.port import NODES, PODS, PRIORITY_CLASSES, JsonObject, KubeApi, Resource

RACK_LABEL = "wattpack.io/rack"
Bind = Callable[[str, str, str], Any]
"""(pod name, namespace, node): what the kube-scheduler's binding does."""


class BindingApi(KubeApi, Protocol):
    """A ``KubeApi`` that also binds, as the embedded store does."""

    def bind(self, name: str, namespace: str, node: str) -> JsonObject:
        """The pod after its binding."""
        ...


def domain_series(domain: str) -> str:
    """Name of a domain's power in the history, as the controller writes it."""
    return f"domain_draw_watts/{domain}"


def workload_series(workload: str) -> str:
    """Name of a workload's GPU power in the history."""
    return f"workload_power_watts/{workload}"


def workload_names(scenario: Scenario) -> list[str]:
    """Services, training jobs and the batch stream."""
    services = [service.name for service in scenario.services]
    return [*services, *(job.name for job in scenario.training), "batch"]


def objects_of(world: World) -> list[tuple[Resource, JsonObject]]:
    """Everything that an operator would have declared for this row."""
    scenario = world.scenario
    library = shipped_library()
    found: list[tuple[Resource, JsonObject]] = []
    for profile in world.profiles:
        body = gpu_profile_object(profile, library.reference_sha256)
        found.append((GPUProfile.meta.resource, body))
    for settings in scenario.priority_classes:
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": settings.name},
            "value": settings.value,
        }
        found.append((PRIORITY_CLASSES, body))
        spec: JsonObject = {
            "selector": {"priorityClasses": [settings.name]},
            "priority": settings.value,
            "interactive": settings.interactive,
        }
        if settings.floor_ratio is not None:
            spec["floorFraction"] = settings.floor_ratio
        found.append(_ours(PowerPolicy.meta.resource, settings.name, spec))
    found += [(NODES, node) for node in node_objects(world)]
    found += domain_objects(scenario, world.domain_names)
    found += forecast_objects(scenario, world.domain_names)
    return found


def _ours(
    resource: Resource, name: str, spec: JsonObject, namespace: str = ""
) -> tuple[Resource, JsonObject]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": spec,
    }
    return resource, body


def node_objects(world: World) -> list[JsonObject]:
    """The servers."""
    row = world.scenario.row
    capacity = {
        "cpu": f"{row.milli_cpu_per_server}m",
        "memory": str(row.memory_bytes_per_server),
        "pods": "110",
        GPU_RESOURCE: str(row.gpus_per_server),
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    RACK_LABEL: f"rack-{world.rack_of_node[i]}",
                    GPU_MODEL_LABELS[0]: world.profiles[world.profile_of_node[i]].model,
                },
            },
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for i, name in enumerate(world.node_names)
    ]


def domain_objects(
    scenario: Scenario, domain_names: tuple[str, ...]
) -> list[tuple[Resource, JsonObject]]:
    """The row and its racks as PowerDomains."""
    plant, row = scenario.plant, scenario.row
    redundancy = {"mode": "2N", "feeds": 2} if row.redundancy == "2N" else {"mode": "None"}
    common: JsonObject = {
        "redundancy": redundancy,
        "supplyEfficiency": plant.supply_efficiency,
        "loadDeclaredComplete": True,
        "enforcement": row.enforcement,
        "nonGpuPerNode": {
            "worstWatts": plant.worst_host_watts / plant.supply_efficiency,
            "idleWatts": plant.host_base_watts / plant.supply_efficiency,
        },
    }
    cooling = plant.breaker_cooling_seconds
    top = common | {
        "ratingWatts": scenario.row_rating_watts,
        "breaker": {"curve": "SwitchboardThermal", "coolingSeconds": cooling},
        "externalLoads": [{"name": "switches", "worstWatts": row.external_watts}],
    }
    found = [_ours(PowerDomain.meta.resource, domain_names[0], top)]
    for name in domain_names[1:]:
        rack = common | {
            "parent": domain_names[0],
            "ratingWatts": scenario.rack_rating_watts,
            "breaker": {"curve": "RackThermal", "coolingSeconds": cooling},
            "members": {"nodeSelector": {RACK_LABEL: name}},
        }
        found.append(_ours(PowerDomain.meta.resource, name, rack))
    return found


def forecast_objects(
    scenario: Scenario, domain_names: tuple[str, ...]
) -> list[tuple[Resource, JsonObject]]:
    """One forecast a domain and workload."""
    resource = DemandForecast.meta.resource
    ceilings = [scenario.row_rating_watts, *([scenario.rack_rating_watts] * scenario.row.racks)]
    found = []
    for name, ceiling in zip(domain_names, ceilings, strict=True):
        target = {"powerDomain": name, "series": domain_series(name)}
        spec: JsonObject = {"target": target, "ceilingWatts": 1.5 * ceiling}
        found.append(_ours(resource, f"domain-{name}", spec, NAMESPACE))
    for name in workload_names(scenario):
        spec = {"target": {"workload": name, "series": workload_series(name)}}
        found.append(_ours(resource, f"workload-{name}", spec, NAMESPACE))
    return found


def install(api: KubeApi, world: World) -> None:
    """Create all objects of the row."""
    for resource, body in objects_of(world):
        api.create(resource, body, body["metadata"].get("namespace"))


class TwinCluster:
    """Users, binder and kubelets of the twin.

    Args:
        api: The cluster.
        world: The plant.
        gated: Whether pods pass the admission that holds them for the planner.
    """

    def __init__(self, api: BindingApi, world: World, *, gated: bool = True) -> None:
        self._api = api
        self._world = world
        self._gated = gated
        self._priority = {c.name: c.value for c in world.scenario.priority_classes}
        self.created = 0

    def create_due(self, now_ns: int) -> int:
        """Create the pods whose time has come; how many."""
        works = self._world.due(now_ns)
        for work in works:
            self._api.create(PODS, self.manifest(work), NAMESPACE)
        self.created += len(works)
        return len(works)

    def manifest(self, work: Work) -> JsonObject:
        """A pod as the API server stores it after admission."""
        pod: JsonObject = pod_manifest(work, self._priority[work.priority_class])
        operations = gate_patch(pod) if self._gated else []
        return apply_json_patch(pod, operations) if operations else pod

    def delete_finished(self) -> int:
        """Delete batch pods whose work is done; how many."""
        finished = self._world.take_finished()
        for name in finished:
            self._api.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
        return len(finished)

    def bind_and_run(self) -> None:
        """Bind released pods to the node they are pinned to and let the plant run what is bound."""
        pods = self._api.list(PODS, NAMESPACE).items
        free = {node: self._free(node) for node in range(len(self._world.node_names))}
        bound = []
        for pod in pods:
            name = str(pod["metadata"]["name"])
            target = pinned_node(pod)
            if not node_name(pod) and not is_gated(pod) and target in self._world.node_names:
                node = self._world.node_names.index(target)
                need = int(pod["spec"]["containers"][0]["resources"]["requests"][GPU_RESOURCE])
                if free[node] >= need and WORK_LABEL in pod["metadata"]["labels"]:
                    free[node] -= need
                    pod = self._api.bind(name, NAMESPACE, target)
            bound.append(pod)
        self._world.pods_changed(bound)

    def _free(self, node: int) -> int:
        return len(self._world.assignment.free(node))

    def waiting(self) -> int:
        """Pods without a node."""
        return sum(not node_name(pod) for pod in self._api.list(PODS, NAMESPACE).items)
