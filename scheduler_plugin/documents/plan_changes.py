"""What could be different so that a waiting pod starts: a closed vocabulary, and its application.

Each change is one thing that somebody can do. ``apply_changes`` is the only place that says what
one of them means for a snapshot; it is pure, and everything that is not named stays as it is.

    request of the pod    accept_gpu_model, drop_selector, drop_affinity, drop_peer_rules,
                          drop_gang_topology, tolerate_taint, lift_quarantine
    nodes                 return_node, state_power, allow_slow_down
    power                 raise_limit, lower_guarantees
    pods that run         move_pod, evict_pod
    capacity              free_on_node, add_nodes
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import Field

from scheduler_plugin.documents.node_rules import TaintEffect, Toleration
from scheduler_plugin.documents.peer_rule import PeerKind
from scheduler_plugin.documents.snapshot import (
    MILLI_PER_GPU,
    Gang,
    Node,
    Pod,
    PodState,
    PowerDomain,
    Quantity,
    ResourceName,
    Snapshot,
)
from scheduler_plugin.documents.value import Id, Label, Value
from wattpack.errors import InputError

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
MAX_ADDED_NODES: Final = 1000
WattsMore = Annotated[int, Field(ge=1, le=10**10)]


class AcceptGpuModel(Value):
    """The pod takes another GPU model, too.

    Attributes:
        waiting: Uid of the pod, or id of its gang: then all its waiting members, here and below.
    """

    kind: Literal["accept_gpu_model"] = "accept_gpu_model"
    waiting: Id
    gpu_model: Annotated[Label, Field(min_length=1)]


class DropSelector(Value):
    """The pod gives up one key of its node selector."""

    kind: Literal["drop_selector"] = "drop_selector"
    waiting: Id
    key: Label


class DropAffinity(Value):
    """The pod gives up its required node affinity."""

    kind: Literal["drop_affinity"] = "drop_affinity"
    waiting: Id


class DropPeerRules(Value):
    """The pod gives up what it wants of other pods around it: all rules of one kind.

    Attributes:
        rules: ``apart``, ``together`` or ``spread``.
    """

    kind: Literal["drop_peer_rules"] = "drop_peer_rules"
    waiting: Id
    rules: PeerKind


class DropGangTopology(Value):
    """The gang prefers one topology domain and no longer requires it; ``waiting`` is its id."""

    kind: Literal["drop_gang_topology"] = "drop_gang_topology"
    waiting: Id


class TolerateTaint(Value):
    """The pod tolerates a taint."""

    kind: Literal["tolerate_taint"] = "tolerate_taint"
    waiting: Id
    key: Label
    value: Label = ""
    effect: TaintEffect


class LiftQuarantine(Value):
    """The pod may use a node again that refused it before."""

    kind: Literal["lift_quarantine"] = "lift_quarantine"
    waiting: Id
    node: Id


class ReturnNode(Value):
    """A node is ready, not cordoned and not about to be disrupted."""

    kind: Literal["return_node"] = "return_node"
    node: Id


class StatePower(Value):
    """A profile says what the node's GPUs draw, and one power domain alone claims the node."""

    kind: Literal["state_power"] = "state_power"
    node: Id


class AllowSlowDown(Value):
    """Pods that share a node's boards may slow one another down to so many thousandths."""

    kind: Literal["allow_slow_down"] = "allow_slow_down"
    node: Id
    slow_down_milli: Annotated[int, Field(ge=1000, le=100_000)]


class RaiseLimit(Value):
    """A power domain's limit is higher by so many watts."""

    kind: Literal["raise_limit"] = "raise_limit"
    domain: Id
    watts: WattsMore


class LowerGuarantees(Value):
    """Guaranteed caps below a power domain are lower by so many watts (invariant I1)."""

    kind: Literal["lower_guarantees"] = "lower_guarantees"
    domain: Id
    watts: WattsMore


class MovePod(Value):
    """A running pod runs elsewhere. Its draw counts there, and still where it was."""

    kind: Literal["move_pod"] = "move_pod"
    uid: Id
    source: Id
    target: Id
    gpu_seconds: Annotated[int, Field(ge=0)]


class EvictPod(Value):
    """A running pod of lower priority waits again."""

    kind: Literal["evict_pod"] = "evict_pod"
    uid: Id
    node: Id
    priority: int
    gpu_seconds: Annotated[int, Field(ge=0)]


