"""The least moves for what is placed, on instances whose answer is seen at once."""

from __future__ import annotations

import pytest

from benchmarks._priority_bound import leaving_bound
from benchmarks._priority_floor import Floor, least_leaving
from benchmarks._priority_instances import Case, Combination, Instance, PodAsk, draw_case
from benchmarks._priority_judge import best_counts

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


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_for_large_clusters_is_the_least_of_small_ones(seed: int) -> None:
    some = draw_case(Combination(4, 4, 1 + seed % 2, (0.9, 1.0, 1.05)[seed % 3]), seed, 0)
    counts = best_counts(some.instance)
    floor = least_leaving(some, counts, 60.0)
    assert floor.least == floor.bound
    assert floor.bound - 1 <= leaving_bound(some, counts, 60.0) <= floor.bound


def test_a_bound_cut_off_at_once_is_still_one() -> None:
    assert 0 <= leaving_bound(case(), (3,), 0.0) <= 1
    assert leaving_bound(case(), (3,), 60.0) == 1
