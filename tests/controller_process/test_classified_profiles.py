"""A pod without a WorkloadProfile gets one; people's objects stay as they are."""

from __future__ import annotations

from typing import Any

import pytest

from capacity.catalogue.pod_works import PodWorks
from capacity.profile_library import shipped_library
from controller.app import classified_profiles
from controller.app.classified_profiles import profile_name
from controller.app.controller_process import ControllerProcess, Surroundings
from controller.app.controller_settings import ControllerSettings
from controller.app.desired_state import ObjectStore
from controller.app.planning_verdicts import PlanningVerdicts
from controller.app.tick_loop import NoMeters
from controller.work_verdicts import Classified, OwnerVerdicts
from simulation.kube import EmbeddedKube
from tests.controller_process.classified_bench import (
    DECODE,
    LABEL,
    PREFILL,
    PROFILES,
    REPLICA_SETS,
    Bench,
)
from wattpack.api import WorkloadProfile
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.port import PODS, ForbiddenError, JsonObject, NotFoundError
from wattpack.object_names import CLASSIFIED_LABEL
from wattpack.pod_owner import PodOwner
from wattpack.wire.certificates import new_authority, new_server


def with_a_profile() -> Bench:
    bench = Bench()
    owner = bench.replica_set()
    for name in ("chat-1", "chat-2"):
        bench.pod(name, owner)
    bench.run(600, {"chat-1": DECODE, "chat-2": DECODE})
    return bench


def test_pods_of_one_owner_get_one_profile_that_says_what_it_is() -> None:
    bench = with_a_profile()
    ((name, body),) = bench.profiles().items()
    assert name == "replicaset-chat-6f7d"
    assert body["metadata"]["labels"] == {CLASSIFIED_LABEL: "bandwidth"}
    assert body["spec"]["workload"] == "decoder-decode"
    assert body["spec"]["kind"] == "Serving"
    assert body["spec"]["confidence"] == 0.9
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("ReplicaSet", "chat-6f7d")
    assert not owner.get("controller")
    assert not owner.get("blockOwnerDeletion")
    assert WorkloadProfile.from_json(body).spec.confidence == 0.9


def test_it_is_written_once_and_goes_with_its_owner() -> None:
    bench = with_a_profile()
    before = bench.profiles()["replicaset-chat-6f7d"]["metadata"]["resourceVersion"]
    bench.run(3000)
    assert bench.profiles()["replicaset-chat-6f7d"]["metadata"]["resourceVersion"] == before
    assert bench.writer.outcomes["written"] == 1
    bench.kube.delete(REPLICA_SETS, "chat-6f7d", "team")
    assert bench.profiles() == {}


def test_the_next_pod_of_the_owner_is_known_before_it_runs() -> None:
    bench = with_a_profile()
    owner = bench.kube.get(REPLICA_SETS, "chat-6f7d", "team")
    work = bench.desired.works().of_pod(bench.pod("chat-3", owner))
    assert work is not None
    assert work.entry is not None
    assert (work.entry.name, work.confidence) == ("decoder-decode", 0.9)


def test_what_is_no_longer_seen_speaks_for_no_pod_and_says_so() -> None:
    bench = with_a_profile()
    bench.run(140, {"chat-1": PREFILL, "chat-2": PREFILL})
    ((_, body),) = bench.profiles().items()
    assert body["spec"]["confidence"] == 0
    owner = bench.kube.get(REPLICA_SETS, "chat-6f7d", "team")
    assert bench.desired.works().of_pod(bench.pod("chat-3", owner)) is None
    objects, works = bench.desired.newest().planning, bench.desired.works()
    (told,) = PlanningVerdicts().statuses(objects, works, bench.clock.wall_time_ns())
    said = {c.type: c.reason for c in told.status.conditions}  # type: ignore[attr-defined]
    assert said["Classified"] == "Withdrawn"


def test_trust_is_withdrawn_before_new_owners_get_theirs() -> None:
    bench = with_a_profile()
    names = [f"p{i}" for i in range(400)]
    for name in names:
        bench.pod(name)
    changed = {"chat-1": DECODE, "chat-2": DECODE, **dict.fromkeys(names, DECODE)}
    bench.run(305, changed)
    bench.run(120, changed | {"chat-1": PREFILL, "chat-2": PREFILL})
    assert len(bench.profiles()) < 300
    assert bench.profiles()["replicaset-chat-6f7d"]["spec"]["confidence"] == 0


