"""What every tier promises: shapes, order, no nonsense, the same answer twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecasting.forecaster import Forecaster
from forecasting.series_source import Floats, History, SeriesId
from forecasting.tiers.direct_ridge import Ridge
from forecasting.tiers.last_day import LastDayMaximum
from forecasting.tiers.level_grid import GRID, at_levels
from forecasting.tiers.naive import LastValue, SeasonalNaive
from forecasting.tiers.records import Records
from forecasting.tiers.smoothing import Smoothing
from wattpack.errors import InputError

LEVELS = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
DAY = 144
TIERS = [LastDayMaximum, LastValue, SeasonalNaive, Ridge, Smoothing]
START = 1_600_000_200


def demand(n_series: int, n_bins: int, seed: int = 3) -> Floats:
    """Daily waves with noise; every fourth series idles half of the time."""
    rng = np.random.default_rng(seed)
    t = np.arange(n_bins)
    base = 10 + 5 * np.sin(2 * np.pi * t / DAY + rng.uniform(0, 6, (n_series, 1)))
    values = base * rng.gamma(20, 1 / 20, (n_series, n_bins)) * rng.uniform(0.1, 50, (n_series, 1))
    values[::4] *= rng.random((len(values[::4]), n_bins)) < 0.5
    return values


def history(values: Floats, first_bin: int = 0) -> History:
    names = [SeriesId(f"s{i}") for i in range(len(values))]
    return History(names, values, START + (first_bin + values.shape[1]) * 600)


def nonsense(n_bins: int = 8 * DAY) -> dict[str, Floats]:
    """Histories that no model was made for."""
    calm = demand(2, n_bins)[1]
    burst, step, spike, gaps = (np.zeros(n_bins), calm.copy(), calm.copy(), calm.copy())
    burst[-20:] = 50.0
    step[-DAY:] *= 5
    spike[-1] *= 100
    gaps[np.random.default_rng(0).random(n_bins) < 0.2] = np.nan
    stopped, negative, late = calm.copy(), calm.copy(), calm.copy()
    stopped[-30:] = np.nan
    negative[5::7] *= -1
    late[: -DAY // 2] = np.nan
    return {
        "idle then burst": burst, "step": step, "spike": spike, "gaps": gaps, "stopped": stopped,
        "zero": np.zeros(n_bins), "constant": np.full(n_bins, 7.0), "negative": negative,
        "half a day": late, "nothing": np.full(n_bins, np.nan), "huge": calm * 1e11,
        "infinite": np.where(np.arange(n_bins) % 50 == 0, np.inf, calm), "tiny": calm * 1e-12,
    }  # fmt: skip


@pytest.mark.parametrize("make", TIERS)
@pytest.mark.parametrize("horizon", [1, 36, DAY, DAY + 30])
def test_answers_are_whole_rows_sorted_and_never_negative(make: type, horizon: int) -> None:
    values = np.array(list(nonsense().values()))
    tier: Forecaster = make()
    tier.update(history(values))
    answer = tier.quantiles(horizon, LEVELS)
    assert answer.shape == (len(values), horizon, len(LEVELS))
    answered = np.array(np.isfinite(answer).all(axis=(1, 2)))
    assert np.isnan(answer[~answered]).all()
    assert (answer[answered] >= 0).all()
    assert (np.diff(answer[answered], axis=2) >= 0).all()
    assert not answered[list(nonsense()).index("nothing")]
    if make is LastDayMaximum:
        assert answered.sum() == len(values) - 1


@pytest.mark.parametrize("make", TIERS)
def test_one_bad_series_costs_only_itself(make: type) -> None:
    good = demand(6, 8 * DAY)
    rest = np.array(list(nonsense().values()))
    alone, beside = make(), make()
    alone.update(history(good))
    beside.update(history(np.vstack([good, rest])))
    expected = alone.quantiles(36, LEVELS)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(beside.quantiles(36, LEVELS)[:6], expected)


@pytest.mark.parametrize("make", TIERS)
def test_the_same_batches_give_the_same_bits(make: type) -> None:
    values = demand(5, 6 * DAY + 40)
    answers = []
    for asked_between in (False, True):
        tier = make()
        tier.update(history(values[:, : 6 * DAY]))
        if asked_between:
            tier.quantiles(12, (0.5,))
            tier.paths(4, 3)
        tier.update(history(values[:, 6 * DAY :], first_bin=6 * DAY))
        answers.append(
            (tier.quantiles(36, LEVELS), tier.paths(36, 50), tier.peak_quantile(36, 0.9))
        )
    for first, second in zip(*answers, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("make", TIERS)
def test_paths_have_the_steps_distribution_and_peaks_are_theirs(make: type) -> None:
    tier = make()
    tier.update(history(demand(3, 8 * DAY)))
    n = 200
    paths = tier.paths(36, n)
    assert paths.shape == (3, n, 36)
    steps = tier.quantiles(36, tuple((np.arange(n) + 0.5) / n))
    np.testing.assert_allclose(np.sort(paths, axis=1), steps.transpose(0, 2, 1))
    peaks = np.sort(paths.max(axis=2), axis=1)
    assert np.isin(tier.peak_quantile(36, 0.95), peaks).all()
    assert (tier.peak_quantile(36, 0.95) >= tier.quantiles(36, (0.9,)).max(axis=(1, 2))).all()


@pytest.mark.parametrize("make", TIERS)
def test_before_the_first_batch_there_are_no_rows(make: type) -> None:
    tier = make()
    assert tier.quantiles(3, LEVELS).shape == (0, 3, len(LEVELS))
    assert tier.paths(3, 7).shape == (0, 7, 3)
    assert tier.peak_quantile(3, 0.5).shape == (0,)


@pytest.mark.parametrize(
    ("field", "horizon", "levels"),
    [("levels", 3, (0.5, 0.4)), ("levels", 3, (0.0,)), ("levels", 3, ()), ("horizon", 0, (0.5,)),
     ("horizon", 7 * DAY + 1, (0.5,))],
)  # fmt: skip
def test_what_cannot_be_asked_is_named(field: str, horizon: int, levels: tuple[float, ...]) -> None:
    tier = LastDayMaximum()
    tier.update(history(demand(1, DAY)))
    with pytest.raises(InputError, match=field):
        tier.quantiles(horizon, levels)


def test_the_last_day_answers_from_the_first_hour_on() -> None:
    values = np.full((2, 6), 8.0)
    values[1, :-5] = np.nan
    tier = LastDayMaximum()
    tier.update(history(values))
    answer = tier.quantiles(7 * DAY, (0.5, 0.999))
    np.testing.assert_allclose(answer[0, :, 1], 8 * (1 + 0.2 * 0.998))
    assert np.isnan(answer[1]).all()


def test_levels_between_the_grid_are_on_the_line() -> None:
    on_grid = np.array(GRID) * 10
    wanted = np.array([0.005, 0.01, 0.15, 0.25, 0.5, 0.9995])
    np.testing.assert_allclose(at_levels(on_grid, wanted), [0.1, 0.1, 1.5, 2.5, 5.0, 9.99])


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[Floats, list[tuple[int, int]]]:
    """A table with gaps, and batches (start, end) that together reach its end."""
    n_bins = draw(st.integers(4, 40))
    reading = st.sampled_from([np.nan, 0.0, 1.0, 2.5, -1.0])
    row = st.lists(reading, min_size=n_bins, max_size=n_bins)
    values = draw(st.lists(row, min_size=1, max_size=3))
    ends = [*sorted(draw(st.sets(st.integers(1, n_bins - 1), max_size=4))), n_bins]
    spans, covered = [], 0
    for end in ends:
        start = draw(st.integers(0, covered))
        spans.append((start, end))
        covered = end
    return np.array(values), spans


@given(arrivals())
@settings(max_examples=150, deadline=None)
def test_how_bins_arrive_changes_nothing(arrival: tuple[Floats, list[tuple[int, int]]]) -> None:
    values, spans = arrival
    pieces, whole = Records(), Records()
    for start, end in spans:
        pieces.absorb(history(values[:, start:end], first_bin=start))
    whole.absorb(history(values))
    np.testing.assert_array_equal(pieces.known, whole.known)
    np.testing.assert_allclose(pieces.filled, whole.filled, rtol=1e-12)
    np.testing.assert_array_equal(pieces.length, whole.length)
    assert pieces.until_seconds == whole.until_seconds


def test_series_come_and_go_and_bins_that_nobody_sent_are_gaps() -> None:
    records = Records()
    a, b, c = (SeriesId(x) for x in "abc")
    records.absorb(History([a, b], np.array([[1.0, 2], [3, 4]]), START))
    records.absorb(History([b, c], np.array([[6.0], [7]]), START + 1200))
    np.testing.assert_array_equal(records.known, [[1, 1, 0, 1], [0, 0, 0, 1]])
    np.testing.assert_allclose(records.filled, [[3, 4, 5, 6], [0, 0, 0, 7]])
    np.testing.assert_array_equal(records.length, [4, 1])
    for bad in (
        History([b], np.ones((1, 1)), START),
        History([b], np.ones((1, 1)), START + 1201),
        History([b], np.ones((1, 1)), START + 1800, step_seconds=60),
    ):
        with pytest.raises(InputError):
            records.absorb(bad)
    assert records.until_seconds == START + 1200


@pytest.mark.parametrize("make", TIERS)
@pytest.mark.parametrize("horizon", [36, DAY, 3 * DAY])
@pytest.mark.parametrize("phase", [0, 1, 2])
def test_gaps_in_a_rhythm_leave_no_step_without_a_spread(
    make: type, horizon: int, phase: int
) -> None:
    """A reading each 15 minutes on a grid of ten is a gap in every third bin, and past origins lie
    six bins apart: of every third step no error was ever seen, and its p99 was its median."""
    values = demand(2, 9 * DAY)
    gappy = values.copy()
    gappy[:, phase::3] = np.nan
    answers = []
    for read in (gappy, values):
        tier: Forecaster = make()
        tier.update(history(read))
        answers.append(tier.quantiles(horizon, LEVELS)[1])
    width, whole = (answer[:, 4] - answer[:, 2] for answer in answers)
    # A step ahead of an interpolated bin errs less; nothing else may be half as wide.
    assert (width[1:] > 0.4 * whole[1:].min()).all()
    assert width[0] > 0.1 * whole[0]
