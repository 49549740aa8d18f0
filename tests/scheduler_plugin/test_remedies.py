"""What waiting pods are told would let them start: enough, needed, and the least that others feel.

The benchmark's judge makes the changes by hand and asks planner and checker again.
"""

from __future__ import annotations

import json
import random
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks._explain_cases import KINDS, random_snapshot
from benchmarks._explain_judge import altered, frozen, is_placed
from benchmarks.explain_truth import judged, judged_instead
from scheduler_plugin.documents.change_text import remedy_text
from scheduler_plugin.documents.changed_snapshot import apply_changes
from scheduler_plugin.documents.mig_placement import MigPlacement
from scheduler_plugin.documents.node_rules import Taint, TaintEffect
from scheduler_plugin.documents.plan_changes import (
    RANKS,
    AddNodes,
    Change,
    DropSelector,
    EvictPod,
    FreeOnNode,
    MovePod,
    RaiseLimit,
    ReturnNode,
    is_of_request,
)
from scheduler_plugin.documents.plan_document import Pending, PendingReason, Plan, parse_plan
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.explain import static_needs
from scheduler_plugin.explain.pending_remedies import explained
from scheduler_plugin.explain.static_needs import NodeRules
from scheduler_plugin.packing.greedy_orders import incumbent
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.rules.static_rules import STATIC_RULES, StaticRule
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import (
    bound,
    domain,
    gang,
    node,
    pod,
    snapshot,
)
from wattpack.errors import InputError

SEEDS = st.integers(0, 10**6)


def told(question: Snapshot) -> Pending:
    """What the only pod that waits is told, or the first member of the only gang."""
    return plan(question, deadline_seconds=0).pending[0]


def kinds(entry: Pending) -> list[str]:
    return [change.kind for change in entry.changes]


@examples(14)
@given(st.sampled_from(["rules", "types", "peers", "gangs"]), SEEDS)
def test_what_operators_could_do_instead_is_as_true_and_asks_no_owner(kind: str, seed: int) -> None:
    question = random_snapshot(kind, seed)
    made = plan(question, deadline_seconds=1.0)
    for entry in made.pending:
        asks_owner = any(is_of_request(change) for change in entry.changes)
        assert bool(entry.operator_changes or (entry.changes and entry.against)) == asks_owner
    entries = [p for p in made.pending if p.operator_changes]
    for entry in random.Random(seed).sample(entries, min(2, len(entries))):
        verdict = judged_instead(question, made, json.loads(entry.model_dump_json()))
        assert not verdict["asks_owner"]
        assert verdict["placed"]
        assert verdict["needed"] or entry.gang


@examples(14)
@example("peers", 262144)
@given(st.sampled_from(list(KINDS)), SEEDS)
def test_all_of_it_is_enough_and_nothing_of_it_can_be_left_out(kind: str, seed: int) -> None:
    question = random_snapshot(kind, seed)
    made = plan(question, deadline_seconds=1.0)
    entries = [json.loads(p.model_dump_json()) for p in made.pending if p.changes]
    for entry in random.Random(seed).sample(entries, min(2, len(entries))):
        verdict = judged(question, made, entry)
        assert verdict["alike"]
        assert verdict["placed"]
        # A gang's members are packed by rule of thumb: the benchmark counts how often it errs.
        assert verdict["needed"] or entry["gang"]


@examples(14)
@given(st.sampled_from(list(KINDS)), SEEDS)
def test_nothing_that_others_feel_less_would_do(kind: str, seed: int) -> None:
    """All limits, all nodes and the pod's own rules are given up, up to the rank below."""
    question = random_snapshot(kind, seed)
    made = plan(question, deadline_seconds=1.0)
    entries = [p for p in made.pending if p.changes and not p.gang]
    for entry in random.Random(seed).sample(entries, min(2, len(entries))):
        worst = max(RANKS[change.kind] for change in entry.changes)
        base = frozen(json.loads(question.model_dump_json()), json.loads(made.model_dump_json()),
                      json.loads(entry.model_dump_json()))  # fmt: skip
        assert not is_placed(given_up(base, worst))


