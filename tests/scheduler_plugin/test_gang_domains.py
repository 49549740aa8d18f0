"""Gangs in one domain: preferred or required, beside members that run already."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.peer_rule import PeerKind, PeerRule
from scheduler_plugin.documents.plan_document import PendingReason, Placement, Plan
from scheduler_plugin.documents.snapshot import Gang, Node, Pod, PowerDomain, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.packing.whole_gangs import left_over
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, domain, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object


def rack(name: str, value: str, gpus: int = 8) -> Node:
    return node(name, gpus, labels={"rack": value} if value else {})


def together(size: int, gpus: int, *, required: bool, **more: Any) -> tuple[Gang, tuple[Pod, ...]]:
    members = tuple(pod(f"m{i}", gpus, gang="g", **more) for i in range(size))
    return Gang(id="g", size=size, topology_key="rack", topology_required=required), members


def racks_of(question: Snapshot, made: Plan) -> set[str]:
    labels = {n.name: n.labels.get("rack", "") for n in question.nodes}
    return {labels[p.node] for p in made.placements}


NODES = [rack("a1", "a"), rack("a2", "a", 4), rack("b1", "b"), rack("b2", "b"), rack("x", "")]


def test_a_gang_goes_into_the_tightest_rack_that_holds_all_of_it() -> None:
    question = snapshot(*NODES, together(3, 4, required=True))
    assert racks_of(question, plan(question)) == {"a"}
    question = snapshot(*NODES, together(4, 4, required=True))
    assert racks_of(question, plan(question)) == {"b"}


@pytest.mark.parametrize("required", [True, False])
def test_tighter_racks_without_power_for_all_do_not_keep_a_gang_out_of_another(
    required: bool,
) -> None:
    """Each node of them bears its members alone, and their feed does not bear all."""
    nodes, feeds = list[Node](), list[PowerDomain]()
    for r in range(12):
        sizes, watts = ((2, 2), 2100) if r < 11 else ((2, 2, 2), 2800)
        feeds.append(domain(f"d{r}", watts))
        for n, gpus in enumerate(sizes):
            more = {"labels": {"rack": f"r{r}"}, "domain": f"d{r}"}
            nodes.append(node(f"r{r}-{n}", gpus, **more))
    question = snapshot(*nodes, *feeds, together(4, 1, required=required))
    assert racks_of(question, plan(question)) == {"r11"}


@pytest.mark.parametrize("required", [True, False])
def test_a_gang_that_no_rack_holds_waits_only_if_it_has_to_be_in_one(required: bool) -> None:
    question = snapshot(*NODES, together(5, 4, required=required))
    made = plan(question)
    assert len(made.placements) == (0 if required else 5)
    assert made.refusals == ()
    if required:
        assert {p.reason for p in made.pending} == {PendingReason.GANG_DOES_NOT_FIT}
        told = "g: no rack has room for all 5 members, also when it is empty"
        assert made.pending[0].message == told


@pytest.mark.parametrize("key", ["", "rack"])
def test_members_that_want_others_near_them_come_after_these(key: str) -> None:
    """In the order of their size the follower would find nobody whom it may be near."""
    near = PeerRule(kind=PeerKind.TOGETHER, group="leader", topology_key="rack")
    follower = pod("m0", 8, gang="g", peer_rules=(near,))
    leader = pod("m1", 4, gang="g", groups=("leader",))
    members = Gang(id="g", size=2, topology_key=key, topology_required=bool(key))
    question = snapshot(*NODES, (members, (follower, leader)))
    made = plan(question, deadline_seconds=0)
    assert not complaints(question, made)
    assert len(made.placements) == 2
    assert len(racks_of(question, made)) == 1


def test_whom_no_other_member_helps_ends_it_and_is_told_of() -> None:
    assert list(left_over(lambda c, n: 0, {1: 1, 2: 1, 3: 2}, lambda c: c == 1)) == [2, 1, 3]
    asked: list[int] = []

    def one_a_round(c: int, count: int) -> int:
        asked.append(c)
        return 1

    assert left_over(one_a_round, {1: 100, 2: 1}, lambda c: True) == {1: 92}
    assert len(asked) == 9


def test_a_gang_whose_rack_is_only_full_now_is_told_so() -> None:
    gang = together(2, 8, required=True)
    question = snapshot(*NODES, gang, bound("c", "b1", 4), bound("d", "x", 8))
    assert plan(question).pending[0].message == "g: no rack has room for all 2 members"


def test_a_gang_that_has_to_share_a_label_that_no_node_has_is_told_so() -> None:
    gang = together(2, 4, required=True)
    told = "g: no node has the label rack, whose value all 2 members have to share"
    assert plan(snapshot(rack("x", ""), gang)).pending[0].message == told


def test_members_join_the_rack_of_those_that_run() -> None:
    gang, members = together(2, 4, required=True)
    runs = bound("m0", "b1", 4, gang="g")
    question = snapshot(*NODES, gang, runs, members[1])
    assert racks_of(question, plan(question)) == {"b"}
    full = snapshot(*NODES, gang, runs, members[1], bound("c", "b1", 4), bound("d", "b2", 8))
    assert plan(full).placements == ()


@examples(60)
@given(
    rooms=st.lists(st.integers(0, 4), min_size=6, max_size=6),
    size=st.integers(1, 5),
    required=st.booleans(),
)
def test_a_gang_is_placed_exactly_where_some_rack_holds_it(
    rooms: list[int], size: int, required: bool
) -> None:
    """One GPU a member, two nodes a rack: room is what both have left."""
    nodes = [rack(f"n{i}", "abc"[i // 2], room) for i, room in enumerate(rooms)]
    question = snapshot(*nodes, together(size, 1, required=required))
    made = plan(question, deadline_seconds=0.05)
    assert made.refusals == ()
    best = max(rooms[i] + rooms[i + 1] for i in (0, 2, 4))
    fits = best >= size if required else sum(rooms) >= size
    assert len(made.placements) == (size if fits else 0)
    if best >= size:
        assert len(racks_of(question, made)) == 1


def test_the_judge_refuses_a_gang_in_two_racks() -> None:
    question = snapshot(*NODES, together(2, 4, required=True))

    def judged(*nodes: str) -> tuple[str, ...]:
        placed = tuple(
            Placement(uid=f"m{i}", node=name, gang="g", watts=2800) for i, name in enumerate(nodes)
        )
        answer = Plan(snapshot_digest=question.digest(), method="greedy", placements=placed)
        return complaints(question, answer)

    assert judged("a1", "a2") == ()
    assert len(judged("a1", "b1")) == 1
    assert len(judged("x", "x")) == 1


def test_pods_say_where_their_gang_has_to_be() -> None:
    cluster = Cluster()
    for name, where in (("n1", "a"), ("n2", "b"), ("n3", "b")):
        cluster.add_nodes(name, labels={"rack": where})
    marks = {"wattpack.io/gang-size": "2", "wattpack.io/gang-required-topology": "rack"}
    for i in range(2):
        labels = {"wattpack.io/gang": "g"}
        cluster.add(pod_object(f"p{i}", 8, labels=labels, annotations=marks))
    released = cluster.loop.step().released
    assert sorted(released) == [f"{SPACE}/p0", f"{SPACE}/p1"]
    assert sorted(released.values()) == ["n2", "n3"]


def test_further_members_of_an_elastic_gang_stay_in_its_domain() -> None:
    cluster = Cluster()
    for name, where in (("n1", "a"), ("n2", "b"), ("n3", "b")):
        cluster.add_nodes(name, labels={"rack": where})
    marks = {"wattpack.io/gang-size": "2-3", "wattpack.io/gang-required-topology": "rack"}
    for i in range(3):
        labels = {"wattpack.io/gang": "g"}
        cluster.add(pod_object(f"p{i}", 8, labels=labels, annotations=marks))
    assert sorted(cluster.loop.step().released.values()) == ["n2", "n3"]
    cluster.bind()
    assert cluster.loop.step().released == {}, "n1 is free, but of another rack"
    cluster.add_nodes("n4", labels={"rack": "b"})
    assert cluster.loop.step().released == {f"{SPACE}/p2": "n4"}
