"""What moves do where the cluster answers otherwise: refusals, late ends, no gate, circles."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from scheduler_plugin.app.cluster_view import BUDGETS
from scheduler_plugin.app.solver_process import InProcessPlanner
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.kube_objects import pods as pod_facts
from tests.scheduler_plugin.moving_cluster import MovingCluster, restarted
from tests.scheduler_plugin.placement_cluster import SPACE, events, pod_object
from wattpack.kube.port import (
    NODES,
    PODS,
    ForbiddenError,
    ThrottledError,
    UnavailableError,
)
from wattpack.units import NS_PER_SECOND


def halves(**limits: Any) -> MovingCluster:
    cluster = MovingCluster(**limits)
    cluster.add_nodes("a", "b")
    cluster.run_on("x", "a", 4)
    cluster.run_on("y", "b", 4)
    return cluster


def refuse(cluster: MovingCluster, monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[str]:
    """Every eviction meets the error; who was asked for."""
    asked: list[str] = []

    def evict(name: str, namespace: str, *, uid: str = "") -> None:
        asked.append(name)
        raise error

    monkeypatch.setattr(cluster.kube, "evict", evict)
    return asked


def test_an_eviction_that_a_budget_refuses_waits_is_never_forced_and_ends_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = halves(timeout_seconds=60)
    asked = refuse(cluster, monkeypatch, ThrottledError("the budget allows nobody"))
    cluster.own("train", 8)
    cluster.turns(50)
    assert 3 <= len(asked) <= 8, "asked again after pauses that grow"
    assert len(set(asked)) == 1
    assert cluster.where("train") == [""]
    cluster.turns(100)
    told = dict(events(cluster))
    assert "making room on" in told["train-3"]
    assert "the budget allows nobody" in told[asked[0]]
    assert len(set(asked)) == 1, "nobody is asked for this pod again for a while"


def test_a_step_that_is_refused_holds_no_other_back() -> None:
    cluster = MovingCluster(at_once=2)
    cluster.add_nodes("a", "b", "c", "d")
    for owner, node in zip("wxyz", "abcd", strict=True):
        cluster.run_on(owner, node, 4, nodeSelector={"half": "1" if node < "c" else "2"})
    for node in "abcd":
        label = {"op": "add", "path": "/metadata/labels/half", "value": "1" if node < "c" else "2"}
        cluster.kube.patch_json(NODES, node, [label])
    cluster.keep_available("w", 1)
    cluster.keep_available("x", 1)
    for budget in cluster.kube.list(BUDGETS, SPACE).items:
        # What the planner is told is old: only the API server knows better.
        cluster.kube.replace(BUDGETS, {**budget, "status": {"disruptionsAllowed": 1}}, SPACE)
    cluster.tell_budgets = lambda: None  # type: ignore[method-assign]
    cluster.own("one", 8, nodeSelector={"half": "1"})
    cluster.own("two", 8, nodeSelector={"half": "2"})
    cluster.turns(45)
    assert cluster.where("one") == [""]
    assert cluster.where("two") in (["c"], ["d"])


def test_what_the_api_forbids_is_given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = halves()
    asked = refuse(cluster, monkeypatch, ForbiddenError("wattpack may not"))
    cluster.own("train", 8)
    cluster.turns(20)
    assert len(asked) == 1
    assert not cluster.loop.ledger.moves.steps
    assert cluster.loop.ledger.disruptions.left(cluster.clock.monotonic_ns()) == 20


def test_an_eviction_whose_answer_is_lost_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = halves(per_hour=1)
    real = cluster.kube.evict

    def evict(name: str, namespace: str, *, uid: str = "") -> None:
        real(name, namespace, uid=uid)
        raise UnavailableError("no answer")

    monkeypatch.setattr(cluster.kube, "evict", evict)
    cluster.own("train", 8, replicas=2)
    cluster.turns(60)
    assert len(cluster.kube.evictions) == 1
    assert sorted(cluster.where("train"))[0] == ""
    assert sorted(cluster.where("train"))[1] != ""


def test_a_successor_that_passes_the_gate_by_frees_the_place() -> None:
    cluster = halves()
    cluster.own("train", 8)
    cluster.turn()
    cluster.turn()
    assert len(cluster.kube.evictions) == 1
    cluster.webhook_works = False
    cluster.turns(3)
    assert cluster.ended("elsewhere") == 1
    cluster.webhook_works = True
    cluster.turns(120)
    assert not cluster.loop.ledger.moves.steps
    assert cluster.where("train") != [""], "it took what was made free; room is made once more"
    assert "" not in cluster.where("x") + cluster.where("y")


def test_a_pod_without_our_gate_gets_room_on_several_nodes_and_a_hint() -> None:
    """Two victims on two nodes: no preemption on one node would help."""
    cluster = MovingCluster()
    cluster.add_nodes("a", "b")
    cluster.run_on("even", "a", 4, priorityClassName="high")
    cluster.run_on("rest", "b", 4, priorityClassName="high", labels={"wattpack.io/moves": "no"})
    cluster.run_on("cheap", "b", 4, priorityClassName="low")
    body = pod_object("train", 8, owned=False, priorityClassName="high")
    cluster.webhook_works = False
    cluster.admit(body)
    cluster.webhook_works = True
    hints: set[str] = set()
    for _ in range(75):
        cluster.turn()
        hints.add(str(cluster.pod("train")["status"].get("nominatedNodeName")))
    assert pod_facts.node_name(cluster.pod("train")) == "a"
    assert hints == {"None", "a"}
    assert (cluster.where("even"), cluster.where("cheap")) == (["b"], [""])
    first, second = cluster.kube.evictions
    assert (first.owner, second.owner) == ("rs-cheap", "rs-even")
    assert second.at_seconds >= first.at_seconds + 30, "it leaves once its place is free"


def test_a_pod_that_kube_scheduler_can_place_is_not_our_business() -> None:
    cluster = halves()
    cluster.webhook_works = False
    cluster.own("small", 4)
    cluster.turns(5)
    assert cluster.kube.evictions == []
    assert "" not in cluster.where("small")


def test_a_hint_is_taken_back_where_the_room_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = halves(timeout_seconds=40)
    refuse(cluster, monkeypatch, ThrottledError("not now"))
    cluster.webhook_works = False
    cluster.own("train", 8)
    cluster.turns(20)
    pod = cluster.pods_of("train")[0]
    assert pod["status"]["nominatedNodeName"] in ("a", "b")
    cluster.turns(40)
    assert "nominatedNodeName" not in cluster.pods_of("train")[0]["status"]


def test_a_pod_that_must_not_preempt_takes_nobodys_place() -> None:
    cluster = MovingCluster()
    cluster.add_nodes("a")
    cluster.run_on("x", "a", 8)
    cluster.own("train", 8, priorityClassName="high", preemptionPolicy="Never")
    cluster.turns(5)
    assert cluster.kube.evictions == []


@pytest.mark.parametrize("present", [1, 2])
def test_a_gang_waits_for_all_of_its_room_and_goes_together(present: int) -> None:
    cluster = MovingCluster()
    cluster.add_nodes("a", "b", "c")
    for owner, node in zip("xyz", "abc", strict=True):
        cluster.run_on(owner, node, 4, priorityClassName="low")
    marks = {"labels": {"wattpack.io/gang": "g"}, "annotations": {"wattpack.io/gang-size": "2"}}
    for member in range(present):
        cluster.admit(pod_object(f"g-{member}", 8, **marks))
    for _ in range(50):
        cluster.turn()
        gated = {
            pod_facts.is_gated(p)
            for p in cluster.all_pods()
            if p["metadata"]["name"].startswith("g-")
        }
        assert len(gated) == 1, "never in part"
    if present == 1:
        cluster.admit(pod_object("g-1", 8, **marks))
        cluster.turns(5)
    nodes = {pod_facts.node_name(cluster.pod(f"g-{member}")) for member in range(2)}
    assert len(nodes - {""}) == 2
    assert len(cluster.kube.evictions) == 2


def test_pods_that_wait_for_one_anothers_places_are_broken_up_by_one_that_leaves_first() -> None:
    cluster = MovingCluster()
    cluster.add_nodes("a", labels={"side": "l"})
    cluster.add_nodes("b", labels={"side": "r"})
    cluster.run_on("x", "a", 5)
    cluster.run_on("y", "b", 3)
    cluster.own("train", 5, nodeSelector={"side": "l"})
    cluster.turns(90)
    assert cluster.where("train") == ["a"]
    assert "" not in cluster.where("x") + cluster.where("y")


def test_moves_that_were_switched_off_meanwhile_end_and_kept_places_stay_kept() -> None:
    cluster = halves()
    cluster.own("train", 8)
    cluster.turns(2)
    evicted = cluster.kube.evictions[0].owner.removeprefix("rs-")
    moves = cluster.settings.moves.model_copy(update={"enabled": False})
    cluster.settings = cluster.settings.model_copy(update={"moves": moves})
    restarted(cluster)
    cluster.turns(45)
    assert "" not in cluster.where(evicted)
    assert len(cluster.kube.evictions) == 1


def test_who_waits_for_nobody_disturbs_nobody() -> None:
    cluster = halves(after_seconds=30)
    cluster.own("train", 8)
    cluster.turns(20)
    assert cluster.kube.evictions == []
    for pod in cluster.pods_of("train"):
        cluster.kube.delete(PODS, pod["metadata"]["name"], SPACE)
    cluster.scale("train", 0)
    cluster.turns(30)
    assert cluster.kube.evictions == []


def test_moves_that_the_solver_had_no_time_for_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = halves()
    cluster.own("train", 8)
    real, asked = InProcessPlanner.plan, []

    def late(self: InProcessPlanner, snapshot: Snapshot, *, moves: bool = False) -> Plan:
        asked.append(moves)
        return real(self, snapshot, moves=moves and asked.count(True) > 1)

    monkeypatch.setattr(InProcessPlanner, "plan", late)
    cluster.turns(25)
    assert (asked.count(True), cluster.kube.evictions) == (1, [])
    cluster.turns(60)
    assert cluster.where("train") != [""]


@pytest.mark.parametrize("may_move", [True, False])
def test_the_same_is_asked_again_ever_less_often_and_never_where_nobody_may_move(
    monkeypatch: pytest.MonkeyPatch, may_move: bool
) -> None:
    cluster = halves()
    if not may_move:
        cluster.keep_available("x", 1)
        cluster.keep_available("y", 1)
    cluster.own("train", 8)
    real, asked = InProcessPlanner.plan, list[float]()

    def in_vain(self: InProcessPlanner, snapshot: Snapshot, *, moves: bool = False) -> Plan:
        asked.extend([cluster.clock.monotonic_ns() / NS_PER_SECOND] * moves)
        return real(self, snapshot, moves=False)

    monkeypatch.setattr(InProcessPlanner, "plan", in_vain)
    cluster.turns(240)
    pauses = [round(b - a) for a, b in itertools.pairwise(asked)]
    assert pauses == ([30, 60, 120] if may_move else [])