class FreeOnNode(Value):
    """So much more is free on one node, because something there ended."""

    kind: Literal["free_on_node"] = "free_on_node"
    node: Id
    gpus: Annotated[int, Field(ge=0, le=1000)] = 0
    milli_cpu: Quantity = 0
    memory_bytes: Quantity = 0
    pods: Annotated[int, Field(ge=0, le=100_000)] = 0
    resources: dict[ResourceName, Quantity] = Field(default_factory=dict)


class AddNodes(Value):
    """So many more nodes like one that is there, empty, below the same power domain.

    What they draw without work is added to what is used there.
    """

    kind: Literal["add_nodes"] = "add_nodes"
    like: Id
    count: Annotated[int, Field(ge=1, le=MAX_ADDED_NODES)]


OfThePod = (
    AcceptGpuModel | DropSelector | DropAffinity | DropPeerRules | TolerateTaint | LiftQuarantine
)
Change = Annotated[
    OfThePod
    | DropGangTopology
    | ReturnNode
    | StatePower
    | AllowSlowDown
    | RaiseLimit
    | LowerGuarantees
    | MovePod
    | EvictPod
    | FreeOnNode
    | AddNodes,
    Field(discriminator="kind"),
]

RANKS: Final = {
    "accept_gpu_model": 0, "drop_selector": 0, "drop_affinity": 0, "drop_peer_rules": 0,
    "drop_gang_topology": 0, "tolerate_taint": 0, "lift_quarantine": 0,
    "return_node": 1, "state_power": 1, "allow_slow_down": 1,
    "raise_limit": 2, "lower_guarantees": 2,
    "move_pod": 3, "evict_pod": 4, "free_on_node": 5, "add_nodes": 6,
}  # fmt: skip
"""How much a change asks of others. The set whose worst rank asks least is told."""


def apply_changes(snapshot: Snapshot, changes: Iterable[Change]) -> Snapshot:
    """The snapshot with all changes made, in their order.

    Raises:
        InputError: for a change that names what the snapshot does not have.
    """
    draft = _Draft(snapshot)
    for change in changes:
        draft.make(change)
    return draft.snapshot()


