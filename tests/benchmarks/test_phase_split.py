"""The judge of phase_split reads its table and its limits as the paper does."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.phase_split import MachineTimes, _halves, _within_limits, choices, gains
from capacity.serving.served_requests import Request

IDLE = MachineTimes(np.array([100.0, 1000.0]), np.array([0.1, 1.0]), np.array([0.05, 0.05]))


def served(ttft: float, tbt: float, count: int = 120) -> list[Request]:
    return [
        Request(0.0, 1000, 11, first=ttft, last=ttft + 10 * tbt, number=i) for i in range(count)
    ]


def test_lines_go_on_beyond_the_table() -> None:
    assert IDLE.of("prompt", 550) == pytest.approx(0.55)
    assert IDLE.of("prompt", 2000) == pytest.approx(2.0)
    assert IDLE.of("prompt", 50) == pytest.approx(0.05)
    assert IDLE.prompt_iteration(10, 540) == pytest.approx(1.1 * 0.55)


@pytest.mark.parametrize(
    ("ttft", "tbt", "kept"),
    [(1.0, 0.05, True), (1.6, 0.05, False), (1.2, 0.06, True), (1.0, 0.07, False)],
)
def test_requests_keep_nine_limits_against_an_idle_machine(
    ttft: float, tbt: float, kept: bool
) -> None:
    assert _within_limits(served(ttft, tbt), IDLE) is kept


def test_one_in_a_hundred_may_be_slow_and_five_may_not() -> None:
    slow = served(1.0, 0.05, 1000)
    for one in slow[900:905]:
        one.first, one.last = 20.0, 20.5
    assert _within_limits(slow, IDLE)
    for one in slow[900:950]:
        one.first, one.last = 20.0, 20.5
    assert not _within_limits(slow, IDLE)


def test_halves_of_the_table_agree_and_share_no_row() -> None:
    first, second = _halves(0), _halves(1)
    for gpu in ("a100", "h100"):
        assert first[gpu].of("prompt", 1500) == pytest.approx(
            second[gpu].of("prompt", 1500), rel=0.05
        )
    assert first["a100"].of("prompt", 1500) > 2 * first["h100"].of("prompt", 1500)


def test_what_one_half_chooses_is_scored_by_the_other() -> None:
    fitted = {"conv": {"AA": 9.0, "a100": 10.0, "h100": 5.0}}
    judge = {"conv": {"AA": 30.0, "a100": 8.0, "h100": 16.0}}
    made = gains(fitted, judge)
    assert made["gain_at_20_percent_less_cost_conv"] == pytest.approx(0.5)
    assert made["gain_at_equal_cost_and_power"] == pytest.approx(1.0)
    chosen = choices(fitted, judge, {"conv": {"AA": 1.0}})
    assert chosen["chosen_over_best_on_the_other_half_min"] == pytest.approx(8 / 30)
    assert chosen["split_chosen"] == 0.0
