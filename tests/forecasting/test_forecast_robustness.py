"""No history, however odd, gives NaN, a negative or unsorted quantile or a hidden absurdity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forecasting.engine_question import Question, Shape
from forecasting.forecast import EXTREME, Forecast
from forecasting.forecast_engine import Engine
from forecasting.series_source import Floats, History, SeriesId
from forecasting.tiers.tier_sets import RIDGE_ALONE
from tests.examples import examples
from wattpack.errors import InputError

LEVELS = (0.01, 0.1, 0.5, 0.9, 0.99)
DAY = 144


def _forecast(history: Floats, horizon: int = 36, ceiling: float = np.nan) -> Forecast:
    rows = np.atleast_2d(history)
    names = [SeriesId(f"s{i}") for i in range(len(rows))]
    engine = Engine(Shape(600, horizon, LEVELS), RIDGE_ALONE.live(horizon))
    pools = {name: (name, "series") for name in names}
    return engine.issue(Question(History(names, rows), pools, np.full(len(rows), ceiling)))


def _sound(made: Forecast, history: Floats) -> None:
    rows = np.atleast_2d(history)
    usable = np.where(np.isfinite(rows) & (rows >= 0), rows, 0)
    record = usable.max(axis=1)
    for values in (made.quantiles, made.peaks):
        assert np.all(np.isfinite(values))
        assert np.all(values >= 0)
        assert np.all(np.diff(values, axis=-1) >= 0)
        for i in range(len(rows)):
            if "no-history" not in made.flags[i]:
                assert values[i].max() <= EXTREME * record[i] + 1e-9
    assert np.all(made.peaks >= made.quantiles.max(axis=1) - 1e-9 * (1 + made.peaks))
    assert np.all(made.scale > 0)


def _diurnal(days: float = 10, noise: float = 3.0, seed: int = 1) -> Floats:
    t = np.arange(round(days * DAY))
    rng = np.random.default_rng(seed)
    return np.maximum(0, 100 + 40 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, noise, len(t)))


def _idle_then_burst() -> Floats:
    y = np.zeros(10 * DAY)
    y[-5:] = 500.0
    return y


def _with_gaps() -> Floats:
    y = _diurnal()
    y[np.random.default_rng(2).random(len(y)) < 0.2] = np.nan
    return y


def _clock_change() -> Floats:
    y = _diurnal()
    return np.concatenate([y[: 5 * DAY], y[5 * DAY + 6 :], y[-6:]])


CASES: dict[str, Floats] = {
    "idle client that starts to burst": _idle_then_burst(),
    "burst long ago, idle since": np.concatenate([np.full(10, 900.0), np.zeros(10 * DAY - 10)]),
    "step to five times": np.concatenate([_diurnal(9), 5 * _diurnal(1)]),
    "a fifth of the bins missing": _with_gaps(),
    "a day missing": np.where(np.arange(10 * DAY) // DAY == 7, np.nan, _diurnal()),
    "the last day missing": np.where(np.arange(10 * DAY) >= 9 * DAY, np.nan, _diurnal()),
    "counter reset to negative": np.where(np.arange(10 * DAY) == 1000, -1e9, _diurnal()),
    "infinite readings": np.where(np.arange(10 * DAY) % 400 == 0, np.inf, _diurnal()),
    "an hour skipped by a clock change": _clock_change(),
    "constant zero": np.zeros(10 * DAY),
    "constant": np.full(10 * DAY, 7.0),
    "single spike of a hundred": np.where(np.arange(10 * DAY) == 1200, 1e4, _diurnal()),
    "one day": _diurnal(1),
    "thirty hours": _diurnal(1.25),
    "three days": _diurnal(3),
    "one value": np.array([5.0]),
    "one hour": _diurnal(1 / 24),
    "nothing": np.full(10 * DAY, np.nan),
    "tiny numbers": _diurnal() * 1e-12,
    "huge numbers": _diurnal() * 1e12,
    "alternating": np.tile([0.0, 1000.0], 5 * DAY),
    "exponential growth": np.exp(np.linspace(0, 12, 10 * DAY)),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_odd_history_gives_a_sound_answer(name: str) -> None:
    _sound(_forecast(CASES[name]), CASES[name])


def test_all_odd_histories_together_answer_as_each_alone() -> None:
    length = 10 * DAY
    rows = np.array([np.r_[np.full(length - len(y), np.nan), y] for y in CASES.values()])
    together = _forecast(rows)
    _sound(together, rows)
    for i, row in enumerate(rows):
        alone = _forecast(row)
        # Equal hours of an idle series take their turn in joint paths by its place in the group.
        np.testing.assert_allclose(together.peaks[i], alone.peaks[0], rtol=0.02, atol=1e-9)
        np.testing.assert_allclose(together.quantiles[i], alone.quantiles[0], rtol=1e-4, atol=1e-9)
        assert together.methods[i] == alone.methods[0]


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 3), st.sampled_from([1, 30, 150, 330, 500, 1440])),
        elements=st.floats(width=32) | st.floats(0, 100, width=32),
        fill=st.floats(0, 100, width=32),
    ),
    st.sampled_from([1, 6, 36, 144, 300]),
)
@examples(40)
def test_any_array_of_floats_gives_a_sound_answer(history: Floats, horizon: int) -> None:
    _sound(_forecast(history, horizon), history)


@given(st.floats(0, 200), st.integers(0, 5))
@examples(15)
def test_nothing_exceeds_the_ceiling(ceiling: float, seed: int) -> None:
    made = _forecast(_diurnal(seed=seed), ceiling=ceiling)
    assert made.quantiles.max() <= ceiling
    assert made.peaks.max() <= ceiling


@given(st.floats(0.01, 1e6))
@examples(15)
def test_the_unit_of_the_series_does_not_matter(factor: float) -> None:
    one, other = _forecast(_diurnal()), _forecast(_diurnal() * factor)
    np.testing.assert_allclose(other.peaks, one.peaks * factor, rtol=1e-3)


def test_the_same_history_gives_the_same_bits() -> None:
    one, other = _forecast(_diurnal()), _forecast(_diurnal())
    assert one.quantiles.tobytes() == other.quantiles.tobytes()


@pytest.mark.parametrize(
    ("name", "method", "flag"),
    [
        ("one hour", "limit", "no-history"),
        ("nothing", "limit", "no-history"),
        ("one day", "last-24h-max", "uncalibrated"),
        ("three days", "ridge", "uncalibrated"),
        ("a fifth of the bins missing", "ridge", "gaps"),
        ("the last day missing", "last-24h-max", "stale"),
        ("counter reset to negative", "ridge", "negative"),
        ("infinite readings", "ridge", "not-finite"),
    ],
)
def test_the_method_and_the_flags_say_what_happened(
    name: str, method: str, flag: str | None
) -> None:
    made = _forecast(CASES[name])
    assert made.methods == (method,)
    assert flag is None or flag in made.flags[0]


def test_under_a_day_of_history_the_limit_is_the_answer() -> None:
    made = _forecast(_diurnal(0.5), ceiling=640.0)
    assert np.all(made.quantiles == 640.0)
    assert np.all(made.peaks == 640.0)


def test_a_regular_day_is_forecast_far_better_than_its_spread() -> None:
    made = _forecast(_diurnal(10, noise=1.0))
    t = np.arange(10 * DAY, 10 * DAY + 36)
    truth = 100 + 40 * np.sin(2 * np.pi * t / DAY)
    assert np.max(np.abs(made.quantiles[0, :, 2] - truth)) < 4


@pytest.mark.parametrize(
    ("levels", "horizon"),
    [
        ((), 36),
        ((0.5, 0.5), 36),
        ((0.9, 0.5), 36),
        ((0.0,), 36),
        ((0.0001, 0.5), 36),
        ((0.5, 0.9999), 36),
        ((float("nan"),), 36),
        ((0.5,), 0),
    ],
)
def test_bad_questions_are_refused(levels: tuple[float, ...], horizon: int) -> None:
    with pytest.raises(InputError):
        Shape(600, horizon, levels)


@pytest.mark.parametrize("shape", [(2, 10), (1, 0)])
def test_a_history_that_is_not_one_row_a_series_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(InputError):
        History([SeriesId("a")], np.zeros(shape))
