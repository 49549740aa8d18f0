"""Releases beside each other: a bounded number, in order, none after a stop or a lost term."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.app import release_order
from scheduler_plugin.app.patch_crew import beside_each_other
from scheduler_plugin.app.plan_archive import PART_BYTES, PLANS, PROMISES_PER_PART, _in_parts
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.kube.port import PRIORITY_CLASSES


@given(st.lists(st.integers(), max_size=30), st.integers(1, 5), st.integers(0, 30))
def test_the_answers_are_those_of_the_first_items(
    items: list[int], at_once: int, most: int
) -> None:
    begun = 0

    def goes_on() -> bool:
        nonlocal begun
        begun += 1
        return begun <= most

    assert beside_each_other(items, lambda i: 2 * i, at_once, goes_on) == [
        2 * i for i in items[:most]
    ]


def test_as_many_are_under_way_as_may_be_and_no_more() -> None:
    together = threading.Barrier(3)
    under_way, most = 0, 0
    lock = threading.Lock()

    def ask(number: int) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        together.wait(10.0)  # Nobody goes on before three are here.
        with lock:
            under_way -= 1

    beside_each_other(range(9), ask, 3)
    assert most == 3


def test_what_one_request_raises_stops_the_others_and_is_raised() -> None:
    asked: list[int] = []

    def ask(number: int) -> None:
        asked.append(number)
        raise LookupError(number)

    with pytest.raises(LookupError):
        beside_each_other(range(1000), ask, 4)
    assert len(asked) <= 4


@given(st.lists(st.integers(1, 200_000), max_size=12))
def test_parts_hold_all_lines_in_order_and_what_an_object_may_hold(sizes: list[int]) -> None:
    lines: list[dict[str, Any]] = [{"name": "x" * size} for size in sizes]
    parts = _in_parts(lines)
    assert [line for part in parts for line in part] == lines
    assert all(sum(len(line["name"]) for line in part) <= PART_BYTES for part in parts)
    assert all(parts[1:])


def test_ordinary_lines_fill_whole_parts() -> None:
    parts = _in_parts([{"name": "x"}] * (2 * PROMISES_PER_PART + 1))
    assert [len(part) for part in parts] == [PROMISES_PER_PART, PROMISES_PER_PART, 1]


def test_who_is_important_goes_first_and_the_rest_in_later_cycles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release_order, "PROMISES_PER_PART", 2)
    cluster = Cluster()
    cluster.add_nodes("n1")
    for value in (0, 5, 9):
        body = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass"}
        cluster.api.create(
            PRIORITY_CLASSES, {**body, "metadata": {"name": f"of-{value}"}, "value": value}
        )
    for name, priority in (("a", 0), ("b", 5), ("c", 9), ("d", 0), ("e", 0)):
        cluster.add(pod_object(name, 1, priorityClassName=f"of-{priority}"))
    first = cluster.loop.step()
    assert sorted(first.released) == [f"{SPACE}/b", f"{SPACE}/c"]
    assert first.again_ns is not None
    assert first.again_ns <= cluster.clock.monotonic_ns()
    later = [sorted(cluster.loop.step().released) for _ in range(2)]
    assert [len(names) for names in later] == [2, 1]
    assert sorted(later[0] + later[1]) == [f"{SPACE}/{name}" for name in "ade"]
    promised = [len(plan["spec"]["promises"]) for plan in cluster.api.list(PLANS).items]
    assert promised == [2, 2, 1]
