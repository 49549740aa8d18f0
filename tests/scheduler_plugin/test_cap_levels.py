"""Caps by the price of a watt, and what part of peaks comes together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.profile_library import shipped_library
from scheduler_plugin.kube_objects.peak_coincidence import BoardDraw, coincidence, sum_p99_watts
from scheduler_plugin.packing.cap_levels import CapLevel, at_levels, chosen_levels, offered_levels
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import domain, node, pod, snapshot
from wattpack.errors import InputError

FULL = CapLevel(700, 600, 650, 600, 1.0)
HALF = CapLevel(400, 350, 400, 350, 0.8)
OFFERS = {("H200", "training"): (FULL, HALF)}


def row(limit: int, pods: int) -> tuple[object, ...]:
    """A server of eight below a budget, and so many pods of one GPU."""
    below = node("n", 8, domain="row", class_watts_per_gpu={"training": 600})
    waiting = [pod(f"p{i}", 1, kernel_class="training") for i in range(pods)]
    return (domain("row", limit), below, *waiting)


@pytest.mark.parametrize(
    ("limit", "pods", "level"),
    [
        (10_000, 8, FULL),  # power is plenty
        (2_800, 8, HALF),  # 8 at 350 W do 6.4; 4 at 600 W do 4
        (2_800, 4, FULL),  # nobody else waits: 4 at 600 W
        (4_900, 8, FULL),  # just enough for all without a cap
    ],
)
def test_a_cap_is_worth_it_where_it_lets_more_work_in(
    limit: int, pods: int, level: CapLevel
) -> None:
    snap = snapshot(*row(limit, pods))  # type: ignore[arg-type]
    assert chosen_levels(snap, OFFERS) == {("H200", "training"): level}


def test_the_plan_counts_the_watts_of_the_level() -> None:
    snap = snapshot(*row(2_800, 8))  # type: ignore[arg-type]
    assert len(plan(snap).placements) == 4
    made = plan(at_levels(snap, chosen_levels(snap, OFFERS)))
    assert [p.watts for p in made.placements] == [350] * 8


def test_the_room_of_a_tree_is_what_its_parts_can_take() -> None:
    # The site has room for all without caps; its two rows have not.
    rows = [domain(f"row-{i}", 1_400, parent="site") for i in range(2)]
    nodes = [
        node(f"n{i}", 4, domain=f"row-{i}", class_watts_per_gpu={"training": 600}) for i in range(2)
    ]
    pods = [pod(f"p{i}", 1, kernel_class="training") for i in range(8)]
    snap = snapshot(domain("site", 10_000), *rows, *nodes, *pods)
    assert chosen_levels(snap, OFFERS)["H200", "training"] == HALF


def test_offered_levels_fall_from_the_default_limit_to_the_knee() -> None:
    for profile in shipped_library().profiles.values():
        for kernel in ("decode", "training"):
            levels = offered_levels(profile, kernel)
            assert levels[0].cap_watts == profile.default_limit_watts
            assert levels[0].speed == 1.0
            assert levels[-1].cap_watts == pytest.approx(profile.knee_watts)
            for name in ("cap_watts", "p95_watts", "added_watts", "speed"):
                values = [getattr(level, name) for level in levels]
                assert values == sorted(values, reverse=True)
            assert all(level.p95_watts <= level.cap_watts or level is levels[0] for level in levels)


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