def given_up(base: dict[str, Any], worst: int) -> dict[str, Any]:
    """Everything that ranks below the worst change, as far as it moves and evicts nobody."""
    eased = altered(base, [])
    nodes = {"ready": True, "schedulable": True, "disrupted": False, "power_known": True}
    request = {"gpu_models": [], "node_selector": {}, "required_terms": [], "excluded_nodes": []}
    tolerant = {"tolerations": [{"key": "", "operator": "Exists"}]}
    limits = {"limit_watts": 10**9, "guaranteed_margin_watts": 0}
    for each in eased["nodes"] if worst > 1 else ():
        each |= nodes
    for each in eased["domains"] if worst > 2 else ():
        each |= limits
    for each in eased["pods"] if worst > 0 else ():
        if each["state"] not in ("bound", "promised"):
            each |= request | tolerant
    return eased


@examples(40)
@given(SEEDS)
def test_a_group_of_nodes_needs_what_each_of_its_nodes_needs(seed: int) -> None:
    """Against every rule on every node, one by one."""
    question = random_snapshot("rules", seed)
    rules = NodeRules(question)
    for each in [p for p in question.pods if not p.node][:5]:
        needs = rules.needs(each)
        for i, at in enumerate(question.nodes):
            failed = [not rule.holds(each, at) for rule in STATIC_RULES]
            assert needs.failed[i] == sum(1 << k for k, fails in enumerate(failed) if fails)
            own = needs.named(i, each.uid)
            assert len(own) == needs.asked_of_the_pod[i]
            eased = apply_changes(question, own)
            (after,) = [p for p in eased.pods if p.uid == each.uid]
            left = [rule for rule in STATIC_RULES if not rule.holds(after, at)]
            assert bool(left) == bool(needs.of_the_node[i])


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((node("a"), pod("p", 4, gpu_models=("B200",))), ["accept_gpu_model"]),
        ((node("a"), pod("p", 4, node_selector={"x": "1", "y": "2"})), ["drop_selector"] * 2),
        (
            (node("a", taints=(Taint(key="t", effect=TaintEffect.NO_SCHEDULE),)), pod("p")),
            ["tolerate_taint"],
        ),
        ((node("a", schedulable=False), pod("p")), ["return_node"]),
        ((node("a", power_known=False), pod("p")), ["state_power"]),
        ((node("a", rival_domains=("r",)), pod("p")), ["state_power"]),
        ((node("a"), pod("p", excluded_nodes=("a",))), ["lift_quarantine"]),
        ((node("a", domain="r"), domain("r", 600), pod("p")), ["raise_limit"]),
        (
            (node("a", domain="r"), domain("r", 100, parent="s"), domain("s", 200), pod("p")),
            ["raise_limit", "raise_limit"],
        ),
        ((node("a", domain="r"), domain("r", 9000, margin=-5), pod("p")), ["lower_guarantees"]),
        ((node("a", 4), bound("b", "a", 2), pod("p", 4)), ["free_on_node"]),
        ((node("a", 4), pod("p", 8)), []),
        ((node("a"), gang("g", 3)), ["add_nodes"]),
    ],
)
def test_each_hindrance_has_its_remedy(parts: tuple[Any, ...], expected: list[str]) -> None:
    entry = told(snapshot(*parts))
    assert kinds(entry) == expected
    assert entry.remedy == ("smallest" if expected else "none")


def test_two_domains_that_bind_are_both_told_with_what_each_lacks() -> None:
    parts = (node("a", domain="r"), domain("r", 500, parent="s"), domain("s", 900, 300), pod("p"))
    assert told(snapshot(*parts)).changes == (
        RaiseLimit(domain="r", watts=200),
        RaiseLimit(domain="s", watts=100),
    )


def test_a_domain_that_is_over_its_limit_lacks_what_it_is_over_too() -> None:
    parts = (node("a", domain="r"), domain("r", 500, 800), pod("p"))
    assert told(snapshot(*parts)).changes == (RaiseLimit(domain="r", watts=1000),)


def test_the_pod_s_own_request_goes_before_limits_and_limits_before_moves() -> None:
    full = (node("a", 2), bound("b", "a", 2, move_seconds=1), node("c", 2))
    short = (node("d", 2, domain="r"), domain("r", 100))
    other = node("e", 2, gpu_model="A100")
    filled = bound("f", "c", 1)
    asks = pod("p", 2, gpu_models=("H200",))
    assert kinds(told(snapshot(*full, filled, *short, other, asks))) == ["accept_gpu_model"]
    assert kinds(told(snapshot(*full, filled, *short, asks))) == ["raise_limit"]
    one_moves = (node("a", 2), bound("b", "a", 1, move_seconds=1), node("c", 2), filled)
    assert kinds(told(snapshot(*one_moves, asks))) == ["move_pod"]
    assert kinds(told(snapshot(*full, filled, asks))) == ["free_on_node"]


