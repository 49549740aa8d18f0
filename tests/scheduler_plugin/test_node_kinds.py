"""Kinds of nodes answer every static rule as each node would."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.node_rules import (
    NodeTerm,
    Requirement,
    Taint,
    TaintEffect,
    Toleration,
)
from scheduler_plugin.documents.snapshot import Node, Pod
from scheduler_plugin.rules.node_kinds import node_kinds
from scheduler_plugin.rules.static_rules import STATIC_RULES, static_mask
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import node, pod

KEYS = st.sampled_from(["zone", "rack", "count"])
VALUES = st.sampled_from(["a", "b", "7", "9"])
NAMES = ("n0", "n1", "7", "9", "n4", "n5")
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])


def requirements(
    keys: st.SearchStrategy[str], values: st.SearchStrategy[str]
) -> st.SearchStrategy[tuple[Requirement, ...]]:
    some = st.lists(values, max_size=2).map(tuple)
    one = st.builds(Requirement, key=keys, operator=OPERATORS, values=some)
    return st.lists(one, max_size=2).map(tuple)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    fields = requirements(st.just("metadata.name"), st.sampled_from(NAMES))
    terms = st.builds(NodeTerm, match_expressions=requirements(KEYS, VALUES), match_fields=fields)
    tolerations = st.sampled_from([(), (Toleration(key="dedicated", operator="Exists"),)])
    return pod(
        "p",
        gpu_models=draw(st.sampled_from([(), ("H200",), ("A40", "H200")])),
        node_selector=draw(st.dictionaries(KEYS, VALUES, max_size=2)),
        required_terms=tuple(draw(st.lists(terms, max_size=2))),
        tolerations=draw(tolerations),
        excluded_nodes=tuple(draw(st.lists(st.sampled_from(NAMES), max_size=2))),
    )


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    """Of two makes, so that many of them differ in their labels alone."""
    taints = [(), tuple(Taint(key="dedicated", effect=effect) for effect in TaintEffect)]
    flags = ("ready", "schedulable", "disrupted", "power_known")
    makes = [
        {
            "gpu_model": draw(st.sampled_from(["H200", "A40", ""])),
            "taints": draw(st.sampled_from(taints)),
            **{flag: draw(st.booleans()) for flag in flags},
            "rival_domains": draw(st.sampled_from([(), ("other",)])),
        }
        for _ in range(2)
    ]
    labels = st.dictionaries(KEYS, VALUES, max_size=3)
    return [node(name, labels=draw(labels), **draw(st.sampled_from(makes))) for name in NAMES]


@examples(200)
@given(nodes(), st.lists(pods(), min_size=1, max_size=3))
def test_a_kind_answers_for_each_of_its_nodes(there: list[Node], asking: list[Pod]) -> None:
    kinds = node_kinds(there, asking)
    for each in asking:
        alone = {r.reason: [r.holds(each, n) for n in there] for r in STATIC_RULES}
        for rule in STATIC_RULES:
            assert kinds.mask(partial(rule.holds, each)).tolist() == alone[rule.reason]
        assert static_mask(kinds, each).tolist() == [
            all(row) for row in zip(*alone.values(), strict=True)
        ]


def test_nodes_that_differ_only_where_nobody_looks_are_one_kind() -> None:
    there = [
        node(f"n{i}", gpus=i, labels={"kubernetes.io/hostname": f"n{i}", "zone": "a"})
        for i in range(6)
    ]
    assert len(node_kinds(there, [pod("p", node_selector={"zone": "a"})]).examples) == 1
    assert len(node_kinds(there, [pod("p", excluded_nodes=("n2",))]).examples) == 2
    assert len(node_kinds([], [pod("p")]).examples) == 0
    assert node_kinds([], [pod("p")]).mask(lambda n: True).shape == (0,)
