"""Nodes that change between the snapshot and the patch get nothing that was planned for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler_plugin.app.planning_cycle import PlannerSurroundings
from scheduler_plugin.app.planning_loop import PlacementLoop
from scheduler_plugin.app.solver_process import InProcessPlanner
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.kube_objects import pods as pod_facts
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, gang_pod, pod_object
from wattpack.kube.port import NODES, PODS, JsonObject, Resource

Event = Callable[[Cluster], None]


class Meanwhile(InProcessPlanner):
    """Something happens while the planner thinks, once."""

    def __init__(self, cluster: Cluster, event: Event) -> None:
        super().__init__(0.1)
        self._cluster, self._event = cluster, event
        self.asked = 0

    def plan(self, snapshot: Snapshot, *, moves: bool = False) -> Plan:
        self.asked += 1
        plan = super().plan(snapshot, moves=moves)
        if self.asked == 1:
            self._event(self._cluster)
        return plan


class Counted:
    """The embedded API, which counts requests; something happens before one of its patches."""

    def __init__(self, cluster: Cluster, event: Event, before: int) -> None:
        self._api, self._cluster = cluster.api, cluster
        self._event, self._before = event, before
        self.patched: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def patch_json(self, kind: Resource, name: str, *rest: Any, **options: Any) -> JsonObject:
        if not options.get("dry_run"):
            self.patched.append(name)
        body = self._api.patch_json(kind, name, *rest, **options)
        if len(self.patched) == self._before and not options.get("dry_run"):
            self._event(self._cluster)
            for informer in (NODES, PODS):
                self._cluster.loop.reader._informers[informer].pump()
        return body


def cluster_of(*nodes: str) -> Cluster:
    cluster = Cluster()
    cluster.add_nodes(*nodes)
    return cluster


def with_planner(cluster: Cluster, event: Event) -> None:
    around = PlannerSurroundings(cluster.clock, Meanwhile(cluster, event))
    cluster.loop = PlacementLoop(cluster.api, around, cluster.settings)


def changed(name: str, **spec: Any) -> Event:
    def event(cluster: Cluster) -> None:
        body = cluster.api.get(NODES, name)
        cluster.api.replace(NODES, {**body, "spec": {**body["spec"], **spec}})

    return event


def replaced(name: str, gpus: int) -> Event:
    def event(cluster: Cluster) -> None:
        cluster.api.delete(NODES, name)
        cluster.add_nodes(name, gpus=gpus)

    return event


def lessened(name: str, gpus: int) -> Event:
    def event(cluster: Cluster) -> None:
        body = cluster.api.get(NODES, name)
        offers = body["status"]["allocatable"] | {"nvidia.com/gpu": str(gpus)}
        status = body["status"] | {"allocatable": offers}
        cluster.api.replace(NODES, {**body, "status": status}, subresource="status")

    return event


def bound_by_others(name: str, gpus: int) -> Event:
    def event(cluster: Cluster) -> None:
        body = pod_object(f"theirs-{name}", gpus, schedulerName="volcano")
        cluster.add(body)
        cluster.api.bind(f"theirs-{name}", SPACE, name)

    return event


def beats(name: str) -> Event:
    """A kubelet's heartbeat: a new resourceVersion, and nothing that planning reads."""

    def event(cluster: Cluster) -> None:
        body = cluster.api.get(NODES, name)
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-23T10:00:00Z"}
        status = body["status"] | {"conditions": [ready]}
        cluster.api.replace(NODES, {**body, "status": status}, subresource="status")

    return event


TAINT = [{"key": "broken", "effect": "NoSchedule"}]
CHANGES = {
    "replaced by a smaller one": replaced("n1", 2),
    "replaced by an equal one": replaced("n1", 8),
    "gone": lambda cluster: cluster.api.delete(NODES, "n1"),
    "cordoned": changed("n1", unschedulable=True),
    "tainted": changed("n1", taints=TAINT),
    "less to allocate": lessened("n1", 4),
    "filled by another scheduler": bound_by_others("n1", 8),
}