def test_a_less_important_pod_is_evicted_only_where_it_can_go_nowhere() -> None:
    parts = (node("a", 2), bound("b", "a", 2, move_seconds=7), pod("p", 2, priority=1))
    entry = told(snapshot(*parts))
    assert entry.changes == (EvictPod(uid="b", node="a", priority=0, gpu_seconds=14),)
    assert entry.pays_after_seconds == 7
    roomy = (node("a", 4), bound("b", "a", 2, move_seconds=7), node("z", 2))
    assert kinds(told(snapshot(*roomy, pod("p", 4, priority=1)))) == ["move_pod"]
    assert kinds(told(snapshot(parts[0], parts[1], pod("p", 2)))) == ["free_on_node"]


def test_what_a_later_change_makes_needless_is_not_told() -> None:
    """One member could go onto the A100s, but the move that the other one needs serves both."""
    parts = (node("a"), node("b", gpu_model=""), node("c", 4, gpu_model="A100"))
    runs = bound("p", "a", 8, move_seconds=1)
    entry = told(snapshot(*parts, runs, gang("g", 2, gpus=4, gpu_models=("H200",))))
    assert kinds(entry) == ["move_pod"]


def test_a_gang_is_told_once_for_all_of_its_members() -> None:
    first, *others = plan(snapshot(node("a"), node("b"), gang("g", 3)), deadline_seconds=0).pending
    assert first.changes == (AddNodes(like="a", count=1),)
    assert [(one.remedy, one.changes) for one in others] == [("smallest", ())] * 2


def test_when_time_is_over_the_cause_is_told_alone() -> None:
    question = snapshot(node("a", 4), bound("b", "a", 2), *(pod(f"p{i}", 3 + i) for i in range(2)))
    problem = compile_problem(question)
    start = incumbent(problem, lambda best: True)

    def within(looks: int) -> tuple[Pending, ...]:
        asked = count()
        return explained(problem, start, lambda: next(asked) >= looks)

    assert {entry.reason for entry in within(0)} == {PendingReason.NOT_EXPLAINED}
    causes_alone = within(2)
    assert {entry.reason for entry in causes_alone} == {PendingReason.INSUFFICIENT_GPUS}
    assert {entry.remedy for entry in causes_alone} == {"late"}
    assert "time was over" in remedy_text(causes_alone[0], {})
    assert any({entry.remedy for entry in within(k)} == {"late", "smallest"} for k in range(12))
    assert {entry.remedy for entry in within(12)} == {"smallest"}


def test_identical_pods_are_told_the_same_about_themselves() -> None:
    parts = (
        node("a", 4),
        pod("p", 2, node_selector={"x": "1"}),
        pod("q", 2, node_selector={"x": "1"}),
    )
    entries = plan(snapshot(*parts), deadline_seconds=0).pending
    assert [entry.changes for entry in entries] == [
        (DropSelector(waiting=uid, key="x"),) for uid in "pq"
    ]


def test_the_document_keeps_changes_to_the_letter() -> None:
    made = plan(random_snapshot("types", 3), deadline_seconds=0)
    assert any(entry.changes for entry in made.pending)
    assert parse_plan(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (RaiseLimit(domain="x", watts=1), "changes.domain"),
        (ReturnNode(node="x"), "changes.node"),
        (MovePod(uid="p", source="a", target="b", gpu_seconds=0), "changes.uid"),
        (MovePod(uid="b", source="a", target="x", gpu_seconds=0), "changes.node"),
        (EvictPod(uid="b", node="c", priority=0, gpu_seconds=0), "changes.uid"),
        (DropSelector(waiting="b", key="k"), "changes.waiting"),
        (FreeOnNode(node="x"), "changes.node"),
    ],
)
def test_a_change_of_what_is_not_there_is_refused_by_its_field(change: Change, field: str) -> None:
    question = snapshot(node("a"), node("c"), bound("b", "a"), pod("p"))
    with pytest.raises(InputError) as error:
        apply_changes(question, [change])
    assert error.value.field == field


def test_more_is_free_on_a_node_that_holds_more_than_it_offers() -> None:
    question = snapshot(node("a", 2), bound("b", "a", 2), bound("c", "a", 2), pod("p", 1))
    entry = told(question)
    assert entry.changes == (FreeOnNode(node="a", gpus=1),)
    after = apply_changes(question, entry.changes)
    assert [p.uid for p in plan(after, deadline_seconds=0).placements] == ["p"]


