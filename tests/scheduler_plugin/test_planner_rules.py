"""The planner and its judge agree on every pod, node and field; no rule is forgotten by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from scheduler_plugin.documents.host_resources import HOST_RESOURCES
from scheduler_plugin.documents.mig_placement import MigPlacement
from scheduler_plugin.documents.node_rules import (
    NodeTerm,
    Preference,
    Requirement,
    Taint,
    TaintEffect,
    Toleration,
)
from scheduler_plugin.documents.peer_rule import PeerKind, PeerRule
from scheduler_plugin.documents.peer_wish import PeerWish
from scheduler_plugin.documents.plan_document import Pending, PendingReason, Placement, Plan
from scheduler_plugin.documents.snapshot import Gang, Node, Pod, PodState, Snapshot
from scheduler_plugin.explain import pending_causes
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.packing import problem as problem_module
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.promises.ledger import Ledger, Reservation
from scheduler_plugin.room.resource_columns import columns_of, pod_amounts, pod_watts
from scheduler_plugin.rules import static_rules
from scheduler_plugin.rules.static_rules import NO_RULE, STATIC_RULES, StaticRule
from scheduler_plugin.solve import plan
from tests.scheduler_plugin.placement_builders import bound, domain, node, pod, quota, snapshot

APART = PeerRule(kind=PeerKind.APART, group="held", topology_key="zone")
TOGETHER = PeerRule(kind=PeerKind.TOGETHER, group="held", topology_key="zone")
TAINT = Taint(key="t", effect=TaintEffect.NO_SCHEDULE)
TERM = NodeTerm(match_expressions=(Requirement(key="zone", operator="In", values=("a",)),))
EXTENDED: tuple[dict[str, int], ...] = (
    {},
    {"rdma/hca": 1},
    {"rdma/hca": 2, "hugepages-2Mi": 4},
    *({name: amount} for name in HOST_RESOURCES for amount in (1, 2)),
)

#: A pod that fits, and what else each field may say; a field that is not here fails a test below.
POD_FIELDS: dict[str, tuple[Any, ...]] = {
    "uid": ("p",),
    "namespace": ("team",),
    "name": ("p",),
    "priority": (0, 5),
    "state": (PodState.PENDING,),
    "node": ("",),
    "gang": ("",),
    "gpu_milli": (1000, 0, 500, 8000, 9000),
    "gpu_boards": ((),),
    "mig_profiles": ({}, {"1g.18gb": 1}),
    "mig_placements": ((),),
    "drawn_milli": (0, 143),
    "milli_cpu": (1000, 0, 96_000, 97_000),
    "memory_bytes": (1, 0, 2**30, 2**31),
    "resources": EXTENDED,
    "gpu_models": ((), ("H200",), ("A100",)),
    "gpu_model_values": ({}, {"H200": 1000, "A100": 400}),
    "cpu_classes": ((), ("genoa",), ("milan", "rome")),
    "cpu_class_values": ({}, {"genoa": 1000, "milan": 700}),
    "nic_classes": ((), ("8x400g-roce",), ("ib",)),
    "node_selector": ({}, {"zone": "a"}),
    "required_terms": ((), (TERM,)),
    "preferences": ((), (Preference(weight=100, term=TERM),)),
    "tolerations": ((), (Toleration(key="t", operator="Exists"),)),
    "kernel_class": ("", "decode"),
    "peak_flow_megabits": (0, 1000),
    "expected_watts_per_gpu": (None, 100),
    "least_cap_milli": (0, 500),
    "cap_watts": (0,),
    "excluded_nodes": ((), ("n",)),
    "shared_work": ("", "chat"),
    "move_seconds": (None, 60),
    "expected_end_seconds": (None, 60),
    "groups": ((), ("other",)),
    "peer_rules": ((), (APART,), (TOGETHER,)),
    "wished_groups": ((), ("held",)),
    "peer_wishes": ((), (PeerWish(weight=1, group="held", topology_key="zone", near=True),)),
    "beyond": ("", "g"),
    "quotas": ((), ("roomy",), ("full",), ("full", "roomy"), ("small",)),
}
NODE_FIELDS: dict[str, tuple[Any, ...]] = {
    "name": ("n",),
    "gpu_model": ("H200", "A100"),
    "gpu_milli": (8000, 0),
    "milli_cpu": (96_000, 500),
    "memory_bytes": (2**30, 0),
    "pods": (110, 0, 1),
    "resources": EXTENDED,
    "cpu_class": ("", "genoa"),
    "nic_class": ("", "8x400g-roce"),
    "labels": ({}, {"zone": "a"}, {"zone": "b"}),
    "taints": ((), (TAINT,)),
    "domain": ("row", ""),
    "rival_domains": ((), ("other",)),
    "idle_watts": (0, 50),
    "watts_per_gpu": (700, 0),
    "class_watts_per_gpu": ({}, {"decode": 300}),
    "caps_held": (False, True),
    "gpu_hour_cost_milli": (0, 5),
    "carbon_grams_per_kwh": (0, 5),
    "power_known": (True, False),
    "ready": (True, False),
    "schedulable": (True, False),
    "disrupted": (False, True),
    "shared_boards": (1, 2),
    "slow_down_limit_milli": (0, 1300),
    "mig_geometry": ("", "H200-141GB", "A30-24GB"),
}
#: What is left below the breaker, the margin of I1, and what another pod holds on the node.
AROUND: tuple[tuple[int, int, dict[str, int] | None], ...] = (
    (10_000, 0, None),
    (699, 0, None),
    (10_000, -1, None),
    (10_000, 0, {"rdma/hca": 1}),
)


def changed(values: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """The first values, then each other value of each field alone."""
    first = {name: each[0] for name, each in values.items()}
    yield first
    for name, each in values.items():
        for other in each[1:]:
            yield first | {name: other}


@cache
def questions() -> tuple[Snapshot, ...]:
    """One waiting pod and one node, each with at most one field changed, in each surrounding."""
    return tuple(
        snapshot(
            Pod(**of_pod | ({"gpu_milli": 0} if of_pod["mig_profiles"] else {})),
            Node(**of_node),
            domain("row", limit, margin=margin),
            Gang(id="g", size=1),
            quota("roomy", pods=1, gpu_milli=8000),
            quota("full", pods=0),
            quota("small", gpu_milli=1000, milli_cpu=10**6),
            *(
                []
                if held is None
                else [bound("b", "n", 1, resources=held, memory_bytes=0, groups=("held",))]
            ),
        )
        for of_pod in changed(POD_FIELDS)
        for of_node in changed(NODE_FIELDS)
        for limit, margin, held in AROUND
    )


def disagreement() -> Snapshot | None:
    """The first question that the planner and its judge answer differently."""
    return next((q for q in questions() if planner_says(q) is not judge_says(q)), None)


def planner_says(question: Snapshot) -> bool:
    problem = compile_problem(question)
    return bool(problem.classes) and Packing(problem).admits(0, 0, ())


def judge_says(question: Snapshot) -> bool:
    waiting = next(p for p in question.pods if p.uid == "p")
    last = max(0, question.nodes[0].gpu_milli // 1000 - 1)
    boards = (last,) if 0 < waiting.gpu_milli < 1000 else ()
    watts = pod_watts(waiting, question.nodes[0])
    cuts = tuple(MigPlacement(profile=name, board=last, start=0) for name in waiting.mig_profiles)
    placement = Placement(uid="p", node="n", watts=watts, boards=boards, mig=cuts)
    answer = Plan(snapshot_digest=question.digest(), method="greedy", placements=(placement,))
    return complaints(question, answer) == ()


def test_every_field_of_pods_and_nodes_takes_part() -> None:
    """Whoever adds a field says here what it may hold, and meets the comparison below."""
    assert set(POD_FIELDS) == set(Pod.model_fields)
    assert set(NODE_FIELDS) == set(Node.model_fields)
    assert set(Pod.model_fields) >= NO_RULE


def test_the_planner_places_a_pod_exactly_where_its_judge_allows_it() -> None:
    assert disagreement() is None
    assert 0.05 < sum(map(planner_says, questions())) / len(questions()) < 0.95


@pytest.mark.parametrize("rule", STATIC_RULES, ids=lambda rule: str(rule.reason))
def test_a_rule_that_the_mask_forgets_is_noticed(
    rule: StaticRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tuple(other for other in STATIC_RULES if other is not rule)
    monkeypatch.setattr(static_rules, "STATIC_RULES", left)
    found = disagreement()
    assert found is not None
    assert planner_says(found)


@pytest.mark.parametrize("name", ["gpu_milli", "milli_cpu", "memory_bytes", "resources"])
def test_an_amount_that_the_columns_forget_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty: dict[str, Any] = {name: {} if name == "resources" else 0}

    def forgetful(of: Pod) -> dict[str, int]:
        return pod_amounts(of.model_copy(update=empty))

    monkeypatch.setattr(problem_module, "pod_amounts", forgetful)
    found = disagreement()
    assert found is not None
    assert planner_says(found)


def test_the_columns_name_every_resource_that_a_waiting_pod_asks_for() -> None:
    assert columns_of([pod("p", resources={"b/x": 1}), pod("q", resources={"a/x": 1})])[4:] == (
        "a/x",
        "b/x",
    )


RULE_FIELDS = [(f, each[-1]) for f, each in POD_FIELDS.items() if f not in NO_RULE]


@pytest.mark.parametrize(("field", "value"), RULE_FIELDS)
def test_a_kept_place_is_only_for_a_pod_that_every_rule_treats_alike(
    field: str, value: object
) -> None:
    ledger = Ledger()
    ledger.reserve(Reservation("g#0", "n", "g", pod("t", gang="g"), 10**12))
    assert ledger.claim(pod("p", gang="g", **{field: value})) is None
    assert ledger.claim(pod("p", gang="g")) is not None


def test_a_kept_place_is_only_for_a_pod_that_it_has_room_for() -> None:
    ledger = Ledger()
    template = pod("t", gang="g", resources={"rdma/hca": 1})
    ledger.reserve(Reservation("g#0", "n", "g", template, 10**12))
    assert ledger.claim(pod("p", gang="g", resources={"rdma/hca": 2})) is None
    assert ledger.claim(pod("p", gang="g", resources={"b/x": 1})) is None
    assert ledger.claim(pod("p", gang="g")) is not None


def cause(*parts: Any) -> Pending:
    (entry,) = plan(snapshot(*parts), deadline_seconds=0).pending
    return entry


@pytest.mark.parametrize(
    ("resource", "amount", "message"),
    [
        ("rdma/hca", 2, "2 of rdma/hca"),
        ("ephemeral-storage", 10 * 2**30, "10,737,418,240 of ephemeral-storage"),
        ("hugepages-1Gi", 2**30, "1,073,741,824 of hugepages-1Gi"),
        ("amd.com/gpu", 1, "1 of amd.com/gpu"),
    ],
)
def test_a_resource_that_no_node_has_keeps_the_pod_off_every_node(
    resource: str, amount: int, message: str
) -> None:
    wants = pod("p", resources={resource: amount})
    entry = cause(node("a", resources={"nvidia.com/gpu": 8}), node("b"), wants)
    assert entry.reason is PendingReason.LARGER_THAN_ANY_NODE
    assert message in entry.message
    has = node("c", resources={resource: amount})
    placed = plan(snapshot(node("a"), has, wants), deadline_seconds=0).placements
    assert [p.node for p in placed] == ["c"]


def test_a_resource_that_others_hold_is_told_with_what_is_left() -> None:
    parts = (
        node("a", resources={"rdma/hca": 3}),
        bound("b", "a", resources={"rdma/hca": 2}),
        pod("p", resources={"rdma/hca": 2}),
    )
    entry = cause(*parts)
    assert entry.reason is PendingReason.INSUFFICIENT_RESOURCE
    assert entry.message.startswith("needs 2 of rdma/hca on one node; the only eligible")
    assert "at most 1 of rdma/hca free" in entry.message


def test_the_solver_shares_an_extended_resource_like_any_other() -> None:
    """Two nodes with one adapter each: CP-SAT may not send both pods to the fuller node."""
    wants = [pod(f"p{i}", 1, resources={"rdma/hca": 1}) for i in range(3)]
    nodes = [node(name, resources={"rdma/hca": 1}) for name in ("a", "b")]
    made = plan(snapshot(*nodes, *wants), deadline_seconds=0.2)
    assert sorted(p.node for p in made.placements) == ["a", "b"]
    assert made.refusals == ()


def test_every_static_reason_is_told() -> None:
    assert {rule.reason for rule in STATIC_RULES} <= pending_causes._STATIC_REASONS
