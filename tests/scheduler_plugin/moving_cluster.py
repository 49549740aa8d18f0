"""A cluster in which pods come back: owners, kubelets, disruption budgets and a plain scheduler.

Nothing here is shared with what it judges: rooms are counted from the pods, budgets from evictions.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from scheduler_plugin.app.cluster_view import BUDGETS
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.admission import Mode, gate_patch
from simulation.kube import EmbeddedKube
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.clock import Clock
from wattpack.kube.json_patch import apply_json_patch
from wattpack.kube.port import (
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    JsonObject,
    KubeApi,
    NotFoundError,
    ThrottledError,
)
from wattpack.times import parse_rfc3339
from wattpack.units import NS_PER_SECOND

GPU = "nvidia.com/gpu"


class Evicted(NamedTuple):
    """An eviction that the API took.

    Attributes:
        ran: It had a node; otherwise it was a pin that led nowhere.
        opted_in: Its own label does not forbid it, and somebody makes it anew.
        allowed_before: What disruption budgets allowed then.
    """

    at_seconds: float
    name: str
    owner: str
    ran: bool
    opted_in: bool
    allowed_before: int


class BudgetKube(EmbeddedKube):
    """The embedded API with an Eviction API that keeps PodDisruptionBudgets."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, kubelet_confirms_deletion=True)
        self.clock = clock
        self.evictions: list[Evicted] = []

    def evict(self, name: str, namespace: str, *, uid: str = "") -> None:
        """Refused with 429 where a budget allows nobody."""
        pod = self.get(PODS, name, namespace)
        allowed = 10**6
        for budget in self.list(BUDGETS, namespace).items:
            wanted = budget["spec"]["selector"]["matchLabels"]
            if wanted.items() <= (pod["metadata"].get("labels") or {}).items():
                allowed = min(allowed, self.allowed(budget))
        if allowed < 1:
            raise ThrottledError("Cannot evict pod as it would violate the disruption budget")
        super().evict(name, namespace, uid=uid)
        owner = pod_facts.owner_key(pod)
        seconds = self.clock.monotonic_ns() / NS_PER_SECOND
        metadata = pod["metadata"]
        opted = (metadata.get("labels") or {}).get("wattpack.io/moves") != "disabled"
        opted = opted and any(o.get("controller") for o in metadata.get("ownerReferences") or ())
        ran = bool(pod["spec"].get("nodeName"))
        self.evictions.append(Evicted(seconds, name, owner, ran, opted, allowed))

    def allowed(self, budget: JsonObject) -> int:
        """Healthy pods beyond those that have to stay, counted from the pods."""
        wanted = budget["spec"]["selector"]["matchLabels"].items()
        healthy = sum(
            wanted <= (pod["metadata"].get("labels") or {}).items()
            and pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
            for pod in self.list(PODS, budget["metadata"]["namespace"]).items
        )
        return int(healthy - budget["spec"]["minAvailable"])


class Owner(NamedTuple):
    """A controller that keeps so many pods alive."""

    name: str
    replicas: int
    gpus: int
    changes: dict[str, Any]


