"""Promises, gangs as one transaction, and the ends of waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from scheduler_plugin.app.plan_archive import PLANS, PROMISES_PER_PART
from scheduler_plugin.app.release import release_all
from scheduler_plugin.kube_objects import pods as pod_facts
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.kube.port import (
    EVENTS,
    PODS,
    PRIORITY_CLASSES,
    ForbiddenError,
    InvalidError,
    JsonObject,
    Resource,
    UnavailableError,
)
from wattpack.object_names import GATE


class Patches:
    """The embedded API; ``judge`` sees each pod patch first and may raise or do something."""

    def __init__(self, cluster: Cluster, judge: Callable[[str, bool], object]) -> None:
        self._api, self._judge = cluster.api, judge
        self.seen: list[tuple[str, bool]] = []

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
        if resource == PODS:
            self.seen.append((name, dry_run))
            self._judge(name, dry_run)
        return self._api.patch_json(resource, name, operations, *rest, dry_run=dry_run)


def judged_by(cluster: Cluster, judge: Callable[[str, bool], object]) -> Patches:
    api = Patches(cluster, judge)
    cluster.loop = cluster.new_loop(api)  # type: ignore[arg-type]
    return api


def refuse(*names: str, only_real: bool = False) -> Callable[[str, bool], None]:
    def judge(name: str, dry_run: bool) -> None:
        if name in names and not (only_real and dry_run):
            raise InvalidError(f"{name}: refused by a policy")

    return judge


def gang_pod(name: str, size: object, gpus: int = 8, **changes: Any) -> JsonObject:
    return pod_object(
        name,
        gpus,
        labels={"wattpack.io/gang": "g"},
        annotations={"wattpack.io/gang-size": str(size)},
        **changes,
    )


def gated(cluster: Cluster) -> list[str]:
    pods = cluster.api.list(PODS).items
    return sorted(pod["metadata"]["name"] for pod in pods if pod_facts.is_gated(pod))


def events(cluster: Cluster, reason: str) -> list[tuple[str, str]]:
    found = cluster.api.list(EVENTS).items
    return [(e["regarding"]["name"], e["note"]) for e in found if e["reason"] == reason]


def steps(cluster: Cluster, seconds: float, every: float = 1.0) -> None:
    for _ in range(round(seconds / every)):
        cluster.clock.advance_seconds(every)
        cluster.loop.step()


# Promises


def test_an_unanswered_patch_keeps_its_place_however_late_it_is_made() -> None:
    """It lands 20 s later; nobody else may have got its 8 GPUs by then."""
    cluster = Cluster()
    cluster.add_nodes("n1")

    def lose(name: str, dry_run: bool) -> None:
        if name == "p":
            raise UnavailableError("no answer")

    judged_by(cluster, lose)
    cluster.add(pod_object("p", 8))
    late = pod_facts.release_patch(cluster.pod("p"), "n1")
    cluster.loop.step()
    urgent = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "value": 1000}
    cluster.api.create(PRIORITY_CLASSES, urgent | {"metadata": {"name": "urgent"}})
    cluster.add(pod_object("q", 8, priorityClassName="urgent"))
    steps(cluster, 20)
    assert gated(cluster) == ["p", "q"]
    cluster.api.patch_json(PODS, "p", late, SPACE)
    steps(cluster, 20)
    assert gated(cluster) == ["q"]


def test_an_unanswered_patch_is_sent_again_until_the_pod_tells(cluster: Cluster) -> None:
    answers: Iterator[object] = iter([UnavailableError("a"), UnavailableError("b")])
    sent_at: list[int] = []

    def judge(name: str, dry_run: bool) -> None:
        sent_at.append(cluster.clock.monotonic_ns() // 10**9)
        if (error := next(answers, None)) is not None:
            raise error  # type: ignore[misc]

    cluster.add(pod_object("p"))
    judged_by(cluster, judge)
    cluster.loop.step()
    steps(cluster, 6)
    assert gated(cluster) == []
    assert sent_at == [0, 2, 4]


def test_a_released_pod_keeps_its_place_while_the_view_lags_behind() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add(pod_object("p", 8))
    seen = cluster.pod("p")
    cluster.loop.step()
    cluster.add(pod_object("q", 8))
    cluster.loop.reader.pods = lambda: (seen, cluster.pod("q"))  # type: ignore[method-assign]
    steps(cluster, 25)
    assert gated(cluster) == ["q"]


@pytest.mark.parametrize("error", [InvalidError("no"), ForbiddenError("no")])
def test_one_failed_patch_in_a_quiet_cluster_is_tried_again(
    cluster: Cluster, error: Exception
) -> None:
    errors = [error]

    def judge(name: str, dry_run: bool) -> None:
        if errors:
            raise errors.pop()

    cluster.add(pod_object("p"))
    judged_by(cluster, judge)
    assert cluster.loop.step().again_ns == 2_000_000_000
    steps(cluster, 3)
    assert gated(cluster) == []


def test_what_the_api_refuses_leaves_its_place_to_others_and_is_tried_ever_more_rarely() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    cluster.add(pod_object("a", 8))
    cluster.add(pod_object("b", 8))
    api = judged_by(cluster, refuse("a", "b"))
    cluster.loop.step()
    steps(cluster, 120)
    assert {name for name, _ in api.seen} == {"a", "b"}
    assert len(api.seen) < 20
    assert ("a", "ReleaseRefused: a: refused by a policy") in events(cluster, "PodPending")


def test_a_pin_is_timed_from_its_own_patch_and_not_from_the_plan(cluster: Cluster) -> None:
    """Sixteen patches of 4 s: the last pods have just been released when the first are late."""
    for i in range(16):
        cluster.add(pod_object(f"p{i:02}", 1))
    judged_by(cluster, lambda name, dry_run: cluster.clock.advance_seconds(4))
    cluster.loop.step()
    while gated(cluster):
        cluster.loop.step()
        cluster.bind()
    cluster.loop.step()
    assert events(cluster, "PinRefused") == []


# Gangs


def test_a_member_that_admission_refuses_holds_its_siblings(cluster: Cluster) -> None:
    for name in ("g0", "g1"):
        cluster.add(gang_pod(name, 2))
    api = judged_by(cluster, refuse("g1"))
    cluster.loop.step()
    assert gated(cluster) == ["g0", "g1"]
    assert all(dry_run for _, dry_run in api.seen)
    assert cluster.loop.ledger.promises == {}
    steps(cluster, 1)
    assert "team/g1: g1: refused by a policy" in dict(events(cluster, "PodPending"))["g0"]


def test_a_gang_whose_first_real_patch_fails_goes_not_at_all(cluster: Cluster) -> None:
    for name in ("g0", "g1"):
        cluster.add(gang_pod(name, 2))
    judged_by(cluster, refuse("g0", "g1", only_real=True))
    cluster.loop.step()
    assert gated(cluster) == ["g0", "g1"]
    assert (cluster.loop.ledger.promises, cluster.loop.ledger.reservations) == ({}, {})


def test_a_member_refused_after_its_sibling_went_keeps_its_place(cluster: Cluster) -> None:
    for name in ("g0", "g1"):
        cluster.add(gang_pod(name, 2))
    refused = ["g0", "g1"]
    went: list[str] = []

    def judge(name: str, dry_run: bool) -> None:
        if not dry_run and went and refused:
            raise InvalidError("refused")
        if not dry_run:
            went.append(name)

    judged_by(cluster, judge)
    cluster.loop.step()
    cluster.add(pod_object("greedy", 8))
    steps(cluster, 5)
    assert len(gated(cluster)) == 2
    refused.clear()
    steps(cluster, 10)
    assert gated(cluster) == ["greedy"]


def test_a_webhook_with_side_effects_does_not_hold_gangs_for_ever(cluster: Cluster) -> None:
    def judge(name: str, dry_run: bool) -> None:
        if dry_run:
            raise InvalidError('admission webhook "x" does not support dry run')

    for name in ("g0", "g1"):
        cluster.add(gang_pod(name, 2))
    judged_by(cluster, judge)
    cluster.loop.step()
    assert gated(cluster) == []


def test_places_of_missing_members_outlive_old_plans_and_restarts() -> None:
    cluster = Cluster(kept_plans=1)
    cluster.add_nodes("n1", "n2", "n3")
    cluster.add(gang_pod("leader", 2))
    cluster.loop.step()
    for i in range(5):
        cluster.add(pod_object(f"p{i}", 1))
        cluster.loop.step()
    assert len(cluster.api.list(PLANS).items) == 1
    cluster.loop = cluster.new_loop()
    cluster.add(pod_object("greedy", 8))
    assert cluster.loop.step().released == {}
    cluster.add(gang_pod("worker", 2))
    assert f"{SPACE}/worker" in cluster.loop.step().released


def test_a_restart_does_not_make_kept_places_last_longer(cluster: Cluster) -> None:
    cluster.add(gang_pod("leader", 2))
    cluster.loop.step()
    for _ in range(4):
        steps(cluster, 70, every=35)
        cluster.loop = cluster.new_loop()
        cluster.loop.step()
    assert cluster.loop.ledger.reservations != {}
    steps(cluster, 21, every=21)
    assert cluster.loop.ledger.reservations == {}


def test_a_gang_that_does_not_complete_is_told_how_it_ended(cluster: Cluster) -> None:
    cluster.add(gang_pod("leader", 2))
    cluster.loop.step()
    cluster.bind()
    steps(cluster, 305, every=5)
    [(name, note)] = events(cluster, "GangTimedOut")
    assert name == "leader"
    assert note.startswith(f"1 members of {SPACE}/gang/g did not take their places in time")
    cluster.add(pod_object("p", 8))
    assert list(cluster.loop.step().released) == [f"{SPACE}/p"]


def test_who_waits_for_the_places_of_an_incomplete_gang_gets_them_at_its_end() -> None:
    """The planner of that very cycle kept the places anew, for ever, for members nobody made."""
    cluster = Cluster()
    cluster.add_nodes("n1", "n2", "n3", "n4")
    cluster.add(gang_pod("leader", 4))
    cluster.loop.step()
    cluster.bind()
    cluster.add(pod_object("patient", 8))
    steps(cluster, 200, every=5)
    assert pod_facts.is_gated(cluster.pod("patient"))
    steps(cluster, 105, every=5)
    assert len(events(cluster, "GangTimedOut")) == 1
    assert not pod_facts.is_gated(cluster.pod("patient"))


def test_no_member_goes_while_a_sibling_waits_at_somebody_elses_gate(cluster: Cluster) -> None:
    cluster.add(gang_pod("g0", 2))
    cluster.add(gang_pod("g1", 2, schedulingGates=[{"name": "quota.example/wait"}]))
    cluster.add(pod_object("other"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/other"]
    assert (
        "g1 of the same gang waits at the gate quota.example/wait"
        in dict(events(cluster, "PodPending"))["g0"]
    )
    position = pod_facts.gates(cluster.pod("g1")).index("quota.example/wait")
    removal = [{"op": "remove", "path": f"/spec/schedulingGates/{position}"}]
    cluster.api.patch_json(PODS, "g1", removal, SPACE)
    cluster.api.delete(PODS, "other", SPACE, grace_period_seconds=0)
    assert len(cluster.loop.step().released) == 2


def test_a_gang_of_more_members_than_one_plan_object_holds_is_released() -> None:
    size = 2 * PROMISES_PER_PART + 100
    cluster = Cluster(deadline_seconds=0.0)
    cluster.add_nodes(*(f"n{i}" for i in range(size // 100 + 1)), gpus=100)
    for i in range(size):
        body = gang_pod(f"g{i:04}", size, 1)
        body["spec"]["containers"][0]["resources"]["limits"] |= {"cpu": "1m", "memory": "1Mi"}
        cluster.add(body)
    assert len(cluster.loop.step().released) == size
    parts = [plan["spec"]["part"] for plan in cluster.api.list(PLANS).items]
    assert sorted(parts) == [0, 1, 2]


def test_a_plan_that_lacks_a_part_was_never_carried_out(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 8))
    spec = {
        "snapshotDigest": "sha256:0",
        "promises": [
            {
                "podUid": pod_facts.uid(cluster.pod("p")),
                "namespace": SPACE,
                "name": "p",
                "node": "n9",
            }
        ],
        "parts": 2,
    }
    plan = {"apiVersion": "wattpack.io/v1alpha1", "kind": "PlacementPlan", "spec": spec}
    name = "plan-00000009-0000000000000001-abcdef"
    cluster.api.create(PLANS, plan | {"metadata": {"name": name}})
    cluster.loop.step()
    assert pod_facts.pinned_node(cluster.pod("p")) in {"n1", "n2"}


def test_large_gangs_are_rehearsed_over_several_cycles_when_the_api_is_slow() -> None:
    cluster = Cluster()
    cluster.add_nodes("n1")
    for i in range(8):
        cluster.add(gang_pod(f"g{i}", 8, 1))
    judged_by(cluster, lambda name, dry_run: cluster.clock.advance_seconds(2))
    cluster.loop.step()
    assert len(gated(cluster)) == 8
    for _ in range(3):
        cluster.loop.step()
    assert gated(cluster) == []


def test_one_gang_after_the_other_is_rehearsed_so_that_a_short_term_releases_some() -> None:
    """Eight gangs of four, three dry runs a cycle: eleven cycles to try all, two to try one."""
    cluster = Cluster()
    cluster.add_nodes("n1", "n2", "n3", "n4")
    for i in range(32):
        cluster.add(
            pod_object(
                f"g{i // 4}-{i % 4}",
                labels={"wattpack.io/gang": f"g{i // 4}"},
                annotations={"wattpack.io/gang-size": "4"},
            )
        )
    judged_by(cluster, lambda name, dry_run: cluster.clock.advance_seconds(2))
    for _ in range(3):
        cluster.loop.step()
    assert 0 < len(gated(cluster)) < 32


# The ends of waiting


def test_what_no_present_node_can_serve_is_let_go_after_a_minute(cluster: Cluster) -> None:
    cluster.add(pod_object("p", 16))
    cluster.add(pod_object("q", annotations={"wattpack.io/gpu-models": "B300"}))
    cluster.add(pod_object("fits", 8))
    cluster.loop.step()
    steps(cluster, 55, every=5)
    assert gated(cluster) == ["p", "q"]
    steps(cluster, 10, every=5)
    assert gated(cluster) == []
    assert pod_facts.pinned_node(cluster.pod("p")) == ""
    told = dict(events(cluster, "PlacementReleased"))
    assert told["p"].startswith("LargerThanAnyNode: no eligible node has 16 GPUs in total")
    assert told["p"].endswith("released without a node, so that autoscalers see it")


@pytest.mark.parametrize("kind", ["cpu", "nic"])
def test_a_class_of_cpu_or_nic_that_no_node_has_is_let_go_like_a_gpu_model(
    cluster: Cluster, kind: str
) -> None:
    cluster.add(pod_object("p", annotations={f"wattpack.io/{kind}-classes": "none-of-these"}))
    cluster.loop.step()
    assert gated(cluster) == ["p"]
    steps(cluster, 65, every=5)
    assert gated(cluster) == []
    ((_, note),) = events(cluster, "PlacementReleased")
    assert note.startswith(f"No{kind.title()}Class: ")


def test_a_pod_that_waits_for_room_or_power_stays_at_the_gate(cluster: Cluster) -> None:
    for i in range(3):
        cluster.add(pod_object(f"p{i}", 8))
    cluster.loop.step()
    cluster.bind()
    steps(cluster, 120, every=5)
    assert len(gated(cluster)) == 1


def test_a_gang_that_the_empty_cluster_could_not_hold_is_let_go_whole(cluster: Cluster) -> None:
    for i in range(3):
        cluster.add(gang_pod(f"g{i}", 3))
    cluster.loop.step()
    steps(cluster, 65, every=5)
    assert gated(cluster) == []
    assert {name for name, _ in events(cluster, "PlacementReleased")} == {"g0", "g1", "g2"}


def test_the_patience_is_a_setting() -> None:
    cluster = Cluster(unservable_seconds=5.0)
    cluster.add(pod_object("p"))
    cluster.loop.step()
    steps(cluster, 6)
    assert gated(cluster) == []


HOSTILE_SIZES = ["many", "0", "-1", "", "9" * 5000, "²", "1e3"]


@pytest.mark.parametrize("size", HOSTILE_SIZES, ids=lambda size: size[:6])
def test_an_unreadable_gang_size_gates_nobody_for_ever(cluster: Cluster, size: str) -> None:
    body = gang_pod("odd", size)
    body["spec"]["schedulingGates"] = [{"name": GATE}]
    cluster.api.create(PODS, body, SPACE)
    cluster.add(pod_object("other"))
    assert list(cluster.loop.step().released) == [f"{SPACE}/other"]
    steps(cluster, 65, every=5)
    assert gated(cluster) == []


@pytest.mark.parametrize("size", HOSTILE_SIZES, ids=lambda size: size[:6])
def test_the_watchdogs_release_survives_whatever_was_admitted(cluster: Cluster, size: str) -> None:
    body = gang_pod("odd", size, gpus=1)
    limits = body["spec"]["containers"][0]["resources"]["limits"]
    limits |= {"nvidia.com/gpu": "1k", "cpu": "9" * 5000}
    body["spec"]["schedulingGates"] = [{"name": "a.io/b"}, {"name": GATE}]
    cluster.api.create(PODS, body, SPACE)
    cluster.add(pod_object("z"))
    outcome = release_all(cluster.api)
    assert (outcome.released, outcome.left) == (2, 0)
    assert pod_facts.gates(cluster.pod("odd")) == ["a.io/b"]


def test_a_pin_whose_eviction_fails_for_a_moment_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    cluster.add_nodes("a")
    cluster.add(pod_object("p", 8))
    cluster.loop.step()
    cluster.refuse()
    evict, asked = cluster.api.evict, []

    def once(name: str, namespace: str, *, uid: str = "") -> None:
        asked.append(name)
        if len(asked) == 1:
            raise UnavailableError("no answer")
        evict(name, namespace, uid=uid)

    monkeypatch.setattr(cluster.api, "evict", once)
    cluster.clock.advance_seconds(31)
    cluster.loop.step()
    cluster.loop.step()
    assert asked == ["p"]
    cluster.clock.advance_seconds(11)
    cluster.loop.step()
    assert asked == ["p", "p"]
    assert cluster.api.list(PODS).items == ()
