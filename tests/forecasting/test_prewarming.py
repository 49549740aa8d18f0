"""Rates that the next minutes need, and replicas by the price of a violation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.prewarming.demand_features import COUNT, demand_features, usual_rate
from forecasting.prewarming.needed_quantiles import fit_needed_quantiles
from forecasting.prewarming.needed_rate import needed_rates
from forecasting.prewarming.priced_replicas import priced_replicas
from wattpack.errors import InputError

minutes = st.lists(st.integers(0, 50), min_size=4, max_size=12)


def longest_wait(rates: list[int], served: float) -> tuple[float, float]:
    """Longest wait at a minute's end and the queue that is left, minute by minute."""
    queued = wait = 0.0
    for rate in rates:
        queued = max(0.0, queued + (rate - served) * 60)
        wait = max(wait, queued / served if served else np.inf if queued else 0.0)
    return wait, queued


@given(minutes, st.sampled_from([0.0, 10.0, 45.0]))
def test_less_than_the_needed_rate_makes_somebody_wait(rates: list[int], wait: float) -> None:
    needed = needed_rates(np.array(rates, float), 4, 60, wait)
    assert np.isnan(needed[-3:]).all()
    for place in range(len(rates) - 3):
        window = rates[place : place + 4]
        assert longest_wait(window, needed[place])[0] <= wait + 1e-6
        less = needed[place] * (1 - 1e-6) - 1e-9
        if less > 0:
            waited = longest_wait(window, less)[0] > wait
            assert waited or less * 4 < sum(window)


@given(st.integers(0, 2**32 - 1))
def test_features_know_nothing_of_what_comes(seed: int) -> None:
    rates = np.random.default_rng(seed).gamma(2, 5, 60)
    told, level = demand_features(rates, usual_rate(rates))
    changed = rates.copy()
    changed[40:] *= 3
    again, level_again = demand_features(changed, usual_rate(rates))
    assert told.shape == (61, COUNT)
    assert np.array_equal(told[:41], again[:41])
    assert np.array_equal(level[:41], level_again[:41])
    assert not np.array_equal(told[41:], again[41:])
    larger, _ = demand_features(7 * rates, usual_rate(7 * rates))
    assert larger == pytest.approx(told)


@given(st.integers(0, 2**32 - 1), st.floats(0, 400))
def test_no_number_is_cheaper_by_the_tail_that_the_levels_draw(seed: int, price: float) -> None:
    rng = np.random.default_rng(seed)
    levels = np.array([0.3, 0.5, 0.8, 0.95, 0.99])
    quantiles = np.sort(rng.gamma(4, 10, (3, 5)), axis=1)
    made = priced_replicas(quantiles, levels, 2.5, [price], least=2)[:, 0]
    for row, found in zip(quantiles / 2.5, made, strict=True):

        def cost(replicas: int, row: np.ndarray = row) -> float:
            if replicas <= row[0]:
                return replicas + price
            log_tail = np.interp(replicas, row, np.log1p(-levels))
            if replicas > row[-1]:
                fall = np.log(0.01 / 0.2) / max(row[-1] - row[-3], 0.5)
                log_tail = np.log(0.01) + fall * (replicas - row[-1])
            return replicas + price * float(np.exp(log_tail))

        assert cost(int(found)) <= min(cost(n) for n in range(2, 160)) + 1e-4


def test_what_was_learned_holds_on_days_that_were_not_seen() -> None:
    rng = np.random.default_rng(5)
    hours = np.repeat(rng.gamma(8, 1, 24 * 7), 60)
    services = [size * hours * rng.gamma(80, 1 / 80, len(hours)) for size in (1.0, 30.0)]
    known = [rates[: 5 * 1440] for rates in services]
    model = fit_needed_quantiles(known, 4, 60, 10, rounds=40)
    for rates, usual in zip(services, model.usual, strict=True):
        told = model.quantiles(rates, usual)[5 * 1440 : -4]
        needed = needed_rates(rates, 4, 60, 10)[5 * 1440 : -3]
        below = (needed[:, None] <= told).mean(axis=0)
        assert np.all(np.diff(told, axis=1) >= 0)
        assert below[model.levels.index(0.9)] == pytest.approx(0.9, abs=0.04)
        assert below[model.levels.index(0.99)] > 0.97
    again = fit_needed_quantiles(known, 4, 60, 10, rounds=40)
    same = again.quantiles(services[0][-200:], model.usual[0])
    assert np.array_equal(same, model.quantiles(services[0][-200:], model.usual[0]))


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="steps"):
        needed_rates(np.ones(3), 4, 60, 10)
    with pytest.raises(InputError, match="levels"):
        priced_replicas(np.ones((2, 3)), [0.5, 0.4, 0.9], 1, [1])
    with pytest.raises(InputError, match="services"):
        fit_needed_quantiles([np.ones(1000)], 4, 60, 10)
