"""The simulated row as the API objects that an operator would write for it.

Everything here is ordinary: nodes, priority classes, PowerDomains, PowerPolicies, GPUProfiles,
DemandForecasts. The product reads them as it would on a cluster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.profile_library import gpu_profile_object
from simulation.plant import domain_names
from simulation.pod_work import NAMESPACE
from simulation.request_workloads import request_workloads
from simulation.scenario import Scenario
from simulation.trip_bands import Points, TripBands
from simulation.world import World
from wattpack.api import DemandForecast, GPUProfile, PowerDomain, PowerPolicy
from wattpack.gpu_resources import NVIDIA_GPU
from wattpack.kube.port import NAMESPACES, NODES, PRIORITY_CLASSES, KubeApi, Resource
from wattpack.object_names import GPU_MODEL_LABEL, OPT_IN_LABEL, OPT_IN_VALUE, SYSTEM_NAMESPACE

RACK_LABEL = "wattpack.io/rack"
SHEET_RATIOS = tuple(round(1.0 + 0.02 * 1.25**i, 4) for i in range(16))
"""Loads over rating at which the data sheet of a simulated breaker is read: straight lines between
them are within 2 % of the curve."""

Objects = list[tuple[Resource, dict[str, Any]]]


def install(api: KubeApi, world: World, reference_sha256: str = "") -> None:
    """Create every object of the row."""
    for resource, body in row_objects(world, reference_sha256):
        stored = api.create(resource, body, body["metadata"].get("namespace"))
        if resource is NODES:
            # As on a real API server, a status is not taken over from a create.
            api.replace(NODES, {**stored, "status": body["status"]}, subresource="status")


def row_objects(world: World, reference_sha256: str = "") -> Objects:
    """Every object, in an order in which references exist."""
    scenario = world.scenario
    return [
        *_namespaces(),
        *_priority_classes(scenario),
        *_nodes(world),
        *domain_objects(scenario),
        *policy_objects(scenario),
        *[
            (GPUProfile.meta.resource, gpu_profile_object(profile, reference_sha256))
            for profile in world.profiles
        ],
        *_forecasts(scenario),
    ]


def _namespaces() -> Objects:
    return [
        (NAMESPACES, _object("v1", "Namespace", SYSTEM_NAMESPACE, {})),
        (NAMESPACES, _object("v1", "Namespace", NAMESPACE, {OPT_IN_LABEL: OPT_IN_VALUE})),
    ]


def _priority_classes(scenario: Scenario) -> Objects:
    return [
        (
            PRIORITY_CLASSES,
            _object("scheduling.k8s.io/v1", "PriorityClass", c.name, {}, value=c.value),
        )
        for c in scenario.priority_classes
    ]


def _nodes(world: World) -> Objects:
    row = world.scenario.row
    allocatable = {
        "cpu": f"{row.milli_cpu_per_server}m",
        "memory": str(row.memory_bytes_per_server),
        "pods": "110",
        NVIDIA_GPU: str(row.gpus_per_server),
    }
    nodes = []
    for index, name in enumerate(world.node_names):
        labels = {
            "kubernetes.io/hostname": name,
            RACK_LABEL: f"rack-{world.rack_of_node[index]}",
            GPU_MODEL_LABEL: world.profiles[world.profile_of_node[index]].model,
        }
        status = {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        nodes.append((NODES, _object("v1", "Node", name, labels, spec={}, status=status)))
    return nodes


def domain_objects(scenario: Scenario) -> Objects:
    """The row and its racks as an operator declares them."""
    row, plant = scenario.row, scenario.plant
    # The plant counts a server in DC watts, a PowerDomain in AC watts at the breaker.
    worst_host = plant.worst_host_watts / plant.supply_efficiency
    idle_host = plant.host_base_watts / plant.supply_efficiency
    hosts = {"worstWatts": worst_host, "idleWatts": idle_host}
    if row.host_line:
        hosts |= {
            "worstAtRestWatts": plant.worst_host_watts_at_rest / plant.supply_efficiency,
            "wattsPerGpuWatt": plant.host_watts_per_gpu_watt / plant.supply_efficiency,
        }
    common: dict[str, Any] = {
        "redundancy": _redundancy(scenario),
        "nonGpuPerNode": hosts,
        "supplyEfficiency": plant.supply_efficiency,
        "loadDeclaredComplete": True,
        "enforcement": row.enforcement,
    }
    names = domain_names(scenario)
    external = [{"name": "switches-and-storage", "worstWatts": row.external_watts}]
    specs: list[dict[str, Any]] = [
        {
            "ratingWatts": scenario.row_rating_watts / row.carried_by,
            "breaker": _breaker(scenario, "SwitchboardThermal", plant.row_breaker_points),
            "externalLoads": external if row.external_watts > 0 else [],
            **common,
        }
    ]
    for rack in names[1:]:
        specs.append(
            {
                "parent": names[0],
                "ratingWatts": scenario.rack_rating_watts / row.carried_by,
                "breaker": _breaker(scenario, "RackThermal", plant.rack_breaker_points),
                "members": {"nodeSelector": {RACK_LABEL: rack}},
                **common,
            }
        )
    return [
        (PowerDomain.meta.resource, _ours(PowerDomain.meta.kind, name, spec))
        for name, spec in zip(names, specs, strict=True)
    ]


def _breaker(scenario: Scenario, published: str, points: Points) -> dict[str, Any]:
    """By the published fit; with a heat budget by its own data sheet, as a site has to."""
    plant, budget = scenario.plant, scenario.row.heat_budget_ratio
    cooling = {"coolingSeconds": plant.breaker_cooling_seconds}
    if budget <= 0.0:
        return {"curve": published, **cooling}
    band = TripBands([points], plant.breaker_tolerance_ratio)
    edge = [(ratio, float(band.earliest_seconds(np.array([ratio]))[0])) for ratio in SHEET_RATIOS]
    return {
        "curve": "Points",
        "points": [{"loadRatio": ratio, "tripSeconds": seconds} for ratio, seconds in edge],
        "hundredPercentRated": True,
        "heatBudgetRatio": budget,
        **cooling,
    }


def _redundancy(scenario: Scenario) -> dict[str, Any]:
    row = scenario.row
    declared = {"mode": row.redundancy, "feeds": row.fed_by, "requiredFeeds": row.carried_by}
    if not row.use_reserve:
        return declared
    return declared | {
        "useReserve": True,
        "overloadCurve": [
            {"loadRatio": ratio, "tripSeconds": seconds} for ratio, seconds in row.overload_points
        ],
        "feedShare": {
            "prometheusQuery": "simulated",
            "maxAgeSeconds": row.feed_share_max_age_seconds,
        },
    }


def policy_objects(scenario: Scenario) -> Objects:
    """One PowerPolicy for each class of work."""
    policies: Objects = []
    for settings in scenario.priority_classes:
        spec: dict[str, Any] = {
            "selector": {"priorityClasses": [settings.name]},
            "priority": settings.value,
            "interactive": settings.interactive,
            "allowedActuators": list(settings.actuators),
        }
        if settings.floor_ratio is not None:
            spec["floorFraction"] = settings.floor_ratio
        policies.append(
            (PowerPolicy.meta.resource, _ours(PowerPolicy.meta.kind, settings.name, spec))
        )
    return policies


def _forecasts(scenario: Scenario) -> Objects:
    """One forecast a domain and one a service, of the series that the history carries."""
    forecasts: Objects = []
    targets = [
        (name, {"powerDomain": name, "series": domain_series(name)})
        for name in domain_names(scenario)
    ]
    targets += [
        (one.name, {"workload": one.name, "series": workload_series(one.name)})
        for one in request_workloads(scenario)
    ]
    for name, target in targets:
        body = _ours(DemandForecast.meta.kind, name, {"target": target})
        body["metadata"]["namespace"] = SYSTEM_NAMESPACE
        forecasts.append((DemandForecast.meta.resource, body))
    return forecasts


def domain_series(domain: str) -> str:
    """Name of a domain's power in the history, AC watts."""
    return f"domain_draw_watts/{domain}"


def workload_series(workload: str) -> str:
    """Name of a workload's GPU power in the history, DC watts."""
    return f"workload_draw_watts/{workload}"


def _object(
    api_version: str, kind: str, name: str, labels: dict[str, str], **rest: object
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def _ours(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return _object("wattpack.io/v1alpha1", kind, name, {}, spec=spec)
