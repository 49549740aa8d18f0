"""Odd objects and odd nodes: what is understood runs, what draws power is counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from controller.app.desired_state import MOST_GONE_NODES
from controller.app.fleet import DomainInputs, Fleet, Leadership
from controller.app.hearing import Hearing
from controller.commitments import holding, initial_commitments
from controller.tick_values import Observations, PowerSettings, Tick, Topology
from tests.controller_process.messages import make_hello, make_reading, make_report
from tests.controller_process.object_builders import (
    DOMAINS,
    NODES,
    PODS,
    POLICIES,
    Cluster,
    make_cluster,
    make_domain,
    make_node,
    make_object,
    make_pod,
)
from wattpack.kube.port import JsonObject
from wattpack.units import NS_PER_SECOND as SECOND
from wattpack.wire.v1 import power_pb2


def make_fleet(*hellos: power_pb2.Hello) -> Fleet:
    fleet = Fleet()
    for hello in hellos:
        fleet.hello(hello)
    return fleet


def running(cluster: Cluster, fleet: Fleet) -> Topology:
    topology = cluster.desired.topology(fleet)
    assert topology is not None
    return topology


def test_a_member_that_no_agent_speaks_for_counts_at_the_most_its_gpus_may_draw() -> None:
    product = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    cluster = make_cluster(
        make_node("node-1"), make_node("silent", gpus=8), make_node("known", gpus=4, **product)
    )
    topology = running(cluster, make_fleet(make_hello("node-1")))
    by_node = np.bincount(topology.node_of_gpu)
    counted = dict(zip(topology.node_names, by_node.tolist(), strict=True))
    assert counted == {"node-1": 2, "silent": 8, "known": 4}
    assert topology.node_host_unit.tolist() == [n == "node-1" for n in topology.node_names]
    of_silent = topology.node_of_gpu == topology.node_names.index("silent")
    of_known = topology.node_of_gpu == topology.node_names.index("known")
    assert (topology.default_limit_watts[of_silent] >= 1000.0).all()  # no model: the largest board
    assert (topology.default_limit_watts[of_known] == 700.0).all()


def test_a_member_that_says_hello_takes_the_place_of_its_stand_in() -> None:
    cluster = make_cluster(make_node("node-1"), make_node("node-2", gpus=8))
    fleet = make_fleet(make_hello("node-1"))
    running(cluster, fleet)
    fleet.hello(make_hello("node-2"))
    assert running(cluster, fleet).n_gpus == 4


@pytest.mark.parametrize("count", ["-3", "8k", "", "many", "1e99", None])
def test_a_node_with_a_nonsense_gpu_count_stops_nothing(count: str | None) -> None:
    node = make_node("odd")
    node["status"]["capacity"] = {"nvidia.com/gpu": count}
    cluster = make_cluster(make_node("node-1"), node)
    assert "node-1" in running(cluster, make_fleet(make_hello("node-1"))).node_names


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"name": "odd", "labels": None}},
        {"metadata": {"name": "odd"}, "status": None},
        {"metadata": {"name": "odd"}, "status": {"capacity": None}},
    ],
)
def test_a_node_object_without_the_usual_parts_stops_nothing(body: JsonObject) -> None:
    cluster = make_cluster(make_node("node-1"))
    cluster.put(NODES, body)
    fleet = make_fleet(make_hello("node-1"), make_hello("odd"))
    assert running(cluster, fleet).node_names == ("node-1",)


def test_a_second_node_that_claims_a_gpu_does_not_take_it_and_stops_nothing() -> None:
    cluster = make_cluster(make_node("honest"), make_node("aaa-thief"))
    theft = make_hello("aaa-thief")
    theft.devices[0].uuid = "honest-gpu-0"
    topology = running(cluster, make_fleet(make_hello("honest"), theft))
    owner = topology.node_of_gpu[topology.gpu_uuids.index("honest-gpu-0")]
    assert topology.node_names[owner] == "honest"
    assert topology.n_gpus == 4  # what the thief really has still draws power
    assert not topology.node_host_unit[topology.node_names.index("aaa-thief")]
    assert "ClaimedTwice" in {r.reason for r in cluster.desired.refusals()}


def test_limits_that_no_board_of_the_model_has_stop_nothing_and_are_counted() -> None:
    cluster = make_cluster(make_node("node-1"), make_node("garbled"))
    garbled = make_hello("garbled")
    for device in garbled.devices:
        device.default_limit_watts = device.max_limit_watts = 4000.0
    topology = running(cluster, make_fleet(make_hello("node-1"), garbled))
    of_garbled = topology.node_of_gpu == topology.node_names.index("garbled")
    assert (topology.default_limit_watts[of_garbled] == 4000.0).all()
    assert (topology.default_limit_watts[~of_garbled] == 700.0).all()
    assert "SuspiciousLimits" in {r.reason for r in cluster.desired.refusals()}


def test_an_unknown_gpu_model_is_counted_and_told() -> None:
    cluster = make_cluster(make_node("node-1"))
    hello = make_hello("node-1")
    for device in hello.devices:
        device.model = "Somebody's TPU \x00 9000"
    assert running(cluster, make_fleet(hello)).n_gpus == 2
    assert "UnknownGpuModel" in {r.reason for r in cluster.desired.refusals()}


def test_a_board_that_hangs_as_its_agent_starts_counts_at_its_most_and_the_others_go_on() -> None:
    hello = make_hello("node-1", gpus=3)
    hung = hello.devices[1]
    hung.min_limit_watts = hung.default_limit_watts = hung.max_limit_watts = 0.0
    fleet = make_fleet(hello)
    cluster = make_cluster(make_node("node-1", gpus=3))
    topology = running(cluster, fleet)
    assert topology.default_limit_watts.tolist() == [700.0, 700.0, 700.0]
    assert "LimitsUnknown" in {r.reason for r in cluster.desired.refusals()}
    state = power_pb2.DEVICE_STATE_UNCONTROLLED
    readings = [make_reading(f"node-1-gpu-{i}") for i in (0, 2)]
    silent = power_pb2.DeviceReading(uuid="node-1-gpu-1", state=state)
    fleet.report(make_report("node-1", devices=[readings[0], silent, readings[1]]), SECOND)
    tick = Tick(topology, observed(fleet, topology), PowerSettings(), SECOND)
    hold = holding(tick, initial_commitments(3, 1, 1, 0))
    assert hold.writable.tolist() == [True, False, True]
    assert hold.highest_watts[1] == 700.0
    # It answers at last.
    fleet.hello(make_hello("node-1", gpus=3))
    running(cluster, fleet)
    assert "LimitsUnknown" not in {r.reason for r in cluster.desired.refusals()}


def test_a_board_that_the_driver_lists_and_nobody_hears_counts_at_its_most_in_i1_and_i2() -> None:
    """It draws what it likes: no host unit and no actuator ever lowered it."""
    seven = make_hello("node-1", gpus=7)
    seven.unidentified_devices = 1
    fleet = make_fleet(seven)
    cluster = make_cluster(make_node("node-1", gpus=8))
    topology = running(cluster, fleet)
    assert topology.gpu_uuids[6:] == ("node-1-gpu-6", "unidentified/node-1/0")
    assert topology.default_limit_watts.tolist() == [700.0] * 8
    assert topology.guaranteed_watts[7] == 700.0
    (told,) = (r for r in cluster.desired.refusals() if r.reason == "LimitsUnknown")
    assert "unidentified/node-1/0" in told.message
    fleet.report(make_report("node-1", gpus=7), SECOND)
    seen = observed(fleet, topology)
    assert np.isnan(seen.gpu_draw_watts).tolist() == [False] * 7 + [True]
    hold = holding(Tick(topology, seen, PowerSettings(), SECOND), initial_commitments(8, 1, 1, 0))
    assert hold.writable.tolist() == [True] * 7 + [False]
    assert hold.highest_watts[7] == 700.0
    before = fleet.version
    fleet.hello(seven)
    assert fleet.version == before, "the same again changes nothing"


def test_a_board_that_has_told_its_name_in_this_boot_is_not_counted_twice() -> None:
    def names(gpus: int, unidentified: int, boot_id: str = "boot-1") -> list[str]:
        hello = make_hello("node-1", gpus=gpus, boot_id=boot_id)
        hello.unidentified_devices = unidentified
        fleet.hello(hello)
        return [device.uuid[-7:] for device in fleet.records()[0].devices]

    fleet = Fleet()
    assert names(1, 1) == ["1-gpu-0", "ode-1/0"]
    assert names(2, 0) == ["1-gpu-0", "1-gpu-1"]
    assert names(1, 1) == ["1-gpu-0", "1-gpu-1"], "lost, and the same board"
    assert names(1, 2) == ["1-gpu-0", "1-gpu-1", "ode-1/0"]
    assert names(1, 1, "boot-2") == ["1-gpu-0", "ode-1/0"]


@pytest.mark.parametrize("hellos", [[(7, 1), (7, 0)], [(6, 2), (5, 2)], [(8, 0), (5, 1), (6, 0)]])
def test_a_board_that_the_driver_lists_no_longer_still_hangs_at_its_supply(
    hellos: list[tuple[int, int]],
) -> None:
    fleet = Fleet()
    for gpus, unidentified in hellos:
        hello = make_hello("node-1", gpus=gpus)
        hello.unidentified_devices = unidentified
        fleet.hello(hello)
        assert len(fleet.records()[0].devices) == 8
    fleet.hello(make_hello("node-1", gpus=5, boot_id="boot-2"))
    assert len(fleet.records()[0].devices) == 5


def test_a_board_without_a_name_counts_as_the_largest_of_its_neighbours() -> None:
    def watts(boards: list[tuple[str, float]]) -> tuple[float, list[str]]:
        hello = make_hello("node-1", gpus=len(boards))
        for device, (model, told) in zip(hello.devices, boards, strict=True):
            device.model, device.default_limit_watts, device.max_limit_watts = model, told, told
            device.min_limit_watts = min(device.min_limit_watts, told)
        hello.unidentified_devices = 1
        cluster = make_cluster(make_node("node-1", gpus=len(boards) + 1))
        topology = running(cluster, make_fleet(hello))
        reasons = [refusal.reason for refusal in cluster.desired.refusals()]
        return topology.default_limit_watts[-1], reasons

    h200 = ("NVIDIA H200", 700.0)
    assert watts([h200, h200]) == (700.0, ["LimitsUnknown"])
    assert watts([h200, ("NVIDIA B200", 0.0)]) == (1000.0, ["LimitsUnknown"] * 2)
    assert watts([h200, ("NVIDIA B200", 1000.0)]) == (1000.0, ["LimitsUnknown"])
    assert watts([("Somebody's TPU", 300.0)])[0] == 300.0
    most, reasons = watts([("Somebody's TPU", 300.0)] * 2)
    assert most == 300.0
    assert "SuspiciousLimits" not in reasons


def test_a_hung_board_of_an_unknown_type_counts_as_the_largest_board_there_is() -> None:
    hello = make_hello("node-1")
    odd = hello.devices[1]
    odd.model, odd.default_limit_watts = "Somebody's TPU", 0.0
    odd.min_limit_watts = odd.max_limit_watts = 0.0
    topology = running(make_cluster(make_node("node-1")), make_fleet(hello))
    assert topology.default_limit_watts[0] == 700.0
    assert topology.default_limit_watts[1] >= 1000.0


def observed(fleet: Fleet, topology: Topology) -> Observations:
    n = topology.n_domains
    none = np.full(n, np.nan)
    domains = DomainInputs(none, np.full(n, -1, dtype=np.int64), none, topology.tree.rating_watts)
    override = np.full(topology.n_gpus, np.nan)
    return fleet.observe(topology, Leadership(1, True, True), domains, override)


def test_a_parent_that_is_deleted_while_a_child_names_it_goes_on() -> None:
    parent = make_domain("site", ratingWatts=90_000.0, members={})
    cluster = make_cluster(make_node("node-1"))
    cluster.put(DOMAINS, parent)
    cluster.put(DOMAINS, make_domain("row", parent="site"))
    fleet = make_fleet(make_hello("node-1"))
    assert set(running(cluster, fleet).tree.names) == {"site", "row"}
    cluster.remove(DOMAINS, parent)
    cluster.put(NODES, make_node("node-2"))
    fleet.hello(make_hello("node-2"))
    topology = running(cluster, fleet)
    assert set(topology.tree.names) == {"site", "row"}
    assert topology.node_names == ("node-1", "node-2")


def test_a_cycle_of_parents_is_refused_and_what_ran_goes_on() -> None:
    cluster = make_cluster(make_node("node-1"))
    cluster.put(DOMAINS, make_domain("other", members={}, parent="row"))
    fleet = make_fleet(make_hello("node-1"))
    assert set(running(cluster, fleet).tree.names) == {"row", "other"}
    cluster.put(DOMAINS, make_domain("row", parent="other"))
    topology = running(cluster, fleet)
    assert topology.tree.parent[topology.tree.index("row")] == -1
    assert "row" in {r.name for r in cluster.desired.refusals()}


def test_a_domain_without_members_and_a_fleet_without_a_domain_run() -> None:
    cluster = Cluster((DOMAINS, make_domain("row", members={})), (NODES, make_node("node-1")))
    assert running(cluster, make_fleet(make_hello("node-1"))).n_gpus == 0


def test_an_empty_fleet_has_no_topology_yet() -> None:
    assert make_cluster(make_node("node-1", gpus=8)).desired.topology(Fleet()) is None


def policy(name: str, priority: int, **selector: object) -> JsonObject:
    spec = {"selector": selector, "priority": priority, "requestFraction": 1.0}
    return make_object("PowerPolicy", name, spec)


def use(*pods: str, node: str = "node-1") -> power_pb2.NodeReport:
    uses = [
        power_pb2.PodUse(namespace="team", name=pod, device_uuids=[f"{node}-gpu-0"]) for pod in pods
    ]
    return make_report(node, pods=uses)


def make_classes(cluster: Cluster) -> None:
    cluster.put(POLICIES, policy("high", 900, priorityClasses=["high"]))
    cluster.put(POLICIES, policy("low", 10, priorityClasses=["low"]))


def test_a_node_cannot_borrow_the_class_of_a_pod_that_runs_elsewhere() -> None:
    cluster = make_cluster(make_node("node-1"), make_node("node-2"))
    make_classes(cluster)
    cluster.put(PODS, make_pod("important", node="node-2", priorityClassName="high"))
    fleet = make_fleet(make_hello("node-1"), make_hello("node-2"))
    fleet.report(use("important"), received_ns=1)
    assert running(cluster, fleet).priority.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"wattpack.io/priority": "1000"}},
        {"labels": {"wattpack.io/priority": "1000", "priorityClassName": "high"}},
        {"labels": None, "annotations": None},
        {"labels": {"wattpack.io/gang-size": "minus one", "wattpack.io/gang": "x" * 300}},
        {"annotations": {"wattpack.io/gang": "\x00", "wattpack.io/gang-size": "NaN"}},
    ],
)
def test_what_a_tenant_writes_on_a_pod_never_raises_its_priority(metadata: JsonObject) -> None:
    cluster = make_cluster(make_node("node-1"))
    make_classes(cluster)
    pod = make_pod("mine", node="node-1", priorityClassName="low", metadata=metadata)
    cluster.put(PODS, pod)
    fleet = make_fleet(make_hello("node-1"))
    fleet.report(use("mine"), received_ns=1)
    assert running(cluster, fleet).priority.tolist() == [10, 0]


def test_a_policy_deleted_while_in_use_leaves_its_pods_the_lowest_class() -> None:
    cluster = make_cluster(make_node("node-1"))
    make_classes(cluster)
    cluster.put(PODS, make_pod("mine", node="node-1", priorityClassName="high"))
    fleet = make_fleet(make_hello("node-1"))
    fleet.report(use("mine"), received_ns=1)
    assert running(cluster, fleet).priority.max() == 900
    cluster.remove(POLICIES, policy("high", 900))
    assert running(cluster, fleet).priority.max() == 0


def test_a_node_cannot_speak_for_gpus_of_another() -> None:
    cluster = make_cluster(make_node("node-1"), make_node("node-2"))
    make_classes(cluster)
    cluster.put(PODS, make_pod("mine", node="node-2", priorityClassName="high"))
    fleet = make_fleet(make_hello("node-1"), make_hello("node-2"))
    stolen = power_pb2.PodUse(namespace="team", name="mine", device_uuids=["node-1-gpu-0"])
    fleet.report(make_report("node-2", pods=[stolen]), received_ns=1)
    assert running(cluster, fleet).priority.tolist() == [0, 0, 0, 0]


def test_labels_alone_never_make_work_more_important_and_may_make_it_less() -> None:
    cluster = make_cluster(make_node("node-1"))
    make_classes(cluster)
    cluster.put(POLICIES, policy("loud", 1000, labels={"tier": "gold"}))
    cluster.put(POLICIES, policy("gold-team", 500, labels={"tier": "gold"}, namespaces=["other"]))
    labels = {"labels": {"tier": "gold"}}
    cluster.put(PODS, make_pod("mine", node="node-1", priorityClassName="low", metadata=labels))
    fleet = make_fleet(make_hello("node-1"))
    fleet.report(use("mine"), received_ns=1)
    assert running(cluster, fleet).priority.max() == 10


def test_a_pod_that_names_a_strangers_gang_does_not_take_its_class() -> None:
    cluster = make_cluster(make_node("node-1"))
    make_classes(cluster)
    gang = {
        "labels": {"wattpack.io/gang": "trainer"},
        "annotations": {"wattpack.io/gang-size": "2"},
    }
    for name in ("high", "low"):
        pod = make_pod(name, node="node-1", priorityClassName=name, metadata=gang)
        cluster.put(PODS, pod)
    fleet = make_fleet(make_hello("node-1"))
    uses = [
        power_pb2.PodUse(namespace="team", name=name, device_uuids=[f"node-1-gpu-{i}"])
        for i, name in enumerate(("high", "low"))
    ]
    fleet.report(make_report(pods=uses), received_ns=1)
    assert running(cluster, fleet).priority.tolist() == [900, 10]


def test_a_deleted_node_is_dropped_once_it_is_silent() -> None:
    cluster = make_cluster(make_node("node-1"), make_node("node-2"))
    fleet = make_fleet(make_hello("node-1"), make_hello("node-2"))
    fleet.report(make_report("node-1"), received_ns=0)
    fleet.report(make_report("node-2"), received_ns=0)
    cluster.remove(NODES, make_node("node-2"))
    cluster.desired.forget_gone(fleet, 1)
    assert len(fleet.records()) == 2
    cluster.desired.forget_gone(fleet, 61 * 10**9)
    assert [r.name for r in fleet.records()] == ["node-1"]


def test_a_deleted_node_that_still_reports_counts_where_it_hung() -> None:
    """Members are found by their labels, and these go with the Node object."""
    cluster = make_cluster(make_node("node-1"), make_node("node-2"))
    fleet = make_fleet(make_hello("node-1"), make_hello("node-2"))
    for name in ("node-1", "node-2"):
        fleet.report(make_report(name), received_ns=0)
    before = running(cluster, fleet)
    cluster.remove(NODES, make_node("node-2"))
    cluster.desired.forget_gone(fleet, SECOND)
    after = running(cluster, fleet)
    assert after.node_names == before.node_names
    assert after.guaranteed_watts.tolist() == before.guaranteed_watts.tolist()
    cluster.desired.forget_gone(fleet, 61 * SECOND)
    assert running(cluster, fleet).node_names == ("node-1",)


def test_a_deleted_node_that_comes_back_and_goes_again_is_dropped_again() -> None:
    cluster = make_cluster(make_node("node-1"), make_node("node-2"))
    fleet = make_fleet(make_hello("node-1"), make_hello("node-2"))
    cluster.remove(NODES, make_node("node-2"))
    for minute in (0, 10, 20):
        for name in ("node-1", "node-2"):
            fleet.hello(make_hello(name))
            fleet.report(make_report(name, sequence=minute + 1), received_ns=minute * 60 * SECOND)
        assert running(cluster, fleet).node_names == ("node-1", "node-2")
        cluster.desired.forget_gone(fleet, (minute + 5) * 60 * SECOND)
        assert running(cluster, fleet).node_names == ("node-1",)


def test_deleted_nodes_are_not_remembered_without_bound() -> None:
    cluster = make_cluster(make_node("node-1"))
    for i in range(MOST_GONE_NODES + 10):
        cluster.remove(NODES, make_node(f"gone-{i}"))
    assert len(cluster.store.gone_nodes) == MOST_GONE_NODES
    assert f"gone-{MOST_GONE_NODES + 9}" in cluster.store.gone_nodes


@dataclass
class Speaker:
    """An agent's stream."""

    hello: power_pb2.Hello

    def end(self) -> None:
        """Nobody ends it here."""


