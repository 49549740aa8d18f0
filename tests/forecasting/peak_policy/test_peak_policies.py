"""Peak policies promise sorted quantiles, no less than the record, and less reserve than maxima."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.forecast_scores import equal_risk_shift, reserve_ratio, shifted
from benchmarks.forecast_sets import DAY, HORIZON, clients, totals, tuning
from forecasting.peak_policy.choice import choose_policy, equal_risk_reserve
from forecasting.peak_policy.evidence import PeakEvidence
from forecasting.peak_policy.peak_policies import (
    PeakPolicy,
    RecordPolicy,
    SameHoursPolicy,
    TypicalDayPolicy,
)
from wattpack.errors import InputError

LEVELS = (0.05, 0.5, 0.9, 0.95, 0.99, 0.999)
TOP = LEVELS.index(0.99)
DAY_STEPS = 8
seeds = st.integers(0, 2**32 - 1)
policies = st.sampled_from((RecordPolicy(), TypicalDayPolicy(), SameHoursPolicy()))


def history(seed: int, n_bins: int, n_series: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Values and paths of a few steps."""
    draw = np.random.default_rng(seed)
    values = draw.gamma(0.3, 10.0, size=(n_series, n_bins)) * (
        draw.random((n_series, n_bins)) < 0.7
    )
    return values, draw.gamma(0.5, 8.0, size=(n_series, 40, 4))


@given(seeds, st.integers(1, 100))
def test_evidence_is_of_the_last_days(seed: int, n_bins: int) -> None:
    values, paths = history(seed, n_bins)
    evidence = PeakEvidence.of(values, paths, DAY_STEPS)
    for i, row in enumerate(values):
        newest_first = row[::-1]
        days = [newest_first[at : at + DAY_STEPS] for at in range(0, min(n_bins, 80), DAY_STEPS)]
        assert evidence.daily_maxima[i].tolist() == [max(day) for day in days]
        assert evidence.highest_of(7)[i] == max(row[-7 * DAY_STEPS :])
        assert evidence.recent_maximum[i] == max(row[-4:])
        same = [
            max(row[n_bins - day * DAY_STEPS :][:4])
            for day in range(1, 8)
            if n_bins >= day * DAY_STEPS
        ]
        assert evidence.same_hours[i].tolist() == (same or [max(row)])
        week = row[-7 * DAY_STEPS :]
        kept = np.sum(week <= evidence.usual[i]) / len(week)
        assert kept >= 0.95 - 1e-9
        assert np.sum(week < evidence.usual[i]) / len(week) < 0.95


@given(policies, seeds, st.integers(1, 100), st.floats(0.001, 1000))
def test_promises_are_sorted_and_grow_with_the_unit(
    policy: PeakPolicy, seed: int, n_bins: int, unit: float
) -> None:
    values, paths = history(seed, n_bins)
    told = policy.quantiles(PeakEvidence.of(values, paths, DAY_STEPS), LEVELS)
    assert told.shape == (3, len(LEVELS))
    assert told.min() >= 0
    assert np.all(np.diff(told, axis=1) >= 0)
    other = policy.quantiles(PeakEvidence.of(unit * values, unit * paths, DAY_STEPS), LEVELS)
    assert np.allclose(other, unit * told)
    backwards = PeakEvidence.of(values[::-1], paths[::-1], DAY_STEPS)
    assert np.allclose(policy.quantiles(backwards, LEVELS), told[::-1])


@given(seeds, st.integers(1, 100))
def test_the_record_is_a_floor_of_the_top(seed: int, n_bins: int) -> None:
    values, paths = history(seed, n_bins)
    told = RecordPolicy().quantiles(PeakEvidence.of(values, paths, DAY_STEPS), LEVELS)
    assert np.all(told[:, TOP] >= values[:, -7 * DAY_STEPS :].max(axis=1))