def test_a_condition_says_that_it_was_classified_and_that_people_took_it_over() -> None:
    bench, verdicts = with_a_profile(), PlanningVerdicts()

    def conditions() -> dict[str, str]:
        bench.run(5)
        objects, works = bench.desired.newest().planning, bench.desired.works()
        (told,) = verdicts.statuses(objects, works, bench.clock.wall_time_ns())
        bench.kube.apply(
            PROFILES,
            {
                "apiVersion": PROFILES.api_version,
                "kind": PROFILES.kind,
                "metadata": {"name": told.name, "namespace": told.namespace},
                "status": told.status.to_json(),
            },
            field_manager="wattpack-controller",
            namespace="team",
            subresource="status",
        )
        found = told.status.conditions  # type: ignore[attr-defined]
        return {c.type: f"{c.status} {c.reason} {c.message}" for c in found}

    said = conditions()
    assert said["Classified"].startswith("True FromTelemetry")
    assert "0.90" in said["Classified"]
    assert said["Ready"].startswith("True InUse")
    label = f"/metadata/labels/{CLASSIFIED_LABEL.replace('/', '~1')}"
    name = "replicaset-chat-6f7d"
    bench.kube.patch_json(PROFILES, name, [{"op": "remove", "path": label}], "team")
    assert conditions()["Classified"].startswith("False TakenOver")


@pytest.mark.parametrize("operation", ["workload", "label", "both"])
def test_what_people_set_stays(operation: str) -> None:
    bench = with_a_profile()
    name = "replicaset-chat-6f7d"
    body = bench.kube.get(PROFILES, name, "team")
    if operation in ("workload", "both"):
        body["spec"]["workload"] = "rl-rollout"
    if operation in ("label", "both"):
        body["metadata"]["labels"] = {}
    kept = bench.kube.replace(PROFILES, body, "team")
    bench.run(7200, {"chat-1": PREFILL, "chat-2": PREFILL})
    assert bench.writer.outcomes["kept_by_people"] == (2 if operation == "workload" else 0)
    now = bench.profiles()[name]
    assert now["spec"] == kept["spec"]
    assert now["metadata"].get("labels") == kept["metadata"].get("labels")


def test_a_persons_object_of_that_name_is_never_touched() -> None:
    bench = Bench()
    bench.pod("alone")
    body = {
        "apiVersion": PROFILES.api_version,
        "kind": PROFILES.kind,
        "metadata": {"name": "pod-alone"},
        "spec": {"kind": "Batch", "kernelMix": {"batch": 0.5}},
    }
    made = bench.kube.create(PROFILES, body, "team")
    bench.run(7200, {"alone": DECODE})
    assert bench.profiles()["pod-alone"] == made


def test_owners_whose_kinds_share_a_name_do_not_write_over_one_another() -> None:
    bench = Bench()
    for name, group in (("a", "batch/v1"), ("b", "batch.volcano.sh/v1alpha1")):
        metadata = {"name": "train", "uid": group}
        bench.pod(name, {"apiVersion": group, "kind": "Job", "metadata": metadata})
    bench.run(7200, {"a": DECODE, "b": PREFILL})
    # Both, before either sees the other's; from then on one.
    assert bench.writer.outcomes["written"] <= 2
    (owner,) = bench.profiles()["job-train"]["metadata"]["ownerReferences"]
    mine, other = ("a", "b") if owner["uid"] == "batch/v1" else ("b", "a")
    bench.kube.delete(PODS, mine, bench.namespace)
    bench.run(120, {other: DECODE})
    (owner,) = bench.profiles()["job-train"]["metadata"]["ownerReferences"]
    assert owner["uid"] == ("batch.volcano.sh/v1alpha1" if other == "b" else "batch/v1")


def test_a_label_on_any_pod_of_the_owner_keeps_it_from_getting_one() -> None:
    bench = Bench()
    owner = bench.replica_set()
    bench.pod("chat-1", owner)
    bench.pod("chat-2", owner)
    bench.run(3600, {"chat-1": DECODE, "chat-2": LABEL})
    assert bench.profiles() == {}


def test_a_bare_pod_owns_its_own_and_a_static_pod_gets_none() -> None:
    bench = Bench()
    bench.pod("alone")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "node-uid"}}
    bench.pod("static-n", node)
    bench.run(600, {"alone": DECODE, "static-n": DECODE})
    assert list(bench.profiles()) == ["pod-alone"]


def test_who_does_not_lead_writes_nothing_and_knows_at_once_when_it_does() -> None:
    bench = Bench()
    bench.pod("alone")
    bench.leads = False
    bench.run(600, {"alone": DECODE})
    assert bench.profiles() == {}
    bench.leads = True
    bench.run(5)
    assert list(bench.profiles()) == ["pod-alone"]


def test_many_owners_get_theirs_one_a_second_at_most() -> None:
    bench = Bench()
    names = [f"p{i}" for i in range(40)]
    for name in names:
        bench.pod(name)
    bench.run(290, dict.fromkeys(names, DECODE))
    before = len(bench.profiles())
    bench.run(50)
    assert before <= len(bench.profiles()) <= before + 50
    bench.run(300)
    assert len(bench.profiles()) == 40


