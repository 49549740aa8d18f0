"""Who cannot be helped is told what stands against it, each node counted once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._explain_cases import KINDS, random_snapshot
from scheduler_plugin.documents.change_text import told_by_uid
from scheduler_plugin.documents.node_rules import Taint, TaintEffect
from scheduler_plugin.documents.plan_document import Pending
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.explain.obstacles import RULED_OUT
from scheduler_plugin.rules.static_rules import STATIC_RULES
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, gang, node, pod, snapshot

KEYLESS = Taint(key="", effect=TaintEffect.NO_SCHEDULE)


def told(of: Snapshot) -> Pending:
    return plan(of, deadline_seconds=0).pending[0]


def test_every_rule_has_its_words() -> None:
    assert {rule.reason for rule in STATIC_RULES} == RULED_OUT.keys()


@pytest.mark.parametrize(
    ("of", "against"),
    [
        (snapshot(pod("p")), "the cluster has no nodes"),
        (snapshot(node("a", taints=(KEYLESS,)), pod("p")), "1 node is tainted"),
        (
            snapshot(node("a", 4), node("b", gpu_model=""), pod("p", gpu_models=("H200",), gpus=5)),
            "1 node is of another GPU type, 1 node is too small even when empty",
        ),
        (
            snapshot(node("a", milli_cpu=8000), pod("p", milli_cpu=9000)),
            "1 node is too small even when empty (it asks for 9 CPUs, the largest has 8)",
        ),
    ],
)
def test_without_any_remedy_the_nodes_say_why(of: Snapshot, against: str) -> None:
    entry = told(of)
    assert (entry.remedy, entry.changes, entry.against) == ("none", (), against)


@pytest.mark.parametrize(
    ("of", "against"),
    [
        (
            snapshot(node("a"), node("b", 2), pod("p", 4, gpu_models=("B300",))),
            "2 nodes are of another GPU type",
        ),
        (
            snapshot(node("a", 2), node("b", gpu_model="L4"), pod("p", 4, gpu_models=("H200",))),
            "1 node is of another GPU type, 1 node is too small even when empty",
        ),
        (
            snapshot(
                node("a", 8),
                *(node(f"l{i}", gpu_model="L4") for i in range(3)),
                gang("g", 3, gpu_models=("H200",)),
            ),
            "",
        ),
    ],
)
def test_without_an_operators_remedy_the_owners_choices_stand_against_nodes(
    of: Snapshot, against: str
) -> None:
    entry = told(of)
    assert entry.changes
    assert entry.against == against
    # More nodes are the operator's to give, where any like them would do.
    assert bool(entry.operator_changes) == (not against)


def test_a_full_node_of_the_right_kind_is_the_operators_to_free() -> None:
    of = snapshot(
        node("a"), bound("x", "a", 8), node("b", gpu_model="L4"), pod("p", gpu_models=("H200",))
    )
    entry = told(of)
    assert [change.kind for change in entry.changes] == ["accept_gpu_model"]
    assert [change.kind for change in entry.operator_changes] == ["free_on_node"]


@examples(20)
@given(st.sampled_from(list(KINDS)), st.integers(0, 10**6))
def test_no_node_counts_twice(kind: str, seed: int) -> None:
    of = random_snapshot(kind, seed)
    for entry in told_by_uid(plan(of, deadline_seconds=0.5).pending).values():
        counted = [int(n) for n in re.findall(r"(\d+) nodes? (?:are|is) ", entry.against)]
        assert sum(counted) <= len(of.nodes)
        assert entry.remedy != "none" or entry.against or entry.reason == "GangIncomplete"
