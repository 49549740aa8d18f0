"""Old and new boards together: the search by hand and the planner on made-up rates."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.embodied import (
    CALLS,
    RATIO,
    Fleet,
    asked,
    fewest_new_by_hand,
    fleet,
    new_boards,
    planned,
    proportional,
)
from capacity.mix.predicted_rates import BoardRate

RATES = {
    (model, call): BoardRate(speed * rate, speed * rate, watts)
    for model, speed, watts in (("H200-SXM", 3.0, 650.0), ("A100-SXM", 1.0, 380.0))
    for call, rate in zip(CALLS, (4.0, 5.0, 0.8), strict=True)
}
CHEAP_OLD = Fleet(4.0, 0.4, 64, 0.1)


def test_use_and_life_save_what_the_proportions_say() -> None:
    figures = proportional()
    assert figures["both_save_percent"] == pytest.approx(100 * 8 / 9)


def test_cheap_old_boards_carry_all_and_dear_ones_nothing() -> None:
    def fewest(case: Fleet) -> int | None:
        only = planned(asked(case, RATES, keeps_old=False), None)
        return fewest_new_by_hand(case, RATES, RATIO * only.solution.costs.total)

    assert fewest(CHEAP_OLD) == 0
    assert fewest(Fleet(4.0, 9.0, 64, 0.1)) is None
    assert fewest(Fleet(4.0, 0.4, 0, 0.1)) is None


@pytest.mark.parametrize("seed", range(6))
def test_the_planner_keeps_at_least_what_the_search_by_hand_finds(seed: int) -> None:
    case = fleet(np.random.default_rng(seed))
    mixed = planned(asked(case, RATES, keeps_old=True), RATIO)
    cheapest = (mixed.cheapest or mixed.solution).costs.total
    wanted = fewest_new_by_hand(case, RATES, RATIO * cheapest)
    assert wanted is None or new_boards(mixed) <= wanted
    assert mixed.solution.costs.total <= RATIO * cheapest * (1 + 1e-6)
