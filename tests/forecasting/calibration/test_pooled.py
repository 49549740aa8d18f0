"""Corrected promises hold as often as they say, over the pool and for each series."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from forecasting.calibration.finished import Finished
from forecasting.calibration.pooled import ALONE_CHANGES, PooledCalibration
from forecasting.calibration.score_sketch import ScoreSketch
from forecasting.calibration.stored_calibration import calibration_from_json, calibration_to_json
from wattpack.errors import InputError

LEVELS = (0.1, 0.5, 0.9, 0.99)
N_SERIES = 30
NAMES = tuple(f"s{i}" for i in range(N_SERIES))
SCALE = np.full(N_SERIES, 100.0)
LEVEL = 500.0


def forecast(spreads: np.ndarray, n_steps: int) -> np.ndarray:
    """Normal quantiles around ``LEVEL``, (n_series, n_steps, n_levels)."""
    each = LEVEL + spreads[:, None] * norm.ppf(LEVELS)
    return np.repeat(each[:, None, :], n_steps, axis=1)


def run(
    windows: int, n_steps: int, told: float, true: np.ndarray, seed: int = 1
) -> tuple[PooledCalibration, np.ndarray]:
    """A forecast with the wrong spread, corrected online; misses of the later half."""
    draw = np.random.default_rng(seed)
    state = PooledCalibration.new(LEVELS)
    promised = forecast(np.full(N_SERIES, told), n_steps)
    missed = []
    for _ in range(windows):
        published = state.corrected(NAMES, promised, SCALE)
        realised = draw.normal(LEVEL, true[:, None], size=(N_SERIES, n_steps))
        missed.append(realised[:, :, None] > published)
        done = Finished(NAMES, promised, published, SCALE, realised, window_steps=n_steps)
        state = state.after(done)
    return state, np.array(missed[windows // 2 :])


@pytest.mark.parametrize("told", [30.0, 100.0, 300.0])
@pytest.mark.parametrize("n_steps", [1, 12])
def test_promises_hold_in_the_end_whatever_spread_the_forecast_had(
    told: float, n_steps: int
) -> None:
    _, missed = run(120, n_steps, told, np.full(N_SERIES, 100.0))
    rates = missed.mean(axis=(0, 1, 2))
    assert rates[:3] == pytest.approx([0.9, 0.5, 0.1], abs=0.02)
    assert 0.005 < rates[3] < 0.016


def test_a_series_that_misses_more_than_its_pool_is_corrected_more() -> None:
    true = np.full(N_SERIES, 50.0)
    true[0] = 150.0
    state, missed = run(80, 12, 50.0, true)
    offsets = state.offsets(NAMES)
    assert offsets[0, 3] > 1.3 * np.median(offsets[1:, 3])
    pool_alone = replace(state, own={}).offsets(NAMES)[0, 3]
    reached = norm.sf((norm.ppf(0.99) + pool_alone * norm.ppf(0.99)) * 50 / 150)
    assert missed[:, 0, :, 3].mean() < 0.7 * reached


def test_nothing_is_corrected_before_twenty_windows_of_series() -> None:
    promised = forecast(np.full(19, 10.0), 1)
    realised = np.full((19, 1), 900.0)
    names, scale = NAMES[:19], SCALE[:19]
    state = PooledCalibration.new(LEVELS).after(
        Finished(names, promised, promised, scale, realised)
    )
    assert np.array_equal(state.corrected(names, promised, scale), promised)
    state = state.after(Finished(names, promised, promised, scale, realised))
    assert state.corrected(names, promised, scale)[0, 0, 3] > 850


def test_an_idle_series_is_lifted_by_no_more_than_a_share_of_its_scale() -> None:
    state, _ = run(40, 12, 50.0, np.full(N_SERIES, 200.0))
    idle = np.zeros((1, 6, len(LEVELS)))
    corrected = state.corrected(("idle",), idle, np.array([100.0]))
    assert corrected.min() >= 0
    assert corrected.max() < 0.2 * 100.0
    assert state.offsets(("idle",))[0, 3] > 1.0


@given(st.integers(0, 2**32 - 1))
def test_what_is_no_number_teaches_nothing_and_is_counted(seed: int) -> None:
    draw = np.random.default_rng(seed)
    before, _ = run(3, 4, 50.0, np.full(N_SERIES, 100.0))
    promised = forecast(np.full(N_SERIES, 50.0), 4)
    realised = draw.normal(LEVEL, 100.0, size=(N_SERIES, 4))
    unknown, infinite = draw.random(realised.shape) < 0.3, draw.random(realised.shape) < 0.1
    clean = np.where(unknown | infinite, np.nan, realised)
    dirty = np.where(infinite & ~unknown, 1e300, clean)
    dirty_promise = promised.copy()
    dirty_promise[np.isnan(clean)] = np.nan

    wild = before.after(Finished(NAMES, promised, promised, SCALE, dirty, window_steps=4))
    gone = before.after(Finished(NAMES, dirty_promise, promised, SCALE, realised, window_steps=4))
    less = before.after(Finished(NAMES, promised, promised, SCALE, clean, window_steps=4))

    expected = calibration_to_json(less) | {"ignored": None}
    assert calibration_to_json(wild) | {"ignored": None} == expected
    assert calibration_to_json(gone) | {"ignored": None} == expected
    assert wild.ignored - before.ignored == np.sum(infinite & ~unknown)
    assert gone.ignored - before.ignored == np.sum(unknown | infinite)


def test_steps_one_by_one_move_the_miss_rates_as_all_at_once() -> None:
    state, _ = run(10, 6, 50.0, np.full(N_SERIES, 100.0))
    promised = forecast(np.full(N_SERIES, 50.0), 6)
    published = state.corrected(NAMES, promised, SCALE)
    realised = np.random.default_rng(8).normal(LEVEL, 100.0, size=(N_SERIES, 6))
    done = Finished(NAMES, promised, published, SCALE, realised, window_steps=6)
    by_steps = state
    for k in range(6):
        one = np.where(np.arange(6) == k, realised, np.nan)
        by_steps = by_steps.after(replace(done, realised=one))
    assert by_steps.drift == pytest.approx(state.after(done).drift, abs=1e-12)
    assert by_steps.windows == pytest.approx(state.after(done).windows, rel=0.05)


def test_a_window_that_breaks_while_open_counts_at_once_and_once() -> None:
    state, _ = run(10, 1, 50.0, np.full(N_SERIES, 100.0))
    promised = forecast(np.full(N_SERIES, 50.0), 1)
    published = state.corrected(NAMES, promised, SCALE)
    realised = np.full((N_SERIES, 1), LEVEL)
    realised[0] = published[0, 0, 2] + 1.0
    broken = realised[0, 0] > published[0, 0]
    told = np.zeros(published.shape, dtype=bool)
    told[0, 0] = broken
    done = Finished(NAMES, promised, published, SCALE, realised)

    early = state.after_broken(NAMES[:1], broken[None], N_SERIES)

    assert np.all(early.offsets(NAMES[:1])[0, broken] > state.offsets(NAMES[:1])[0, broken])
    late = early.after(replace(done, told=told))
    assert late.drift == pytest.approx(state.after(done).drift, abs=1e-12)


def test_a_miss_of_a_window_whose_end_nobody_knows_is_taken_back() -> None:
    state, _ = run(10, 1, 50.0, np.full(N_SERIES, 100.0))
    promised = forecast(np.full(N_SERIES, 50.0), 1)
    told = np.zeros(promised.shape, dtype=bool)
    told[0, 0, :2] = True
    early = state.after_broken(NAMES[:1], told[0], N_SERIES)
    unknown = Finished(NAMES, promised, promised, SCALE, np.full((N_SERIES, 1), np.nan), told=told)
    late = early.after(unknown)
    assert np.any(early.drift != state.drift)
    assert late.drift == pytest.approx(state.drift, abs=1e-12)
    assert late.own[NAMES[0]] == pytest.approx(state.own[NAMES[0]], abs=1e-12)
    assert late.windows == state.windows


def test_many_windows_that_break_at_once_are_as_many_that_break_one_by_one() -> None:
    state, _ = run(10, 1, 50.0, np.full(N_SERIES, 100.0))
    draw = np.random.default_rng(7)
    levels = draw.random((N_SERIES, len(state.levels))) < 0.5
    one_by_one = state
    for name, row in zip(NAMES, levels, strict=True):
        one_by_one = one_by_one.after_broken([name], row[None], 3)
    at_once = state.after_broken(NAMES, levels, 3)
    assert calibration_to_json(at_once) == calibration_to_json(one_by_one)
    assert np.any(at_once.drift == -(1 - np.array(state.levels))), "no drift reached its bound"


def test_stored_state_goes_on_bit_for_bit() -> None:
    state, _ = run(7, 3, 50.0, np.full(N_SERIES, 100.0))
    again = calibration_from_json(json.loads(json.dumps(calibration_to_json(state))))
    promised = forecast(np.full(N_SERIES, 50.0), 3)
    done = Finished(NAMES, promised, promised, SCALE, promised[:, :, 2], window_steps=3)
    one, other = state.after(done), again.after(done)
    assert one.offsets(NAMES).tobytes() == other.offsets(NAMES).tobytes()
    assert calibration_to_json(one) == calibration_to_json(other)


DAMAGES: tuple[tuple[str, Any], ...] = (
    ("version", 1),
    ("unit", "watts"),
    ("version", None),
    ("levels", [0.1, "x"]),
    ("feedback", {}),
    ("sketch", {"0": [1.0]}),
    ("sketch", {"0": [-1.0, 1.0], "1": [], "2": [], "3": []}),
    ("sketch", []),
    ("windows", float("nan")),
    ("drift", [0.0]),
    ("drift", [0.0, 0.0, 0.0, 1e400]),
    ("own", {"a": [1.0]}),
    ("tops", {"a": [1.0]}),
    ("ignored", None),
)


@pytest.mark.parametrize(("field", "value"), DAMAGES)
def test_damaged_state_is_refused_by_name(field: str, value: object) -> None:
    state, _ = run(3, 2, 50.0, np.full(N_SERIES, 100.0))
    with pytest.raises(InputError) as refusal:
        calibration_from_json(calibration_to_json(state) | {field: value})
    assert refusal.value.field.startswith(f"calibration.{field}")


@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=200),
    st.floats(0.02, 0.98),
)
def test_a_sketch_knows_quantiles_to_two_per_cent(scores: list[float], share: float) -> None:
    sketch = ScoreSketch.new(1).after(np.array(scores)[:, None])
    got = sketch.quantiles(np.array([[share]]))[0, 0]
    ranked = sorted(scores)
    # Between the two neighbours that the share may mean.
    place = share * len(scores)
    low, high = (
        ranked[max(0, int(np.ceil(place - 1e-9)) - 1)],
        ranked[min(int(place), len(ranked) - 1)],
    )
    assert low - 0.02 * abs(low) - 3e-4 <= got <= high + 0.02 * abs(high) + 3e-4


def test_a_peak_is_corrected_by_a_number_of_day_changes_and_holds() -> None:
    draw = np.random.default_rng(4)
    state = PooledCalibration.of_peaks(LEVELS)
    change = np.geomspace(1.0, 1000.0, N_SERIES)
    promised = change[:, None, None] * (5 + 0.3 * norm.ppf(LEVELS))[None, None, :]
    missed = []
    for _ in range(150):
        published = state.corrected(NAMES, promised, change)
        realised = change[:, None] * (5 + 0.5 * draw.normal(size=(N_SERIES, 1)))
        missed.append(realised[:, :, None] > published)
        state = state.after(Finished(NAMES, promised, published, change, realised))
    assert np.mean(missed[50:], axis=(0, 1, 2)) == pytest.approx([0.9, 0.5, 0.1, 0.01], abs=0.015)
    moved = (state.corrected(NAMES, promised, change) - promised) / change[:, None, None]
    moved = moved[:, :, :3]  # the highest level keeps to what each series needed itself
    assert moved == pytest.approx(np.broadcast_to(moved[:1], moved.shape))
    again = calibration_from_json(json.loads(json.dumps(calibration_to_json(state))))
    corrected = state.corrected(NAMES, promised, change)
    assert np.array_equal(again.corrected(NAMES, promised, change), corrected)


def _lifted(bursts: Sequence[float]) -> tuple[PooledCalibration, list[np.ndarray]]:
    """Series that need so many day changes in each seventh window, and by how much they are lifted.

    The first two burst; the others keep below their promise of 10.
    """
    names, change = [f"s{i}" for i in range(len(bursts))], np.ones(len(bursts))
    promised = np.full((len(bursts), 1, len(LEVELS)), 10.0)
    state, lifted = PooledCalibration.of_peaks(LEVELS), []
    for window in range(60):
        realised = np.where(
            (np.array(bursts) > 0) & (window % 7 == 0), 10.0 + np.array(bursts), 9.0
        )
        published = state.corrected(names, promised, change)
        state = state.after(Finished(names, promised, published, change, realised[:, None]))
        if state.is_in_force:
            lifted.append(state.corrected(names, promised, change)[:, 0, -1] - 10.0)
    return state, lifted


def test_what_two_series_need_lifts_calm_ones_the_less_the_longer_they_need_nothing() -> None:
    state, lifted = _lifted((50.0, 50.0, 0.0, 0.0))
    first, last = lifted[0], lifted[-1]
    assert last[:2] == pytest.approx(50.0, rel=0.1)  # nothing beyond what they needed themselves
    assert np.all(first[2:] > ALONE_CHANGES)
    assert np.all(last[2:] < 0.25 * last[0])
    assert np.all(last[2:] < 0.5 * first[2:])
    names = ("s0", "s1", "s2", "s3")
    again = calibration_from_json(json.loads(json.dumps(calibration_to_json(state))))
    assert np.array_equal(again.offsets(names), state.offsets(names))


@pytest.mark.parametrize("burst", [50.0, 900.0])
def test_what_one_series_needs_alone_lifts_the_others_by_a_few_day_changes(burst: float) -> None:
    state, lifted = _lifted((burst, 0.0, 0.0))
    assert lifted[-1][0] == pytest.approx(burst, rel=0.15)
    assert max(row[1:].max() for row in lifted) <= ALONE_CHANGES
    # Of a series that was never judged nobody knows which of them it is like.
    unseen = state.corrected(("new",), np.full((1, 1, len(LEVELS)), 10.0), np.ones(1))
    assert unseen[0, 0, -1] - 10.0 == pytest.approx(burst, rel=0.15)
