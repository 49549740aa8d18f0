"""A judge's house as the objects that people write, and from them what the controller works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks._power_house import Board, Domain, House, Server, Trip
from benchmarks._random_houses import RACK_TRIP, SWITCHBOARD_TRIP, Work, WorkClass
from capacity.gpu_profile import GpuProfile
from capacity.profile_library import shipped_library
from controller.membership import GpuSpec, NodeSpec, PodSpec
from controller.tick_values import Topology
from controller.topology import build_topology
from wattpack.api import PowerDomain, PowerPolicy

__all__ = ["topology_of"]


def topology_of(house: House, works: Sequence[Work], *, strict: bool = False) -> Topology:
    """The topology of a house by way of its PowerDomains, PowerPolicies, nodes and pods.

    GPUs, nodes and domains get the house's numbers as names and keep their order.

    Raises:
        SafetyError: if I1 cannot hold and ``strict``.
    """
    library = shipped_library()
    profiles = {board.model: library.find(board.model) for board in house.boards}
    topology = build_topology(
        [domain for root in house.roots for domain in _domains(root, None)],
        _policies(works),
        [_node(server, profiles) for server in house.servers],
        [_pod(work) for work in works],
        profiles,
        strict=strict,
    )
    names = tuple(f"d{domain.number:03}" for domain in house.domains)
    if topology.tree.names != names:
        raise AssertionError(f"domains in another order: {topology.tree.names}")
    return topology


def _domains(domain: Domain, parent: str | None) -> list[PowerDomain]:
    name = f"d{domain.number:03}"
    spec: dict[str, Any] = {
        "ratingWatts": domain.feed_watts,
        "breaker": _breaker(domain.trip),
        "redundancy": _redundancy(domain),
        "phases": 3,
        "phaseImbalance": domain.imbalance,
        "members": {"nodeNames": [_node_name(server) for server in domain.servers]},
        "externalLoads": [{"name": "rest", "worstWatts": domain.external_watts}],
        "nonGpuPerNode": {"worstWatts": max((s.host_watts for s in domain.servers), default=0.0)},
        "supplyEfficiency": domain.own_efficiency,
        "loadDeclaredComplete": True,
        "enforcement": "Enforce" if domain.enforces else "DryRun",
    }
    if parent is not None:
        spec["parent"] = parent
    below = [found for child in domain.children for found in _domains(child, name)]
    return [PowerDomain.from_json(_object("PowerDomain", name, spec)), *below]


def _redundancy(domain: Domain) -> dict[str, Any]:
    declared: dict[str, Any] = {
        "mode": domain.redundancy,
        "feeds": domain.feeds,
        "requiredFeeds": domain.required_feeds,
    }
    if domain.feed_trip is not None:
        declared["useReserve"] = True
        declared["overloadCurve"] = _points(domain.feed_trip)
        declared["feedShare"] = {"prometheusQuery": "share", "maxAgeSeconds": 3.0}
    return declared


def _points(trip: Trip) -> list[dict[str, float]]:
    return [{"loadRatio": ratio, "tripSeconds": s} for ratio, s in trip.points]


def _breaker(trip: Trip) -> dict[str, Any]:
    if trip == RACK_TRIP:
        return {"curve": "RackThermal"}
    if trip == SWITCHBOARD_TRIP:
        return {"curve": "SwitchboardThermal"}
    return {
        "curve": "Points",
        "points": _points(trip),
        "thermalColdCurve": trip.cold,
        "shortTimePickupRatio": trip.pickup_ratio,
    }


def _policies(works: Sequence[Work]) -> list[PowerPolicy]:
    classes = {work.work_class.name: work.work_class for work in works}
    return [
        PowerPolicy.from_json(_object("PowerPolicy", name, _policy(spoken)))
        for name, spoken in classes.items()
    ]


def _policy(spoken: WorkClass) -> dict[str, Any]:
    floor = {} if spoken.floor_share is None else {"floorFraction": spoken.floor_share}
    return {
        "selector": {"priorityClasses": [spoken.name]},
        "priority": spoken.priority,
        "requestFraction": spoken.request_share,
        **floor,
    }


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    version = "wattpack.io/v1alpha1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _node_name(server: Server) -> str:
    return f"n{server.number:03}"


def _node(server: Server, profiles: dict[str, GpuProfile]) -> NodeSpec:
    gpus = tuple(_gpu(board, profiles[board.model]) for board in server.boards)
    return NodeSpec(_node_name(server), gpus, host_unit=server.host_unit)


def _gpu(board: Board, profile: GpuProfile) -> GpuSpec:
    return GpuSpec(
        _uuid(board.number), board.model, board.minimum, board.default, profile.max_limit_watts
    )


def _uuid(number: int) -> str:
    return f"g{number:04}"


def _pod(work: Work) -> PodSpec:
    boards = tuple(_uuid(number) for number in work.boards)
    return PodSpec("jobs", work.name, boards, priority_class=work.work_class.name, gang=work.gang)
