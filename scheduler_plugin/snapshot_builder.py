"""Kubernetes objects in, snapshot out: the only place that reads their JSON for planning."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from capacity.catalogue.pod_works import PodWorks
from capacity.interference.shared_speeds import SharedSpeeds
from capacity.profile_library import normal_name
from forecasting.decisions.priority_risks import RiskBand
from scheduler_plugin.documents.snapshot import Gang, Node, Pod, PodState, PowerDomain, Snapshot
from scheduler_plugin.documents.value_json import named_error
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.asked_amounts import asked_amounts
from scheduler_plugin.kube_objects.bound_loads import bound_loads, host_watts
from scheduler_plugin.kube_objects.cap_offers import caps_on_offer
from scheduler_plugin.kube_objects.checkpoint_age import checkpoint_age_seconds
from scheduler_plugin.kube_objects.gang_census import GangCensus
from scheduler_plugin.kube_objects.gang_flow import peak_flow_megabits
from scheduler_plugin.kube_objects.hami_boards import HamiBoards
from scheduler_plugin.kube_objects.host_amounts import asked_of_host
from scheduler_plugin.kube_objects.host_ports import HostPorts
from scheduler_plugin.kube_objects.kueue_workloads import ExpectedGang
from scheduler_plugin.kube_objects.node_reader import NodeReader
from scheduler_plugin.kube_objects.nodes_under_way import UnderWay
from scheduler_plugin.kube_objects.own_rules import rules_of, rules_of_next
from scheduler_plugin.kube_objects.peer_groups import PeerGroups
from scheduler_plugin.kube_objects.pod_claims import CLAIM_NOT_COUNTED, ClaimObjects, PodClaims
from scheduler_plugin.kube_objects.policy_floors import PolicyFloors
from scheduler_plugin.kube_objects.power_view import EVERYBODY_AT_P99, ModelWatts, PowerView
from scheduler_plugin.kube_objects.probed_ready import probed_ready_at_seconds
from scheduler_plugin.kube_objects.quota_objects import QuotaBook
from scheduler_plugin.kube_objects.shared_work import SharedWork
from scheduler_plugin.kube_objects.volume_places import VolumePlaces
from scheduler_plugin.kube_objects.work_draw import WorkDraws
from scheduler_plugin.promises.gang_places import Room, gangs_with_places, places_of_expected
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.promises.pod_states import PodStates
from wattpack.device_requests import Devices, UncountedClaimError
from wattpack.errors import InputError
from wattpack.gang_sizes import ODD_SHAPES
from wattpack.gangs import GangRef, GangSources
from wattpack.kube.port import JsonObject
from wattpack.pod_binding import bound_at_seconds
from wattpack.quantities import pod_requests
from wattpack.resource_claims import ClaimBook

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """What was read, as JSON objects, and what we know beside it.

    Attributes:
        models: Power of GPU types by normalised name; a node of an unknown type below a power
            domain gets no promises (I8: refuse, don't guess).
        wall_seconds: Unix time of the reading.
        shadow_namespaces: Where pods without our gate are planned too (mode Shadow).
        claims: GPUs that bound pods hold beside those of their resource names.
        devices: What nodes offer to claims, and templates of claims.
        volumes: Where the volumes of waiting pods are.
        quotas: What pods of a namespace may hold together.
        expected: Gangs of which no pod exists yet.
        works: What kind of work a pod does.
        shared_speeds: What kinds of work do to one another on shared boards, where measured.
        movable: Pods that plans may move or evict, by uid; None: none does, and every price is for
            people to read.
        at_caps: Plans may count work at caps where the controller sets them.
        p99_of_sums: Bound pods of a domain count by the 99th percentile of their sum.
        risks: At which forecasts count for pods by priority, the strictest first.
        links: What is known of links between nodes, as fields of a snapshot.
        floors: What policies keep for pods; looked at with ``at_caps`` only.
        rescued: Pods without our gate that kube-scheduler found no node for, by uid: planned, too.
        namespaces: Labels of namespaces by name.
        under_way: Nodes that autoscalers have asked for; nothing is planned onto them.
    """

    nodes: tuple[JsonObject, ...]
    pods: tuple[JsonObject, ...]
    power: PowerView
    models: Mapping[str, ModelWatts]
    gangs: GangSources = field(default_factory=GangSources.empty)
    shadow_namespaces: frozenset[str] = frozenset()
    claims: ClaimBook = field(default_factory=ClaimBook)
    devices: ClaimObjects = field(default_factory=ClaimObjects)
    volumes: VolumePlaces = field(default_factory=VolumePlaces)
    quotas: QuotaBook = field(default_factory=QuotaBook)
    expected: tuple[ExpectedGang, ...] = ()
    works: PodWorks = field(default_factory=PodWorks)
    shared_speeds: SharedSpeeds = field(default_factory=SharedSpeeds)
    wall_seconds: float = 0.0
    movable: frozenset[str] | None = None
    rescued: frozenset[str] = frozenset()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    under_way: UnderWay = field(default_factory=UnderWay)
    at_caps: bool = False
    p99_of_sums: bool = False
    risks: Sequence[RiskBand] = EVERYBODY_AT_P99
    links: Mapping[str, Any] = field(default_factory=dict)
    floors: PolicyFloors = field(default_factory=PolicyFloors)

    def with_moves(self, movable: frozenset[str], rescued: frozenset[str]) -> ClusterObjects:
        """The same with pods that plans may move, and those planned although they lack our gate."""
        return replace(self, movable=movable, rescued=rescued)


@dataclass(frozen=True, slots=True)
class BuiltSnapshot:
    """The snapshot and the way back to the objects.

    Attributes:
        snapshot: What the planner gets.
        pending: Pods that wait for a plan, by uid.
        refused: Pods that cannot be planned as they are written, uid to message.
        kept_slots: Reserved places that are still somebody's and still free; all others are void.
        later: Reason and message by uid of members that wait until their elastic gang has begun.
        coming: Nodes that are on their way, as they will be.
        requested: In words, by uid, what else brings nodes for a pod.
    """

    snapshot: Snapshot
    pending: Mapping[str, JsonObject]
    refused: Mapping[str, str]
    kept_slots: frozenset[str]
    later: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    coming: tuple[Node, ...] = ()
    requested: Mapping[str, str] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """Alike while the same is to be planned and to be told."""
        coming = sorted(node.name for node in self.coming)
        return f"{self.snapshot.digest()} {coming} {sorted(self.requested.items())}"

    @property
    def living_gangs(self) -> frozenset[str]:
        """Gangs of which pods exist."""
        there = (pod for pod in self.snapshot.pods if pod.gang and "#" not in pod.uid)
        return frozenset(pod.gang for pod in there)


def build_snapshot(objects: ClusterObjects, ledger: Ledger) -> BuiltSnapshot:
    """One consistent snapshot. A pod or node that cannot be read never spoils the others."""
    live = {pod_facts.uid(body) for body in objects.pods if not pod_facts.is_finished(body)}
    objects = replace(objects, claims=objects.claims.among(live))
    draws = WorkDraws(objects.works, objects.pods)
    everybody = [*objects.pods, *(body for g in objects.expected for body, _ in g.members)]
    ports = HostPorts(everybody)
    offered = ports.offered()
    reader = NodeReader(
        objects.power, objects.models, objects.devices, draws, offered, at_caps=objects.at_caps
    )
    nodes = [reader.node(body) for body in objects.nodes]
    sharing = SharedWork(objects.works, objects.shared_speeds, nodes)
    census = GangCensus(objects.pods, objects.gangs)
    peers = PeerGroups(everybody, objects.namespaces)
    alive = (pod for pod in objects.pods if pod_facts.uid(pod) in live)
    claims = PodClaims(alive, objects.claims, objects.devices)
    hami = HamiBoards(objects.nodes)
    states = PodStates(ledger, objects.rescued, objects.shadow_namespaces, objects.wall_seconds)
    around = _Around(objects, ledger, states, census, peers, claims, sharing, draws, hami, ports)
    read = _read(around)
    room = Room(nodes, read.planned)
    planned, gangs, absent, later = gangs_with_places(read.planned, read.refs, ledger, room)
    gangs, absent = _with_expected(around, gangs, absent, room)
    quotas, everyone = objects.quotas.applied([*planned, *absent])
    snapshot = Snapshot(
        nodes=tuple(nodes),
        pods=(*everyone, *ledger.moves.held()),
        gangs=tuple(gangs),
        domains=_domains(objects, nodes, planned, draws),
        slow_downs=sharing.slow_downs(),
        **objects.links,
        quotas=quotas,
        cap_options=caps_on_offer(nodes, planned, objects.models.values(), draws),
    )
    kept = frozenset(pod.uid for pod in absent if pod.state is PodState.PROMISED)
    pending = {uid: body for uid, body in read.pending.items() if uid not in later}
    coming = tuple(reader.node(body) for body in objects.under_way.nodes)
    requested = objects.under_way.requested
    later |= read.uncounted
    return BuiltSnapshot(snapshot, pending, read.refused, kept, later, coming, requested)


@dataclass(frozen=True, slots=True)
class _Read:
    """Pods as values.

    Attributes:
        planned: All that can be read.
        pending: Of those that wait, the objects by uid.
        refs: Gangs, by uid of members.
        refused: Why a pod is not planned, by uid.
        uncounted: Reason and message of those whose claims nobody can count, by uid.
    """

    planned: list[Pod] = field(default_factory=list)
    pending: dict[str, JsonObject] = field(default_factory=dict)
    refs: dict[str, GangRef] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    uncounted: dict[str, tuple[str, str]] = field(default_factory=dict)


def _read(around: _Around) -> _Read:
    """All pods that stand somewhere."""
    read = _Read()
    for body in around.objects.pods:
        try:
            state, node = around.states.of(body)
            if state is None:
                continue
            pod, ref = _pod(body, state, node, around)
            if ref is not None and ref.size is None and state is PodState.PENDING:
                raise InputError("gang", "a declared size", ref.id, pod_facts.key(body))
        except (InputError, ValidationError) as error:
            if held := _still_holds(body, around):
                read.planned.extend(held)
            elif isinstance(error, UncountedClaimError):
                read.uncounted[pod_facts.uid(body)] = (CLAIM_NOT_COUNTED, str(error))
            else:
                read.refused[pod_facts.uid(body)] = str(_named(error, pod_facts.key(body)))
            continue
        read.planned.append(pod)
        if ref is not None:
            read.refs[pod.uid] = ref
        if state is PodState.PENDING:
            read.pending[pod.uid] = body
    return read


def _domains(
    objects: ClusterObjects, nodes: list[Node], planned: list[Pod], draws: WorkDraws
) -> tuple[PowerDomain, ...]:
    """Power domains with what the planned pods draw by work, time and place."""
    bound_at = {pod_facts.uid(body): bound_at_seconds(body) for body in objects.pods}
    ready_at = {pod_facts.uid(body): probed_ready_at_seconds(body) for body in objects.pods}
    spreads = draws.spreads(objects.models) if objects.p99_of_sums else None
    loads = bound_loads(nodes, planned, bound_at, spreads, ready_at)
    hosts = host_watts(nodes)
    return objects.power.snapshot_domains(hosts, loads, objects.wall_seconds, objects.risks)


def _with_expected(
    around: _Around, gangs: Sequence[Gang], absent: Sequence[Pod], room: Room
) -> tuple[list[Gang], list[Pod]]:
    """With gangs of which no pod exists, and all of their members."""
    gangs, absent = list(gangs), list(absent)
    for expected, members in _expected(around, {gang.id for gang in gangs}):
        gang, places = places_of_expected(expected.ref, members, around.ledger, room)
        gangs.append(gang)
        absent += places
    return gangs, absent


def _named(error: InputError | ValidationError, source: str) -> InputError:
    """People read this in an Event of their pod."""
    return error if isinstance(error, InputError) else named_error(error, source)


@dataclass(frozen=True, slots=True)
class _Around:
    """What pods are read against."""

    objects: ClusterObjects
    ledger: Ledger
    states: PodStates
    census: GangCensus
    peers: PeerGroups
    claims: PodClaims
    sharing: SharedWork
    draws: WorkDraws
    hami: HamiBoards
    ports: HostPorts


def _expected(around: _Around, living: set[str]) -> Iterator[tuple[ExpectedGang, list[Pod]]]:
    """Gangs of which no pod exists, with all of their members; one that cannot be read waits."""
    for gang in around.objects.expected:
        if gang.ref.id in living:
            continue
        members: list[Pod] = []
        try:
            for body, count in gang.members:
                one, _ = _pod(body, PodState.ABSENT, "", around, gang.ref)
                members += [one.model_copy(update={"name": ""})] * count
        except (InputError, ValidationError, *ODD_SHAPES) as error:
            log.warning("%s cannot be planned: %s", gang.ref.id, error)
            continue
        yield gang, members


def _pod(
    body: JsonObject, state: PodState, node: str, around: _Around, ref: GangRef | None = None
) -> tuple[Pod, GangRef | None]:
    objects, ledger = around.objects, around.ledger
    requests = pod_requests(body)
    metadata, spec = body["metadata"], body["spec"]
    waits = state.waits
    gang = ref or around.census.gang(body)
    bound = state is PodState.BOUND
    devices, places = (around.claims.held(body), []) if bound else around.claims.asked(body)
    if state is PodState.PENDING:
        places = places + objects.volumes.of_pod(body)
    wanted = pod_facts.gpu_models(body) or devices.products
    names = {name: _model_name(objects, name) for name in wanted}
    values = pod_facts.gpu_model_values(body) if waits else {}
    work, shares = around.sharing.of_pod(body, requests)
    pod = Pod(
        uid=pod_facts.uid(body),
        namespace=pod_facts.namespace(body),
        name=str(metadata["name"]),
        priority=int(spec.get("priority") or 0),
        state=state,
        node=node,
        gang=gang.id if gang is not None and gang.size is not None else "",
        **asked_amounts(
            requests,
            devices,
            {**shares, **around.ports.of(body), **asked_of_host(body)},
            around.claims.cut_into(node if bound else ""),
        )
        | around.hami.of_pod(body, node),
        gpu_models=tuple(names.values()),
        gpu_model_values={names[name]: value for name, value in values.items()},
        cpu_classes=pod_facts.cpu_classes(body),
        cpu_class_values=pod_facts.cpu_class_values(body) if waits else {},
        nic_classes=pod_facts.nic_classes(body),
        **(rules_of(spec, places) if waits else _move(body, state, objects)),
        peak_flow_megabits=peak_flow_megabits(body),
        kernel_class=around.draws.kernel_class(body),
        expected_watts_per_gpu=pod_facts.expected_watts_per_gpu(body),
        least_cap_milli=objects.floors.least_cap_milli(body) if waits and objects.at_caps else 0,
        cap_watts=ledger.promised_cap_watts(pod_facts.uid(body)) * (state is PodState.PROMISED),
        excluded_nodes=ledger.excluded_nodes(pod_facts.owner_key(body)) if waits else (),
        **(around.peers.of_waiting(body) if waits else around.peers.of(body)),
        shared_work=work,
        quotas=objects.quotas.of_pod(body),
    )
    return pod, gang


def _model_name(objects: ClusterObjects, name: str) -> str:
    """As nodes are called, where the GPU type is known."""
    known = objects.models.get(normal_name(name))
    return known.model if known else name


def _move(body: JsonObject, state: PodState, objects: ClusterObjects) -> dict[str, Any]:
    """Where a running pod could be instead, and what that costs; nothing where it has to stay."""
    if objects.movable is not None and pod_facts.uid(body) not in objects.movable:
        return {}
    work = objects.works.of_pod(body) if state is PodState.BOUND else None
    if work is None or not work.is_sure:
        return {}
    seconds = work.move_seconds(checkpoint_age_seconds(body, objects.wall_seconds))
    rules = None if seconds is None else rules_of_next(body)
    return {} if rules is None or seconds is None else {**rules, "move_seconds": math.ceil(seconds)}


def _still_holds(body: JsonObject, around: _Around) -> list[Pod]:
    """A pod with a node holds what it asks for, at worst watts, whatever else it says of itself."""
    try:
        state, node = around.states.of(body)
        if state is None or not node:
            return []
        claimed = around.claims.held(body) if state is PodState.BOUND else Devices()
        cut_into = around.claims.cut_into(node)
        asked = asked_amounts(
            pod_requests(body), claimed, around.ports.of(body), cut_into
        ) | around.peers.of(body)
        asked |= around.hami.of_pod(body, node)
        asked["quotas"] = around.objects.quotas.of_pod(body)
        return [Pod(uid=pod_facts.uid(body), state=state, node=node, **asked)]
    except (InputError, ValidationError):
        return []
