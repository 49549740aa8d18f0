"""Quotas of a cluster: which pods they count, and that they keep out nobody whom they admitted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.app.quota_reader import ELASTIC_QUOTAS, KEPT_SECONDS, QUOTAS
from scheduler_plugin.documents.snapshot import Pod, PodState
from scheduler_plugin.kube_objects.quota_objects import QuotaBook
from scheduler_plugin.kube_objects.quota_scopes import counts
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, gang, pod
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, events, gang_pod, pod_object
from tests.scheduler_plugin.test_foreign_objects import with_junk
from wattpack.kube.port import JsonObject, Resource

GPUS = "requests.nvidia.com/gpu"


def quota_object(
    hard: dict[str, Any], used: dict[str, Any] | None = None, **spec: Any
) -> JsonObject:
    metadata = {"name": "q", "namespace": SPACE}
    status = {} if used is None else {"hard": hard, "used": used}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
    return body | {"spec": {"hard": hard} | spec, "status": status}


def put(cluster: Cluster, kind: Resource, body: JsonObject) -> None:
    stored = [b for b in cluster.api.list(kind).items if b["metadata"]["name"] == "q"]
    if not stored:
        cluster.api.create(kind, body, SPACE)
    body = {**cluster.api.get(kind, "q", SPACE), "spec": body["spec"]}
    cluster.api.replace(kind, body, SPACE)
    cluster.clock.advance_seconds(KEPT_SECONDS)


def test_a_gang_whose_members_its_quota_would_refuse_waits_and_is_told(cluster: Cluster) -> None:
    put(cluster, QUOTAS[0], quota_object({GPUS: "8"}))
    cluster.add(gang_pod("g-0", 2))
    assert cluster.loop.step().released == {}
    (note,) = (note for _, note in events(cluster))
    assert f"quota {SPACE}/q: 8 GPUs of 8 in use, needs 8 GPUs" in note
    assert f"quota {SPACE}/q let in 8 GPUs more" in note
    put(cluster, QUOTAS[0], quota_object({GPUS: "16"}))
    assert len(cluster.loop.step().released) == 1


def test_a_quota_that_was_lowered_holds_for_those_that_wait(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.add(pod_object(name, 8))
    put(cluster, QUOTAS[0], quota_object({GPUS: "8", "count/pods": "9"}))
    first = cluster.loop.step()
    assert len(first.released) == 1
    assert [reason for reason, _ in first.pending.values()] == ["QuotaExceeded"]
    put(cluster, QUOTAS[0], quota_object({GPUS: "16"}))
    cluster.bind()
    assert len(cluster.loop.step().released) == 1


def test_an_elastic_quota_limits_what_has_a_node(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.add(pod_object(name, 8))
    body = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "ElasticQuota"}
    body |= {"metadata": {"name": "q"}, "spec": {"max": {"nvidia.com/gpu": 8}}}
    put(cluster, ELASTIC_QUOTAS[0], body)
    result = cluster.loop.step()
    assert len(result.released) == 1
    ((reason, message),) = result.pending.values()
    assert reason == "QuotaExceeded"
    assert f"{SPACE}/elasticquota/q" in message


def test_a_kept_place_counts_once_and_its_member_takes_it(cluster: Cluster) -> None:
    """The place was kept while no quota could bind; the member comes when one does."""
    cluster.add(gang_pod("g-0", 2))
    assert len(cluster.loop.step().released) == 1
    cluster.bind()
    put(cluster, QUOTAS[0], quota_object({GPUS: "8"}))
    cluster.add(gang_pod("g-1", 2))
    assert list(cluster.loop.step().released) == [f"{SPACE}/g-1"]


@pytest.mark.parametrize(
    ("scopes", "selector", "spec", "expected"),
    [
        ([], None, {}, True),
        (["Terminating"], None, {"activeDeadlineSeconds": 60}, True),
        (["Terminating"], None, {}, False),
        (["NotTerminating"], None, {"activeDeadlineSeconds": 60}, False),
        (["BestEffort"], None, {}, False),
        (["NotBestEffort"], None, {}, True),
        (["NotBestEffort", "Terminating"], None, {}, False),
        (["PriorityClass"], None, {}, False),
        ([], ("PriorityClass", "In", ["high"]), {"priorityClassName": "high"}, True),
        ([], ("PriorityClass", "In", ["high"]), {"priorityClassName": "low"}, False),
        ([], ("PriorityClass", "NotIn", ["high"]), {}, True),
        ([], ("PriorityClass", "DoesNotExist", []), {}, True),
        (["CrossNamespacePodAffinity"], None, {}, False),
        (["SomethingNew"], None, {}, False),
    ],
)
def test_scopes_choose_pods(
    scopes: list[str], selector: tuple[str, str, list[str]] | None, spec: Any, expected: bool
) -> None:
    more: dict[str, Any] = {"scopes": scopes}
    if selector is not None:
        name, operator, values = selector
        rule = {"scopeName": name, "operator": operator, "values": values}
        more["scopeSelector"] = {"matchExpressions": [rule]}
    assert counts(quota_object({}, **more), pod_object("p", 1, **spec)) is expected


def test_a_pod_without_cpu_and_memory_is_best_effort_whatever_gpus_it_has() -> None:
    body = pod_object("p")
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    assert counts(quota_object({}, scopes=["BestEffort"]), body)


def test_only_what_limits_pods_is_read_and_what_cannot_be_limits_nothing() -> None:
    hard = {"cpu": "4", "requests.cpu": "2", "requests.memory": "1Gi", "limits.cpu": "9"}
    hard |= {GPUS: "8", "pods": "5", "requests.storage": "1Ti", "services": "3", "count/jobs": "1"}
    hard |= {"fast.storageclass.storage.k8s.io/requests.storage": "1Ti"}
    book = QuotaBook.of(
        [quota_object(hard), quota_object({GPUS: "many"})], [{"metadata": {"name": "e"}}]
    )
    ((one,),) = book.by_namespace.values()
    gpus = {"nvidia.com/gpu": 8, "pods": 5}
    assert one.limits == {"milli_cpu": 2000, "memory_bytes": 2**30} | gpus


def asks(one: Pod, **changes: Any) -> Pod:
    gpus = {"nvidia.com/gpu": one.gpu_milli // 1000}
    return one.model_copy(update={"resources": gpus, "quotas": (f"{SPACE}/q",)} | changes)


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 8), st.sampled_from(["bound", "waits"])), max_size=6),
    st.integers(0, 20),
    st.integers(0, 30),
)
def test_nobody_whom_the_api_server_admitted_is_kept_out(
    there: list[tuple[int, str]], elsewhere: int, lag: int
) -> None:
    """Whatever the status shows of pods that went or came meanwhile, within what it allows."""
    pods = [asks(bound(f"p{i}", "n", gpus) if state == "bound" else pod(f"p{i}", gpus))
            for i, (gpus, state) in enumerate(there)]  # fmt: skip
    held = sum(gpus for gpus, _ in there)
    hard = max(held, elsewhere + held // 2)
    used = min(hard, elsewhere + lag)
    book = QuotaBook.of([quota_object({GPUS: hard}, {GPUS: used})], [])
    quotas, named = book.applied(pods)
    assert quotas == ()
    assert Counter(one.quotas for one in named) == Counter({(): len(pods)} if pods else {})


def test_members_that_do_not_exist_count_beside_all_that_does() -> None:
    _, members = gang("g", 3, 4, existing=1)
    pods = [asks(member) for member in members]
    book = QuotaBook.of([quota_object({GPUS: 16}, {GPUS: 9})], [])
    ((one,), named) = book.applied(pods)
    assert one.used == {"nvidia.com/gpu": 5}, "nine are used, four of them by the first member"
    assert [p.quotas for p in named] == [(f"{SPACE}/q",)] * 3
    assert named[0].state is PodState.PENDING
    assert book.applied(pods[:2])[0] == ()


def test_an_elastic_quota_with_anything_in_any_field_hides_no_other() -> None:
    good = {"metadata": {"name": "good", "namespace": SPACE}, "spec": {"max": {"cpu": "4"}}}
    for odd in with_junk(good, "spec"):
        odd["metadata"] = {"name": "odd", "namespace": SPACE}
        names = QuotaBook.of([], [odd, good]).of_pod(pod_object("p"))
        assert f"{SPACE}/elasticquota/good" in names
