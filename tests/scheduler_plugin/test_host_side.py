"""Host resources and classes: bandwidths, NVMe, CPU and NIC classes, from annotations to plans."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.change_text import remedy_text
from scheduler_plugin.documents.changed_snapshot import apply_changes
from scheduler_plugin.documents.host_resources import (
    HOST_RESOURCES,
    MAX_HOST_AMOUNT,
    NOT_LIMITED,
    amount_text,
)
from scheduler_plugin.documents.snapshot import Snapshot, parse_snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.kube_objects.admission import gate_patch
from scheduler_plugin.kube_objects.host_amounts import asked_of_host, cpu_class, offered_by_host
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import Cluster, node_object, pod_object
from wattpack.errors import InputError
from wattpack.kube.port import NODES

BANDWIDTH = "wattpack.io/memory-bandwidth-megabytes-per-second"
NVME = "wattpack.io/nvme-megabytes"


def with_annotations(**named: str) -> dict[str, Any]:
    annotations = {f"wattpack.io/{name.replace('_', '-')}": text for name, text in named.items()}
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


def placed(of: Snapshot) -> dict[str, str]:
    made = plan(of, deadline_seconds=0.05)
    assert complaints(of, made) == ()
    return {one.uid: one.node for one in made.placements}


@examples(60)
@given(
    offers=st.lists(st.one_of(st.none(), st.integers(0, 90)), min_size=1, max_size=4),
    ask=st.integers(1, 40),
    held=st.integers(0, 50),
    count=st.integers(1, 12),
)
def test_as_many_pods_fit_as_stated_bandwidth_holds_and_gpus_where_none_is_stated(
    offers: list[int | None], ask: int, held: int, count: int
) -> None:
    nodes = [
        node(f"n{i}", 4, resources={} if offer is None else {BANDWIDTH: offer})
        for i, offer in enumerate(offers)
    ]
    there = bound("there", "n0", 1, resources={BANDWIDTH: held})
    pods = [pod(f"p{i}", 1, resources={BANDWIDTH: ask}) for i in range(count)]
    rooms = []
    for i, offer in enumerate(offers):
        gpus, left = (3, -held) if i == 0 else (4, 0)
        rooms.append(gpus if offer is None else max(0, min(gpus, (offer + left) // ask)))
    assert len(placed(snapshot(*nodes, there, *pods))) == min(count, sum(rooms))


def test_who_lacks_bandwidth_is_told_so_in_units_and_what_would_do() -> None:
    busy = bound("there", "n", 1, resources={BANDWIDTH: 388_000})
    asks = pod("p", 1, resources={BANDWIDTH: 40_000})
    of = snapshot(node("n", resources={BANDWIDTH: 400_000}), busy, asks)
    (entry,) = plan(of, deadline_seconds=0.05).pending
    assert entry.message == (
        "needs 40 GB/s of memory bandwidth on one node; the only eligible node has at most "
        "12 GB/s of memory bandwidth free"
    )
    assert "28 GB/s of memory bandwidth more were free on n" in remedy_text(entry, {})
    assert placed(apply_changes(of, entry.changes)) == {"p": "n"}


def test_the_judge_sees_more_bandwidth_than_a_node_states_and_none_that_it_does_not() -> None:
    pods = [pod(f"p{i}", 1, resources={BANDWIDTH: 30}) for i in range(2)]
    wide, narrow = (snapshot(node("n", resources=r), *pods) for r in ({}, {BANDWIDTH: 50}))
    made = plan(wide, deadline_seconds=0.05)
    assert len(made.placements) == 2
    assert complaints(wide, made) == ()
    moved = made.model_copy(update={"snapshot_digest": narrow.digest()})
    assert complaints(narrow, moved) == (f"node n: {BANDWIDTH} would be 60 of 50",)


def test_any_number_of_the_largest_requests_fits_where_nothing_is_stated() -> None:
    assert 100_000 * MAX_HOST_AMOUNT <= NOT_LIMITED
    resources = json.dumps({NVME: MAX_HOST_AMOUNT + 1})
    text = f'{{"pods": [{{"uid": "p", "resources": {resources}}}]}}'
    with pytest.raises(InputError, match=f"at most {MAX_HOST_AMOUNT} of {NVME}"):
        parse_snapshot(text)


def test_a_class_of_cpu_or_nic_is_kept_and_told() -> None:
    nodes = node("a", cpu_class="milan", nic_class="ib"), node("b", cpu_class="genoa")
    assert placed(snapshot(*nodes, pod("p", cpu_classes=("genoa",)))) == {"p": "b"}
    assert placed(snapshot(*nodes, pod("p", nic_classes=("ib",)))) == {"p": "a"}
    of = snapshot(*nodes, pod("p", cpu_classes=("turin",)))
    (entry,) = plan(of, deadline_seconds=0.05).pending
    assert entry.reason == "NoCpuClass"
    assert "wants CPU class turin; nodes have genoa, milan" in entry.message
    assert remedy_text(entry, {}) == (
        "owner: would start if it took CPU class milan too; "
        "operator: nothing helps without that: 2 nodes are of another CPU class"
    )
    assert placed(apply_changes(of, entry.changes)) == {"p": "a"}


def test_the_faster_class_of_cpu_is_preferred_and_its_gpu_model_counts_with_it() -> None:
    nodes = node("a", cpu_class="milan"), node("b", cpu_class="genoa")
    speeds = {"cpu_classes": ("genoa", "milan"), "cpu_class_values": {"genoa": 1000, "milan": 700}}
    assert placed(snapshot(*nodes, pod("p", **speeds))) == {"p": "b"}
    slower = node("b", cpu_class="genoa", gpu_model="A100")
    models = {"gpu_model_values": {"H200": 1000, "A100": 600}}
    assert placed(snapshot(nodes[0], slower, pod("p", **speeds, **models))) == {"p": "a"}


def test_annotations_are_quantities_rounded_so_that_no_node_is_overrated() -> None:
    body = with_annotations(memory_bandwidth="39999999999", nvme="1500G", network_bandwidth="100G")
    assert asked_of_host(body) == {
        BANDWIDTH: 40_000,
        NVME: 1_500_000,
        "wattpack.io/network-bandwidth-megabits-per-second": 100_000,
    }
    assert offered_by_host(body)[BANDWIDTH] == 39_999
    assert offered_by_host(with_annotations()) == {}
    assert offered_by_host(with_annotations(nvme="much")) == {NVME: 0}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory_bandwidth", "fast"),
        ("nvme", "-1"),
        ("nvme", "1E"),
        ("cpu_classes", "a=1,b"),
        ("nic_classes", "n," * 101),
    ],
)
def test_a_pod_whose_annotation_is_none_is_refused_with_its_name(name: str, text: str) -> None:
    with pytest.raises(InputError, match=f"wattpack.io/{name.replace('_', '-')}"):
        gate_patch(with_annotations(**{name: text}))


def test_the_class_of_cpu_is_the_own_label_else_what_feature_discovery_found() -> None:
    found = {
        f"feature.node.kubernetes.io/cpu-model.{part}": text
        for part, text in (("vendor_id", "AMD"), ("family", "25"), ("id", "17"))
    }
    assert cpu_class(found) == "AMD-25-17"
    assert cpu_class(found | {"wattpack.io/cpu-class": "genoa"}) == "genoa"
    assert cpu_class({"feature.node.kubernetes.io/cpu-model.family": "25"}) == ""


def test_amounts_are_told_in_the_unit_of_their_resource() -> None:
    units = {name: amount_text(name, 1500).split(" of ")[0] for name in HOST_RESOURCES}
    assert sorted(set(units.values())) == ["1.5 GB", "1.5 GB/s", "1.5 Gbit/s"]
    assert amount_text("rdma/hca", 1500) == "1,500 of rdma/hca"


def test_in_a_cluster_annotations_of_nodes_and_pods_and_labels_decide() -> None:
    cluster = Cluster()
    for name, offers, labels in (
        ("a", {"wattpack.io/memory-bandwidth": "100G"}, {"wattpack.io/cpu-class": "genoa"}),
        ("b", {}, {"wattpack.io/nic-class": "ib"}),
    ):
        body = node_object(name, labels=labels)
        body["metadata"]["annotations"] = offers
        made = cluster.api.create(NODES, body)
        cluster.api.replace(NODES, {**made, "status": body["status"]}, subresource="status")
    wide = {"wattpack.io/memory-bandwidth": "60G"}
    genoa = wide | {"wattpack.io/cpu-classes": "genoa"}
    for name, stated in (
        ("g1", genoa), ("g2", genoa), ("w1", wide), ("w2", wide),
        ("ib", {"wattpack.io/nic-classes": "ib"}),
    ):  # fmt: skip
        cluster.add(pod_object(name, annotations=stated))
    result = cluster.loop.step()
    by_name = {key.split("/")[1]: node for key, node in result.released.items()}
    waits = ({"g1", "g2"} - by_name.keys()).pop()
    assert by_name == {({"g1", "g2"} - {waits}).pop(): "a", "w1": "b", "w2": "b", "ib": "b"}
    ((reason, message),) = result.pending.values()
    assert reason == "InsufficientResource"
    assert "needs 60 GB/s of memory bandwidth on one node; " in message
