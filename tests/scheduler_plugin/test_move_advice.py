"""Moves that would let a waiting pod start, at the price of the moved pods' starts."""

from __future__ import annotations

import random
from itertools import chain, combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.startup_time import startup_time
from capacity.catalogue.workload_memory import stop_seconds
from scheduler_plugin.app.plan_archive import PLANS
from scheduler_plugin.app.plan_text import describe
from scheduler_plugin.documents.node_rules import NodeTerm, Requirement
from scheduler_plugin.documents.plan_document import Pending, Placement, Plan
from scheduler_plugin.documents.snapshot import Node, Pod, PodState, Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, domain, gang, node, pod, snapshot
from tests.scheduler_plugin.placement_cluster import (
    SPACE,
    Cluster,
    pod_object,
    profile_object,
)
from wattpack.kube.port import PODS, JsonObject

ENTRY = "decoder-decode"


def runs(uid: str, on: str, gpus: int = 1, seconds: int | None = 100, **other: Any) -> Pod:
    return bound(uid, on, gpus, move_seconds=seconds, **other)


def waiting(question: Snapshot) -> Pending:
    (entry,) = plan(question, deadline_seconds=0).pending
    return entry


def test_a_pod_that_small_pods_keep_out_is_told_which_and_at_what_price() -> None:
    question = snapshot(
        node("a"), node("b"), runs("p", "a", 2, 100), runs("q", "b", 4, 50), pod("big", 8)
    )
    entry = waiting(question)
    (move,) = entry.moves
    assert (move.uid, move.source, move.target, move.gpu_seconds) == ("p", "a", "b", 200)
    assert entry.pays_after_seconds == 25  # 200 GPU seconds over 8 GPUs
    text = describe(question, plan(question, deadline_seconds=0))
    assert (
        "team/p to b; that costs 200 GPU seconds and pays where it waits for more than 25 s" in text
    )


def test_the_price_decides_and_not_the_number_of_moves() -> None:
    many = [runs(f"a{i}", "a", 1, 10) for i in range(4)]
    entry = waiting(snapshot(node("a"), node("b"), *many, runs("b0", "b", 4, 100), pod("big", 8)))
    assert {move.uid for move in entry.moves} == {"a0", "a1", "a2", "a3"}
    assert sum(move.gpu_seconds for move in entry.moves) == 40


def test_who_is_not_needed_does_not_move() -> None:
    question = snapshot(
        node("a"), node("b"), runs("cheap", "a", 1, 1), runs("large", "a", 4, 30),
        runs("q", "b", 4), pod("big", 7),
    )  # fmt: skip
    assert [move.uid for move in waiting(question).moves] == ["large"]


@pytest.mark.parametrize(
    "running",
    [
        runs("p", "a", 2, None),
        runs("p", "a", 2, priority=5),
        runs("p", "a", 2, resources={"rdma/hca": 1}),
        runs("p", "a", 2, node_selector={"zone": "x"}),
    ],
    ids=["nobody knows its price", "more important", "asks for what has no column", "only here"],
)
def test_who_has_to_stay_is_not_moved(running: Pod) -> None:
    question = snapshot(
        node("a", labels={"zone": "x"}), node("b"), running, runs("q", "b", 4, None), pod("big", 8)
    )
    assert waiting(question).moves == ()


def test_a_member_of_a_gang_is_not_moved_alone() -> None:
    declared, (one, other) = gang("g", 2, gpus=2)
    members = tuple(
        m.model_copy(update={"state": PodState.BOUND, "node": "a", "move_seconds": 9})
        for m in (one, other)
    )
    parts = (node("a"), node("b"), (declared, members), runs("q", "b", 4, None), pod("big", 8))
    assert waiting(snapshot(*parts)).moves == ()


def test_moves_alone_are_no_answer_to_a_breaker_that_is_full() -> None:
    parts = (node("a", domain="row"), node("b", domain="row"), runs("p", "a", 2))
    assert waiting(snapshot(*parts, pod("big", 8), domain("row", 4000))).moves == ()
    elsewhere = (node("a", domain="row"), node("b"), runs("p", "a", 2), runs("q", "b", 2, None))
    entry = waiting(snapshot(*elsewhere, pod("big", 8), domain("row", 4000)))
    assert [change.kind for change in entry.changes] == ["move_pod", "raise_limit"]
    assert waiting(snapshot(*parts, runs("q", "b", 2), pod("big", 8), domain("row", 9000))).moves


def test_nobody_moves_where_there_are_no_watts() -> None:
    stays = runs("q", "b", 2, None)
    parts = (node("a"), node("b", domain="row"), runs("p", "a", 2), stays, pod("big", 8))
    assert waiting(snapshot(*parts, domain("row", 1_399))).moves == ()
    assert [move.target for move in waiting(snapshot(*parts, domain("row", 1_400))).moves] == ["b"]


RUNNING = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.one_of(st.none(), st.integers(0, 300))),
    max_size=7,
)  # fmt: skip


@examples(60)
@given(RUNNING, st.integers(5, 8), st.integers(3_000, 30_000))
def test_the_independent_judge_accepts_every_advice_when_it_is_carried_out(
    running: list[tuple[str, int, int | None]], asked: int, limit: int
) -> None:
    room = dict.fromkeys("abc", 8)
    pods = []
    for i, (at, gpus, seconds) in enumerate(running):
        if room[at] >= gpus:
            room[at] -= gpus
            pods.append(runs(f"r{i}", at, gpus, seconds))
    question = snapshot(
        *(node(name, domain="row") for name in "abc"),
        *pods,
        pod("big", asked),
        domain("row", limit),
    )
    made = plan(question, deadline_seconds=0)
    for entry in made.pending:
        if entry.moves and len(entry.moves) == len(entry.changes):
            assert carried_out(question, entry) == ()