def test_a_share_that_lacks_only_cores_asks_for_no_board() -> None:
    busy = bound("b", "a", gpu_milli=500, milli_cpu=95_000)
    entry = told(snapshot(node("a", 1), busy, pod("p", gpu_milli=400, milli_cpu=4_000)))
    assert entry.changes == (FreeOnNode(node="a", milli_cpu=3_000),)
    full = bound("b", "a", gpu_milli=700)
    entry = told(snapshot(node("a", 1), full, pod("p", gpu_milli=400)))
    assert entry.changes == (FreeOnNode(node="a", gpus=1),)


@pytest.mark.parametrize(
    ("fills", "asks", "gpus"),
    [
        ({"mig_profiles": {"7g.40gb": 2}}, {"mig_profiles": {"7g.40gb": 2}}, 2),
        ({"mig_profiles": {"7g.40gb": 2}}, {"mig_profiles": {"1g.5gb": 2}}, 1),
        ({"mig_profiles": {"7g.40gb": 2}}, {"mig_profiles": {"1g.5gb": 8}}, 2),
        ({"mig_profiles": {"7g.40gb": 2}}, {"mig_profiles": {"3g.20gb": 1, "2g.10gb": 1}}, 1),
        ({"mig_profiles": {"3g.20gb": 3}}, {"mig_profiles": {"3g.20gb": 4}}, 2),
        ({"gpu_milli": 2_000}, {"gpu_milli": 400}, 1),
    ],
)
def test_who_asks_for_parts_of_boards_is_told_the_fewest_boards_that_are_enough(
    fills: dict[str, Any], asks: dict[str, Any], gpus: int
) -> None:
    cut = node("a", 2, mig_geometry="A100-40GB")
    question = snapshot(cut, bound("b", "a", 0, **fills), pod("p", 0, **asks))
    entry = told(question)
    assert entry.changes == (FreeOnNode(node="a", gpus=gpus),)
    after = apply_changes(question, entry.changes)
    assert [p.uid for p in plan(after, deadline_seconds=0).placements] == ["p"]


def test_who_leaves_a_cut_board_has_no_place_on_another_node_s() -> None:
    cut = {"mig_geometry": "A100-40GB"}
    there = MigPlacement(profile="7g.40gb", board=3, start=0)
    runs = bound("b", "a", 0, mig_profiles={"7g.40gb": 1}, mig_placements=(there,))
    question = snapshot(node("a", 4, **cut), node("z", 1, **cut), runs)
    for change in (
        MovePod(uid="b", source="a", target="z", gpu_seconds=1),
        EvictPod(uid="b", node="a", priority=0, gpu_seconds=1),
    ):
        (after,) = apply_changes(question, (change,)).pods
        assert after.mig_placements == ()


def test_the_judge_sees_what_is_too_little_and_what_is_not_needed() -> None:
    question = snapshot(node("a", domain="r"), domain("r", 600), pod("p"))
    made = plan(question, deadline_seconds=0)

    def verdict(*changes: Change) -> dict[str, Any]:
        entry = made.pending[0].model_copy(update={"changes": changes})
        claimed = Plan(**(dict(made) | {"pending": (entry,)}))
        return judged(question, claimed, json.loads(entry.model_dump_json()))

    assert not verdict(RaiseLimit(domain="r", watts=99))["placed"]
    assert not verdict(RaiseLimit(domain="r", watts=101))["less"]
    more = (RaiseLimit(domain="r", watts=100), ReturnNode(node="a"))
    assert not verdict(*more)["needed"]
    exact = verdict(RaiseLimit(domain="r", watts=100))
    assert [exact[key] for key in ("placed", "needed", "less")] == [True] * 3


def test_a_thousand_nodes_are_asked_by_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    question = snapshot(*(node(f"n{i}") for i in range(1000)), pod("p", 8, gpu_models=("B200",)))
    first, asked = STATIC_RULES[0], list[str]()

    def holds(of: Pod, at: Node) -> bool:
        asked.append(at.name)
        return first.holds(of, at)

    table = (StaticRule(first.reason, holds, first.says), *STATIC_RULES[1:])
    monkeypatch.setattr(static_needs, "STATIC_RULES", table)
    assert (NodeRules(question).needs(question.pods[0]).failed == 1).all()
    assert len(asked) == 1
