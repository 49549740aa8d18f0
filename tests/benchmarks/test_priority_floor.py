"""The least moves for what is placed, on instances whose answer is seen at once."""

from __future__ import annotations

from benchmarks._priority_floor import Floor, least_leaving
from benchmarks._priority_instances import Case, Combination, Instance, PodAsk

CORE = 1000


def case() -> Case:
    """Two nodes of four cores: on each runs a pod of two, and one of four waits."""
    asks = [PodAsk(0, 2 * CORE, 1, 1), PodAsk(1, 2 * CORE, 1, 1), PodAsk(2, 4 * CORE, 1, 1)]
    instance = Instance(2, tuple(asks), 4 * CORE, 10)
    return Case(Combination(2, 1, 1, 1.0), instance, {0: 0, 1: 1}, 0)


def test_one_pod_leaves_where_three_are_to_be_placed_and_none_where_two_are() -> None:
    assert least_leaving(case(), (3,), 10.0) == Floor(1, 1)
    assert least_leaving(case(), (2,), 10.0) == Floor(0, 0)


def test_more_than_there_are_cannot_be_placed() -> None:
    assert least_leaving(case(), (4,), 10.0).least is None
