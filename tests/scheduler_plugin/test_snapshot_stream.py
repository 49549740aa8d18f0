"""Snapshots as changes: whoever follows has the same, and its digest says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from scheduler_plugin.documents.snapshot import Snapshot, parse_snapshot
from scheduler_plugin.documents.snapshot_stream import SnapshotReceiver, SnapshotSender
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, domain, gang, node, pod, snapshot
from tests.scheduler_plugin.test_planner_properties import snapshots


@examples(30, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(snapshots(), min_size=1, max_size=4))
def test_who_follows_the_changes_has_what_was_sent(cycles: list[Snapshot]) -> None:
    sender, receiver = SnapshotSender(), SnapshotReceiver()
    for sent in cycles:
        received, digest = receiver.follow(sender.change(sent))
        assert received == sent
        assert digest == sent.digest() == received.digest()


def test_only_what_is_new_is_sent() -> None:
    before = snapshot(node("a"), node("b"), bound("x", "a"), bound("y", "b"), pod("p"))
    after = snapshot(node("a"), node("b", ready=False), bound("y", "b"), bound("p", "a"), pod("q"))
    sender = SnapshotSender()
    sender.change(before)
    change = sender.change(after)
    assert [b'"b"' in text for text in change.nodes.new] == [True]
    assert [text.split(b'"')[3] for text in change.pods.new] == [b"p", b"q"]
    assert list(change.pods.order) == [-1, -1, 2]


def test_a_receiver_that_missed_a_change_has_another_digest() -> None:
    sender, receiver = SnapshotSender(), SnapshotReceiver()
    one = snapshot(node("a"), pod("p"), pod("q"))
    two = snapshot(node("a"), pod("p"), pod("r"))
    three = snapshot(node("a"), pod("q"), pod("r"))
    receiver.follow(sender.change(one))
    sender.change(two)
    received, digest = receiver.follow(sender.change(three))
    assert received != three
    assert digest != three.digest()


TREE = snapshot(domain("d", 900), node("a", domain="d", labels={"x": "1", "b": "2"}), gang("g", 2))
OTHERS: list[dict[str, Any]] = [
    {"nodes": (TREE.nodes[0].model_copy(update={"milli_cpu": 1}),)},
    {"pods": TREE.pods[:1]},
    {"pods": ()},
    {"gangs": (TREE.gangs[0].model_copy(update={"size": 3}),)},
    {"domains": (TREE.domains[0].model_copy(update={"used_watts": 1}),)},
]


@pytest.mark.parametrize("other", OTHERS)
def test_the_digest_tells_every_difference(other: dict[str, Any]) -> None:
    digest = TREE.digest()
    assert TREE.model_copy(update=other).digest() != digest
    assert TREE.model_copy().digest() == digest


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    mapped = {
        "nodes": {"labels", "class_watts_per_gpu"},
        "pods": {"node_selector", "mig_profiles", "gpu_model_values", "cpu_class_values"},
    }
    one = node("a", labels={"x": "1", "b": "2"}, class_watts_per_gpu={"p": 1, "d": 2})
    other = node("a", labels={"b": "2", "x": "1"}, class_watts_per_gpu={"d": 2, "p": 1})
    selectors = ({"x": "1", "b": "2"}, {"b": "2", "x": "1"})
    profiles = ({"1g.10gb": 1, "2g.20gb": 2}, {"2g.20gb": 2, "1g.10gb": 1})
    worth = ({"a": 3, "b": 2}, {"b": 2, "a": 3})
    pods = [
        pod(
            "p",
            0,
            node_selector=selector,
            mig_profiles=profile,
            gpu_model_values=values,
            cpu_class_values=values,
        )
        for selector, profile, values in zip(selectors, profiles, worth, strict=True)
    ]
    assert snapshot(one, pods[0]).digest() == snapshot(other, pods[1]).digest()
    # Every mapping of a snapshot is one of these, or sorted where it is validated.
    for kind, names in mapped.items():
        fields = type(getattr(snapshot(one, pods[0]), kind)[0]).model_fields
        dicts = {n for n, f in fields.items() if str(f.annotation).startswith("dict")}
        assert dicts == names | {"resources"}


def test_a_snapshot_from_text_has_the_digest_of_its_maker() -> None:
    assert parse_snapshot(TREE.model_dump_json()).digest() == TREE.digest()
