"""What Prometheus is told of waiting pods and of GPUs is what the cluster shows at that moment."""

from __future__ import annotations

import pytest

from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.documents.snapshot import Node, Pod, PodState, Snapshot
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.packing.free_gpus import free_gpus
from scheduler_plugin.solve import SearchSettings, plan
from tests.scheduler_plugin.placement_builders import bound, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, gang_pod, pod_object
from wattpack.kube.port import PODS
from wattpack.object_names import GATE


def series(metrics: PlacementMetrics, name: str) -> dict[tuple[str, ...], float]:
    """Values by labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def waiting(cluster: Cluster) -> dict[str, float]:
    found = series(cluster.loop.metrics, "wattpack_placement_pending_pods")
    return {reason: count for (reason,), count in found.items()}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_nodes("a")
    return made


def test_nobody_is_counted_as_waiting_once_nobody_waits(cluster: Cluster) -> None:
    for name in ("p", "q"):
        cluster.add(pod_object(name, 8))
    cluster.loop.step()
    cluster.bind()
    cluster.loop.step()
    assert waiting(cluster) == {"InsufficientGpus": 1.0}
    (left,) = (p for p in cluster.api.list(PODS).items if pod_facts.is_gated(p))
    cluster.api.delete(PODS, left["metadata"]["name"], SPACE)
    assert cluster.loop.step().outcome == "idle"
    assert waiting(cluster) == {}


def test_pods_that_are_in_no_plan_are_counted_by_their_cause(cluster: Cluster) -> None:
    cluster.add(gang_pod("g-0", 2))
    cluster.add(gang_pod("g-1", 2, schedulingGates=[{"name": "else.where/gate"}]))
    gates = [{"name": GATE}]
    odd = pod_object("odd", 1, asks={"nvidia.com/gpu": "1.5"}, schedulingGates=gates)
    cluster.api.create(PODS, odd, SPACE)
    result = cluster.loop.step()
    assert {reason for reason, _ in result.pending.values()} == {"SiblingGated", "InvalidRequest"}
    told = [reason for reason, _ in result.pending.values()]
    assert waiting(cluster) == {reason: told.count(reason) for reason in told}


def test_who_does_not_lead_any_more_counts_nobody(cluster: Cluster) -> None:
    for name in ("p", "q"):
        cluster.add(pod_object(name, 8))
    cluster.loop.step()
    cluster.loop.metrics.stands_by()
    assert waiting(cluster) == {}
    assert series(cluster.loop.metrics, "wattpack_placement_gpus") == {}


def test_the_wait_at_the_gate_is_measured_from_creation_to_the_pin(cluster: Cluster) -> None:
    cluster.add(pod_object("first", 8))
    cluster.loop.step()
    cluster.bind()
    cluster.add(pod_object("late", 8))
    cluster.loop.step()
    cluster.clock.advance_seconds(40)
    cluster.api.delete(PODS, "first", SPACE)
    cluster.loop.step()
    name = "wattpack_placement_waited_seconds"
    assert series(cluster.loop.metrics, f"{name}_count") == {(): 2.0}
    assert series(cluster.loop.metrics, f"{name}_sum") == {(): pytest.approx(40.0, abs=1.0)}


def test_gpus_are_told_by_model_as_the_plan_leaves_them(cluster: Cluster) -> None:
    cluster.add_nodes("b", gpus=4, labels={"nvidia.com/gpu.product": "NVIDIA-L4"})
    cluster.add_nodes("c", unschedulable=True)
    cluster.add(pod_object("on-c", 8, nodeName="c"))
    cluster.add(pod_object("p", 3, annotations={"wattpack.io/gpu-models": "NVIDIA-H200"}))
    cluster.add(pod_object("q", 4, annotations={"wattpack.io/gpu-models": "NVIDIA-L4"}))
    cluster.loop.step()
    found = series(cluster.loop.metrics, "wattpack_placement_gpus")
    assert found == {
        ("H200-SXM", "held"): 3.0,
        ("H200-SXM", "free"): 5.0,
        ("NVIDIA-L4", "held"): 4.0,
        ("NVIDIA-L4", "free"): 0.0,
    }


def test_who_comes_in_a_plan_with_moves_takes_its_gpus_once() -> None:
    parts = (node("a", 8), node("b", 8), bound("r", "a", 2, move_seconds=1), bound("s", "b", 5))
    question = snapshot(*parts, pod("p", 8))
    made = plan(question, settings=SearchSettings(moves=True))
    assert {step.uid for step in made.steps} == {"r", "p"}
    metrics = PlacementMetrics()
    metrics.room.planned(made, question)
    found = series(metrics, "wattpack_placement_gpus")
    assert {state: gpus for (_, state), gpus in found.items()} == {"held": 15.0, "free": 1.0}


def test_free_gpus_that_no_expected_pod_can_use_are_told(cluster: Cluster) -> None:
    cluster.add(pod_object("whole-host", 1, asks={"cpu": "96"}))
    cluster.loop.step()
    (stranded,) = series(cluster.loop.metrics, "wattpack_placement_stranded_gpus").values()
    assert stranded == pytest.approx(7.0, abs=0.1)


def test_pods_on_closed_nodes_take_nothing_of_what_is_free_elsewhere() -> None:
    size = {"milli_cpu": 8000, "memory_bytes": 2**33, "gpu_milli": 8000, "gpu_model": "H"}
    nodes = (Node(name="open", **size), Node(name="closed", schedulable=False, **size))
    there = Pod(uid="p", gpu_milli=8000, state=PodState.BOUND, node="closed")
    assert free_gpus(Snapshot(nodes=nodes, pods=(there,))) == {"H": 8.0}


def test_a_gang_that_waits_has_room_held_from_its_creation_on(cluster: Cluster) -> None:
    cluster.add_nodes("b")
    figures = ("longest_wait_seconds", "patience_seconds", "held_gpus")

    def told() -> list[float]:
        metrics = cluster.loop.metrics
        return [series(metrics, f"wattpack_placement_{name}")[()] for name in figures]

    for name in ("r0", "r1"):
        cluster.add(pod_object(name, 6))
    cluster.loop.step()
    cluster.bind()
    for member in ("g-0", "g-1"):
        cluster.add(gang_pod(member, 2))
    cluster.clock.advance_seconds(590)
    cluster.loop.step()
    assert told() == [590.0, 600.0, 0.0]
    cluster.clock.advance_seconds(11)
    for name in ("s0", "s1"):
        cluster.add(pod_object(name, 2))
    cluster.loop.step()
    assert waiting(cluster) == {"GangDoesNotFit": 2.0, "HeldFor": 2.0}
    assert told() == [601.0, 600.0, 4.0]
    # The next leader knows it too.
    cluster.loop = cluster.new_loop()
    cluster.loop.step()
    assert waiting(cluster)["HeldFor"] == 2.0
    for name in ("r0", "r1"):
        cluster.api.delete(PODS, name, SPACE, grace_period_seconds=0)
    cluster.clock.advance_seconds(1)
    assert len(cluster.loop.step().released) == 2
    assert told() == [602.0, 600.0, 0.0]
    cluster.clock.advance_seconds(1)
    cluster.loop.step()
    assert told() == [2.0, 600.0, 0.0]
