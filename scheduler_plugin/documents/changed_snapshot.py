"""What changes of the closed vocabulary (``plan_changes``) mean for a snapshot: the only place.

Pure; everything that no change names stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler_plugin.documents.node_rules import Toleration
from scheduler_plugin.documents.plan_changes import (
    AcceptGpuModel,
    AcceptHostClass,
    AddNodes,
    AllowSlowDown,
    Change,
    DropAffinity,
    DropGangTopology,
    DropPeerRules,
    DropSelector,
    EvictPod,
    FreeOnNode,
    LiftQuarantine,
    LowerGuarantees,
    MovePod,
    OfThePod,
    RaiseLimit,
    RaiseQuota,
    ReturnNode,
    StatePower,
    TolerateTaint,
    WidenUplink,
)
from scheduler_plugin.documents.snapshot import (
    MILLI_PER_GPU,
    Gang,
    Node,
    Pod,
    PodState,
    PowerDomain,
    Quota,
    Snapshot,
)
from wattpack.errors import InputError

__all__ = ["ON_NO_BOARD", "added_names", "apply_changes"]

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ON_NO_BOARD: Final = {"gpu_boards": (), "mig_placements": ()}
"""Of a pod that leaves its node: where it was on boards says nothing of where it will be."""


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
        self._link_groups = {group.name: group for group in snapshot.link_groups}
        self._gangs: dict[str, Gang] = {gang.id: gang for gang in snapshot.gangs}
        self._quotas: dict[str, Quota] = {quota.name: quota for quota in snapshot.quotas}

    def snapshot(self) -> Snapshot:
        changed = {
            "nodes": tuple(self._nodes.values()),
            "pods": tuple(self._pods.values()),
            "gangs": tuple(self._gangs.values()),
            "domains": tuple(self._domains.values()),
            "link_groups": tuple(self._link_groups.values()),
            "quotas": tuple(self._quotas.values()),
        }
        kept = {name: getattr(self._from, name) for name in Snapshot.model_fields}
        return Snapshot(**kept | changed)

    def make(self, change: Change) -> None:
        match change:
            case RaiseLimit() | LowerGuarantees():
                self._in_domain(change)
            case RaiseQuota():
                self._raise(change)
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
            case WidenUplink():
                self._widen(change)
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

    def _widen(self, change: WidenUplink) -> None:
        group = self._link_groups.get(change.group)
        if group is None or group.uplink_megabits is None:
            raise InputError("changes.group", "a link group with a limited uplink", change.group)
        wider = {"uplink_megabits": group.uplink_megabits + change.megabits}
        self._link_groups[group.name] = group.model_copy(update=wider)

    def _in_domain(self, change: RaiseLimit | LowerGuarantees) -> None:
        domain = self._domains.get(change.domain)
        if domain is None:
            raise InputError("changes.domain", "a power domain of the snapshot", change.domain)
        if isinstance(change, RaiseLimit):
            more = {"limit_watts": domain.limit_watts + change.watts}
        else:
            more = {"guaranteed_margin_watts": domain.guaranteed_margin_watts + change.watts}
        self._domains[domain.name] = domain.model_copy(update=more)

    def _raise(self, change: RaiseQuota) -> None:
        quota = self._quotas.get(change.quota)
        if quota is None or change.resource not in quota.limits:
            raise InputError("changes.quota", "a quota and one of its limits", change.quota)
        more = {change.resource: quota.limits[change.resource] + change.amount}
        self._quotas[quota.name] = quota.model_copy(update={"limits": quota.limits | more})

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
        case AcceptHostClass():
            field = "cpu_classes" if change.part == "CPU" else "nic_classes"
            return {field: tuple(sorted({*getattr(pod, field), change.name}))}
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
