"""What people read of a set of changes."""

from __future__ import annotations

from typing import get_args

import pytest

from scheduler_plugin.app.plan_command import describe
from scheduler_plugin.app.plan_lines import pending_causes, pending_line
from scheduler_plugin.documents.change_text import changes_by_uid, remedy_text
from scheduler_plugin.documents.node_rules import TaintEffect
from scheduler_plugin.documents.peer_rule import PeerKind
from scheduler_plugin.documents.plan_changes import (
    RANKS,
    AcceptGpuModel,
    AcceptHostClass,
    AddNodes,
    AllowSlowDown,
    Change,
    DropAffinity,
    DropGangTopology,
    DropPeerRules,
    DropSelector,
    EvictPod,
    FreeOnNode,
    LiftQuarantine,
    LowerGuarantees,
    MovePod,
    RaiseLimit,
    RaiseQuota,
    ReturnNode,
    StatePower,
    TolerateTaint,
)
from scheduler_plugin.documents.plan_document import Pending, PendingReason
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_builders import gang, node, pod, snapshot

NO_SCHEDULE = TaintEffect.NO_SCHEDULE
SAID: list[tuple[tuple[Change, ...], str]] = [
    ((AcceptGpuModel(waiting="p", gpu_model="A100"),), "it took GPU type A100 too"),
    ((AcceptHostClass(waiting="p", part="NIC", name="ib"),), "it took NIC class ib too"),
    (
        (DropSelector(waiting="p", key="zone"), DropSelector(waiting="p", key="disk")),
        "it gave up the node selector zone and disk",
    ),
    ((DropAffinity(waiting="p"),), "it gave up its required node affinity"),
    ((DropPeerRules(waiting="p", rules=PeerKind.SPREAD),), "it gave up its topology spread"),
    ((DropGangTopology(waiting="g"),), "it did not have to be in one topology domain"),
    (
        (TolerateTaint(waiting="p", key="spot", value="yes", effect=NO_SCHEDULE),),
        "it tolerated the taint spot=yes:NoSchedule",
    ),
    ((TolerateTaint(waiting="p", key="k", effect=NO_SCHEDULE),), "it tolerated the taint k:NoSch"),
    ((LiftQuarantine(waiting="p", node="a"),), "its quarantine on a ended"),
    ((ReturnNode(node="a"), ReturnNode(node="b")), "a and b were ready and not cordoned"),
    ((StatePower(node="a"),), "it were known what a draws, below one power domain"),
    (
        (AllowSlowDown(node="a", slow_down_milli=1750),),
        "pods that share a might take 1.75 times as long",
    ),
    (
        (
            RaiseQuota(quota="team-a", resource="memory_bytes", amount=2**30),
            RaiseQuota(quota="org", resource="example.com/licence", amount=3),
        ),
        "quota team-a let in 1.0 GiB of memory more and quota org let in 3 of example.com/licence"
        " more",
    ),
    (
        (RaiseLimit(domain="rack-1", watts=1500), RaiseLimit(domain="row", watts=200)),
        "the limit of rack-1 were 1,500 W higher and the limit of row were 200 W higher",
    ),
    ((LowerGuarantees(domain="r", watts=9),), "guaranteed caps below r were 9 W lower"),
    (
        (MovePod(uid="x", source="a", target="b", gpu_seconds=60),),
        "these moved from a: team/x to b; that costs 60 GPU seconds and pays where it waits for "
        "more than 30 s",
    ),
    (
        (EvictPod(uid="x", node="a", priority=5, gpu_seconds=0),),
        "these of priority 5 or less left a: team/x",
    ),
    (
        (FreeOnNode(node="a", gpus=1, milli_cpu=1500, memory_bytes=2**30, pods=1,
                    resources={"rdma/hca": 2, "nvidia.com/gpu": 1}),),
        "1 GPU, 1.5 CPUs, 1.0 GiB of memory, 1 pod slots and 2 of rdma/hca more were free on a",
    ),
    ((AddNodes(like="a", count=1),), "1 more node like a was there"),
    ((AddNodes(like="a", count=3),), "3 more nodes like a were there"),
]  # fmt: skip


def entry(changes: tuple[Change, ...]) -> Pending:
    return Pending(
        uid="p",
        reason=PendingReason.INSUFFICIENT_GPUS,
        remedy="smallest",
        changes=changes,
        pays_after_seconds=30,
    )


@pytest.mark.parametrize(("changes", "said"), SAID)
def test_each_change_is_a_plain_clause(changes: tuple[Change, ...], said: str) -> None:
    assert remedy_text(entry(changes), {"x": "team/x"}).startswith(f"would start if {said}")


def test_every_kind_of_change_has_a_rank_and_a_clause() -> None:
    kinds = {each.model_fields["kind"].default for each in get_args(get_args(Change)[0])}
    assert kinds == RANKS.keys() == {change.kind for changes, _ in SAID for change in changes}


def test_of_many_moves_some_are_named_and_the_others_counted() -> None:
    moves = tuple(MovePod(uid=f"x{i}", source="a", target="b", gpu_seconds=0) for i in range(500))
    text = remedy_text(entry(moves), {})
    assert text.endswith("x4 to b and 495 more")
    assert len(text) < 200


def test_every_member_of_a_gang_says_what_the_gang_needs() -> None:
    question = snapshot(node("a"), node("b"), gang("g", 3))
    made = plan(question, deadline_seconds=0)
    told, pods = changes_by_uid(made), {p.uid: p for p in question.pods}
    lines = [pending_line(one, told[one.uid], pods) for one in made.pending]
    need = "would start if 1 more node like a was there"
    assert len(lines) == 3
    assert all(need in line["message"] for line in lines)
    assert all(need in text for _, text in pending_causes(made, pods).values())
    assert describe(question, made).count(need) == 3


def test_who_cannot_be_helped_says_so_by_its_cause_alone() -> None:
    question = snapshot(node("a"), pod("p", 16))
    (one,) = plan(question, deadline_seconds=0).pending
    assert (one.remedy, remedy_text(one, {})) == ("none", "")
    assert "16 GPUs in total" in one.message
