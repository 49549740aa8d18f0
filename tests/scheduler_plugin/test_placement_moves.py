"""Moves and evictions in a cluster: what opted in makes room, and never more than was allowed."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_plugin.documents.mig_placement import MigPlacement
from scheduler_plugin.documents.plan_document import Plan, Step
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.promises.move_book import Leaving
from scheduler_plugin.promises.move_intake import Intake, chains_of
from tests.scheduler_plugin.moving_cluster import MovingCluster, restarted
from tests.scheduler_plugin.placement_builders import bound
from tests.scheduler_plugin.placement_cluster import SPACE, events, plans, pod_object
from wattpack.kube.port import NAMESPACES, PODS

PLACES = {"x": "a", "y": "b"}
"""Where the running pods are that could make room, by owner."""


def halves(**limits: Any) -> MovingCluster:
    """Two nodes, half of each in use, and a pod that wants a whole one."""
    cluster = MovingCluster(**limits)
    cluster.add_nodes("a", "b")
    cluster.run_on("x", "a", 4)
    cluster.run_on("y", "b", 4)
    cluster.own("train", 8)
    return cluster


def test_a_move_makes_room_and_the_successor_gets_the_place_that_was_kept() -> None:
    cluster = halves()
    cluster.turns(45)
    assert cluster.where("train") in (["a"], ["b"])
    assert cluster.where("x") == cluster.where("y") != cluster.where("train")
    assert len(cluster.kube.evictions) == 1
    told = " ".join(note for _, note in events(cluster))
    assert "to make room for team/train-3" in told
    assert "given up" not in told
    assert (cluster.ended("claimed"), cluster.ended("given_up")) == (1, 0)


def test_a_place_that_is_kept_says_nothing_of_the_boards_that_its_pod_had() -> None:
    there = MigPlacement(profile="7g.40gb", board=3, start=0)
    runs = bound("y", "b", 0, mig_profiles={"7g.40gb": 1}, mig_placements=(there,))
    steps = (Step(uid="y", node="b", arrives=False), Step(uid="y", node="a", arrives=True))
    plan = Plan(snapshot_digest="", method="none", steps=steps)
    ((leaving,),) = chains_of(plan, Intake({"y": runs}, {"y": pod_object("y", 0)}, 0))
    assert isinstance(leaving, Leaving)
    assert leaving.template.mig_profiles == {"7g.40gb": 1}
    assert leaving.template.mig_placements == ()


def test_the_move_is_written_down_before_the_pod_is_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = halves()
    written: list[bool] = []
    evict = cluster.kube.evict

    def spy(name: str, namespace: str, *, uid: str = "") -> None:
        newest = plans(cluster)[-1]
        record = newest["metadata"]["annotations"]["wattpack.io/moves"]
        written.append(newest["spec"]["moves"] == 1 and uid in record)
        evict(name, namespace, uid=uid)

    monkeypatch.setattr(cluster.kube, "evict", spy)
    cluster.turns(3)
    assert written == [True]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"labels": {"wattpack.io/moves": "disabled"}}, "opted out"),
        ({"labels": {"wattpack.io/workload": "nobody-knows"}}, "no price"),
        ({"terminationGracePeriodSeconds": 3000}, "takes too long to end"),
        ({"schedulerName": "other"}, "another scheduler's"),
    ],
)
def test_who_may_not_move_stays(changes: dict[str, Any], why: str) -> None:
    cluster = MovingCluster()
    cluster.add_nodes("a", "b")
    cluster.run_on("x", "a", 4, **changes)
    cluster.run_on("y", "b", 4, **changes)
    cluster.own("train", 8)
    cluster.turns(5)
    assert (cluster.kube.evictions, cluster.where("train")) == ([], [""]), why


@pytest.mark.parametrize("moves", ["x", "y"])
def test_without_the_namespaces_consent_nothing_moves_but_pods_that_opted_in_themselves(
    moves: str,
) -> None:
    """Whichever it is: of two that could move a plan takes the same one every time."""
    cluster = MovingCluster()
    space = cluster.kube.get(NAMESPACES, SPACE)
    del space["metadata"]["labels"]["wattpack.io/moves"]
    cluster.kube.replace(NAMESPACES, space)
    cluster.add_nodes("a", "b")
    for owner, at in PLACES.items():
        opted_in = {"labels": {"wattpack.io/moves": "enabled"}} if owner == moves else {}
        cluster.run_on(owner, at, 4, **opted_in)
    cluster.own("train", 8)
    cluster.turns(45)
    assert [e.owner for e in cluster.kube.evictions] == [f"rs-{moves}"]
    assert cluster.where("train") == [PLACES[moves]]


def test_nothing_moves_where_moves_are_off() -> None:
    cluster = halves(enabled=False)
    cluster.turns(5)
    assert cluster.kube.evictions == []


@pytest.mark.parametrize(("held", "moves"), [("x", "y"), ("y", "x")])
def test_a_disruption_budget_that_allows_nobody_is_no_victim_of_a_plan(
    held: str, moves: str
) -> None:
    cluster = MovingCluster()
    cluster.add_nodes("a", "b")
    for owner, at in PLACES.items():
        cluster.run_on(owner, at, 4)
    cluster.keep_available(held, 1)
    cluster.own("train", 8)
    cluster.turns(45)
    assert [e.owner for e in cluster.kube.evictions] == [f"rs-{moves}"]
    assert cluster.where("train") == [PLACES[moves]]


def test_more_important_work_takes_the_places_of_less_important() -> None:
    cluster = MovingCluster()
    cluster.add_nodes("a")
    cluster.run_on("x", "a", 8)
    low = cluster.pods_of("x")[0]["metadata"]["name"]
    cluster.own("train", 8, priorityClassName="high")
    cluster.turns(45)
    assert (cluster.where("train"), cluster.where("x")) == (["a"], [""])
    assert ("evicted from a for team/train-2" in dict(events(cluster))[low]) is True


def test_the_pod_that_gave_way_is_not_moved_again_within_the_hour() -> None:
    cluster = halves(per_owner_per_hour=1)
    cluster.turns(60)
    assert len(cluster.kube.evictions) == 1
    first = cluster.kube.evictions[0].owner
    cluster.run_on("z", "b" if cluster.where("train") == ["a"] else "a", 0)
    cluster.turns(30)
    assert [e.owner for e in cluster.kube.evictions].count(first) == 1


def test_an_hour_holds_no_more_than_its_budget_also_after_a_restart() -> None:
    cluster = MovingCluster(per_hour=1)
    cluster.add_nodes("a", "b", "c", "d")
    for owner, node in zip("wxyz", "abcd", strict=True):
        cluster.run_on(owner, node, 4)
    cluster.own("train", 8, replicas=2)
    for _ in range(20):
        cluster.turns(5)
        restarted(cluster)
    assert len(cluster.kube.evictions) == 1
    assert sorted(cluster.where("train")) != ["", ""]
    cluster.turns(40, 120)
    assert len(cluster.kube.evictions) == 2
    assert "" not in cluster.where("train")


@pytest.mark.parametrize("after", range(1, 8))
def test_a_planner_that_is_killed_at_any_step_leaves_nobody_behind(after: int) -> None:
    cluster = halves()
    cluster.turns(after)
    restarted(cluster)
    cluster.turns(45)
    assert cluster.where("train") in (["a"], ["b"])
    assert cluster.where("x") == cluster.where("y") != cluster.where("train")
    assert len(cluster.kube.evictions) == 1


def test_a_place_whose_successor_never_comes_is_free_again() -> None:
    cluster = halves()
    cluster.turns(2)
    (evicted,) = cluster.kube.evictions
    cluster.scale(evicted.owner.removeprefix("rs-"), 0)
    for pod in cluster.pods_of(evicted.owner.removeprefix("rs-")):
        if pod_facts.is_gated(pod):
            cluster.kube.delete(PODS, pod["metadata"]["name"], SPACE)
    cluster.turns(100)
    assert not cluster.loop.ledger.moves.steps
    cluster.own("more", 4)
    cluster.turns(3)
    assert "" not in cluster.where("more")


def test_a_pod_that_takes_long_to_end_keeps_its_room_until_it_is_gone() -> None:
    cluster = halves()
    cluster.turns(2)
    (evicted,) = cluster.kube.evictions
    cluster.lagging = {evicted.name}
    cluster.turns(60)
    assert cluster.where("train") == [""]
    assert "" not in cluster.where("x") + cluster.where("y"), "the successor does not wait for it"
    cluster.lagging = set()
    cluster.turns(5)
    assert cluster.where("train") != [""]
    assert len(cluster.kube.evictions) == 1
