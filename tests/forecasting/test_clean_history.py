"""What a history becomes before anything is fitted, against loops that do the same slowly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forecasting.clean_history import LARGEST, USABLE_SHARE, clean, clean_again
from forecasting.engine_question import Question, Shape
from forecasting.forecast_engine import Engine
from forecasting.series_source import Floats, History, SeriesId
from forecasting.tiers.tier_sets import RIDGE_ALONE
from tests.examples import examples

DAY = 144
HOUR = 6


def _diurnal(days: float = 10, seed: int = 1, noise: float = 3.0) -> Floats:
    t = np.arange(round(days * DAY))
    rng = np.random.default_rng(seed)
    return np.maximum(0, 100 + 40 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, noise, len(t)))


def _flags(row: Floats) -> set[str]:
    return set(clean(row[None, :], DAY).flags[0])


ROWS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.sampled_from([1, 7, 50, 150, 300, 500])),
    elements=st.floats(0, 100) | st.just(np.nan) | st.floats(width=32) | st.just(1e5),
    fill=st.floats(0, 100) | st.just(np.nan),
)


@given(ROWS)
@examples(120)
def test_nothing_is_invented_beyond_what_was_observed(values: Floats) -> None:
    cleaned = clean(values, DAY)
    assert np.isfinite(cleaned.filled).all()
    for i, row in enumerate(values):
        seen = row[cleaned.known[i]]
        assert np.array_equal(cleaned.filled[i][cleaned.known[i]], seen)
        first = int(cleaned.known[i].argmax()) if len(seen) else len(row)
        assert not cleaned.filled[i][:first].any()
        if len(seen):
            assert seen.min() >= 0
            assert cleaned.highest[i] == seen.max() <= LARGEST
            # Rounding of a line between two equal ends is all that may differ.
            assert cleaned.filled[i][first:].min() >= seen.min()
            assert cleaned.filled[i].max() <= seen.max()


@given(ROWS)
@examples(60)
def test_a_series_is_cleaned_as_if_it_were_alone(values: Floats) -> None:
    together = clean(values, DAY)
    for i, row in enumerate(values):
        alone = clean(row[None, :], DAY)
        assert together.flags[i] == alone.flags[0]
        for name in ("filled", "known", "length", "newest", "highest", "bins_since", "step_bins"):
            np.testing.assert_array_equal(getattr(together, name)[i], getattr(alone, name)[0], name)


@given(ROWS, st.lists(st.sampled_from(["as read", "moved", "hole"]), min_size=4, max_size=4))
@examples(80)
def test_what_is_told_as_it_was_read_needs_no_second_cleaning(
    values: Floats, fates: list[str]
) -> None:
    before = clean(values, DAY)
    told = np.where(before.known, values, np.nan)
    for row, fate in zip(told, fates, strict=False):
        if fate == "moved":
            row *= 0.5
        if fate == "hole":
            row[: len(row) // 2] = np.nan
    again, whole = clean_again(before, values, told, DAY), clean(told, DAY)
    for name in ("filled", "known", "length", "highest", "last_day_known", "step_bins"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name), name)
    assert again.flags is before.flags
    np.testing.assert_array_equal(again.newest, before.newest)


@given(st.integers(0, 10**6), st.floats(0.02, 0.6))
@examples(40)
def test_gaps_of_an_hour_are_straight_lines_and_longer_ones_other_days(
    seed: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    row = rng.uniform(1, 9, 4 * DAY)
    for start in rng.integers(0, len(row), 9):
        row[start : start + rng.integers(1, 200)] = np.nan
    row[rng.random(len(row)) < share] = np.nan
    row[0] = 5.0
    filled, known = clean(row[None, :], DAY).filled[0], np.isfinite(row)
    seen = np.nonzero(known)[0]
    for place in np.nonzero(~known)[0]:
        before = seen[seen < place].max()
        after = min(seen[seen > place], default=None)
        if after is None:
            assert filled[place] == row[before]
            continue
        line = np.interp(place, [before, after], [row[before], row[after]])
        days = [place + sign * day * DAY for day in (1, 2, 3) for sign in (-1, 1)]
        same_time = [row[other] for other in days if 0 <= other < len(row) and known[other]]
        short = after - before - 1 <= HOUR or not same_time
        assert filled[place] == pytest.approx(line if short else same_time[0])


@given(hnp.arrays(np.bool_, st.integers(1, 120)))
@examples(80)
def test_the_length_is_the_longest_stretch_that_was_observed_well_enough(known: np.ndarray) -> None:
    row = np.where(known, 1.0, np.nan)
    sizes = [
        size
        for size in range(1, len(row) + 1)
        if known[-size] and known[-size:].sum() >= USABLE_SHARE * size
    ]
    assert clean(row[None, :], 24).length[0] == max(sizes, default=0)


def test_a_reading_of_last_week_does_not_make_two_hours_a_history() -> None:
    row = np.full(10 * DAY, np.nan)
    row[0], row[-12:] = 50.0, 60.0
    assert clean(row[None, :], DAY).length[0] < DAY


@pytest.mark.parametrize("back", [0, 1, 7, 100])
def test_a_single_bin_of_a_hundred_times_the_rest_is_not_believed(back: int) -> None:
    row = _diurnal()
    place = len(row) - 1 - back
    record = np.delete(row, place).max()
    row[place] = 100 * record
    cleaned = clean(row[None, :], DAY)
    assert cleaned.flags == [["spike"]]
    assert cleaned.highest[0] == record
    assert cleaned.filled[0, place] <= record
    assert cleaned.newest[0] == row[-1], "what was measured is shown as it was"
    if back == 0:
        assert cleaned.filled[0, place] == record, "nor is it taken for an ordinary hour"
        assert cleaned.bins_since[0] == 0, "and the series is not stale for it"
    else:
        row[place + 1] = 80 * record
        assert "spike" not in _flags(row), "a second bin confirms it"


def test_a_spike_in_the_newest_bin_does_not_raise_the_forecast_a_hundredfold() -> None:
    row = _diurnal()
    row[-1] = 1e4
    name = SeriesId("a")
    engine = Engine(Shape(600, 36, (0.5, 0.99)), RIDGE_ALONE.live(36))
    history = History([name], row[None, :])
    made = engine.issue(Question(history, {name: ("ns", "series")}, np.array([np.nan])))
    assert made.peaks[0, -1] < 250
    assert "spike" in made.flags[0]
    assert made.now[0] == 1e4


@given(st.integers(0, 10**6), st.integers(HOUR, DAY), st.floats(2.6, 50))
@examples(30)
def test_a_new_level_is_told_with_its_age_and_an_ordinary_day_is_none(
    seed: int, age: int, factor: float
) -> None:
    row = _diurnal(seed=seed)
    assert _flags(row) == set()
    row[-age:] = row[:-age].max() * 1.2 + factor * row[-age:]
    cleaned = clean(row[None, :], DAY)
    assert cleaned.flags == [["step"]]
    assert cleaned.step_bins[0] == age


def test_a_series_that_wakes_up_is_told_from_its_first_busy_bin_for_a_day() -> None:
    row = np.zeros(10 * DAY)
    row[-1] = 500.0
    assert _flags(row) == {"burst"}
    row[-DAY:] = 500.0
    assert _flags(row) == {"burst", "step"}
    row[-DAY - 1 :] = 500.0
    assert _flags(row) == set()


@pytest.mark.parametrize("reset", [None, DAY // 2])
def test_a_counter_is_told_and_a_growing_demand_is_not(reset: int | None) -> None:
    rng = np.random.default_rng(3)
    rises = rng.uniform(1, 5, 10 * DAY)
    counter = np.cumsum(rises)
    if reset:
        counter[-reset:] -= counter[-reset] - rises[-reset]
    assert "counter" in _flags(counter)
    assert "counter" not in _flags(np.linspace(50, 500, 10 * DAY) + rng.normal(0, 3, 10 * DAY))


@pytest.mark.parametrize(
    ("row", "flags"),
    [
        (np.zeros(10 * DAY), set()),
        (_diurnal(1), set()),
        (np.full(10 * DAY, np.nan), set()),
        (np.where(np.arange(10 * DAY) % 5 == 2, np.nan, _diurnal()), {"gaps"}),
        (np.where(np.arange(10 * DAY) == 700, -1e9, _diurnal()), {"negative"}),
        (np.where(np.arange(10 * DAY) == 700, np.inf, _diurnal()), {"not-finite"}),
        (np.where(np.arange(10 * DAY) == 700, 1e16, _diurnal()), {"too-large"}),
        (np.where(np.arange(10 * DAY) >= 10 * DAY - 3, np.nan, _diurnal()), {"stale"}),
        (np.concatenate([_diurnal(5), _diurnal(5)[6:]]), set()),
    ],
)
def test_each_oddity_has_its_flag_and_no_other(row: Floats, flags: set[str]) -> None:
    assert _flags(row) == flags
