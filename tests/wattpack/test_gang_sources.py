"""Which gang a pod belongs to, by every source, and how large its owner says that it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from wattpack.errors import InputError
from wattpack.gang_sizes import (
    GangSize,
    Topology,
    coscheduling_size,
    job_gang_size,
    jobset_gang_size,
    kueue_workload_size,
    native_group_size,
    native_workload_sizes,
    ray_cluster_size,
)
from wattpack.gang_sources import GANG_SOURCES, Marks, is_placed_by_kueue
from wattpack.gangs import GangRef, GangSources, gang_of
from wattpack.kube.port import JsonObject

LWS = "leaderworkerset.sigs.k8s.io"
KUEUE = "kueue.x-k8s.io"
SOURCES = GangSources(
    {
        "Job with own label": {"team/train": GangSize(4), "team/last-one": GangSize(1)},
        "JobSet": {"team/set": GangSize(6)},
        "coscheduling PodGroup": {"team/pg": GangSize(3, is_elastic=True)},
        "Volcano PodGroup": {"team/v": GangSize(2, is_elastic=True)},
        "Kueue Workload": {"team/w": GangSize(5, topology=Topology("rack", required=False))},
        "RayCluster": {
            "team/r": GangSize(3, 9, is_elastic=True),
            "team/idle": GangSize(1, 9, is_elastic=True),
        },
        "native PodGroup": {
            "team/n": GangSize(4, is_elastic=True, topology=Topology("rack", required=True)),
            "team/basic": GangSize(0, is_elastic=True),
        },
        "native Workload of 1.35": {"team/w/workers": GangSize(2, is_elastic=True)},
    }
)


def pod(
    labels: JsonObject | None = None, marks: JsonObject | None = None, **spec: Any
) -> JsonObject:
    return {
        "metadata": {"name": "p", "namespace": "team", "labels": labels, "annotations": marks},
        "spec": spec,
    }


CASES: list[tuple[str, JsonObject, GangRef | None]] = [
    ("no mark", pod(), None),
    (
        "own label",
        pod({"wattpack.io/gang": "g"}, {"wattpack.io/gang-size": "5"}),
        GangRef("team/gang/g", 5),
    ),
    (
        "own label, elastic",
        pod({"wattpack.io/gang": "g"}, {"wattpack.io/gang-size": "2-5"}),
        GangRef("team/gang/g", 2, is_elastic=True, most=5),
    ),
    (
        "a group of a LeaderWorkerSet",
        pod({f"{LWS}/name": "l", f"{LWS}/group-index": "2"}, {f"{LWS}/size": "4"}),
        GangRef("team/lws/l-2", 4),
    ),
    (
        "a group in one domain",
        pod(
            {f"{LWS}/name": "l", f"{LWS}/group-index": "2"},
            {f"{LWS}/size": "4", f"{LWS}/exclusive-topology": "rack"},
        ),
        GangRef("team/lws/l-2", 4, topology=Topology("rack", required=True)),
    ),
    (
        "a JobSet",
        pod({"jobset.sigs.k8s.io/jobset-name": "set"}),
        GangRef("team/jobset/set", 6, is_declared=False),
    ),
    (
        "a coscheduling PodGroup",
        pod({"scheduling.x-k8s.io/pod-group": "pg"}),
        GangRef("team/podgroup/pg", 3, is_elastic=True),
    ),
    (
        "a PodGroup that is not there",
        pod({"scheduling.x-k8s.io/pod-group": "new"}),
        GangRef("team/podgroup/new", None),
    ),
    (
        "a pod of an Indexed Job",
        pod(
            {
                "batch.kubernetes.io/job-name": "train",
                "batch.kubernetes.io/job-completion-index": "1",
            }
        ),
        None,
    ),
    (
        "a Job that says so",
        pod({"batch.kubernetes.io/job-name": "train", "wattpack.io/gang": "yes"}),
        GangRef("team/job/train", 4, is_declared=False),
    ),
    (
        "a Job's last pod",
        pod({"batch.kubernetes.io/job-name": "last-one", "wattpack.io/gang": "yes"}),
        None,
    ),
    (
        "a Volcano PodGroup",
        pod(marks={"scheduling.k8s.io/group-name": "v"}),
        GangRef("team/volcano/v", 2, is_elastic=True),
    ),
    (
        "a Kueue Workload",
        pod(marks={f"{KUEUE}/workload": "w"}),
        GangRef("team/kueue/w", 5, is_declared=False, topology=Topology("rack", required=False)),
    ),
    (
        "a group of plain pods in Kueue",
        pod({f"{KUEUE}/pod-group-name": "w"}, {f"{KUEUE}/pod-group-total-count": "3"}),
        GangRef("team/kueue/w", 3, is_declared=False),
    ),
    (
        "Kueue before a JobSet",
        pod({"jobset.sigs.k8s.io/jobset-name": "set"}, {f"{KUEUE}/workload": "w"}),
        GangRef("team/kueue/w", 5, is_declared=False, topology=Topology("rack", required=False)),
    ),
    (
        "a RayCluster",
        pod({"ray.io/cluster": "r"}),
        GangRef("team/ray/r", 3, is_declared=False, is_elastic=True, most=9),
    ),
    ("a RayCluster that may begin with one", pod({"ray.io/cluster": "idle"}), None),
    (
        "a native PodGroup",
        pod(schedulingGroup={"podGroupName": "n"}),
        GangRef("team/native/n", 4, is_elastic=True, topology=Topology("rack", required=True)),
    ),
    ("a native group without a gang", pod(schedulingGroup={"podGroupName": "basic"}), None),
    (
        "a group in a Workload of 1.35",
        pod(workloadRef={"name": "w", "podGroup": "workers", "podGroupReplicaKey": "1"}),
        GangRef("team/native/w/workers/1", 2, is_elastic=True),
    ),
    (
        "a topology that the pods ask for",
        pod(
            {"wattpack.io/gang": "g"},
            {"wattpack.io/gang-size": "5", "wattpack.io/gang-preferred-topology": "zone"},
        ),
        GangRef("team/gang/g", 5, topology=Topology("zone", required=False)),
    ),
]


@pytest.mark.parametrize(("body", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_gangs_are_read_from_their_owners_marks(body: JsonObject, expected: GangRef | None) -> None:
    assert gang_of(body, SOURCES) == expected


def test_every_source_is_in_the_cases_above() -> None:
    told = {
        source.name
        for source in GANG_SOURCES
        for _, body, _ in CASES
        if source.member(Marks.of(body)) is not None
    }
    assert told == {source.name for source in GANG_SOURCES}


@pytest.mark.parametrize("size", ["0", "x", "5-2", "2-", "-3", "2-3-4", "9" * 30])
def test_a_size_that_is_none_is_refused_by_its_annotation(size: str) -> None:
    with pytest.raises(InputError) as refusal:
        gang_of(pod({"wattpack.io/gang": "g"}, {"wattpack.io/gang-size": size}), SOURCES)
    assert refusal.value.field == "metadata.annotations.wattpack.io/gang-size"


@pytest.mark.parametrize(
    ("body", "placed"),
    [
        (pod(), False),
        (pod(marks={f"{KUEUE}/workload": "w"}), False),
        (pod(schedulingGates=[{"name": f"{KUEUE}/admission"}]), False),
        (pod(schedulingGates=[{"name": f"{KUEUE}/topology"}]), True),
        (pod(marks={f"{KUEUE}/podset-required-topology": "rack"}), True),
        (pod({f"{KUEUE}/tas": "true"}), True),
    ],
)
def test_pods_that_kueue_itself_places_are_told(body: JsonObject, placed: bool) -> None:
    assert is_placed_by_kueue(Marks.of(body)) is placed


def template(gpus: int) -> JsonObject:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {"spec": {"containers": [{"name": "m", "resources": {"limits": limits}}]}}


def job(gpus: int = 8, status: JsonObject | None = None, **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": "j"},
        "spec": spec | {"template": template(gpus)},
        "status": status,
    }


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (job(completions=8, parallelism=3), 3),
        (job(completions=2, parallelism=3), 2),
        (job(completions=2, parallelism=2, status={"succeeded": 1}), 1),
        (job(completions=8, parallelism=3, status={"succeeded": 7}), 1),
        (job(completions=2, parallelism=2, status={"succeeded": 2}), 0),
        (job(parallelism=3), 3),
        (job(), 1),
        (job(0, completions=8, parallelism=3), 0),
        ({"metadata": {"name": "j"}}, 0),
    ],
)
def test_a_jobs_size_is_what_still_runs_together_on_gpus(body: JsonObject, size: int) -> None:
    assert job_gang_size(body) == size


def test_a_jobset_counts_its_gpu_jobs_less_what_they_finished() -> None:
    def group(name: str, replicas: int, gpus: int, **spec: Any) -> JsonObject:
        return {"name": name, "replicas": replicas, "template": {"spec": job(gpus, **spec)["spec"]}}

    def child(name: str, succeeded: int) -> JsonObject:
        made = job(8, completions=3, parallelism=3, status={"succeeded": succeeded})
        labels = {"jobset.sigs.k8s.io/jobset-name": "set"}
        made["metadata"]["labels"] = labels | {"jobset.sigs.k8s.io/replicatedjob-name": name}
        return made

    groups = [group("launcher", 1, 0), group("worker", 3, 8, parallelism=3, completions=3)]
    jobset = {"metadata": {"name": "set"}, "spec": {"replicatedJobs": groups}}
    assert jobset_gang_size(jobset, []) == 9
    assert jobset_gang_size(jobset, [child("worker", 0), child("worker", 1), job()]) == 8
    assert jobset_gang_size(jobset, [child("worker", 3)] * 3) == 0


def test_a_pod_groups_size_is_what_it_declares() -> None:
    assert coscheduling_size({"spec": {"minMember": 5}}) == GangSize(5, is_elastic=True)
    assert coscheduling_size({"spec": {}}) is None


def ray(*groups: JsonObject, scales: bool, head: int = 0) -> JsonObject:
    spec = {"headGroupSpec": {"template": template(head)}, "workerGroupSpecs": list(groups)}
    return {"metadata": {"name": "r"}, "spec": spec | {"enableInTreeAutoscaling": scales}}


def workers(gpus: int, **numbers: Any) -> JsonObject:
    return {"template": template(gpus), **numbers}


@pytest.mark.parametrize(
    ("cluster", "size"),
    [
        (ray(workers(8, replicas=3, minReplicas=1, maxReplicas=9), scales=False), GangSize(3, 3)),
        (
            ray(workers(8, replicas=3, minReplicas=1, maxReplicas=9), scales=True, head=1),
            GangSize(2, 10, is_elastic=True),
        ),
        (ray(workers(8, replicas=2, numOfHosts=4), scales=False), GangSize(8, 8)),
        (ray(workers(0, replicas=7), workers(1, replicas=2), scales=False), GangSize(2, 2)),
        (ray(workers(8, replicas=2, suspend=True), scales=False, head=8), GangSize(1, 1)),
    ],
    ids=["fixed", "autoscaled with a head on a GPU", "several hosts", "CPU workers", "suspended"],
)
def test_a_ray_cluster_counts_head_and_workers_on_gpus(cluster: JsonObject, size: GangSize) -> None:
    assert ray_cluster_size(cluster) == size


def test_a_workload_counts_what_kueue_admitted_less_what_is_reclaimed() -> None:
    sets = [
        {"name": "launcher", "count": 1, "template": template(0)},
        {
            "name": "workers",
            "count": 6,
            "minCount": 2,
            "template": template(8),
            "topologyRequest": {"required": "rack"},
        },
    ]
    body: JsonObject = {"metadata": {"name": "w"}, "spec": {"podSets": sets}}
    rack = Topology("rack", required=True)
    assert kueue_workload_size(body) == GangSize(6, topology=rack)
    assigned = [{"name": "launcher", "count": 1}, {"name": "workers", "count": 4}]
    body["status"] = {"admission": {"podSetAssignments": assigned}}
    assert kueue_workload_size(body) == GangSize(4, topology=rack)
    body["status"]["reclaimablePods"] = [{"name": "workers", "count": 1}]
    assert kueue_workload_size(body) == GangSize(3, topology=rack)


def test_native_groups_say_how_many_start_together_and_where() -> None:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
    }
    rack = Topology("rack", required=True)
    assert native_group_size({"spec": spec}) == GangSize(4, is_elastic=True, topology=rack)
    assert native_group_size({"spec": {"schedulingPolicy": {"basic": {}}}}).least == 0
    groups = [{"name": "a", "policy": {"gang": {"minCount": 2}}}, {"name": "b", "policy": {}}]
    sizes = native_workload_sizes({"spec": {"podGroups": groups}})
    assert {name: size.least for name, size in sizes.items()} == {"a": 2, "b": 0}


@pytest.mark.parametrize("number", ["3", -1, 1.5, True, 2**40])
def test_a_number_of_an_owner_that_is_none_is_refused_by_its_field(number: object) -> None:
    gang = {"schedulingPolicy": {"gang": {"minCount": number}}}
    for read, body, field in (
        (job_gang_size, job(parallelism=number), "parallelism"),
        (job_gang_size, job(completions=number), "completions"),
        (job_gang_size, job(completions=2, status={"succeeded": number}), "succeeded"),
        (coscheduling_size, {"spec": {"minMember": number}}, "minMember"),
        (native_group_size, {"spec": gang}, "minCount"),
        (ray_cluster_size, ray(workers(1, replicas=number), scales=False), "replicas"),
    ):
        with pytest.raises(InputError) as refusal:
            read(body)
        assert refusal.value.field == field


def test_the_page_of_gang_sources_is_the_table() -> None:
    lines = (Path(__file__).parents[2] / "docs" / "gangs.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    assert [c[0] for c in cells if c[0] in {s.name for s in GANG_SOURCES}] == [
        source.name for source in GANG_SOURCES
    ]
    told = {c[0].strip("`"): re.findall(r"v\d\w*", c[1]) for c in cells if len(c) == 2}
    kinds = [s.kinds for s in GANG_SOURCES if s.kinds and s.kinds[0].group != "batch"]
    assert {k: v for k, v in told.items() if "." in k} == {
        f"{each[0].plural}.{each[0].group}": [kind.version for kind in each] for each in kinds
    }