def carried_out(question: Snapshot, entry: Pending) -> tuple[str, ...]:
    """What the checker says of the pod and of those who moved for it, all as waiting pods."""
    targets = {move.uid: move.target for move in entry.moves} | {entry.uid: entry.moves[0].source}
    freed = {"state": PodState.PENDING, "node": ""}
    pods = tuple(p.model_copy(update=freed) if p.uid in targets else p for p in question.pods)
    moved = question.model_copy(update={"pods": pods})
    by_uid, nodes = {p.uid: p for p in pods}, {n.name: n for n in question.nodes}
    placements = tuple(
        Placement(uid=uid, node=at, watts=watts(by_uid[uid], nodes[at]))
        for uid, at in targets.items()
    )
    digest = "of the moved pods"
    return complaints(
        moved, Plan(snapshot_digest=digest, method="greedy", placements=placements), digest=digest
    )


def watts(of: Pod, at: Node) -> int:
    return of.gpu_milli // 1000 * at.watts_per_gpu


def test_moves_are_found_where_there_are_any_and_hardly_dearer_than_the_cheapest() -> None:
    """Against every set of pods on every node with every place for them; the seed is fixed."""
    generator = random.Random(1)
    ratios = []
    for _ in range(120):
        room = dict.fromkeys("abc", 8)
        pods = []
        for i in range(7):
            at, gpus = generator.choice("abc"), generator.randint(1, 4)
            if room[at] >= gpus:
                room[at] -= gpus
                pods.append(runs(f"r{i}", at, gpus, generator.randint(10, 300)))
        asked = generator.randint(5, 8)
        question = snapshot(*map(node, "abc"), *pods, pod("big", asked))
        pending = plan(question, deadline_seconds=0).pending
        least = cheapest_price(pods, room, asked) if pending else None
        if least is not None:
            ratios.append(sum(move.gpu_seconds for move in pending[0].moves) / least)
    assert len(ratios) > 30
    assert min(ratios) >= 1.0  # 0 where none were found
    assert sum(ratios) / len(ratios) < 1.02


def cheapest_price(pods: list[Pod], room: dict[str, int], asked: int) -> int | None:
    """GPU seconds of the cheapest set that works."""
    found: list[int] = []
    for at in room:
        there = [p for p in pods if p.node == at]
        for chosen in chain.from_iterable(combinations(there, r) for r in range(1, len(there) + 1)):
            gpus = [p.gpu_milli // 1000 for p in chosen]
            if room[at] + sum(gpus) < asked:
                continue
            others = [name for name in room if name != at]
            for targets in product(others, repeat=len(chosen)):
                taken = {
                    name: sum(g for g, t in zip(gpus, targets, strict=True) if t == name)
                    for name in others
                }
                if all(taken[name] <= room[name] for name in others):
                    prices = (g * (p.move_seconds or 0) for g, p in zip(gpus, chosen, strict=True))
                    found.append(sum(prices))
                    break
    return min(found, default=None)


# From the objects of a cluster.


class Full(Cluster):
    """Two nodes, half of each taken by a replica that says what it is."""

    def __init__(self) -> None:
        super().__init__()
        self.add_nodes("a", "b")
        self.add(profile_object())

    def replica(self, name: str, on: str, work: str, **changes: Any) -> JsonObject:
        labels = {"wattpack.io/workload": work} if work else {}
        body = pod_object(name, 4, labels=labels, nodeName=on, **changes)
        return self.api.create(PODS, body, SPACE)

    def waits(self) -> str:
        """What the newest plan says of the pod that has no place."""
        self.add(pod_object("big", 8))
        self.loop.step()
        (newest,) = self.api.list(PLANS).items
        return str(newest["spec"]["pending"][0]["message"])


def test_a_replica_s_price_is_the_mean_start_of_its_work_and_what_its_stop_loses() -> None:
    cluster = Full()
    cluster.replica("chat", "a", ENTRY)
    cluster.replica("other", "b", "")
    entry = shipped_catalogue()[ENTRY]
    price = startup_time(entry).mean_seconds + (stop_seconds(entry) or 0.0)
    message = cluster.waits()
    assert "team/chat to b" in message
    stated = int(message.split("costs ")[1].split(" GPU")[0].replace(",", ""))
    assert 4 * price <= stated <= 4 * (price + 1)


@pytest.mark.parametrize(
    ("work", "changes"),
    [
        ("", {}),
        ("no-such-work", {}),
        ("compile-batch", {}),
        (ENTRY, {"owned": False}),
        (ENTRY, {"schedulerName": "theirs"}),
        (ENTRY, {"nodeSelector": {"kubernetes.io/hostname": "a"}}),
    ],
)
def test_whoever_cannot_move_or_has_no_price_stays(work: str, changes: dict[str, Any]) -> None:
    cluster = Full()
    cluster.replica("chat", "a", work, **changes)
    cluster.replica("other", "b", "")
    assert "GPU seconds" not in cluster.waits()


def test_our_own_pin_does_not_hold_the_pod_that_would_replace_it() -> None:
    cluster = Full()
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    cluster.replica("chat", "a", ENTRY, affinity={"nodeAffinity": terms})
    cluster.replica("other", "b", "")
    assert "team/chat to b" in cluster.waits()


def test_a_selector_that_is_the_pod_s_own_holds_its_successor_too() -> None:
    only_here = NodeTerm(match_expressions=(Requirement(key="zone", operator="In", values=("x",)),))
    stays = runs("p", "a", 2, required_terms=(only_here,))
    parts = (node("a", labels={"zone": "x"}), node("b"), stays, runs("q", "b", 4, None))
    assert waiting(snapshot(*parts, pod("big", 8))).moves == ()
