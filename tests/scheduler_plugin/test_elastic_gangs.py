"""Elastic gangs in plans: nobody, or from the least to the most, and as many as can be."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.plan_document import Placement, Plan
from scheduler_plugin.documents.snapshot import Gang, Pod, PodState, Snapshot, parse_snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, node, pod, snapshot
from wattpack.errors import InputError

Split = tuple[Gang, list[Pod]]


def elastic(name: str, least: int, most: int | None, members: int, gpus: int, runs: int) -> Split:
    """The first members are those that start together; the first few of all run."""
    pods = []
    for i in range(max(least, members)):
        where: dict[str, Any] = {"gang": name} if i < least else {"beyond": name}
        uid = f"{name}-{i}"
        pods.append(bound(uid, "far", gpus, **where) if i < runs else pod(uid, gpus, **where))
    return Gang(id=name, size=least, most=most), pods


@st.composite
def gangs(draw: st.DrawFn) -> list[Split]:
    found = []
    for name in "ab"[: draw(st.integers(1, 2))]:
        least = draw(st.integers(1, 3))
        most = draw(st.sampled_from([None, least, least + 1, least + 2]))
        members, gpus = draw(st.integers(0, 5)), draw(st.integers(1, 2))
        runs = draw(st.integers(0, 4))
        found.append(elastic(name, least, most, members, gpus, runs))
    return found


def on(nodes: list[int], split: list[Split]) -> Snapshot:
    parts = [part for gang, pods in split for part in (gang, *pods)]
    rooms = [node(f"n{i}", gpus) for i, gpus in enumerate(nodes)]
    return snapshot(*rooms, node("far", 100), *parts).model_copy()


def may_be(split: Split, new: set[str]) -> bool:
    """The rule in other words: by counts of those there and of those that come."""
    gang, pods = split
    first = [p for p in pods if p.gang]
    last = [p for p in pods if p.beyond]
    waits = {p.uid for p in first if not p.node}
    come = new & {p.uid for p in last}
    if new & waits not in (set(), waits):
        return False
    count = len(come) + sum(bool(p.node) for p in pods)
    return not come or (not waits and (gang.most is None or count <= gang.most))


@examples(80)
@given(gangs(), st.randoms(use_true_random=False))
def test_the_checker_knows_who_may_come(split: list[Split], chance: Any) -> None:
    question = on([100], split)
    waiting = [p for p in question.pods if not p.node]
    new = {p.uid for p in waiting if chance.random() < 0.6}
    placements = tuple(
        Placement(uid=p.uid, node="n0", gang=p.gang, watts=p.gpu_milli * 7 // 10)
        for p in waiting
        if p.uid in new
    )
    rest = [{"uid": p.uid, "reason": "NotExplained"} for p in waiting if p.uid not in new]
    made = Plan.model_validate(
        {"snapshot_digest": question.digest(), "method": "greedy", "pending": rest}, strict=False
    ).model_copy(update={"placements": placements})
    assert (complaints(question, made) == ()) == all(may_be(each, new) for each in split)


@examples(40)
@given(gangs(), st.lists(st.integers(0, 5), min_size=1, max_size=2))
def test_two_plans_place_as_much_as_any_choice_of_members(
    split: list[Split], nodes: list[int]
) -> None:
    """First those that start together, then, beside them, those beyond."""
    # The node that runs some of them is full.
    question = on(nodes, split)
    held = sum(p.gpu_milli for p in question.pods if p.node)
    far = [n.model_copy(update={"gpu_milli": held}) if n.name == "far" else n
           for n in question.nodes]  # fmt: skip
    question = question.model_copy(update={"nodes": tuple(far)})
    for _ in range(2):
        made = plan(question, deadline_seconds=0.1)
        assert made.refusals == ()
        placed = {p.uid: p.node for p in made.placements}
        assert gpus_of(question, set(placed)) == most_gpus(question, split)
        told = {p.uid: p.reason.value for p in made.pending}
        for gang, pods in split:
            if any(p.uid in placed for p in pods if p.gang):
                assert {told[p.uid] for p in pods if p.beyond and p.uid in told} <= {
                    "GangMinimumFirst"
                }, gang.id
        pods = [
            p.model_copy(update={"state": PodState.PROMISED, "node": placed[p.uid]})
            if p.uid in placed
            else p
            for p in question.pods
        ]
        question = question.model_copy(update={"pods": tuple(pods)})
        by_uid = {p.uid: p for p in pods}
        split = [(gang, [by_uid[p.uid] for p in mine]) for gang, mine in split]


def gpus_of(question: Snapshot, uids: set[str]) -> int:
    return sum(p.gpu_milli // 1000 for p in question.pods if p.uid in uids)


def most_gpus(question: Snapshot, split: list[Split]) -> int:
    """Of all ways to send pods that wait to nodes, the most GPUs that keep the rule."""
    waiting = [p for p in question.pods if not p.node]
    room = {n.name: n.gpu_milli for n in question.nodes}
    for p in question.pods:
        if p.node:
            room[p.node] -= p.gpu_milli
    best = 0
    names = [name for name in room if room[name] > 0]
    for choice in itertools.product(("", *names), repeat=len(waiting)):
        new = {p.uid for p, at in zip(waiting, choice, strict=True) if at}
        if gpus_of(question, new) <= best or not all(may_be(each, new) for each in split):
            continue
        left = dict(room)
        for p, at in zip(waiting, choice, strict=True):
            if at:
                left[at] -= p.gpu_milli
        if min(left.values()) >= 0:
            best = gpus_of(question, new)
    return best


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"gangs": [{"id": "g", "size": 3, "most": 2}]}, "gangs.0.most"),
        ({"pods": [{"uid": "p", "beyond": "g"}]}, "pods.beyond"),
        (
            {"gangs": [{"id": "g", "size": 1}], "pods": [{"uid": "p", "gang": "g", "beyond": "g"}]},
            "pods.0.beyond",
        ),
    ],
)
def test_a_split_that_cannot_be_is_refused(document: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_snapshot(json.dumps(document))
    assert refused.value.field == field
