"""What people read of a set of changes."""

from __future__ import annotations

from typing import get_args

import pytest

from scheduler_plugin.app.plan_lines import pending_causes, pending_line
from scheduler_plugin.app.plan_text import describe
from scheduler_plugin.documents.change_text import remedy_lines, remedy_text, told_by_uid
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
    WidenUplink,
)
from scheduler_plugin.documents.plan_document import Pending, PendingReason
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_builders import gang, node, pod, snapshot

NO_SCHEDULE = TaintEffect.NO_SCHEDULE
SAID: list[tuple[tuple[Change, ...], str]] = [
    ((AcceptGpuModel(waiting="p", gpu_model="A100"),), "it took GPU type A100 too"),
    ((WidenUplink(group="r", megabits=1500),), "the uplink of r carried 1.5 Gbit/s more"),
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
    whose = {0: "owner: "}.get(RANKS[changes[0].kind], "operator: ")
    whose = "" if isinstance(changes[0], LiftQuarantine) else whose
    assert remedy_text(entry(changes), {"x": "team/x"}).startswith(f"{whose}would start if {said}")


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
    told, pods = told_by_uid(made.pending), {p.uid: p for p in question.pods}
    lines = [pending_line(one, told[one.uid], pods) for one in made.pending]
    need = "would start if 1 more node like a was there"
    assert len(lines) == 3
    assert all(need in line["message"] for line in lines)
    assert all(need in text for _, text in pending_causes(made, pods).values())
    shown = describe(question, made)
    assert shown.count(need) == 1
    assert "  g (3 members) wait: GangExceedsCluster: the cluster has room for 2 of 3 such" in shown


def test_who_cannot_be_helped_is_told_what_stands_against_it() -> None:
    question = snapshot(node("a"), node("b"), pod("p", 16))
    (one,) = plan(question, deadline_seconds=0).pending
    against = "2 nodes are too small even when empty (it asks for 16 GPUs, the largest has 8)"
    assert (one.remedy, remedy_text(one, {})) == (
        "none",
        f"nothing that we know lets it start: {against}",
    )
    assert "16 GPUs in total" in one.message


def test_owner_and_operator_each_have_their_line() -> None:
    changes = (AcceptGpuModel(waiting="p", gpu_model="A100"),)
    raised = (RaiseLimit(domain="rack-1", watts=3200), LiftQuarantine(waiting="p", node="a"))
    both = entry((*changes, *raised))
    assert remedy_lines(entry(changes).model_copy(update={"operator_changes": raised}), {}) == [
        "owner: would start if it took GPU type A100 too",
        "operator: would start if its quarantine on a ended and the limit of rack-1 were 3,200 W"
        " higher",
    ]
    assert remedy_text(both, {}).startswith("owner and operator: would start if it took")
    alone = entry(changes).model_copy(update={"against": "1 node is tainted"})
    assert remedy_lines(alone, {})[1:] == [
        "operator: nothing helps without that: 1 node is tainted"
    ]
