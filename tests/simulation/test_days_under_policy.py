"""Hours of the inference row under a policy: where it is at work, and what is counted."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks._unbreakable_row import unbreakable
from simulation.inference_row import days_under_policy
from simulation.inference_row.client_arrivals import ClientArrivals
from simulation.inference_row.days_under_policy import (
    BLOCK_SECONDS,
    DayRun,
    Stretch,
    stretches,
    uncapped_seconds,
)
from simulation.inference_row.latency_accounts import RequestTimes
from simulation.inference_row.request_time_counts import (
    LONGEST_SECONDS,
    N_BINS,
    dense,
    quantile_seconds,
    sparse,
    time_counts,
)
from simulation.inference_row.row_power import ServerPower
from simulation.inference_row.row_under_policy import UNCAPPED, polca_scenario
from wattpack.errors import InputError

SERVERS = 4
BEGIN = 43_200.0


def test_a_second_near_the_band_makes_its_block_and_both_neighbours_hot() -> None:
    load = np.full(30 * 300, 0.5)
    load[15 * 300 + 7] = 0.9
    made = stretches(load, 600.0, 0.9)
    assert [(one.begin_seconds, one.end_seconds, one.hot) for one in made] == [
        (600.0, 600.0 + 14 * 300.0, False),
        (600.0 + 14 * 300.0, 600.0 + 17 * 300.0, True),
        (600.0 + 17 * 300.0, 600.0 + 30 * 300.0, False),
    ]


def test_a_calm_that_is_too_short_is_none() -> None:
    load = np.full(30 * 300, 0.5)
    load[[10 * 300, 17 * 300]] = 0.9
    assert [one.hot for one in stretches(load, 0.0, 0.9)] == [False, True, False]
    assert [one.hot for one in stretches(load, 0.0, 0.4)] == [True]
    with pytest.raises(InputError, match="whole blocks"):
        stretches(load[:-1], 0.0, 0.9)


def plan(*parts: tuple[float, bool]) -> list[Stretch]:
    made, at = [], BEGIN
    for seconds, hot in parts:
        made.append(Stretch(at, at + seconds, hot))
        at += seconds
    return made


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(days_under_policy, "WARM_SECONDS", 20.0)


def test_a_row_that_no_policy_touches_is_the_same_in_any_stretches() -> None:
    arrivals = ClientArrivals(SERVERS, load=0.5, burst_cv=1.5, seed=2, days=1)
    span = (BEGIN, BEGIN + 300.0)
    requests = arrivals.between(*span)
    scenario = unbreakable(polca_scenario(SERVERS, 2, ServerPower.of(), 1.0))
    books = [
        DayRun(UNCAPPED, arrivals, requests, scenario).run(parts)
        for parts in (plan((300.0, False)), plan((100.0, False), (100.0, True), (100.0, False)))
    ]
    times = [RequestTimes.of(one.work.servers, span[1]) for one in books]
    # The second row's boards begin three times from idle: a second each until they are in balance.
    np.testing.assert_allclose(times[1].whole_seconds, times[0].whole_seconds, atol=0.2)
    works = [one.work_between(BEGIN, BEGIN + 300.0) for one in books]
    np.testing.assert_allclose(works[1], works[0], rtol=1e-3)
    loads = [one.load_between(BEGIN + 60.0, BEGIN + 300.0) for one in books]
    assert len(loads[0]) == len(loads[1]) == 240
    assert loads[1].mean() == pytest.approx(loads[0].mean(), rel=0.02)
    assert (books[0].hot_seconds, books[1].hot_seconds) == (0.0, 100.0)
    assert books[1].events["trips"] == books[1].events["cap_changes"] == 0


def test_the_policy_goes_on_until_it_holds_boards_as_in_a_calm_row() -> None:
    arrivals = ClientArrivals(SERVERS, load=0.5, burst_cv=1.5, seed=2, days=1)
    requests = arrivals.between(BEGIN, BEGIN + 100.0)
    scenario = polca_scenario(SERVERS, 2, ServerPower.of(), 1.0)
    run = DayRun("wattpack", arrivals, requests, scenario)
    books = run.run(plan((40.0, True), (60.0, False)))
    # A row far below its rating: nothing is held, and the stretch ends where it was planned.
    assert books.hot_seconds == 40.0
    assert books.times[-1][-1] == pytest.approx(BEGIN + 100.0)
    with pytest.raises(InputError, match="polca"):
        DayRun("other", arrivals, requests, scenario)


def test_events_are_counted_once_where_spans_meet_and_not_while_the_row_fills() -> None:
    arrivals = ClientArrivals(SERVERS, load=0.5, burst_cv=1.5, seed=2, days=1)
    requests = arrivals.between(BEGIN, BEGIN + 100.0)
    scenario = polca_scenario(SERVERS, 2, ServerPower.of(), 1.0)
    small = scenario.row.model_copy(update={"rated_servers": 0.66 * SERVERS})
    scenario = scenario.model_copy(update={"row": small})
    parts = plan((30.0, False), (40.0, True), (30.0, False))

    def books(begin: float, end: float) -> days_under_policy.DayBooks:
        day = DayRun(UNCAPPED, arrivals, requests, scenario)
        return day.run(parts, (BEGIN + begin, BEGIN + end))

    whole, first, rest = books(0.0, 100.0), books(0.0, 55.0), books(55.0, 100.0)
    assert 0.0 < first.events["above_seconds"] < whole.events["above_seconds"]
    assert whole.events == {
        name: first.events[name] + rest.events[name] for name in ("above_seconds", *first.events)
    }
    assert whole.peak_ratio == max(first.peak_ratio, rest.peak_ratio) > 1.0
    for one in (first, rest):
        np.testing.assert_array_equal(np.concatenate(one.times), np.concatenate(whole.times))
        np.testing.assert_array_equal(one.work_between(BEGIN, BEGIN + 100.0),
                                      whole.work_between(BEGIN, BEGIN + 100.0))  # fmt: skip
    late = books(99.0, 100.0)
    assert late.peak_ratio == pytest.approx(late.load_between(BEGIN + 99.0, BEGIN + 100.0)[0])
    assert len(np.concatenate(whole.times)) == 100


def test_a_calm_stretch_may_be_no_longer_than_a_warm_up() -> None:
    arrivals = ClientArrivals(SERVERS, load=0.5, burst_cv=1.5, seed=2, days=1)
    requests = arrivals.between(BEGIN, BEGIN + 60.0)
    run = DayRun(UNCAPPED, arrivals, requests, polca_scenario(SERVERS, 2, ServerPower.of(), 1.0))
    books = run.run(plan((20.0, False), (40.0, True)))
    assert len(np.concatenate(books.times)) == 60


def test_seconds_without_a_policy_are_those_of_the_row() -> None:
    arrivals = ClientArrivals(SERVERS, load=0.5, burst_cv=1.5, seed=2, days=1)
    span = (BEGIN, BEGIN + BLOCK_SECONDS)
    load = uncapped_seconds(arrivals.between(*span), arrivals, ServerPower.of(), span)
    assert len(load) == BLOCK_SECONDS
    assert 0.3 * SERVERS / 40 < load[60:].mean() < SERVERS / 40


def test_quantiles_of_counts_are_those_of_the_times() -> None:
    rng = np.random.default_rng(3)
    seconds = np.append(np.exp(rng.normal(3.0, 1.0, 20_000)), np.nan)
    counts = dense(sparse(time_counts(seconds)))
    assert counts.sum() == 20_000
    for quantile in (1, 50, 99):
        expected = float(np.nanpercentile(seconds, quantile))
        assert quantile_seconds(counts, quantile) == pytest.approx(expected, rel=1e-3)
    assert np.isnan(quantile_seconds(np.zeros(N_BINS, dtype=np.int64), 50))
    assert time_counts(np.array([0.0, 10 * LONGEST_SECONDS]))[[0, -1]].tolist() == [1, 1]