@pytest.mark.parametrize(("place", "room"), [(20, 0.5 * 8.0), (-20, 0.8 * 8.0)])
def test_a_top_stands_above_the_record_by_most_of_what_that_stands_out(
    place: int, room: float
) -> None:
    """By less where the record is more than three days old."""
    values = np.full((1, 7 * DAY_STEPS), 2.0)
    values[0, place] = 10.0
    evidence = PeakEvidence.of(values, np.full((1, 50, 4), 3.0), DAY_STEPS)
    told = RecordPolicy().quantiles(evidence, LEVELS)[0]
    # From the paths' 3 at 0.9 to the top at 0.99, half of it at 0.95 (0.301 of a decade).
    top = 10.0 + room
    assert told == pytest.approx([3.0, 3.0, 3.0, 3.0 + (top - 3.0) * np.log10(2), top, top + room])


def test_a_series_that_outgrew_its_past_is_promised_what_paths_say_in_the_middle() -> None:
    evidence = PeakEvidence.of(np.ones((1, 56)), np.full((1, 50, 4), 7.0), DAY_STEPS)
    for policy in (RecordPolicy(), TypicalDayPolicy()):
        assert policy.quantiles(evidence, LEVELS)[0] == pytest.approx([7.0] * len(LEVELS))


def test_evidence_needs_bins_and_paths() -> None:
    with pytest.raises(InputError, match="values"):
        PeakEvidence.of(np.empty((1, 0)), np.ones((1, 5, 2)), DAY_STEPS)
    with pytest.raises(InputError, match="paths"):
        PeakEvidence.of(np.ones((1, 9)), np.ones((2, 5, 2)), DAY_STEPS)


@given(seeds, st.floats(0.0, 0.5))
def test_equal_risk_takes_the_least_shift_that_keeps_the_risk(seed: int, share: float) -> None:
    draw = np.random.default_rng(seed)
    reserves, peaks = draw.random((3, 12)), draw.random((3, 12)) + 0.1
    scale = draw.random(3) + 0.1
    tried = []
    lacks = (peaks - reserves) / scale[:, None]
    shared = np.sort(lacks.max(axis=1))[-2]
    for shift in sorted(np.minimum(lacks, shared).ravel()):
        needed = np.maximum(reserves + (shift + 1e-12) * scale[:, None], 0.0)
        # What one series lacks beyond all others is no need of theirs.
        if np.mean(np.minimum(lacks, shared) > shift + 1e-12) <= share:
            ratios = np.maximum(needed.sum(axis=1) / peaks.sum(axis=1), 1.0)
            ratios = np.minimum(ratios, 3.0 * np.sort(ratios)[-2])
            tried.append(np.exp(np.mean(np.log(ratios))))
    got = equal_risk_reserve(reserves, peaks, scale, share)
    assert got == pytest.approx(min(tried), rel=1e-6)


def test_pools_get_the_policy_that_reserves_less_for_them() -> None:
    bursty, sums = tuning(clients()).values, tuning(totals()).values
    assert isinstance(choose_policy(bursty, HORIZON, DAY), RecordPolicy)
    assert isinstance(choose_policy(sums, HORIZON, DAY), TypicalDayPolicy)
    assert isinstance(choose_policy(sums[:, : 2 * DAY], HORIZON, DAY), RecordPolicy)
    assert isinstance(choose_policy(np.zeros((2, 1440)), HORIZON, DAY), RecordPolicy)
    assert isinstance(choose_policy(np.zeros((0, 1440)), HORIZON, DAY), RecordPolicy)


def diurnal(days: int, growth: float = 1.0) -> np.ndarray:
    """Three services that keep their hours; the last day grown."""
    t = np.arange(days * DAY)
    noise = np.random.default_rng(0).normal(0.0, 6.0, (3, len(t)))
    values = 160.0 - 110.0 * np.cos(2 * np.pi * t / DAY) + noise
    values[:, -DAY:] *= growth
    return np.maximum(values, 0.0)


