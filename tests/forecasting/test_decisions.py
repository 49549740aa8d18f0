"""Decisions from forecasts against oracles that enumerate every amount."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from forecasting.decisions import (
    ChangeLimits,
    Decision,
    Prices,
    SteadyState,
    Tail,
    highest_within,
    least_priced_violations,
    losses_by_change,
    mean_and_tail,
    mix_demand,
    promisable_watts,
    steadied,
    within_risk,
)
from forecasting.peak_quantiles import PeakQuantiles
from forecasting.prewarming.replica_need import ordered_now
from forecasting.prewarming.start_times import StartTimes
from wattpack.api.forecast_replicas import ReplicaRule
from wattpack.errors import InputError

needs_lists = st.lists(st.integers(0, 40), min_size=1, max_size=24)
prices = st.builds(Prices, st.floats(0.1, 10), st.floats(0.1, 10))


def mean_cost(amount: float, needs: list[int], price: Prices) -> float:
    """What the amount costs on average, need by need."""
    total = 0.0
    for need in needs:
        total += price.surplus * max(amount - need, 0) + price.shortfall * max(need - amount, 0)
    return total / len(needs)


# -- amounts ---------------------------------------------------------------------------------------


@given(needs_lists, st.floats(0, 1))
def test_no_lower_amount_keeps_the_risk(needs: list[int], risk: float) -> None:
    made = within_risk(np.array(needs, float), risk)

    def missed(amount: float) -> float:
        return sum(need > amount for need in needs) / len(needs)

    assert made.shortfall_share == pytest.approx(missed(made.amount))
    assert missed(made.amount) <= risk + 1e-12
    assert all(missed(below) > risk for below in needs if below < made.amount - 1e-9)
    assert made.amount in needs


@given(needs_lists, st.floats(0, 5), st.floats(0, 200))
def test_no_amount_has_cheaper_violations(needs: list[int], unit: float, price: float) -> None:
    made = least_priced_violations(np.array(needs, float), unit, price)

    def cost(amount: float) -> float:
        return unit * amount + price * sum(need > amount for need in needs) / len(needs)

    assert cost(made.amount) <= min(cost(a) for a in np.arange(0, 41, 0.5)) + 1e-9


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=9), prices,
    st.floats(0, 0.95), st.floats(0, 1),
)  # fmt: skip
def test_the_tail_is_weighed_as_a_linear_programme_weighs_it(
    needs: list[int], price: Prices, level: float, weight: float
) -> None:
    """Variables: amount, VaR, then a loss and an excess for each need."""
    n = len(needs)
    objective = [0.0, weight, *[(1 - weight) / n] * n, *[weight / ((1 - level) * n)] * n]
    rows, bounds = [], []
    for j, need in enumerate(needs):
        for slope in (price.surplus, -price.shortfall):
            row = [0.0] * (2 + 2 * n)
            row[0], row[2 + j] = slope, -1.0
            rows.append(row)
            bounds.append(slope * need)
        row = [0.0] * (2 + 2 * n)
        row[1], row[2 + j], row[2 + n + j] = -1.0, 1.0, -1.0
        rows.append(row)
        bounds.append(0.0)
    solved = linprog(
        objective, A_ub=rows, b_ub=bounds, bounds=[(0, 40), (None, None), *[(0, None)] * (2 * n)]
    )
    made = mean_and_tail(np.array(needs, float), price, Tail(level, weight))
    losses = sorted(
        max(price.surplus * (made.amount - need), price.shortfall * (need - made.amount))
        for need in needs
    )
    wanted, tail = (1 - level) * n, 0.0
    for k, loss in enumerate(reversed(losses)):
        tail += loss * min(1.0, max(0.0, wanted - k)) / wanted
    found = (1 - weight) * sum(losses) / n + weight * tail
    # The solver keeps its own constraints to 1e-7 each.
    assert found == pytest.approx(solved.fun, rel=1e-5, abs=1e-5)


def test_the_worst_alone_is_answered_between_the_extremes() -> None:
    """With equal prices and only the very worst counted the middle of the range is best."""
    made = mean_and_tail(np.array([0.0, 1.0, 2.0, 10.0]), Prices(1, 1), Tail(0.999, 1.0))
    assert made.amount == pytest.approx(5.0)
    assert made.binding == "tail"


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: Prices(0, 0), "prices"),
        (lambda: Prices(-1, 1), "prices.surplus"),
        (lambda: within_risk(np.array([]), 0.1), "needs"),
        (lambda: within_risk(np.array([1.0, math.nan]), 0.1), "needs"),
        (lambda: within_risk(np.ones(3), 1.5), "risk"),
        (lambda: Tail(1.0, 0.5), "tail.level"),
        (lambda: Tail(0.5, 1.5), "tail.weight"),
        (lambda: highest_within(np.ones((2, 3)), 4), "steps"),
        (lambda: highest_within(np.full((2, 3), np.nan)), "paths"),
        (lambda: mix_demand(np.ones(2), [0.9, 0.5], Prices(1, 1)), "levels"),
        (lambda: ChangeLimits(dead_band=2), "limits.deadBand"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_by_name(call: Any, field: str) -> None:
    with pytest.raises(InputError) as refused:
        call()
    assert refused.value.field == field


# -- steadiness ------------------------------------------------------------------------------------

limits = st.builds(
    ChangeLimits, st.sampled_from([0.0, 0.1]), st.sampled_from([0.0, 50.0]), st.just(100.0),
    st.none() | st.integers(0, 3), st.none() | st.floats(0, 60),
    st.sampled_from([None, "up", "down"]),
)  # fmt: skip
walks = st.lists(st.tuples(st.floats(0.5, 60), st.integers(0, 100)), min_size=1, max_size=40)


@given(limits, walks)
def test_limits_hold_in_every_window_however_often_it_is_asked(
    limit: ChangeLimits, walk: list[tuple[float, int]]
) -> None:
    state, now, amount = SteadyState(), 0.0, None
    wishes: list[tuple[float, int]] = []
    bound: list[tuple[float, float]] = []
    for pause, wished in walk:
        now += pause
        wishes.append((now, wished))
        made, state = steadied(Decision(wished, 0, "cost", "wish"), now, state, limit)
        if amount is None:
            assert made.amount == wished
        elif made.amount != amount:
            direction = "up" if made.amount > amount else "down"
            if direction == limit.urgent:
                assert made.amount == wished
            else:
                bound.append((now, abs(made.amount - amount)))
                lately = [w for t, w in wishes if t > now - limit.hold_seconds] or [wished]
                if direction == "up":
                    assert made.amount <= min(lately)
                else:
                    assert made.amount >= max(lately)
                recent = [size for t, size in bound if t > now - limit.window_seconds]
                assert limit.most_changes is None or len(recent) <= limit.most_changes
                assert limit.most_moved is None or sum(recent) <= limit.most_moved + 1e-9
        elif limit.urgent is not None and made.amount != wished:
            assert ("up" if wished > amount else "down") != limit.urgent
        amount = made.amount


def test_what_is_wished_long_enough_is_done_and_told() -> None:
    limit = ChangeLimits(hold_seconds=60, most_changes=1, urgent="up")
    wish = Decision(10, 0.01, "risk", "ten")
    made, state = steadied(wish, 0, SteadyState(), limit)
    low = Decision(4, 0.01, "risk", "four")
    made, state = steadied(low, 30, state, limit)
    assert (made.amount, made.binding) == (10, "hold")
    made, state = steadied(low, 90, state, limit)
    assert (made.amount, made.binding) == (4, "risk")
    made, state = steadied(Decision(2, 0, "risk", "two"), 400, state, limit)
    made, state = steadied(Decision(2, 0, "risk", "two"), 500, state, limit)
    assert (made.amount, made.binding) == (4, "rate")
    assert "1 changes in the last 3600 s" in made.reason
    with pytest.raises(InputError, match="nowSeconds"):
        steadied(low, 400, state, limit)


# -- consumers -------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 0.5))
def test_what_is_promised_above_exceeds_the_limit_as_rarely_as_promised(
    seed: int, risk: float
) -> None:
    rng = np.random.default_rng(seed)
    promised, limit = 1000.0, 1100.0
    draws = promised * rng.beta(4, 6, (80, 6))
    made = promisable_watts(draws, limit, promised, {"low": risk, "high": 0.0})
    grown = draws.max(axis=1) * (promised + made["low"].amount) / promised
    assert np.mean(grown > limit * (1 + 1e-9)) <= risk + 1e-9
    assert made["high"].amount == pytest.approx(limit - promised)
    assert made["low"].amount >= made["high"].amount
    assert "drawn at the peak" in made["low"].reason


def test_replicas_are_ordered_for_what_later_orders_cannot_serve() -> None:
    """Demand rises after 4 minutes; a start of 3 min 20 s and a decision each minute see it."""
    paths = np.repeat([[10.0, 10, 10, 10, 80, 80, 80]], 20, axis=0)
    rule = ReplicaRule(rate=10.0, risk=0.05, most=7)
    quick, slow = StartTimes(170, 60), StartTimes(200, 60)
    assert (quick.steps(60), slow.steps(60)) == (4, 5)
    assert ordered_now(paths, 60, quick, rule, 10).amount == 1
    made = ordered_now(paths, 60, slow, rule, 10)
    assert (made.amount, made.binding) == (7, "limit")
    assert ordered_now(paths, 60, quick, rule, 55).amount == 6
    with pytest.raises(InputError, match="paths"):
        ordered_now(paths, 60, StartTimes(600, 0), rule, 10)


def priced(price: float, least: int) -> ReplicaRule:
    return ReplicaRule(rate=5.0, violation_price=price, least=least)


@given(st.integers(0, 2**32 - 1), st.floats(0.5, 200))
def test_no_number_of_replicas_is_cheaper_on_the_paths(seed: int, price: float) -> None:
    paths = np.random.default_rng(seed).gamma(3, 8, (50, 5))
    made = ordered_now(
        paths, 60, StartTimes(120, 60), ReplicaRule(rate=5.0, violation_price=price, least=0), 0
    )
    costs = []
    for replicas in range(60):
        short = sum(path[:3].max() > 5.0 * replicas + 1e-6 for path in paths) / len(paths)
        costs.append(replicas + price * short)
    assert costs[int(made.amount)] == pytest.approx(min(costs))


@given(st.integers(0, 2**32 - 1), st.floats(0.5, 200), st.integers(0, 12))
def test_what_runs_in_any_case_is_not_weighed(seed: int, price: float, least: int) -> None:
    paths = np.random.default_rng(seed).gamma(3, 8, (50, 5))
    made = ordered_now(
        paths, 60, StartTimes(120, 60), ReplicaRule(rate=5.0, violation_price=price, least=least), 0
    )
    short = [sum(path[:3].max() > 5.0 * n + 1e-6 for path in paths) / 50 for n in range(60)]
    costs = [n + price * share for n, share in enumerate(short)]
    assert costs[int(made.amount)] == pytest.approx(min(costs[least:]))


def test_a_mix_is_bought_for_the_quantile_that_pays() -> None:
    peaks, levels = np.array([10.0, 20.0, 30.0]), [0.5, 0.95, 0.99]
    assert mix_demand(peaks, levels, Prices(1, 1)).amount == 10
    assert mix_demand(peaks, levels, Prices(5, 95)).amount == pytest.approx(20)
    # The same demand as at the risk that the prices come to.
    at_risk = PeakQuantiles(10.0, 20.0, 30.0).at_risk(0.02)
    assert mix_demand(peaks, levels, Prices(2, 98)).amount == pytest.approx(at_risk)
    beyond = mix_demand(peaks, levels, Prices(1, 999))
    assert (beyond.amount, beyond.binding) == (30, "limit")
    assert "0.99" in beyond.reason


def test_a_consumer_loses_by_a_forecast_that_is_gone_or_wrong() -> None:
    needs = np.random.default_rng(2).gamma(9, 10, 400)
    price = Prices(1, 9)

    def decide(forecast: np.ndarray | None) -> float:
        return 100.0 if forecast is None else mean_and_tail(forecast, price, Tail(0.0, 0.0)).amount

    losses = losses_by_change(needs, decide, lambda amount: mean_cost(amount, [*needs], price))
    assert min(losses, key=losses.__getitem__) == "as_is"
    assert set(losses) == {"as_is", "removed", "halved", "raised_half"}
    assert losses["halved"] > losses["raised_half"]
