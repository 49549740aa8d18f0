"""The planner against an embedded API: gangs, their members, and places kept for them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_plugin.kube_objects import pods as pod_facts
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    events,
    gang_pod,
    plans,
    pod_object,
)
from wattpack.kube.port import (
    PODS,
    JsonObject,
    Resource,
)


def test_no_member_is_released_before_all_have_a_place(cluster: Cluster) -> None:
    for i in range(3):
        cluster.add(gang_pod(f"g{i}", 3))
    result = cluster.loop.step()
    assert result.released == {}
    assert result.pending[f"{SPACE}/g0"][0] == "GangExceedsCluster"
    cluster.add_nodes("n3")
    assert len(cluster.loop.step().released) == 3


def test_places_of_members_that_do_not_exist_yet_are_kept_for_them(cluster: Cluster) -> None:
    cluster.add(gang_pod("leader", 2))
    assert len(cluster.loop.step().released) == 1
    cluster.add(pod_object("greedy", 8))
    assert cluster.loop.step().released == {}
    cluster.add(gang_pod("worker", 2))
    result = cluster.loop.step()
    assert list(result.released) == [f"{SPACE}/worker"]
    nodes = {pod_facts.pinned_node(cluster.pod(name)) for name in ("leader", "worker")}
    assert nodes == {"n1", "n2"}


def test_a_new_process_keeps_the_promises_of_the_old_one(cluster: Cluster) -> None:
    cluster.add(gang_pod("leader", 2))
    cluster.loop.step()
    cluster.add(pod_object("greedy", 8))
    cluster.loop = cluster.new_loop()
    assert cluster.loop.step().released == {}
    cluster.add(gang_pod("worker", 2))
    assert list(cluster.loop.step().released) == [f"{SPACE}/worker"]


def test_a_gang_larger_than_one_plan_object_is_released_whole_and_survives_a_restart() -> None:
    """2,100 members are more than one object's promises may be; the leader alone exists."""
    cluster = Cluster()
    cluster.add_nodes(*(f"n{i:03}" for i in range(263)))
    cluster.add(gang_pod("leader", 2_100, gpus=1))
    assert len(cluster.loop.step().released) == 1
    parts = [len(plan["spec"]["promises"]) for plan in plans(cluster)]
    assert (len(parts), sum(parts)) == (2, 2_100)
    cluster.bind()
    cluster.loop = cluster.new_loop()
    cluster.add(pod_object("greedy", 8))
    assert cluster.loop.step().released == {}
    members = [f"worker-{i}" for i in range(20)]
    for name in members:
        cluster.add(gang_pod(name, 2_100, gpus=1))
    assert sorted(cluster.loop.step().released) == sorted(f"{SPACE}/{name}" for name in members)


JOBS = Resource("batch", "v1", "jobs", "Job", True)


POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", True)


def add_job(cluster: Cluster, size: int, succeeded: int = 0, **spec: Any) -> None:
    template = {"spec": pod_object("t", 8)["spec"]}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": SPACE},
        "spec": {"completionMode": "Indexed", "completions": size, "parallelism": size}
        | {"template": template}
        | spec,
    }
    cluster.api.create(JOBS, body | {"status": {"succeeded": succeeded}}, SPACE)


def indexed(name: str, *, gang: bool = True) -> JsonObject:
    labels = {"batch.kubernetes.io/job-name": "train"}
    labels |= {"wattpack.io/gang": "train"} if gang else {}
    annotations = {"batch.kubernetes.io/job-completion-index": name[-1]}
    return pod_object(name, 8, labels=labels, annotations=annotations)


def test_an_indexed_job_that_says_so_is_a_gang_of_its_parallelism(cluster: Cluster) -> None:
    add_job(cluster, 3)
    cluster.add(indexed("train-0"))
    assert cluster.loop.step().pending[f"{SPACE}/train-0"][0] == "GangExceedsCluster"
    cluster.add_nodes("n3")
    assert len(cluster.loop.step().released) == 1


