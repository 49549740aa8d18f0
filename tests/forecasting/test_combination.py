"""The combination against sums written out, and weights that follow what came."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from forecasting.combination import (
    BAND_ENDS,
    HALF_LIFE_SECONDS,
    LossRecord,
    band_losses,
    combine,
    settled,
    weights,
)
from forecasting.series_source import Floats

LEVELS = (0.1, 0.5, 0.9)
BANDS = len(BAND_ENDS)


def band_of(step: int) -> int:
    return next(i for i, end in enumerate((*BAND_ENDS[:-1], 10**9)) if step <= end)


def losses(*rows: float) -> Floats:
    """The same loss in every band."""
    return np.repeat(np.array(rows)[:, None], BANDS, axis=1)


readings = st.one_of(st.floats(0, 100), st.just(float("nan")))


@given(arrays.arrays(float, (2, 12), elements=readings), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_losses_are_the_mean_pinball_of_what_came(came: Floats, seed: int) -> None:
    made = np.sort(np.random.default_rng(seed).uniform(0, 100, (2, 12, 3)), axis=2)
    result = band_losses(made, came, LEVELS)
    for row in range(2):
        for band in range(BANDS):
            steps = [k for k in range(12) if band_of(k + 1) == band and not np.isnan(came[row, k])]
            each = [
                max(tau * (came[row, k] - q), (tau - 1) * (came[row, k] - q))
                for k in steps
                for tau, q in zip(LEVELS, made[row, k], strict=True)
            ]
            if each:
                assert result[row, band] == pytest.approx(np.mean(each))
            else:
                assert np.isnan(result[row, band])


@given(st.integers(0, 10_000), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_the_mean_is_weighted_level_by_level_over_those_that_answered(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    made = [np.sort(random.uniform(0, 9, (5, 12, 3)), axis=2) for _ in range(n)]
    for one in made:
        one[random.random(5) < 0.4] = np.nan
    share = random.dirichlet(np.ones(n), (5, BANDS)).transpose(2, 0, 1)
    result = combine(made, share)
    for row in range(5):
        there = [i for i in range(n) if not np.isnan(made[i][row, 0, 0])]
        if not there:
            assert np.isnan(result[row]).all()
            continue
        for k in range(12):
            w = np.array([share[i, row, band_of(k + 1)] for i in there])
            wanted = sum(w[j] * made[i][row, k] for j, i in enumerate(there)) / w.sum()
            np.testing.assert_allclose(result[row, k], wanted)


def test_weights_follow_each_series_and_its_pool() -> None:
    record = LossRecord()
    series = ["a", "b", "c", "d"]
    for window in range(30):
        issue = {"x/1": losses(1, 1, 1, 2), "y/1": losses(2, 2, 2, 1)}
        record = settled(record, series, issue, 6 * 3600 * (window + 1))
    made = weights(record, ["x/1", "y/1"], [*series, "new"])
    np.testing.assert_allclose(made.sum(axis=0), 1)
    assert (made[0, :3] > 0.95).all()
    assert (made[1, 3] > 0.7).all()
    assert (made[0, 4] > 0.7).all()  # a new series: what most of the pool do
    apart = weights(record, ["x/1", "y/1"], series, np.array([0, 0, 1, 1]))
    assert (apart[0, 0] > apart[0, 2]).all()


def test_weights_are_never_frozen() -> None:
    record = LossRecord()
    for window in range(200):
        better, worse = (1.0, 3.0) if window < 180 else (3.0, 1.0)
        issue = {"x/1": losses(better), "y/1": losses(worse)}
        record = settled(record, ["a"], issue, 6 * 3600 * (window + 1))
        share = weights(record, ["x/1", "y/1"], ["a"])[0, 0, 0]
        if window == 179:
            assert share > 0.99
    assert share < 0.15  # a pool of one series follows the slowest


def test_a_loss_counts_half_after_the_half_life() -> None:
    record = settled(LossRecord(), ["a"], {"x": losses(8)}, 1000)
    record = settled(record, ["b", "a"], {"x": losses(5, np.nan)}, 1000 + HALF_LIFE_SECONDS)
    np.testing.assert_allclose(record.sums[0, :, 0], [5, 4])
    np.testing.assert_allclose(record.windows[0, :, 0], [1, 0.5])
    without = settled(record, ["a"], {"y": losses(1)}, record.until_seconds)
    assert without.tiers == ("y",)
    assert without.series == ("a", "b")
    np.testing.assert_allclose(without.sums[0, :, 0], [1, 0])  # who was not issued stays


def test_without_a_record_the_floor_of_all_tiers_counts_only_where_it_is_alone() -> None:
    share = weights(LossRecord(), ["boosted/1", "ridge/3", "last-24h-max/2"], ["a", "b"])
    assert (share[2] < 0.01).all()
    alone = np.full((2, 3, 3), 7.0)
    nothing = np.full((2, 3, 3), np.nan)
    np.testing.assert_allclose(combine([nothing, nothing, alone], share), alone)


def test_the_combination_loses_hardly_more_than_the_better_tier_near_and_far() -> None:
    random = np.random.default_rng(4)
    series = [str(i) for i in range(8)]
    spread = np.array([-1.2, 0.0, 1.2])
    record, totals = LossRecord(), np.zeros((3, 2))
    for window in range(24):
        walk = np.cumsum(random.normal(0, 1, (8, 36)), axis=1)
        came = 100 + walk
        follows = np.repeat(100.0 + walk[:, :1], 36, axis=1) + random.normal(0, 0.1, (8, 36))
        knows = came + random.normal(0, 2.0, (8, 36))
        made = [x[:, :, None] + spread for x in (follows, knows)]
        made.append(combine(made, weights(record, ["x", "y"], series)))
        issue = [band_losses(x, came, LEVELS) for x in made]
        record = settled(record, series, dict(zip("xy", issue, strict=False)), 21600 * (window + 1))
        if window >= 8:
            totals += [[x[:, 0].mean(), x[:, 3].mean()] for x in issue]
    assert (totals[2] <= 1.1 * totals[:2].min(axis=0)).all()
    assert totals[0, 0] < totals[1, 0]
    assert totals[1, 1] < totals[0, 1]
