"""A PlacementPlan says in figures what each power domain may still take, and who is short of it."""

from __future__ import annotations

from typing import Any

from console.placement_rows import placement_view, pod_row
from scheduler_plugin.documents.plan_document import Placement
from scheduler_plugin.documents.snapshot import Node, Pod, PodState, PowerDomain, Snapshot
from scheduler_plugin.kube_objects.admission import Mode
from scheduler_plugin.packing.domain_rooms import DomainRoom, domain_rooms
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    domain_object,
    plans,
    pod_object,
    profile_object,
)
from wattpack.api import PlacementPlan
from wattpack.api import PowerDomain as PowerDomainObject

DECODE = {"wattpack.io/kernel-class": "decode"}


def node(name: str, domain: str) -> Node:
    return Node(name=name, gpu_milli=8000, milli_cpu=1000, memory_bytes=1, domain=domain,
                watts_per_gpu=500)  # fmt: skip


def pod(uid: str, **fields: Any) -> Pod:
    return Pod(uid=uid, gpu_milli=1000, **fields)


def tree(*pods: Pod) -> Snapshot:
    return Snapshot(
        nodes=(node("n1", "rack-1"), node("n2", "rack-2")),
        pods=pods,
        domains=(
            PowerDomain(name="row", limit_watts=10_000, used_watts=6_000),
            PowerDomain(name="rack-1", parent="row", limit_watts=5_000, used_watts=2_000),
            PowerDomain(name="rack-2", parent="row", limit_watts=5_000, used_watts=4_000),
        ),
    )


def test_what_is_placed_and_what_is_promised_count_in_every_domain_above() -> None:
    snapshot = tree(pod("a"), pod("b", state=PodState.PROMISED, node="n1"))
    placements = (Placement(uid="a", node="n2", watts=700),)
    assert domain_rooms(snapshot, placements) == (
        DomainRoom("rack-2", 5_000, 4_700),
        DomainRoom("rack-1", 5_000, 2_500),
        DomainRoom("row", 10_000, 7_200),
    )


def test_a_domain_that_is_over_its_limit_has_less_than_nothing() -> None:
    snapshot = Snapshot(domains=(PowerDomain(name="row", limit_watts=100, used_watts=250),))
    (room,) = domain_rooms(snapshot, ())
    assert room.free_watts == -150


def planned(mode: Mode = Mode.MANAGE) -> Cluster:
    """990 W of room in the row, 320 W a pod, five pods."""
    cluster = Cluster(mode)
    cluster.add_nodes("n1")
    cluster.add(profile_object())
    host = {"worstWatts": 9_500.0, "idleWatts": 300.0}
    cluster.add_accepted(domain_object("row", 10_000, ["n1"], nonGpuPerNode=host))
    cluster.set_status(PowerDomainObject, "row", capBandWatts=9_000, forecastP99Watts=8_000)
    for i in range(5):
        cluster.add(pod_object(f"p{i}", annotations=DECODE))
    cluster.loop.step()
    return cluster


def test_the_plan_object_says_limit_counted_and_free_of_each_domain() -> None:
    (body,) = plans(planned())
    headroom = PlacementPlan.read(body).status.headroom
    assert headroom is not None
    assert headroom.tightest == "0.0 kW row"
    assert headroom.binding_domain == "row"
    (row,) = headroom.domains
    assert (row.name, row.limit_watts, row.counted_watts, row.free_watts) == ("row", 9000, 8970, 30)


def test_a_pod_without_power_names_its_domains_and_the_console_groups_by_them() -> None:
    cluster = planned()
    (body,) = plans(cluster)
    waiting = PlacementPlan.read(body).spec.pending
    assert [entry.power_domains for entry in waiting] == [["row"], ["row"]]
    rows = [row for i in range(5) if (row := pod_row(cluster.pod(f"p{i}"))) is not None]
    view: dict[str, Any] = placement_view(rows, plans(cluster))
    groups = {group["reason"]: group["domains"] for group in view["groups"]}
    assert groups["PowerDomainFull"] == ["row"]
    assert view["plans"][0]["headroom"] == {
        "domain": "row", "limitWatts": 9000.0, "countedWatts": 8970.0, "freeWatts": 30.0,
    }  # fmt: skip


def test_a_cluster_without_domains_has_no_headroom_to_tell() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add(pod_object("p"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]
    (body,) = plans(cluster)
    assert PlacementPlan.read(body).status.headroom is None


def test_many_domains_are_told_the_tightest_first_and_the_others_counted() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add_accepted(domain_object("d000", 9_000, ["n1"]))
    for i in range(1, 300):
        cluster.add_accepted(domain_object(f"d{i:03}", 1_000.0 + i, []))
    cluster.add(pod_object("p"))
    cluster.loop.step()
    (body,) = plans(cluster)
    headroom = PlacementPlan.read(body).status.headroom
    assert headroom is not None
    assert len(headroom.domains) + headroom.omitted == 300
    free = [domain.free_watts for domain in headroom.domains]
    assert free == sorted(free)