def test_a_place_of_a_jobs_second_index_is_kept_while_the_first_runs(cluster: Cluster) -> None:
    """Its size stands in the Job, which is read although no pod of it waits."""
    add_job(cluster, 2)
    cluster.add(indexed("train-0"))
    assert len(cluster.loop.step().released) == 1
    cluster.bind()
    cluster.add(pod_object("greedy", 8))
    assert cluster.loop.step().released == {}
    cluster.add(indexed("train-1"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/train-1"]


def test_an_indexed_job_alone_is_no_gang(cluster: Cluster) -> None:
    add_job(cluster, 3)
    cluster.add(indexed("train-0", gang=False))
    assert list(cluster.loop.step().released) == [f"{SPACE}/train-0"]


def test_a_job_with_one_of_two_done_waits_for_no_phantom() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    add_job(cluster, 2, succeeded=1)
    cluster.add(indexed("train-1"))
    assert cluster.loop.step().released == {f"{SPACE}/train-1": "n1"}


def finish(cluster: Cluster, name: str, node: str = "n1") -> None:
    cluster.api.bind(name, SPACE, node)
    body = {**cluster.pod(name), "status": {"phase": "Succeeded"}}
    cluster.api.replace(PODS, body, SPACE, subresource="status")


def owned_by(body: JsonObject, owner: str) -> JsonObject:
    body["metadata"]["ownerReferences"][0]["uid"] = owner
    return body


def test_members_that_finished_leave_the_gang_to_the_others_of_their_owner() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    for name in ("g0", "g1"):
        body = owned_by(gang_pod(name, 2), "run-1")
        cluster.api.create(PODS, body, SPACE)
        finish(cluster, name)
    cluster.add(owned_by(gang_pod("g2", 2), "run-2"))
    assert cluster.loop.step().pending[f"{SPACE}/g2"][0] == "GangExceedsCluster"
    cluster.add(owned_by(gang_pod("g3", 2), "run-1"))
    cluster.api.delete(PODS, "g2", SPACE, grace_period_seconds=0)
    assert cluster.loop.step().released == {f"{SPACE}/g3": "n1"}


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_launcher_without_gpus_is_a_member_that_nobody_waits_for(
    cluster: Cluster, phase: str
) -> None:
    cluster.add(gang_pod("launcher", 3, gpus=0))
    if phase == "Running":
        cluster.api.bind("launcher", SPACE, "n1")
    for name in ("w0", "w1"):
        cluster.add(gang_pod(name, 3))
    assert len(cluster.loop.step().released) == 2


def test_a_leader_without_gpus_does_not_count_in_its_group(cluster: Cluster) -> None:
    group = "leaderworkerset.sigs.k8s.io"
    labels = {f"{group}/name": "l", f"{group}/group-index": "0"}
    for name, gpus in (("l-0", 0), ("l-0-1", 8), ("l-0-2", 8)):
        annotations = {f"{group}/size": "3"}
        cluster.add(pod_object(name, gpus, labels=labels, annotations=annotations))
    assert len(cluster.loop.step().released) == 2


def test_an_owner_whose_numbers_make_no_sense_stops_nobody(cluster: Cluster) -> None:
    body = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    body |= {"metadata": {"name": "g", "namespace": SPACE}, "spec": {"minMember": "many"}}
    cluster.api.create(POD_GROUPS, body, SPACE)
    cluster.add(pod_object("p", labels={"scheduling.x-k8s.io/pod-group": "g"}))
    cluster.add(pod_object("q"))
    result = cluster.loop.step()
    assert list(result.released) == [f"{SPACE}/q"]
    ((reason, text),) = result.pending.values()
    assert (reason, "a declared size" in text) == ("InvalidRequest", True)


def test_a_bound_pod_that_cannot_be_read_still_holds_its_gpus() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    odd = pod_object("odd", 8, annotations={"wattpack.io/expected-watts-per-gpu": "0.7kW"})
    cluster.api.create(PODS, odd, SPACE)
    cluster.api.bind("odd", SPACE, "n1")
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "InsufficientGpus"
    assert [name for name, _ in events(cluster)] == ["p"]


def test_a_kept_place_never_outranks_a_real_pod_after_a_restart(cluster: Cluster) -> None:
    """The old plan still names the worker's place, but the worker has claimed it already."""
    cluster.add_nodes("n3")
    cluster.add(gang_pod("leader", 3))
    cluster.loop.step()
    cluster.add(gang_pod("worker-1", 3))
    cluster.loop.step()
    cluster.bind()
    cluster.loop = cluster.new_loop()
    cluster.add(gang_pod("worker-2", 3))
    cluster.loop.step()
    names = ("leader", "worker-1", "worker-2")
    nodes = [
        pod_facts.node_name(cluster.pod(n)) or pod_facts.pinned_node(cluster.pod(n)) for n in names
    ]
    assert sorted(nodes) == ["n1", "n2", "n3"]


def test_places_of_a_gang_that_is_gone_are_given_to_others(cluster: Cluster) -> None:
    cluster.add(gang_pod("leader", 2))
    cluster.loop.step()
    cluster.api.delete(PODS, "leader", SPACE, grace_period_seconds=0)
    for i in range(2):
        cluster.add(pod_object(f"p{i}", 8))
    assert len(cluster.loop.step().released) == 2
    cluster.add(gang_pod("late-worker", 2))
    assert cluster.loop.step().released == {}


@pytest.mark.parametrize(
    ("pod", "named"),
    [
        (
            pod_object("p", 1001),
            "spec.containers.resources: expected at most 1000 GPUs in one pod, got 1001",
        ),
        (pod_object("p", annotations={"wattpack.io/kernel-class": "x" * 641}), "kernel_class: exp"),
    ],
    ids=["GPUs", "kernel class"],
)
def test_what_does_not_fit_the_model_is_told_by_field_and_in_one_line(
    cluster: Cluster, pod: JsonObject, named: str
) -> None:
    cluster.add(pod)
    ((reason, text),) = cluster.loop.step().pending.values()
    assert reason == "InvalidRequest"
    assert named in text
    assert "\n" not in text
    assert "pydantic" not in text
