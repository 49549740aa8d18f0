"""Caps by the price of a watt, and what part of peaks comes together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.cap_option import CapOption
from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.kube_objects.peak_coincidence import BoardDraw, coincidence, sum_p99_watts
from scheduler_plugin.packing.cap_levels import chosen_caps
from scheduler_plugin.packing.inflow import inflow_of
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, domain, node, pod, snapshot
from wattpack.errors import InputError


def option(model: str, milli: int, watts_milli: int, speed_milli: int) -> CapOption:
    return CapOption(
        gpu_model=model,
        kernel_class="training",
        cap_watts=milli,
        cap_milli=milli,
        watts_milli=watts_milli,
        speed_milli=speed_milli,
    )


HALF = option("H200", 571, 584, 800)
"""600 W without a cap, 350 W at it."""
CAPPED = {("H200", "training"): 571}


def server(name: str, on: str, gpus: int = 8, watts: int = 600, **other: Any) -> Any:
    draws = {"training": watts}
    return node(name, gpus, domain=on, class_watts_per_gpu=draws, caps_held=True, **other)


def with_options(*parts: Any, options: tuple[CapOption, ...] = (HALF,)) -> Snapshot:
    return snapshot(*parts).model_copy(update={"cap_options": options})


def waiting(count: int, **other: Any) -> list[Any]:
    return [pod(f"p{i}", 1, kernel_class="training", **other) for i in range(count)]


@pytest.mark.parametrize(
    ("limit", "pods", "caps"),
    [
        (10_000, 8, {}),  # power is plenty
        (2_805, 8, CAPPED),  # 8 at 350 W do 6.4; 4.7 at 600 W do 4.7
        (2_805, 4, {}),  # nobody else waits: 4 at 600 W
        (4_900, 8, {}),  # just enough for all without a cap
    ],
)
def test_a_cap_is_worth_it_where_it_lets_more_work_in(
    limit: int, pods: int, caps: dict[tuple[str, str], int]
) -> None:
    row = (domain("row", limit), server("n", "row"), *waiting(pods))
    assert chosen_caps(with_options(*row)) == caps


def test_the_room_of_a_tree_is_what_its_parts_can_take() -> None:
    # The site has room for all without caps; its two rows have not.
    rows = [domain(f"row-{i}", 1_410, parent="site") for i in range(2)]
    servers = [server(f"n{i}", f"row-{i}", 4) for i in range(2)]
    site = (domain("site", 10_000), *rows, *servers, *waiting(8))
    assert chosen_caps(with_options(*site)) == CAPPED


def test_what_runs_and_who_may_not_be_capped_count_as_they_do_in_plans() -> None:
    row = (domain("row", 2_805), server("n", "row"))
    # Half of the boards are taken, so that there is room for all who can still come.
    assert chosen_caps(with_options(*row, bound("b", "n", 4), *waiting(8))) == {}
    # Slower at a cap, and nobody else would come in for it.
    assert chosen_caps(with_options(*row, *waiting(8, least_cap_milli=600))) == {}
    assert chosen_caps(with_options(*row, *waiting(8, expected_watts_per_gpu=600))) == {}


def test_work_that_is_hungry_for_watts_is_not_left_out_by_choice() -> None:
    """Whoever picks the frugal half has watts to spare, and finds no cap worth it."""
    small = server("small", "row", 8, 100, gpu_model="T4")
    large = server("large", "row", 8, 600)
    row = (domain("row", 2_800), small, large, *waiting(8, gpu_models=("T4",)))
    hungry = [pod(f"q{i}", 1, kernel_class="training", gpu_models=("H200",)) for i in range(8)]
    slow = option("H200", 571, 584, 560)
    # 5,600 W for all: half of each comes in, 8 GPUs' worth. At the cap 3,603 W: 78 %, 9.7.
    chosen = chosen_caps(with_options(*row, *hungry, options=(slow,)))
    assert chosen == CAPPED
    # The frugal eight and 3.3 of the others would do 11.3; with the cap 11.2.
    assert 8 + 2_000 / 600 > 8 + 0.56 * 2_000 / 350.4


@given(
    # A kind that needs no watts comes in whatever the others lack, so each needs one at least.
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 700)), min_size=1, max_size=4),
    st.integers(1, 64),
    st.integers(0, 30_000),
)
@examples(100)
def test_kinds_flow_into_one_place_in_the_shares_in_which_they_wait(
    kinds: list[tuple[int, int]], gpus: int, room: int
) -> None:
    below = node("n", gpus, domain="row", class_watts_per_gpu={f"k{i}": 1 for i in range(4)})
    counts = [n for n, _ in kinds]
    pods = [pod(f"{i}-{j}", kernel_class=f"k{i}") for i, n in enumerate(counts) for j in range(n)]
    flow = inflow_of(snapshot(domain("row", room), below, *pods))
    watts = np.array([[float(w)] for _, w in kinds])
    speed = np.array([[1.0 / (1 + i)] for i in range(len(kinds))])
    share = min(1.0, gpus / sum(counts))
    if (needed := share * sum(n * w for n, w in kinds)) > room:
        share *= room / needed
    expected = share * sum(n / (1 + i) for i, n in enumerate(counts))
    assert flow.work(watts, speed) == pytest.approx(expected, rel=1e-6, abs=2e-3)


@given(st.integers(0, 4_000), st.integers(0, 4_000), st.integers(1, 24))
@examples(100)
def test_what_a_full_domain_turns_away_flows_on(first: int, second: int, pods: int) -> None:
    rows = (domain("a", first), domain("b", second))
    flow = inflow_of(snapshot(*rows, server("n", "a"), server("m", "b"), *waiting(pods)))
    room = sum(min(8.0, watts / 300) for watts in (first, second))
    work = flow.work(np.full((1, 2), 300.0), np.ones((1, 2)))
    assert work == pytest.approx(min(float(pods), room), abs=0.01)


@given(
    st.integers(1, 200),
    st.floats(0.0, 1.0),
    st.floats(10.0, 400.0),
    st.floats(1.0, 1.5),
)
@examples(50)
def test_the_sum_of_drawn_boards_has_that_percentile(
    boards: int, correlation: float, mean: float, over: float
) -> None:
    kind = BoardDraw(mean, mean * over)
    random = np.random.default_rng(boards)
    common, own = random.standard_normal(4000), random.standard_normal((boards, 4000))
    level = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
    drawn = (mean + mean * (over - 1) / 1.6449 * level).sum(axis=0)
    said = sum_p99_watts([kind], boards, correlation)
    # Of 4,000 draws the 99th percentile is within 0.35 spreads of the sum's.
    assert abs(np.quantile(drawn, 0.99) - said) <= 0.35 * drawn.std() + 1e-6


def test_less_comes_together_in_larger_domains() -> None:
    kinds = [BoardDraw(100, 150, 0.5), BoardDraw(200, 260, 0.5, boards=8)]
    factors = [coincidence(kinds, room) for room in (300, 3_000, 30_000, 300_000)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] > 1.0 > factors[-1]
    assert coincidence([BoardDraw(100, 150)], 1e5, correlation=1.0) > 1.0
    with pytest.raises(InputError):
        coincidence(kinds[:1], 1_000)
