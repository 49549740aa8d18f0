"""The planner against an embedded API: gated, planned, pinned, bound; and everything between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduler_plugin import pods as pod_facts
from scheduler_plugin.admission import Mode
from scheduler_plugin.app.plan_archive import PLANS
from scheduler_plugin.app.release import release_all, uninstall
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    domain_object,
    node_object,
    pod_object,
    profile_object,
)
from wattpack.api import PowerDomain
from wattpack.kube.port import (
    EVENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    InvalidError,
    JsonObject,
    NotFoundError,
    Resource,
    UnavailableError,
)
from wattpack.object_names import GATE, OPT_IN_LABEL, OPT_IN_VALUE


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_nodes("n1", "n2")
    return made


def events(cluster: Cluster) -> list[tuple[str, str]]:
    return [(e["regarding"]["name"], e["note"]) for e in cluster.api.list(EVENTS).items]


def plans(cluster: Cluster) -> list[JsonObject]:
    return list(cluster.api.list(PLANS).items)


def test_a_managed_pod_is_gated_planned_pinned_and_bound(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 2))
    assert pod_facts.gates(cluster.pod("p")) == [GATE]
    result = cluster.loop.step()
    assert list(result.released) == [f"{SPACE}/p"]
    assert pod_facts.gates(cluster.pod("p")) == []
    assert pod_facts.pinned_node(cluster.pod("p")) == result.released[f"{SPACE}/p"]
    cluster.bind()
    assert pod_facts.node_name(cluster.pod("p")) == result.released[f"{SPACE}/p"]
    assert cluster.loop.step().outcome == "idle"
    assert cluster.loop.ledger.promises == {}


def test_promises_are_written_before_the_first_pod_is_released() -> None:
    cluster = Cluster()
    written: list[str] = []

    class Recording:
        def __getattr__(self, name: str) -> Any:
            return getattr(cluster.api, name)

        def create(self, resource: Resource, *rest: Any) -> JsonObject:
            written.append(resource.plural)
            return cluster.api.create(resource, *rest)

        def patch_json(self, resource: Resource, *rest: Any, **options: Any) -> JsonObject:
            written.append(resource.plural)
            return cluster.api.patch_json(resource, *rest, **options)

    cluster.loop = cluster.new_loop(Recording())  # type: ignore[arg-type]
    cluster.add_nodes("n1")
    cluster.add(pod_object("p"))
    cluster.loop.step()
    assert written == ["placementplans", "pods"]
    spec = plans(cluster)[0]["spec"]
    assert [(p["name"], p["node"]) for p in spec["promises"]] == [("p", "n1")]
    assert plans(cluster)[0]["status"]["state"] == "Applied"


def test_nothing_is_promised_twice_before_pods_are_bound(cluster: Cluster) -> None:
    for i in range(4):
        cluster.add(pod_object(f"a{i}", 4))
    assert len(cluster.loop.step().released) == 4
    cluster.add(pod_object("late", 1))
    result = cluster.loop.step()
    assert result.released == {}
    assert result.pending[f"{SPACE}/late"][0] == "InsufficientGpus"


def test_a_pod_left_pending_gets_its_reason_as_event_and_in_the_plan(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 16))
    cluster.loop.step()
    assert events(cluster)[0][1].startswith("LargerThanAnyNode: no eligible node has 16 GPUs")
    assert plans(cluster)[0]["spec"]["pending"][0]["reason"] == "LargerThanAnyNode"


def test_an_unchanged_question_is_not_asked_again(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 16))
    assert cluster.loop.step().outcome == "planned"
    again = cluster.loop.step()
    assert again.outcome == "unchanged"
    assert f"{SPACE}/p" in again.pending
    assert len(events(cluster)) == len(plans(cluster)) == 1
    cluster.add(pod_object("q", 1))
    assert cluster.loop.step().outcome == "planned"


def test_a_bare_pod_only_prefers_its_node(cluster: Cluster) -> None:
    cluster.add(pod_object("p", owned=False))
    cluster.loop.step()
    affinity = cluster.pod("p")["spec"]["affinity"]["nodeAffinity"]
    assert list(affinity) == ["preferredDuringSchedulingIgnoredDuringExecution"]


def test_every_required_term_is_pinned(cluster: Cluster) -> None:
    terms = [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [n]}]}
        for n in ("n2", "n3")
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    cluster.add(pod_object("p", affinity={"nodeAffinity": required}))
    cluster.loop.step()
    pinned = cluster.pod("p")["spec"]["affinity"]["nodeAffinity"]
    pinned_terms = pinned["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [t["matchFields"][0]["values"] for t in pinned_terms] == [["n2"], ["n2"]]


def test_shadow_mode_reports_and_touches_no_pod() -> None:
    cluster = Cluster(Mode.SHADOW)
    cluster.add_nodes("n1")
    metadata = {"name": SPACE, "labels": {OPT_IN_LABEL: OPT_IN_VALUE}}
    cluster.add(pod_object("p", 16))
    assert cluster.loop.step().outcome == "idle"
    cluster.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    cluster.add(pod_object("q", 1))
    before = [cluster.pod("p"), cluster.pod("q")]
    result = cluster.loop.step()
    assert result.released == {}
    assert [cluster.pod("p"), cluster.pod("q")] == before
    assert plans(cluster)[0]["spec"].get("promises", []) == []
    assert plans(cluster)[0]["spec"]["pending"][0]["name"] == "p"


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.SHADOW])
def test_leaving_manage_releases_what_was_held(mode: Mode) -> None:
    cluster = Cluster()
    cluster.add(pod_object("p"))
    assert pod_facts.is_gated(cluster.pod("p"))
    cluster.settings = PlacementSettings(mode=mode)
    cluster.loop = cluster.new_loop()
    cluster.loop.step()
    assert not pod_facts.is_gated(cluster.pod("p"))


def test_mode_off_does_nothing() -> None:
    cluster = Cluster(Mode.OFF)
    cluster.add(pod_object("p"))
    assert cluster.loop.step().outcome == "idle"


# Power


def powered(rating_watts: float, **spec: Any) -> Cluster:
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add(profile_object())
    cluster.add_accepted(domain_object("row", rating_watts, ["n1"], **spec))
    return cluster


#: A host that could draw so much that the forecast is the smaller bound.
THIRSTY = {"worstWatts": 9_500.0, "idleWatts": 300.0}


def test_a_domain_admits_what_its_band_minus_its_forecast_pays_for() -> None:
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, forecastP99Watts=8_000)
    for i in range(5):
        cluster.add(pod_object(f"p{i}", annotations={"wattpack.io/kernel-class": "decode"}))
    result = cluster.loop.step()
    # (370 - 70) W / 0.94 = 320 W a GPU; 9,000 - 8,010 (rounded up to 1/200) = 990 W: three fit.
    assert len(result.released) == 3
    reasons = {reason for reason, _ in result.pending.values()}
    assert reasons == {"PowerDomainFull"}
    assert {text for _, text in result.pending.values()} == {"row needs 320 W, 30 W left"}


def test_pods_bound_after_the_forecasts_data_count_beside_it() -> None:
    """Otherwise the same headroom would be given away in every cycle until the next forecast."""
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, forecastP99Watts=8_000)
    decode = {"wattpack.io/kernel-class": "decode"}
    for i in range(3):
        cluster.add(pod_object(f"p{i}", annotations=decode))
    assert len(cluster.loop.step().released) == 3
    cluster.bind()
    cluster.loop.step()
    cluster.add(pod_object("late", annotations=decode))
    assert cluster.loop.step().pending[f"{SPACE}/late"][0] == "PowerDomainFull"
    cluster.clock.advance_seconds(601)
    assert list(cluster.loop.step().released) == [f"{SPACE}/late"]


def test_a_full_past_does_not_keep_an_empty_domain_empty() -> None:
    cluster = powered(10_000)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, forecastP99Watts=9_000)
    cluster.add(pod_object("p"))
    assert len(cluster.loop.step().released) == 1


def test_the_measured_draw_carries_the_forecasts_rise_once_pods_have_ramped_up() -> None:
    """Draw 5,000 W + rise 3,000 W + pods of the last two minutes, under 9,000 W."""
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.add_forecast(8_990.0, now=5_990.0)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, drawWatts=5_000.0)
    for i in range(4):
        cluster.add(pod_object(f"p{i}", annotations={"wattpack.io/kernel-class": "decode"}))
    assert len(cluster.loop.step().released) == 3
    cluster.bind()
    assert cluster.loop.step().released == {}
    cluster.clock.advance_seconds(121)
    assert len(cluster.loop.step().released) == 1


def test_work_that_calls_itself_idle_counts_at_the_boards_worst() -> None:
    cluster = powered(10_000)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, drawWatts=8_500.0)
    cluster.add(pod_object("p", annotations={"wattpack.io/kernel-class": "idle"}))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "PowerDomainFull"


def test_what_is_measured_now_is_never_undercut() -> None:
    cluster = powered(10_000)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000, drawWatts=8_900.0)
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "PowerDomainFull"


def test_a_forecast_object_of_the_domain_counts() -> None:
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.add_forecast(8_990.0)
    cluster.set_status(PowerDomain, "row", capBandWatts=9_000)
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "PowerDomainFull"


@pytest.mark.parametrize(
    "change",
    [
        {"conditions": [{"type": "Ready", "status": "False", "reason": "HistoryUnavailable"}]},
        {"p50": -1.0},
        {"p50": 0.0},
        {"validUntil": "1969-12-31T00:00:00Z"},
        {"issuedAt": "2070-01-21T00:00:00Z"},
        {"namespace": SPACE},
    ],
)
def test_a_forecast_that_cannot_be_trusted_makes_no_room(change: dict[str, Any]) -> None:
    """Eight idle boards and a host at 1,000 W would be all that is left if it were believed."""
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.add_forecast(10.0, **change)
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "PowerDomainFull"


def test_a_forecast_of_nothing_that_can_be_trusted_would_make_that_room() -> None:
    """The counterpart of the test above: it is the distrust that keeps the pod waiting there."""
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.add_forecast(10.0)
    cluster.add(pod_object("p"))
    assert len(cluster.loop.step().released) == 1


def test_the_planner_follows_the_controllers_verdict_on_a_forecast() -> None:
    cluster = powered(10_000, nonGpuPerNode=THIRSTY)
    cluster.add_forecast(10.0)
    verdict = {"type": "ForecastTrusted", "status": "False", "reason": "Contradicted"}
    cluster.set_status(PowerDomain, "row", forecastP99Watts=9_500.0, conditions=[verdict])
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "PowerDomainFull"


def test_without_a_forecast_static_figures_are_used() -> None:
    """Eight idle boards and the host at worst leave room for one GPU of unknown work, not two."""
    host = {"worstWatts": 1_000.0, "idleWatts": 300.0}
    cluster = powered(3_000, nonGpuPerNode=host)
    for i in range(2):
        cluster.add(pod_object(f"p{i}"))
    assert len(cluster.loop.step().released) == 1


def test_nothing_is_placed_where_the_controller_reports_that_guaranteed_caps_do_not_fit() -> None:
    cluster = powered(10_000)
    condition = {"type": "Degraded", "status": "True", "reason": "I1"}
    cluster.set_status(PowerDomain, "row", conditions=[condition])
    cluster.add(pod_object("p"))
    assert cluster.loop.step().pending[f"{SPACE}/p"][0] == "GuaranteedCapsInfeasible"


def test_a_node_of_unknown_gpu_type_below_a_breaker_gets_no_promises() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1", labels={"nvidia.com/gpu.product": "NVIDIA-X900"})
    cluster.add_accepted(domain_object("row", 10_000, ["n1"]))
    cluster.add(pod_object("p"))
    reason, text = cluster.loop.step().pending[f"{SPACE}/p"]
    assert reason == "GpuPowerUnknown"
    assert "NVIDIA-X900" in text


def test_a_shipped_gpu_type_needs_no_object_and_a_nonsense_object_stops_nothing() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    nonsense = profile_object()
    nonsense["spec"]["maxLimitWatts"] = 700_000
    cluster.add(nonsense)
    cluster.add_accepted(domain_object("row", 10_000, ["n1"]))
    cluster.set_status(PowerDomain, "row", capBandWatts=1_500.0)
    cluster.add(pod_object("a"))
    cluster.add(pod_object("b"))
    # Eight idle boards draw 76 W / 0.94 each; one more at the shipped worst of 735 W fits.
    assert len(cluster.loop.step().released) == 1


def test_a_field_of_a_newer_version_stops_no_planning() -> None:
    """Charts upgrade CRDs first: their defaults appear in objects that older processes read."""
    cluster = powered(10_000)
    plain = cluster.api

    class Newer:
        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def list(self, resource: Resource, *rest: Any, **options: Any) -> Any:
            found = plain.list(resource, *rest, **options)
            if resource.group == "wattpack.io":
                for item in found.items:
                    item["spec"]["newerField"] = {"with": "a default"}
            return found

    cluster.loop = cluster.new_loop(Newer())  # type: ignore[arg-type]
    cluster.add(pod_object("p"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]


def test_a_profile_that_cannot_be_read_stops_no_planning() -> None:
    """The shipped library speaks for its type."""
    cluster = powered(10_000)
    cluster.add_nodes("free")
    plain = cluster.api

    class Newer:
        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def list(self, resource: Resource, *rest: Any, **options: Any) -> Any:
            found = plain.list(resource, *rest, **options)
            for item in found.items if resource.kind == "GPUProfile" else ():
                item["spec"]["kernelClasses"][0]["provenance"] = "of a newer version"
            return found

    cluster.loop = cluster.new_loop(Newer())  # type: ignore[arg-type]
    cluster.add(pod_object("p", 8))
    cluster.add(pod_object("q", 8))
    assert len(cluster.loop.step().released) == 2


# Gangs


def gang_pod(name: str, size: int, gpus: int = 8, **changes: Any) -> JsonObject:
    return pod_object(
        name,
        gpus,
        labels={"wattpack.io/gang": "g"},
        annotations={"wattpack.io/gang-size": str(size)},
        **changes,
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
    assert (len(parts), sum(parts)) == (3, 2_100)
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


# Trouble


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


def test_a_node_whose_status_cannot_be_read_takes_nothing() -> None:
    cluster = Cluster()
    body = node_object("n1")
    body["status"]["allocatable"]["memory"] = "lots"
    cluster.api.create(NODES, body)
    cluster.api.replace(NODES, {**cluster.api.get(NODES, "n1"), "status": body["status"]},
                        subresource="status")  # fmt: skip
    cluster.add(pod_object("p"))
    assert cluster.loop.step().released == {}


# Leaving


def test_release_all_leaves_no_gated_pod_and_serves_plain_pods_before_gangs(
    cluster: Cluster,
) -> None:
    cluster.add(gang_pod("a-member", 2))
    cluster.add(gang_pod("b-member", 2))
    cluster.add(pod_object("z-plain"))
    order: list[str] = []

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(cluster.api, name)

        def patch_json(
            self, resource: Resource, name: str, *rest: Any, **options: Any
        ) -> JsonObject:
            order.append(name)
            return cluster.api.patch_json(resource, name, *rest, **options)

    outcome = release_all(Watching())  # type: ignore[arg-type]
    assert (outcome.released, outcome.left) == (3, 0)
    assert order == ["z-plain", "a-member", "b-member"]
    assert not any(pod_facts.is_gated(pod) for pod in cluster.api.list(PODS).items)


def test_uninstall_removes_the_webhook_first(cluster: Cluster) -> None:
    name = "wattpack-placement"
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [],
    }
    cluster.api.create(MUTATING_WEBHOOKS, body)
    cluster.add(pod_object("p"))
    assert uninstall(cluster.api, name).left == 0
    with pytest.raises(NotFoundError):
        cluster.api.get(MUTATING_WEBHOOKS, name)
    assert uninstall(cluster.api, name).released == 0


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