@pytest.mark.parametrize(
    "wild",
    [
        np.where(np.arange(12 * DAY) < 12 * DAY - 4, 1.0, 1000.0),
        np.where(np.isin(np.arange(12 * DAY), (900, 1100, 1300, 1500, 1700)), 1e4, 100.0),
    ],
    ids=["idle, then a burst", "five spikes"],
)
@pytest.mark.parametrize("calm", [3, 8])
def test_one_wild_series_does_not_choose_for_its_pool(wild: np.ndarray, calm: int) -> None:
    values = np.concatenate([diurnal(12) for _ in range(3)])[:calm]
    assert isinstance(choose_policy(values, HORIZON, DAY), SameHoursPolicy)
    with_wild = np.concatenate([values, wild[None]])
    assert isinstance(choose_policy(with_wild, HORIZON, DAY), SameHoursPolicy)


def test_load_that_keeps_its_hours_is_promised_what_they_bring() -> None:
    """At midnight and at noon, of days whose peak is at noon."""
    values = diurnal(14)
    policy = choose_policy(values, HORIZON, DAY)
    assert isinstance(policy, SameHoursPolicy)
    for begin in (13 * DAY, 13 * DAY + DAY // 2):
        past, came = values[:, :begin], values[:, begin : begin + HORIZON].max(axis=1)
        paths = np.repeat(past[:, None, begin - DAY : begin - DAY + HORIZON], 40, axis=1)
        told = policy.quantiles(PeakEvidence.of(past, paths, DAY), (0.99,))[:, 0]
        assert np.all((came < 1.05 * told) & (told < 1.25 * came))
        wide = TypicalDayPolicy().quantiles(PeakEvidence.of(past, paths, DAY), (0.99,))[:, 0]
        assert np.all(told < (0.85 if begin % DAY == 0 else 1.25) * wide)


def test_hours_that_have_grown_are_promised_at_least_what_paths_believe() -> None:
    values = diurnal(10, growth=2.0)
    path = 4.0 * values[:, None, -2 * DAY : -2 * DAY + HORIZON]
    paths = path * np.linspace(0.8, 1.2, 40)[:, None]
    evidence = PeakEvidence.of(values, paths, DAY)
    told = SameHoursPolicy().quantiles(evidence, (0.9, 0.99))
    assert np.all(evidence.same_hours.max(axis=1) < evidence.path_quantiles((0.5,))[:, 0])
    assert np.all(told >= evidence.path_quantiles((0.9,)) - 1e-9)


def test_windows_that_do_not_fill_a_day_have_no_same_hours() -> None:
    """Days of a hundred bins, whose halves look alike two windows ago and not a day ago."""
    t = np.arange(14 * DAY)
    noise = np.random.default_rng(0).normal(0.0, 6.0, (3, len(t)))
    values = np.maximum(160.0 - 110.0 * np.cos(2 * np.pi * t / 100) + noise, 0.0)
    assert isinstance(choose_policy(values, 50, 100), SameHoursPolicy)
    assert not isinstance(choose_policy(values, 50, DAY), SameHoursPolicy)


def test_on_real_clients_the_record_policy_reserves_less_than_any_multi_day_maximum() -> None:
    """At 1 % missed windows, on the bins that it was tuned on: a guard, not evidence."""
    judged = tuning(clients(), first=5 * DAY)
    nothing = np.zeros((len(judged.series), 1, HORIZON))
    seen = [PeakEvidence.of(judged.values[:, :o], nothing, DAY) for o in judged.origins]
    peaks, scales = judged.truth().max(axis=2), judged.scales()

    def reserved(made: list[np.ndarray]) -> float:
        reserves = np.stack(made)
        shift = equal_risk_shift(reserves, peaks, scales, 0.01)
        return reserve_ratio(shifted(reserves, scales, shift), peaks)

    best = min(reserved([e.highest_of(days) for e in seen]) for days in (1, 3, 7, 10))
    ours = reserved([RecordPolicy().quantiles(e, (0.99,))[:, 0] for e in seen])
    assert ours < 0.93 * best