class _Draft:
    """A snapshot's parts by name, while they change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._from = snapshot
        self._nodes: dict[str, Node] = {node.name: node for node in snapshot.nodes}
        self._pods: dict[str, Pod] = {pod.uid: pod for pod in snapshot.pods}
        self._domains: dict[str, PowerDomain] = {d.name: d for d in snapshot.domains}
        self._gangs: dict[str, Gang] = {gang.id: gang for gang in snapshot.gangs}

    def snapshot(self) -> Snapshot:
        return Snapshot(
            nodes=tuple(self._nodes.values()),
            pods=tuple(self._pods.values()),
            gangs=tuple(self._gangs.values()),
            domains=tuple(self._domains.values()),
            slow_downs=self._from.slow_downs,
            cap_options=self._from.cap_options,
        )

    def make(self, change: Change) -> None:
        match change:
            case RaiseLimit() | LowerGuarantees():
                self._in_domain(change)
            case MovePod() | EvictPod():
                self._running(change)
            case DropGangTopology():
                self._scatter(change)
            case ReturnNode():
                node = self._node(change.node)
                back = {"ready": True, "schedulable": True, "disrupted": False}
                self._nodes[node.name] = node.model_copy(update=back)
            case StatePower():
                node = self._node(change.node)
                known = {"power_known": True, "rival_domains": ()}
                self._nodes[node.name] = node.model_copy(update=known)
            case AllowSlowDown():
                node = self._node(change.node)
                allowed = {"slow_down_limit_milli": change.slow_down_milli}
                self._nodes[node.name] = node.model_copy(update=allowed)
            case FreeOnNode():
                self._free(change)
            case AddNodes():
                self._add(change)
            case _:
                self._of_the_pod(change)

    def _node(self, name: str) -> Node:
        if name not in self._nodes:
            raise InputError("changes.node", "a node of the snapshot", name)
        return self._nodes[name]

    def _scatter(self, change: DropGangTopology) -> None:
        gang = self._gangs.get(change.waiting)
        if gang is None:
            raise InputError("changes.waiting", "a gang of the snapshot", change.waiting)
        self._gangs[gang.id] = gang.model_copy(update={"topology_required": False})

    def _in_domain(self, change: RaiseLimit | LowerGuarantees) -> None:
        domain = self._domains.get(change.domain)
        if domain is None:
            raise InputError("changes.domain", "a power domain of the snapshot", change.domain)
        if isinstance(change, RaiseLimit):
            more = {"limit_watts": domain.limit_watts + change.watts}
        else:
            more = {"guaranteed_margin_watts": domain.guaranteed_margin_watts + change.watts}
        self._domains[domain.name] = domain.model_copy(update=more)

    def _running(self, change: MovePod | EvictPod) -> None:
        source = change.source if isinstance(change, MovePod) else change.node
        pod = self._pods.get(change.uid)
        if pod is None or pod.state is not PodState.BOUND or pod.node != source:
            raise InputError("changes.uid", f"a pod that runs on {source}", change.uid)
        if isinstance(change, MovePod):
            update = {"state": PodState.PROMISED, "node": self._node(change.target).name}
        else:
            update = {"state": PodState.PENDING, "node": ""}
        self._pods[pod.uid] = pod.model_copy(update=update | ON_NO_BOARD)

    def _free(self, change: FreeOnNode) -> None:
        """Beyond what is taken: a node may hold more than it offers."""
        node = self._node(change.node)
        there = [pod for pod in self._pods.values() if pod.node == node.name]
        gpus = max(node.gpu_milli, sum(pod.gpu_milli for pod in there))
        cpu = max(node.milli_cpu, sum(pod.milli_cpu for pod in there))
        memory = max(node.memory_bytes, sum(pod.memory_bytes for pod in there))
        resources = dict(node.resources)
        for name, amount in change.resources.items():
            used = sum(pod.resources.get(name, 0) for pod in there)
            resources[name] = max(resources.get(name, 0), used) + amount
        self._nodes[node.name] = node.model_copy(
            update={
                "gpu_milli": gpus + change.gpus * MILLI_PER_GPU if change.gpus else node.gpu_milli,
                "milli_cpu": cpu + change.milli_cpu if change.milli_cpu else node.milli_cpu,
                "memory_bytes": memory + change.memory_bytes
                if change.memory_bytes
                else node.memory_bytes,
                "pods": max(node.pods, len(there)) + change.pods if change.pods else node.pods,
                "resources": dict(sorted(resources.items())),
            }
        )

    def _add(self, change: AddNodes) -> None:
        like = self._node(change.like)
        for name in added_names(like.name, change.count, self._nodes):
            labels = dict(like.labels)
            if HOSTNAME_LABEL in labels:
                labels[HOSTNAME_LABEL] = name
            fresh = {"ready": True, "schedulable": True, "disrupted": False}
            self._nodes[name] = like.model_copy(update=fresh | {"name": name, "labels": labels})
        above = like.domain
        while above and like.idle_watts:
            domain = self._domains[above]
            used = domain.used_watts + like.idle_watts * change.count
            self._domains[above] = domain.model_copy(update={"used_watts": used})
            above = domain.parent

    def _of_the_pod(self, change: OfThePod) -> None:
        waiting = [
            pod
            for pod in self._pods.values()
            if change.waiting in (pod.uid, pod.gang) and pod.state.waits
        ]
        if not waiting:
            raise InputError("changes.waiting", "a waiting pod or gang", change.waiting)
        for pod in waiting:
            self._pods[pod.uid] = pod.model_copy(update=_request(pod, change))


ON_NO_BOARD: Final = {"gpu_boards": (), "mig_placements": ()}
"""Of a pod that leaves its node: where it was on boards says nothing of where it will be."""


def added_names(like: str, count: int, taken: Iterable[str]) -> list[str]:
    """Names of so many more nodes like one, none of which is taken."""
    known, found, number = set(taken), list[str](), 0
    while len(found) < count:
        number += 1
        if (name := f"{like}+{number}") not in known:
            found.append(name)
    return found


def _request(pod: Pod, change: OfThePod) -> dict[str, object]:
    match change:
        case AcceptGpuModel():
            return {"gpu_models": tuple(sorted({*pod.gpu_models, change.gpu_model}))}
        case DropSelector():
            kept = {key: value for key, value in pod.node_selector.items() if key != change.key}
            return {"node_selector": kept}
        case DropAffinity():
            return {"required_terms": ()}
        case DropPeerRules():
            return {"peer_rules": tuple(r for r in pod.peer_rules if r.kind is not change.rules)}
        case LiftQuarantine():
            return {"excluded_nodes": tuple(n for n in pod.excluded_nodes if n != change.node)}
        case TolerateTaint():
            tolerated = Toleration(key=change.key, value=change.value, effect=change.effect)
            return {"tolerations": (*pod.tolerations, tolerated)}
