"""The plant of ``decision_value`` and its choice of settings, against loops; one quick run."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import decision_value
from benchmarks._replica_demand import services, start_minutes
from benchmarks._replica_fleet import just_in_time_hours, least_hours, played
from benchmarks._replica_policies import constant, hourly_forecast, kalman, reactive
from benchmarks.runner import Options

small = st.integers(0, 9)


def one_by_one(rates: list[int], starts: list[int], wanted: list[int]) -> tuple[int, float]:
    """Violated minutes and replica hours of one setting, each replica a number of its own."""
    ready_at = [0] * int(np.ceil(1.5 * rates[0]))
    queued, violated, hours = 0.0, 0, 0.0
    for minute, rate in enumerate(rates):
        ready_at.sort()
        ready_at += [minute + starts[minute]] * (wanted[minute] - len(ready_at))
        ready_at = sorted(ready_at)[: wanted[minute]]
        working = sum(at <= minute for at in ready_at)
        queued = min(max(0.0, queued + 60.0 * (rate - working)), 180.0 * working)
        violated += queued > 10.0 * working
        hours += len(ready_at) / 60.0
    return violated, hours


@given(st.lists(st.tuples(small, st.integers(1, 4), small), min_size=2, max_size=25))
def test_the_plant_does_what_single_replicas_do(minutes: list[tuple[int, int, int]]) -> None:
    rates, starts, wanted = ([row[k] for row in minutes] for k in range(3))
    outcome = played(
        lambda minute, _: np.array([wanted[minute], 9.0]), np.array(rates, float), 1.0,
        np.array(starts), 2,
    )  # fmt: skip
    violated, hours = one_by_one(rates, starts, wanted)
    assert outcome.violated[:, 0].sum() == violated
    assert outcome.hours[:, 0].sum() == pytest.approx(hours)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.sampled_from([0.0, 1.0, 4.0]))
def test_who_lets_people_wait_needs_no_more(rates: list[int], start: float) -> None:
    known = np.array(rates, float)
    assert least_hours(known, 1.0, start) <= just_in_time_hours(known, 1.0, start) + 1e-6


def test_a_flat_hour_is_served_by_what_leaves_ten_seconds_of_queue() -> None:
    replicas = 36_000 / 3_610
    found = least_hours(np.full(60, 10.0), 1.0, 3.0)
    assert found == pytest.approx(replicas * 63 / 60, rel=1e-3)


settings = st.lists(st.tuples(small, small), min_size=1, max_size=5)


@given(st.lists(settings, min_size=1, max_size=3), st.integers(0, 20))
def test_the_choice_is_the_cheapest_of_all_combinations(
    services_of: list[list[tuple[int, int]]], budget: int
) -> None:
    seen = [
        (np.array([m for m, _ in s], float), np.array([h for _, h in s], float))
        for s in services_of
    ]
    allowed = [
        sum(hours for _, hours in pick)
        for pick in itertools.product(*services_of)
        if sum(minutes for minutes, _ in pick) <= budget
    ]
    picks = decision_value.chosen(seen, budget)
    if not allowed:
        assert picks is None
    else:
        assert picks is not None
        minutes, hours = decision_value.sums(seen, picks)
        assert minutes <= budget
        assert hours == min(allowed)


def test_predictors_know_the_past_alone() -> None:
    values = np.random.default_rng(0).gamma(9, 1, 400)
    changed = values.copy()
    changed[300:] += 5
    for predictor in (constant, kalman):
        told, again = predictor(values, 100), predictor(changed, 100)
        assert np.array_equal(told[:301], again[:301])
        assert told[301] != again[301]
    assert np.array_equal(constant(values, 0)[1:], values)
    minutes = np.repeat(np.tile(np.arange(24.0), 4), 60)
    told = hourly_forecast(minutes, 3)
    assert not told[: 24 * 60].any()
    assert np.array_equal(told[24 * 60 :], minutes[24 * 60 :])


def test_reactive_scaling_waits_with_less_and_never_with_more() -> None:
    rates = np.concatenate([np.full(10, 10.0), np.full(10, 40.0), np.full(40, 10.0)])
    knobs, policy = reactive(rates, 1.0)
    at = next(k for k, row in enumerate(knobs) if tuple(row) == (0.5, 15, 1, 0.0))
    wishes = [policy(minute, np.zeros(len(knobs)))[at] for minute in range(len(rates))]
    assert wishes[10] == 20
    assert wishes[11:36] == [80] * 25
    assert wishes[36] == 20


def test_demand_keeps_the_totals_that_were_measured() -> None:
    (found,) = services(3, ("m-small",))
    (other,) = services(4, ("m-small",))
    assert found.rates.shape == (14 * 1440,)
    assert found.rates.mean() == pytest.approx(1174.4, rel=0.002)
    assert found.rates.mean() / found.replica_rate == pytest.approx(20 * 1174.4 / 984.9, rel=0.01)
    assert not np.array_equal(found.rates, other.rates)
    takes = start_minutes(3, 5000)
    assert takes.mean() == pytest.approx(138 / 60 + 0.5, abs=0.1)
    assert np.quantile(takes, 0.95) == 5


def test_a_quick_run_has_every_targeted_figure() -> None:
    result = decision_value.run(Options(quick=True, progress=lambda _: None))
    assert set(result.targets) <= set(result.figures)
    told = {name: value for name, value in result.figures.items() if isinstance(value, float)}
    assert told["perfect_gpu_hours"] < told["ours_gpu_hours_at_1_percent"]
    assert told["loss_gpu_hours_forecast_as_is"] < told["loss_gpu_hours_forecast_removed"]
    assert told["loss_gpu_hours_forecast_as_is"] < told["loss_gpu_hours_forecast_halved"]