def test_a_deleted_node_whose_stream_outlived_its_silence_is_counted_again() -> None:
    """A machine that was stopped for a minute, say."""
    cluster, fleet = make_cluster(make_node("node-1"), make_node("node-2")), Fleet()
    hearing: Hearing[Speaker] = Hearing(fleet)
    streams = {name: Speaker(make_hello(name)) for name in ("node-1", "node-2")}
    for name, stream in streams.items():
        hearing.opened(name, stream, 0)
        hearing.report(name, stream, make_report(name, sequence=1), 0)
    cluster.remove(NODES, make_node("node-2"))
    cluster.desired.forget_gone(fleet, 61 * SECOND)
    assert running(cluster, fleet).node_names == ("node-1",)
    for i in range(2):
        report = make_report("node-2", sequence=2 + i)
        hearing.report("node-2", streams["node-2"], report, (62 + i) * SECOND)
    assert running(cluster, fleet).node_names == ("node-1", "node-2")


def test_a_pod_that_took_anothers_name_unseen_rules_by_its_own_class() -> None:
    """As after a lost watch: of a StatefulSet's pod and its successor only the last is seen."""
    cluster = make_cluster(make_node("node-1"))
    for name, priority in (("high", 900), ("low", 10)):
        selector = {"priorityClasses": [name]}
        spec = {"priority": priority, "selector": selector}
        cluster.put(POLICIES, make_object("PowerPolicy", name, spec))
    old, new = (
        make_pod("web-0", node="node-1", priorityClassName=name, metadata={"uid": name})
        for name in ("low", "high")
    )
    cluster.put(PODS, old)
    fleet = make_fleet(make_hello("node-1"))
    use = power_pb2.PodUse(namespace="team", name="web-0", device_uuids=["node-1-gpu-0"])
    fleet.report(make_report(pods=[use]), received_ns=1)
    assert running(cluster, fleet).priority[0] == 10
    cluster.put(PODS, new, old)
    assert running(cluster, fleet).priority[0] == 900