class MovingCluster(Cluster):
    """``Cluster`` with everything around it that answers an eviction."""

    def __init__(self, *, enabled: bool = True, **limits: Any) -> None:
        settings = limits.pop("settings", {})
        moves = {"enabled": enabled, "after_seconds": 0.0} | limits
        super().__init__(**({"deadline_seconds": 0.2} | settings), moves=moves)
        self.kube = BudgetKube(self.clock)
        self.api = self.kube
        self.webhook_works = True
        self.lagging: set[str] = set()
        self.owners: dict[str, Owner] = {}
        self._serial = 0
        self.loop = self.new_loop()
        labels = {"wattpack.io/placement": "enabled", "wattpack.io/moves": "enabled"}
        for name, value in (("low", -10), ("high", 100)):
            self.kube.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        self.kube.create(NAMESPACES, {"metadata": {"name": SPACE, "labels": labels}})

    # What people do

    def own(self, name: str, gpus: int, replicas: int = 1, **changes: Any) -> None:
        """A ReplicaSet of serving work."""
        self.owners[name] = Owner(name, replicas, gpus, changes)

    def scale(self, name: str, replicas: int) -> None:
        self.owners[name] = self.owners[name]._replace(replicas=replicas)

    def keep_available(self, name: str, least: int) -> None:
        """A disruption budget over an owner's pods."""
        selector = {"matchLabels": {"app": name}}
        body = {"metadata": {"name": name}, "spec": {"selector": selector, "minAvailable": least}}
        self.kube.create(BUDGETS, body, SPACE)
        self.tell_budgets()

    def drop_budget(self, name: str) -> None:
        for budget in self.kube.list(BUDGETS, SPACE).items:
            if budget["metadata"]["name"] == name:
                self.kube.delete(BUDGETS, name, SPACE)

    def set_node(self, name: str, *, ready: bool = True, cordoned: bool = False) -> None:
        body = self.kube.get(NODES, name)
        body = self.kube.replace(NODES, {**body, "spec": {"unschedulable": cordoned}})
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {**body["status"], "conditions": conditions}
        self.kube.replace(NODES, {**body, "status": status}, subresource="status")

    def lose_node(self, name: str) -> None:
        """The machine is gone; garbage collection deletes what was bound to it."""
        self.kube.delete(NODES, name)
        for pod in self.all_pods():
            if pod_facts.node_name(pod) == name:
                self.kube.delete(PODS, pod["metadata"]["name"], SPACE, grace_period_seconds=0)

    def hold(self, name: str) -> None:
        """A finalizer keeps the pod after its deletion."""
        self._finalizers(name, ["example.org/look"])

    def let_go(self, name: str) -> None:
        self._finalizers(name, [])

    def _finalizers(self, name: str, names: list[str]) -> None:
        body = self.pod(name)
        metadata = {**body["metadata"], "finalizers": names}
        leaves = bool(metadata.get("deletionTimestamp"))
        if (leaves and names) or not (names or body["metadata"].get("finalizers")):
            return
        self.kube.replace(PODS, {**body, "metadata": metadata}, SPACE)

    # What the cluster does

    def tell_budgets(self) -> None:
        """The budget controller counts."""
        for budget in self.kube.list(BUDGETS).items:
            status = {"disruptionsAllowed": max(0, self.kube.allowed(budget))}
            self.kube.replace(BUDGETS, {**budget, "status": status}, SPACE)

    def controllers(self) -> None:
        """Owners make pods anew, through admission where it answers."""
        for owner in self.owners.values():
            alive = [pod for pod in self.pods_of(owner.name) if not _leaves(pod)]
            for _ in range(owner.replicas - len(alive)):
                self._serial += 1
                labels = {"app": owner.name, "wattpack.io/workload": "decoder-decode"}
                changes = dict(owner.changes)
                labels |= changes.pop("labels", {})
                body = pod_object(
                    f"{owner.name}-{self._serial}", owner.gpus, labels=labels, **changes
                )
                body["metadata"]["ownerReferences"][0]["uid"] = f"rs-{owner.name}"
                self.admit(body)
            for pod in alive[owner.replicas :]:
                self.kube.delete(PODS, pod["metadata"]["name"], SPACE)

    def admit(self, body: JsonObject) -> JsonObject:
        if self.webhook_works and self.settings.mode is Mode.MANAGE:
            body = apply_json_patch(body, gate_patch(body))
        return self.kube.create(PODS, body, SPACE)

    def kubelets(self) -> None:
        """Pods whose grace period is over are gone, unless they lag."""
        now = self.clock.wall_time_ns() / NS_PER_SECOND
        for pod in self.all_pods():
            metadata = pod["metadata"]
            if metadata.get("deletionTimestamp") and metadata["name"] not in self.lagging:
                asked = parse_rfc3339(metadata["deletionTimestamp"]).timestamp()
                if now >= asked + metadata["deletionGracePeriodSeconds"]:
                    self.kube.delete(PODS, metadata["name"], SPACE, grace_period_seconds=0)

    def scheduler(self) -> None:
        """As kube-scheduler: by importance, where there is room; who has none is told so."""
        waiting = [p for p in self.all_pods() if not pod_facts.node_name(p)]
        # Pins first: a pod that passed the gate by must not look like a place promised twice.
        for pod in sorted(
            waiting, key=lambda p: (not pod_facts.pinned_node(p), -int(p["spec"]["priority"]))
        ):
            if pod_facts.gates(pod) or _leaves(pod):
                continue
            pin, hint = pod_facts.pinned_node(pod), pod["status"].get("nominatedNodeName")
            nodes = sorted(self.healthy_nodes(), key=lambda n: n not in (hint, pin))
            if pin and not pod_facts.is_bare(pod):
                nodes = [node for node in nodes if node == pin]
            free = self.free()
            fits = [n for n in nodes if free[n] >= _gpus(pod) and not self._reserved(n, pod)]
            if fits:
                self._start(pod, fits[0])
            else:
                self._unschedulable(pod)

    def _reserved(self, node: str, pod: JsonObject) -> bool:
        """Somebody at least as important is nominated there."""
        return any(
            other["status"].get("nominatedNodeName") == node
            and not pod_facts.node_name(other)
            and other["metadata"]["uid"] != pod["metadata"]["uid"]
            and int(other["spec"].get("priority", 0)) >= int(pod["spec"].get("priority", 0))
            for other in self.all_pods()
        )

    def _start(self, pod: JsonObject, node: str) -> None:
        name = pod["metadata"]["name"]
        self.kube.bind(name, SPACE, node)
        body = self.pod(name)
        body["status"] = body.get("status", {}) | {"phase": "Running", "conditions": []}
        self.kube.replace(PODS, body, SPACE, subresource="status")

    def _unschedulable(self, pod: JsonObject) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        body = {**pod, "status": pod["status"] | {"conditions": [condition]}}
        self.kube.replace(PODS, body, SPACE, subresource="status")

    def turn(self, seconds: float = 1.0) -> str:
        """Everybody acts once, then time passes; the outcome of the planner's cycle."""
        self.controllers()
        self.tell_budgets()
        outcome = self.loop.step().outcome
        self.scheduler()
        self.kubelets()
        self.clock.advance_seconds(seconds)
        return outcome

    def turns(self, count: int, seconds: float = 1.0) -> None:
        for _ in range(count):
            self.turn(seconds)

    # What there is

    def nodes(self) -> dict[str, int]:
        found = self.kube.list(NODES).items
        return {n["metadata"]["name"]: int(n["status"]["allocatable"][GPU]) for n in found}

    def healthy_nodes(self) -> list[str]:
        """Nodes that take new pods."""
        return [
            node["metadata"]["name"]
            for node in self.kube.list(NODES).items
            if not node["spec"].get("unschedulable")
            and node["status"]["conditions"][0]["status"] == "True"
        ]

    def free(self) -> Counter[str]:
        """GPUs that no bound pod holds, by node."""
        left = Counter(self.nodes())
        for pod in self.all_pods():
            if pod_facts.node_name(pod):
                left[pod_facts.node_name(pod)] -= _gpus(pod)
        return left

    def all_pods(self) -> list[JsonObject]:
        return list(self.kube.list(PODS).items)

    def pods_of(self, owner: str) -> list[JsonObject]:
        return [
            pod
            for pod in self.all_pods()
            if (pod["metadata"].get("labels") or {}).get("app") == owner
        ]

    def where(self, owner: str) -> list[str]:
        """Nodes of an owner's pods that do not leave; empty text for one that waits."""
        return sorted(pod_facts.node_name(p) for p in self.pods_of(owner) if not _leaves(p))

    def ended(self, outcome: str) -> float:
        """Steps of moves that ended so, by this planner's metrics."""
        return sum(
            sample.value
            for sample in self.loop.metrics.moves.collect()[0].samples
            if sample.name.endswith("_total") and sample.labels == {"outcome": outcome}
        )

    def run_on(self, owner: str, node: str, gpus: int, **changes: Any) -> None:
        """One pod of its own owner that runs there already."""
        self.own(owner, gpus, **changes)
        works, self.webhook_works = self.webhook_works, False
        self.controllers()
        self.webhook_works = works
        for pod in self.pods_of(owner):
            if not pod_facts.node_name(pod):
                self._start(pod, node)


def restarted(cluster: MovingCluster, api: KubeApi | None = None) -> None:
    """The planner is killed and another takes over with what is stored."""
    cluster.loop.close()
    cluster.loop = cluster.new_loop(api)


def gone(cluster: MovingCluster, name: str) -> bool:
    try:
        cluster.pod(name)
    except NotFoundError:
        return True
    return False


def _leaves(pod: JsonObject) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) or pod_facts.is_finished(pod)


def _gpus(pod: JsonObject) -> int:
    return sum(int(c["resources"]["limits"].get(GPU, 0)) for c in pod["spec"]["containers"])