def test_owners_that_are_always_due_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """More writes than the pace allows are due at every look; each owner still has its turn."""
    bench = Bench()
    names = [f"p{i:02}" for i in range(30)]
    for name in names:
        bench.pod(name)
    said = Classified("bandwidth", "decoder-decode", 0.95)
    monkeypatch.setattr(OwnerVerdicts, "due", lambda *_: said)
    monkeypatch.setattr(classified_profiles, "SETTLE_NS", 0)
    bench.run(60, dict.fromkeys(names, DECODE))
    assert len(bench.profiles()) == 30


def test_what_was_deleted_by_hand_is_written_again_when_agreed_on() -> None:
    bench = with_a_profile()
    bench.kube.delete(PROFILES, "replicaset-chat-6f7d", "team")
    bench.run(120)
    assert list(bench.profiles()) == ["replicaset-chat-6f7d"]


def test_an_api_that_fails_costs_nothing_but_time() -> None:
    bench = Bench()
    bench.api = FaultyKube(bench.kube, FaultRates(server_error=0.4, lost_answer=0.3), seed=3)
    bench.writer = bench.new_writer()
    bench.pod("alone")
    bench.run(900, {"alone": DECODE})
    assert list(bench.profiles()) == ["pod-alone"]


def test_a_role_without_the_right_is_told_once_an_hour() -> None:
    class Refusing(EmbeddedKube):
        def apply(self, *args: Any, **kwargs: Any) -> JsonObject:
            raise ForbiddenError("no")

    bench = Bench()
    bench.api = Refusing(bench.clock)
    bench.writer = bench.new_writer()
    bench.pod("alone")
    bench.run(3600, {"alone": DECODE})
    assert bench.writer.outcomes["failed"] == 1


def test_long_names_are_cut_and_stay_apart() -> None:
    names = {profile_name(PodOwner("v1", "Pod", "a" * 252 + x, "u")) for x in "xy"}
    assert len(names) == 2
    assert all(len(name) <= 253 for name in names)


def test_profiles_that_come_together_are_merged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge copies all of them: at each of 10,000 of a first list it held the lock for 20 s."""
    merged: list[int] = []
    merge = PodWorks.with_changes

    def counted(works: PodWorks, changes: dict[tuple[str, str], PodWorks]) -> PodWorks:
        merged.append(len(changes))
        return merge(works, changes)

    monkeypatch.setattr(PodWorks, "with_changes", counted)
    store = ObjectStore()

    def body(i: int, workload: str) -> JsonObject:
        spec = {"kind": "Serving", "workload": workload}
        return {
            "apiVersion": PROFILES.api_version,
            "kind": PROFILES.kind,
            "metadata": {"name": f"p{i}", "namespace": "team"},
            "spec": spec,
        }

    first = [body(i, "decoder-decode") for i in range(50)]
    for each in first:
        store.changed(PROFILES, None, each)
    assert merged == []
    assert len(store.works().profiles) == 50
    assert store.works() is store.works()
    other = body(1, "rl-rollout")
    store.changed(PROFILES, first[0], None)
    store.changed(PROFILES, first[1], other)
    store.changed(PROFILES, other, body(1, "decoder-prefill"))
    names = {name: profile.spec.workload for (_, name), profile in store.works().profiles.items()}
    assert "p0" not in names
    assert (names["p1"], names["p2"]) == ("decoder-prefill", "decoder-decode")
    assert merged == [50, 2]


def test_nothing_is_kept_of_pods_that_went() -> None:
    bench = Bench()
    bench.pod("alone")
    bench.run(200, {"alone": DECODE})
    bench.kube.delete(PODS, "alone", "team")
    bench.run(5, {})
    bench.pod("alone")
    bench.run(200, {"alone": DECODE})
    with pytest.raises(NotFoundError):
        bench.kube.get(PROFILES, "pod-alone", "team")


@pytest.mark.parametrize("told", [True, False])
def test_the_process_writes_unless_it_is_told_not_to(
    told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    bench.pod("alone")
    settings = ControllerSettings(
        stream_address="127.0.0.1:0",
        http_host="127.0.0.1",
        http_port=0,
        write_workload_profiles=told,
    )
    authority = new_authority("test", bench.clock.wall_time_ns())
    around = Surroundings(
        api=bench.kube,
        clock=bench.clock,
        identity=new_server(authority, ["localhost"], bench.clock.wall_time_ns()),
        meters=NoMeters(),
        profiles=shipped_library(),
        election=settings.election(),
    )
    process = ControllerProcess(settings, around)
    monkeypatch.setattr(process.elector, "is_leader", lambda: True)
    monkeypatch.setattr(process.works, "_works", {"team/alone": DECODE})
    bench.informers, bench.writer = process.informers, process.classified
    bench.run(600)
    assert list(bench.profiles()) == (["pod-alone"] if told else [])
    process._count()
    name, labels = "wattpack_classified_profile_writes_total", {"outcome": "written"}
    assert process.metrics.registry.get_sample_value(name, labels) == float(told)
    process.stop()