def pins(cluster: Cluster) -> dict[str, str]:
    found = cluster.api.list(PODS).items
    return {p["metadata"]["name"]: pod_facts.pinned_node(p) for p in found}


def later(cluster: Cluster, cycles: int = 3) -> None:
    for _ in range(cycles):
        cluster.clock.advance_seconds(5)
        cluster.loop.step()


@pytest.mark.parametrize("what", CHANGES)
def test_a_node_that_changed_since_the_snapshot_gets_no_pod(what: str) -> None:
    cluster = cluster_of("n1")
    cluster.add(pod_object("p", 8))
    with_planner(cluster, CHANGES[what])
    cluster.loop.step()
    assert pins(cluster)["p"] == ""
    assert pod_facts.is_gated(cluster.pod("p"))
    assert not cluster.loop.ledger.promises
    cluster.add_nodes("n2")
    later(cluster)
    # A whole node is as good as any other, once it was planned for.
    assert pins(cluster)["p"] in ({"n1", "n2"} if what == "replaced by an equal one" else {"n2"})


def test_others_keep_their_places_when_one_node_changed() -> None:
    cluster = cluster_of("n1", "n2", "n3")
    for i in range(3):
        cluster.add(pod_object(f"p{i}", 8))
    with_planner(cluster, changed("n2", unschedulable=True))
    cluster.loop.step()
    assert sorted(pins(cluster).values()) == ["", "n1", "n3"]


def test_a_gang_with_one_place_on_a_changed_node_is_planned_anew_as_a_whole() -> None:
    cluster = cluster_of("n1", "n2")
    for i in range(2):
        cluster.add(gang_pod(f"g{i}", 2))
    with_planner(cluster, changed("n2", unschedulable=True))
    cluster.loop.step()
    assert set(pins(cluster).values()) == {""}
    cluster.add_nodes("n3")
    later(cluster)
    assert sorted(pins(cluster).values()) == ["n1", "n3"]


@pytest.mark.parametrize("event", [beats("n1"), bound_by_others("n1", 0)])
def test_what_is_no_matter_of_planning_voids_no_promise(event: Event) -> None:
    cluster = cluster_of("n1")
    cluster.add(pod_object("p", 8))
    with_planner(cluster, event)
    cluster.loop.step()
    assert pins(cluster)["p"] == "n1"


def test_a_node_that_changes_between_two_patches_gets_no_further_pod() -> None:
    cluster = cluster_of("n1")
    for i in range(4):
        cluster.add(pod_object(f"p{i}", 2))
    api = Counted(cluster, changed("n1", unschedulable=True), before=2)
    cluster.loop = cluster.new_loop(api)  # type: ignore[arg-type]
    cluster.loop.step()
    assert sorted(pins(cluster).values()) == ["", "", "n1", "n1"]
    assert len(cluster.loop.ledger.promises) == 2
    cluster.add_nodes("n2")
    later(cluster)
    assert sorted(pins(cluster).values()) == ["n1", "n1", "n2", "n2"]
    # One patch a pod, as always.
    assert len(api.patched) == 4


def test_the_rest_of_a_gang_that_has_begun_is_planned_anew() -> None:
    cluster = cluster_of("n1", "n2")
    for i in range(2):
        cluster.add(gang_pod(f"g{i}", 2))

    def other_node_is_gone(cluster: Cluster) -> None:
        (taken,) = {node for node in pins(cluster).values() if node}
        cluster.api.delete(NODES, "n2" if taken == "n1" else "n1")
        cluster.add_nodes("n3")

    api = Counted(cluster, other_node_is_gone, before=1)
    cluster.loop = cluster.new_loop(api)  # type: ignore[arg-type]
    cluster.loop.step()
    assert sum(bool(node) for node in pins(cluster).values()) == 1
    later(cluster)
    assert "n3" in pins(cluster).values()
    assert "" not in pins(cluster).values()
