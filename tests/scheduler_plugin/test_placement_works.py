"""What a pod's known work draws: WorkloadProfiles, catalogue entries, classified owners."""

from __future__ import annotations

from typing import Any

import pytest

from capacity.catalogue.pod_works import PodWorks
from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from scheduler_plugin.kube_objects.power_view import model_watts
from scheduler_plugin.kube_objects.work_draw import MAX_KINDS, WorkDraws
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, domain_object, profile_object
from tests.scheduler_plugin.placement_cluster import pod_object as pod
from wattpack.api import PowerDomain, WorkloadProfile
from wattpack.kube.port import JsonObject

TYPES = model_watts(ProfileBook.shipped(shipped_library()))
H200, V100 = TYPES["h200-sxm"], TYPES["v100-pcie"]
LABEL = {"wattpack.io/workload": "chat"}


def work(
    name: str = "chat", owners: tuple[str, ...] = (), told: str = "bandwidth", **spec: Any
) -> JsonObject:
    metadata: JsonObject = {"name": name, "namespace": SPACE}
    if owners:
        metadata["labels"] = {"wattpack.io/classified": told}
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": uid}
            for uid in owners
        ]
    resource = WorkloadProfile.meta.resource
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    return {**head, "spec": {"kind": "Serving", **spec}}


def placed(profile: JsonObject | None, **changes: Any) -> int:
    """Of five pods, where 990 W are left: three at 320 W each, one at the board's most."""
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add(profile_object())
    thirsty = {"worstWatts": 9_500.0, "idleWatts": 300.0}
    cluster.add_accepted(domain_object("row", 10_000, ["n1"], nonGpuPerNode=thirsty))
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, forecastP99Watts=8_000)
    if profile is not None:
        cluster.api.create(WorkloadProfile.meta.resource, profile, SPACE)
    for i in range(5):
        cluster.add(pod(f"p{i}", **changes))
    return len(cluster.loop.step().released)


OWNERS = tuple(f"owner-of-p{i}" for i in range(5))
DECODE = {"decode": 1.0}


@pytest.mark.parametrize(
    ("profile", "changes", "count"),
    [
        (None, {}, 1),
        (None, {"annotations": {"wattpack.io/kernel-class": "decode"}}, 3),
        (work(kernelMix=DECODE), {"labels": LABEL}, 3),
        (work(kernelMix=DECODE), {}, 1),
        (work(owners=OWNERS, confidence=0.95, kernelMix=DECODE), {}, 3),
        (work(owners=OWNERS, confidence=0.9, kernelMix=DECODE), {}, 1),
        (work(owners=OWNERS, told="outside", confidence=1.0, kernelMix=DECODE), {}, 1),
        (work(kernelMix={"magic": 1.0}), {"labels": LABEL}, 1),
        (work(kernelMix={"idle": 1.0}), {"labels": LABEL}, 1),
        (
            work(kernelMix={"idle": 1.0}),
            {"labels": LABEL, "annotations": {"wattpack.io/kernel-class": "decode"}},
            3,
        ),
    ],
    ids=[
        "nobody knows the work",
        "a class by annotation",
        "a profile by label",
        "a profile that no label names",
        "classified, sure",
        "classified, unsure",
        "classified by what it waits for now",
        "a class that no type has",
        "work that calls itself idle",
        "the annotation speaks first",
    ],
)
def test_known_work_counts_what_it_draws(
    profile: JsonObject | None, changes: dict[str, Any], count: int
) -> None:
    assert placed(profile, **changes) == count


def test_no_work_counts_more_than_the_board_can_draw_and_entries_differ() -> None:
    names = ("decoder-decode", "decoder-prefill", "cpu-kernels")
    bodies = [pod(name, labels={"wattpack.io/workload": name}) for name in names]
    draws = WorkDraws(PodWorks(), bodies)
    watts = draws.class_watts(H200)
    decode, prefill, waits = (watts[draws.kernel_class(body)] for body in bodies)
    assert waits < decode < prefill <= H200.worst_watts


def test_the_work_of_one_namespace_is_not_that_of_another() -> None:
    bodies = [pod("p", labels=LABEL), pod("p", labels=LABEL)]
    bodies[1]["metadata"]["namespace"] = "other"
    named = {
        (space, "chat"): WorkloadProfile.from_json(work(kernelMix={kernel: 1.0}))
        for space, kernel in ((SPACE, "decode"), ("other", "prefill"))
    }
    draws = WorkDraws(PodWorks(named), bodies)
    mine, theirs = (draws.class_watts(H200)[draws.kernel_class(body)] for body in bodies)
    assert mine == pytest.approx(H200.class_watts["decode"])
    assert theirs == pytest.approx(H200.class_watts["prefill"])


def test_an_entry_counts_as_unknown_work_on_a_type_that_it_was_not_priced_on() -> None:
    body = pod("p", labels={"wattpack.io/workload": "train-offload-host"})
    draws = WorkDraws(PodWorks(), [body])
    assert draws.kernel_class(body) in draws.class_watts(H200)
    assert draws.class_watts(V100) == V100.class_watts


def test_owners_with_the_same_work_are_one_kind() -> None:
    """Each node of a snapshot names all kinds: with one an owner, planning outgrows its limits."""
    bodies = [pod(f"p{i}") for i in range(5)]
    profiles = [
        work(f"replicaset-{i}", (f"owner-of-p{i}",), confidence=1.0, workload="decoder-decode")
        for i in range(5)
    ]
    draws = WorkDraws(PodWorks.of(profiles), bodies)
    assert len({draws.kernel_class(body) for body in bodies}) == 1
    assert len(draws.class_watts(H200)) == len(H200.class_watts) + 1


def test_kinds_that_people_make_up_have_an_end_and_the_common_ones_stay() -> None:
    mixes = [{"decode": i / 1000} for i in range(100, 100 + MAX_KINDS + 50)]
    profiles = [work(f"chat-{i}", kernelMix=mix) for i, mix in enumerate(mixes)]
    names = [*(f"chat-{i}" for i in range(len(mixes))), f"chat-{len(mixes) - 1}"]
    bodies = [pod(f"p{i}", labels={"wattpack.io/workload": n}) for i, n in enumerate(names)]
    draws = WorkDraws(PodWorks.of(profiles), bodies)
    kinds = draws.class_watts(H200)
    assert len(kinds) == len(H200.class_watts) + MAX_KINDS
    assert draws.kernel_class(bodies[-1]) in kinds
    assert sum(draws.kernel_class(body) == "" for body in bodies) == 50


def test_pods_without_gpus_and_finished_ones_crowd_no_work_out() -> None:
    bodies = [pod("p", labels=LABEL)]
    for i in range(2 * MAX_KINDS):
        bodies += [pod(f"q{i}", gpus=0, labels={"wattpack.io/workload": f"mix-{i}"})] * 2
    done = pod("done", labels={"wattpack.io/workload": "decoder-decode"})
    bodies.append(done | {"status": {"phase": "Succeeded"}})
    mixes = [work(f"mix-{i}", kernelMix={"decode": i / 1000}) for i in range(1, 2 * MAX_KINDS)]
    draws = WorkDraws(PodWorks.of([work(kernelMix=DECODE), *mixes]), bodies)
    assert draws.class_watts(H200).keys() - H200.class_watts == {draws.kernel_class(bodies[0])}
