"""The first step's median lies between the last value and the models, where it was best lately."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting import near_steps
from forecasting.combination import LossRecord, band_losses, settled
from forecasting.series_source import Floats

TIERS = ("ridge/3", "last-value/2")
SERIES = tuple(f"s{i}" for i in range(12))
ONE_POOL = np.zeros(len(SERIES), dtype=np.intp)


def learned(windows: int, came: Floats, last: float, model: float) -> LossRecord:
    """After windows in which the last value and the mean of both tiers were always the same."""
    record = LossRecord()
    for window in range(windows):
        by_tier = np.empty((2, len(SERIES), 6, 3))
        by_tier[0], by_tier[1] = 2 * model - last, last
        made = near_steps.candidates(by_tier, TIERS, 1)
        assert made is not None
        lost = {
            name: band_losses(row[:, :, None], came[window][:, :1], (0.5,))
            for name, row in zip(near_steps.NAMES, made, strict=True)
        }
        record = settled(record, SERIES, lost, 21600 * (window + 1))
    return record


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
def test_the_share_is_what_would_have_lost_least_and_rather_too_little(
    seed: int, truth: float
) -> None:
    noise = np.random.default_rng(seed).normal(0, 0.2, (40, len(SERIES), 1))
    record = learned(40, 100 + 10 * truth + noise, last=100.0, model=110.0)
    share = near_steps.shares(record, SERIES, ONE_POOL)[:, 0]
    assert np.all(share <= truth + 0.11)
    assert np.all(share >= truth - 0.31)


def test_nothing_seen_is_the_last_value() -> None:
    assert not near_steps.shares(LossRecord(), SERIES, ONE_POOL).any()


def test_calm_series_do_not_decide_for_their_pool() -> None:
    came = np.full((40, len(SERIES), 1), 110.0)
    came[:, :4] = 100.0  # the last value was exactly right
    share = near_steps.shares(learned(40, came, 100.0, 110.0), SERIES, ONE_POOL)[:, 0]
    assert np.all(share[:4] == 0.0)
    assert np.all(share[4:] >= 0.6)


@given(st.integers(0, 2**32 - 1))
def test_all_levels_of_the_first_step_move_along_and_no_other_step_does(seed: int) -> None:
    draw = np.random.default_rng(seed)
    answers = np.sort(draw.uniform(0, 100, (2, len(SERIES), 6, 3)), axis=3)
    answers[0, 0] = np.nan
    answers[1, 1] = np.nan
    steps = np.sort(draw.uniform(50, 100, (len(SERIES), 6, 3)), axis=2)
    share = draw.uniform(0, 1, (len(SERIES), near_steps.NEAR_BANDS))
    moved = near_steps.with_near_medians(steps, answers, TIERS, 1, share)
    assert np.array_equal(moved[:, 1:], steps[:, 1:])
    assert np.array_equal(moved[1], steps[1])  # nobody knows its last value
    assert moved[0, 0, 1] == pytest.approx(answers[1, 0, 0, 1])  # no model has an answer
    last, mean = answers[1, 2:, 0, 1], answers[:, 2:, 0, 1].mean(axis=0)
    assert moved[2:, 0, 1] == pytest.approx(last + share[2:, 0] * (mean - last))
    gaps = np.diff(steps[2:, 0], axis=1)
    clear = moved[2:, 0, 0] > 0
    assert np.diff(moved[2:, 0], axis=1)[clear] == pytest.approx(gaps[clear])


def test_without_the_last_values_tier_nothing_moves() -> None:
    steps = np.ones((len(SERIES), 6, 3))
    answers = np.full((1, len(SERIES), 6, 3), 5.0)
    nowhere = np.zeros((len(SERIES), near_steps.NEAR_BANDS))
    assert near_steps.with_near_medians(steps, answers, ("ridge/3",), 1, nowhere) is steps
