"""A packing that begins with an assignment is one into which it was booked pod by pod."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks._latency_cases import contended
from scheduler_plugin.greedy import Packing
from scheduler_plugin.greedy_orders import ORDERS, pack
from scheduler_plugin.node_states import NodeStates
from scheduler_plugin.problem import Assignment, Problem, compile_problem


def seen(packing: Packing) -> dict[str, Any]:
    classes = range(len(packing.problem.classes))
    return {
        "free": packing.free.tolist(),
        "headroom": packing.headroom.tolist(),
        "assignment": packing.assignment,
        "capacity": [packing.capacity(c).tolist() for c in classes],
    }


def one_by_one(problem: Problem, assignment: Assignment) -> Packing:
    packing = Packing(problem)
    for (class_index, node), count in assignment.items():
        for _ in range(count):
            packing.put(class_index, node, 1)
    return packing


@pytest.mark.parametrize("seed", range(6))
def test_it_is_as_if_booked_one_by_one(seed: int) -> None:
    problem = compile_problem(contended(24, 12, seed), moves=True)
    planned = pack(problem, ORDERS[seed % len(ORDERS)][0])
    fewer = {key: count for i, (key, count) in enumerate(planned.items()) if i % 3}
    for assignment in (problem.start, planned, fewer):
        begun = Packing(problem, assignment)
        assert seen(begun) == seen(one_by_one(problem, assignment))
        mark = begun.mark()
        begun.become({})
        assert seen(begun) == seen(Packing(problem))
        begun.undo_to(mark)
        assert seen(begun) == seen(one_by_one(problem, assignment))
    assert seen(Packing(problem, planned))["headroom"] != problem.headroom.tolist()


def test_where_only_columns_count_it_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = compile_problem(contended(40, 10, seed=1), moves=True)
    asked: list[int] = []
    monkeypatch.setattr(NodeStates, "put", lambda self, *given: asked.append(1))
    assert sum(Packing(problem, problem.start).assignment.values()) > 40
    assert asked == []
