"""The planner against an embedded API: refusals, missed pins, and what cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduler_plugin.kube_objects import pods as pod_facts
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    events,
    gang_pod,
    node_object,
    pod_object,
)
from wattpack.kube.port import (
    NODES,
    PODS,
    InvalidError,
    JsonObject,
    NotFoundError,
    Resource,
    UnavailableError,
)
from wattpack.object_names import GATE
from wattpack.times import rfc3339
from wattpack.units import NS_PER_SECOND


class Faulty:
    """The embedded API with a wish list of failures of pod patches."""

    def __init__(self, cluster: Cluster, faults: list[Any]) -> None:
        self._api = cluster.api
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def patch_json(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[JsonObject],
        *rest: Any,
        dry_run: bool = False,
    ) -> JsonObject:
        counts = resource is PODS and not dry_run
        fault = self._faults.pop(0) if counts and self._faults else None
        if callable(fault):
            fault()
        elif fault is not None:
            raise fault
        return self._api.patch_json(resource, name, operations, *rest, dry_run=dry_run)


def with_faults(cluster: Cluster, *faults: Any) -> None:
    cluster.loop = cluster.new_loop(Faulty(cluster, list(faults)))  # type: ignore[arg-type]


def relabel(cluster: Cluster, name: str) -> None:
    body = cluster.pod(name)
    body["metadata"]["labels"] = {"touched": "yes"}
    cluster.api.replace(PODS, body, SPACE)


def test_a_pod_touched_meanwhile_is_read_again_and_released(cluster: Cluster) -> None:
    cluster.add(pod_object("p"))
    with_faults(cluster, lambda: relabel(cluster, "p"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]


def test_a_pod_deleted_meanwhile_frees_its_place(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 8))
    with_faults(cluster, lambda: cluster.api.delete(PODS, "p", SPACE, grace_period_seconds=0))
    assert cluster.loop.step().released == {}
    assert cluster.loop.ledger.promises == {}


def test_an_unanswered_patch_keeps_the_promise_until_the_pod_tells(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 8))
    with_faults(cluster, UnavailableError("broken pipe"))
    assert cluster.loop.step().released == {}
    cluster.add(pod_object("q", 8))
    cluster.add(pod_object("r", 8))
    assert len(cluster.loop.step().released) == 1
    cluster.bind()
    cluster.clock.advance_seconds(6)
    result = cluster.loop.step()
    assert len(result.released) == 1
    assert list(result.pending) != []


def test_whose_patches_are_never_answered_is_told_why_it_waits(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 8))
    with_faults(cluster, *[UnavailableError('failed calling webhook "x"')] * 5)
    told = list[str]()
    for _ in range(6):
        cluster.loop.step()
        cluster.clock.advance_seconds(4)
        told = [note for name, note in events(cluster) if name == "p"]
        if cluster.clock.monotonic_ns() < 10 * NS_PER_SECOND:
            assert told == []
    assert len(told) == 1
    assert told[0].startswith("ReleaseRefused: no answer to the patch, it is sent again: failed")
    assert not pod_facts.is_gated(cluster.pod("p"))
    assert cluster.loop.step().pending == {}


def test_a_refused_patch_is_dropped_and_tried_again_later(cluster: Cluster) -> None:
    cluster.add(pod_object("p"))
    with_faults(cluster, InvalidError("spec: no"))
    assert cluster.loop.step().released == {}
    cluster.add(pod_object("q"))
    cluster.clock.advance_seconds(2)
    assert set(cluster.loop.step().released) == {f"{SPACE}/p", f"{SPACE}/q"}


def test_an_unbound_pin_is_evicted_after_thirty_seconds_and_the_pair_avoided(
    cluster: Cluster,
) -> None:
    cluster.add(pod_object("p", 8))
    first = cluster.loop.step().released[f"{SPACE}/p"]
    cluster.refuse()
    cluster.clock.advance_seconds(29)
    cluster.loop.step()
    assert pod_facts.pinned_node(cluster.pod("p")) == first
    cluster.clock.advance_seconds(1)
    cluster.loop.step()
    with pytest.raises(NotFoundError):
        cluster.pod("p")
    cluster.add(pod_object("p", 8))
    assert cluster.loop.step().released == {f"{SPACE}/p": ""}
    assert pod_facts.gates(cluster.pod("p")) == []
    assert pod_facts.pinned_node(cluster.pod("p")) == ""
    assert any("not bound to" in note for _, note in events(cluster))
    cluster.api.delete(PODS, "p", SPACE, grace_period_seconds=0)
    cluster.clock.advance_seconds(601)
    cluster.loop.step()
    cluster.add(pod_object("p", 8))
    assert cluster.loop.step().released[f"{SPACE}/p"] in ("n1", "n2")


def test_a_pin_that_kube_scheduler_has_not_come_to_waits_for_five_minutes(
    cluster: Cluster,
) -> None:
    """Its queue may be long: a new pod would only stand at the end of it."""
    cluster.add(pod_object("p", 8))
    cluster.loop.step()
    body = cluster.pod("p")
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    left_over = {**body, "status": {"conditions": [gated]}}
    cluster.api.replace(PODS, left_over, SPACE, subresource="status")
    cluster.clock.advance_seconds(299)
    cluster.loop.step()
    assert cluster.pod("p")
    cluster.clock.advance_seconds(1)
    cluster.loop.step()
    assert evictions(cluster, ["p"]) == ["p"]


@pytest.mark.parametrize(
    ("offers", "asks"),
    [
        ({"rdma/hca": "1"}, {"rdma/hca": "1"}),
        ({"ephemeral-storage": "100Gi"}, {"ephemeral-storage": "50Gi"}),
        ({"hugepages-1Gi": "4Gi"}, {"hugepages-1Gi": "2Gi"}),
        ({"amd.com/gpu": "8"}, {"amd.com/gpu": "1"}),
    ],
)
def test_a_pod_is_pinned_only_where_every_resource_that_it_asks_for_is(
    offers: dict[str, str], asks: dict[str, str]
) -> None:
    cluster = Cluster()
    cluster.add_nodes("n1", "n2", "n3")
    cluster.add_nodes("n4", gpus=8, offers=offers)
    cluster.add(pod_object("p", 1, asks=asks))
    assert cluster.loop.step().released == {f"{SPACE}/p": "n4"}


def test_what_bound_pods_hold_of_an_extended_resource_is_not_promised_again() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1", offers={"rdma/hca": "2"})
    for name in ("p", "q"):
        cluster.add(pod_object(name, asks={"rdma/hca": "1"}))
    assert len(cluster.loop.step().released) == 2
    cluster.bind()
    cluster.add(pod_object("late", asks={"rdma/hca": "1"}))
    reason, text = cluster.loop.step().pending[f"{SPACE}/late"]
    assert (reason, "at most 0 of rdma/hca free" in text) == ("InsufficientResource", True)


def test_what_the_pod_as_a_whole_asks_for_counts(cluster: Cluster) -> None:
    cluster.add(pod_object("p", resources={"requests": {"memory": "2Ti"}}))
    reason, text = cluster.loop.step().pending[f"{SPACE}/p"]
    assert (reason, "2048.0 GiB" in text) == ("LargerThanAnyNode", True)


def test_more_than_a_snapshot_can_hold_fits_nowhere(cluster: Cluster) -> None:
    cluster.add_nodes("n4", offers={"ephemeral-storage": "7Ei"})
    cluster.add(pod_object("p", asks={"ephemeral-storage": "1E"}))
    cluster.add(pod_object("q", asks={"ephemeral-storage": "1Ti"}))
    result = cluster.loop.step()
    assert result.released == {f"{SPACE}/q": "n4"}
    assert result.pending[f"{SPACE}/p"][0] == "LargerThanAnyNode"


def test_a_node_whose_gpus_are_replicas_takes_no_pins() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1", gpus=32, labels={"nvidia.com/gpu.replicas": "4"})
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "LargerThanAnyNode"


def job_pod(name: str, gpus: int = 8, job: str = "train") -> JsonObject:
    body = pod_object(name, gpus)
    body["metadata"]["ownerReferences"][0] |= {"kind": "Job", "name": job, "uid": f"job-{job}"}
    return body


def evictions(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """Pods that were evicted since, and their replacements made by the Job."""
    left = {pod["metadata"]["name"] for pod in cluster.api.list(PODS).items}
    return [name for name in names if name not in left]


def test_a_job_loses_at_most_one_pod_to_pins_that_nobody_could_keep(cluster: Cluster) -> None:
    cluster.add(job_pod("train-0"))
    cluster.add(job_pod("train-1"))
    assert len(cluster.loop.step().released) == 2
    cluster.refuse()
    cluster.clock.advance_seconds(30)
    cluster.loop.step()
    lost = evictions(cluster, ["train-0", "train-1"])
    assert len(lost) == 1
    stays = ({"train-0", "train-1"} - set(lost)).pop()
    assert any(name == stays and "delete it" in note for name, note in events(cluster))
    for attempt in range(3):
        cluster.add(job_pod(f"again-{attempt}"))
        assert cluster.loop.step().released == {f"{SPACE}/again-{attempt}": ""}
        cluster.clock.advance_seconds(3600)
    cluster.loop.step()
    assert evictions(cluster, [stays, "again-0", "again-1", "again-2"]) == []


def test_a_new_process_sees_that_a_job_lost_a_pod_before(cluster: Cluster) -> None:
    cluster.add(job_pod("train-0"))
    cluster.add(job_pod("train-1"))
    cluster.loop.step()
    cluster.refuse()
    cluster.clock.advance_seconds(30)
    cluster.loop.step()
    (lost,) = evictions(cluster, ["train-0", "train-1"])
    cluster.add(job_pod("again"))
    cluster.loop.step()
    stays = ({"train-0", "train-1"} - {lost}).pop()
    cluster.loop = cluster.new_loop()
    cluster.loop.step()
    cluster.clock.advance_seconds(60)
    cluster.loop.step()
    assert evictions(cluster, [stays, "again"]) == []


def test_a_bare_pod_is_never_evicted(cluster: Cluster) -> None:
    cluster.add(pod_object("p", owned=False))
    cluster.loop.step()
    cluster.refuse()
    cluster.clock.advance_seconds(60)
    cluster.loop.step()
    assert cluster.pod("p")["metadata"]["name"] == "p"
    assert cluster.loop.ledger.promises == {}


def test_a_pod_that_the_kubelet_refused_keeps_its_owner_off_that_node(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 8))
    node = cluster.loop.step().released[f"{SPACE}/p"]
    cluster.api.bind("p", SPACE, node)
    body = cluster.pod("p")
    body["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    cluster.api.replace(PODS, body, SPACE, subresource="status")
    cluster.loop.step()
    assert cluster.loop.ledger.excluded_nodes("owner-of-p") == (node,)


def test_a_pod_with_an_unreadable_request_spoils_no_other(cluster: Cluster) -> None:
    bad = pod_object("bad")
    bad["metadata"]["annotations"] = {"wattpack.io/expected-watts-per-gpu": "0.7kW"}
    bad["spec"]["schedulingGates"] = [{"name": GATE}]
    cluster.api.create(PODS, bad, SPACE)
    cluster.add(pod_object("good"))
    result = cluster.loop.step()
    assert list(result.released) == [f"{SPACE}/good"]
    assert "expected-watts-per-gpu" in str(result.pending)


def test_a_cluster_that_does_not_answer_changes_nothing(cluster: Cluster) -> None:
    class Dead:
        def list(self, *_: Any, **__: Any) -> Any:
            raise UnavailableError("down")

        def __getattr__(self, name: str) -> Any:
            return getattr(cluster.api, name)

    cluster.add(pod_object("p"))
    loop = cluster.new_loop(Dead())  # type: ignore[arg-type]
    assert loop.step().outcome == "failed"
    assert pod_facts.is_gated(cluster.pod("p"))


def test_cordoned_and_disrupted_nodes_get_no_promises() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1", unschedulable=True)
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    cluster.add_nodes("n2", taints=[taint])
    tolerant = [{"operator": "Exists"}]
    cluster.add(pod_object("p", tolerations=tolerant))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "NoReadyNode"


def taken_away(cluster: Cluster, node: str, *, at_once: bool) -> None:
    """An autoscaler deletes the node, or announces that it will."""
    if at_once:
        cluster.api.delete(NODES, node)
        return
    body = cluster.api.get(NODES, node)
    taints = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    cluster.api.replace(NODES, {**body, "spec": {**body["spec"], "taints": taints}})


@pytest.mark.parametrize("at_once", [True, False])
def test_a_pin_to_a_node_that_is_taken_away_is_given_up_and_the_next_pod_pinned(
    cluster: Cluster, at_once: bool
) -> None:
    cluster.add(pod_object("p", 8))
    (first,) = cluster.loop.step().released.values()
    taken_away(cluster, first, at_once=at_once)
    cluster.loop.step()
    with pytest.raises(NotFoundError):
        cluster.pod("p")
    assert any("taken away" in note for _, note in events(cluster))
    cluster.add(pod_object("p", 8))
    (second,) = cluster.loop.step().released.values()
    assert second not in ("", first)
    assert pod_facts.pinned_node(cluster.pod("p")) == second


@pytest.mark.parametrize("at_once", [True, False])
def test_a_place_kept_on_a_node_that_is_taken_away_is_planned_anew(
    cluster: Cluster, at_once: bool
) -> None:
    cluster.add_nodes("n3")
    cluster.add(gang_pod("g-0", 2))
    (first,) = cluster.loop.step().released.values()
    (kept,) = (place.node for place in cluster.loop.ledger.reservations.values())
    cluster.bind()
    taken_away(cluster, kept, at_once=at_once)
    cluster.add(gang_pod("g-1", 2))
    (second,) = cluster.loop.step().released.values()
    assert {first, kept, second} == {"n1", "n2", "n3"}


def test_a_place_kept_on_a_node_that_is_cordoned_is_planned_anew(cluster: Cluster) -> None:
    cluster.add_nodes("n3")
    cluster.add(gang_pod("g-0", 2))
    (first,) = cluster.loop.step().released.values()
    (kept,) = (place.node for place in cluster.loop.ledger.reservations.values())
    cluster.bind()
    cordon(cluster, kept)
    cluster.add(gang_pod("g-1", 2))
    (second,) = cluster.loop.step().released.values()
    assert {first, kept, second} == {"n1", "n2", "n3"}


def test_a_place_kept_for_a_patch_that_failed_is_void_once_its_node_is_cordoned(
    cluster: Cluster,
) -> None:
    cluster.add_nodes("n3")
    for i in range(2):
        cluster.add(gang_pod(f"g-{i}", 2))
    with_faults(cluster, None, InvalidError("no"))
    (first,) = cluster.loop.step().released.values()
    (kept,) = (place.node for place in cluster.loop.ledger.reservations.values())
    cluster.bind()
    cordon(cluster, kept)
    cluster.clock.advance_seconds(10)
    (second,) = cluster.loop.step().released.values()
    assert {first, kept, second} == {"n1", "n2", "n3"}


def cordon(cluster: Cluster, node: str) -> None:
    body = cluster.api.get(NODES, node)
    cluster.api.replace(NODES, {**body, "spec": {**body["spec"], "unschedulable": True}})


def pinned_by_its_owner(name: str, node: str) -> JsonObject:
    """As the pods of a DaemonSet are; it passes our webhook without a gate."""
    rule = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [rule]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return pod_object(name, 8, affinity={"nodeAffinity": required})


def test_a_pin_of_somebody_else_counts_until_its_node_was_found_too_small_for_a_while(
    cluster: Cluster,
) -> None:
    cluster.api.create(PODS, pinned_by_its_owner("theirs", "n1"), SPACE)
    cluster.add(pod_object("p0", 8))
    cluster.add(pod_object("p1", 8))
    ((first, node),) = cluster.loop.step().released.items()
    assert node == "n2"
    cluster.api.bind(first.removeprefix(f"{SPACE}/"), SPACE, node)
    body = cluster.pod("theirs")
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    said["lastTransitionTime"] = rfc3339(cluster.clock.wall_time_ns())
    body = {**body, "status": {"conditions": [said]}}
    cluster.api.replace(PODS, body, SPACE, subresource="status")
    assert cluster.loop.step().released == {}, "kube-scheduler may try again at any moment"
    cluster.clock.advance_seconds(40)
    assert list(cluster.loop.step().released.values()) == ["n1"]


def test_a_job_loses_one_pod_at_most_to_nodes_that_are_taken_away(cluster: Cluster) -> None:
    cluster.add(job_pod("train-0", 8))
    cluster.add(job_pod("train-1", 8))
    for node in cluster.loop.step().released.values():
        taken_away(cluster, node, at_once=True)
    for _ in range(3):
        cluster.loop.step()
        cluster.clock.advance_seconds(40)
    assert len(evictions(cluster, ["train-0", "train-1"])) == 1


def test_a_bare_pod_and_one_that_is_bound_stay_when_their_node_is_taken_away(
    cluster: Cluster,
) -> None:
    cluster.add(pod_object("bound", 8))
    nodes = [*cluster.loop.step().released.values()]
    cluster.bind()
    cluster.add(pod_object("bare", 8, owned=False))
    nodes += cluster.loop.step().released.values()
    assert len(nodes) == 2
    for node in nodes:
        taken_away(cluster, node, at_once=False)
    cluster.loop.step()
    assert evictions(cluster, ["bare", "bound"]) == []


def test_a_node_whose_status_cannot_be_read_takes_nothing() -> None:
    cluster = Cluster()
    body = node_object("n1")
    body["status"]["allocatable"]["memory"] = "lots"
    cluster.api.create(NODES, body)
    cluster.api.replace(NODES, {**cluster.api.get(NODES, "n1"), "status": body["status"]},
                        subresource="status")  # fmt: skip
    cluster.add(pod_object("p"))
    assert cluster.loop.step().released == {}
