"""The world of ``power_forecast``, its references, and its quick form."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks import power_forecast
from benchmarks._power_domains import (
    HELD_RATIO,
    HISTORY_BINS,
    RUN_BINS,
    PowerDomain,
    asked,
    domain_of,
    domain_row,
    serving_watts,
)
from benchmarks._rests_on import modules_behind
from benchmarks.power_forecast import (
    WINDOWS,
    Windows,
    at_equal_risk,
    present_of,
    regression_quantile,
    violated,
    windows_of,
)
from benchmarks.runner import Options
from simulation.inference_row.client_arrivals import DAY_SECONDS, ClientArrivals
from simulation.inference_row.request_lengths import LENGTHS
from simulation.inference_row.row_calibration import frozen_calibration
from simulation.inference_row.row_power import ServerPower
from simulation.inference_row.uncapped_row import uncapped_days


@cache
def some() -> tuple[PowerDomain, ...]:
    return tuple(domain_of(domain_row(5, number)) for number in range(12))


@pytest.mark.parametrize("lengths", ["published", "azure"])
def test_serving_draws_as_the_row_does_request_by_request(lengths: str) -> None:
    name = "azure" if lengths == "azure" else "published"
    frozen, power = frozen_calibration(name), ServerPower.of()
    arrivals = ClientArrivals(
        8, load=frozen.load, burst_cv=frozen.burst_cv, seed=11, lengths=LENGTHS[name], days=3
    )
    hours = (9.0, 15.0)
    row = uncapped_days(arrivals, [1], power, hours)[0] * power.row_rating_watts / 8
    work, _ = asked(arrivals, name, DAY_SECONDS + hours[0] * 3600.0, 36)
    made = serving_watts(work, name, power)
    assert made.mean() == pytest.approx(row.mean(), rel=0.08)
    assert made.max() == pytest.approx(row.reshape(36, -1).mean(axis=1).max(), rel=0.10)


def test_domains_are_drawn_from_seed_and_number_and_kept_as_json() -> None:
    assert domain_row(5, 3) == domain_row(5, 3)
    assert domain_row(5, 3)["draw_watts"] != domain_row(6, 3)["draw_watts"]
    for one in some():
        assert one.draw_watts.shape == one.requests.shape == (HISTORY_BINS + RUN_BINS,)
        assert one.draw_watts.min() > 0
        assert one.draw_watts.max() <= HELD_RATIO * one.limit_watts + 1e-3
        assert one.draw_watts[one.held] == pytest.approx(HELD_RATIO * one.limit_watts, rel=1e-6)
        running = [p for p in one.pods if p.begin <= 100 < p.end]
        assert sum(p.boards for p in running) <= one.pod_boards


def test_the_world_knows_nothing_of_forecasters_and_their_capacity_model() -> None:
    forecasters = ("power_forecast", "tiers", "calibration", "peak_policy", "combination", "engine")
    behind = modules_behind("benchmarks._power_domains")
    assert not {f"forecasting.{name}" for name in forecasters} & behind.keys()
    assert "capacity.work_mix" not in behind


def test_the_past_is_of_another_level() -> None:
    ratios = [
        one.draw_watts[HISTORY_BINS:].mean() / one.draw_watts[:HISTORY_BINS].mean()
        for one in some()
    ]
    assert np.std(np.log(ratios)) > 0.1


def test_the_forecaster_sees_nothing_of_the_window() -> None:
    for window in (0, 4):
        seen = present_of(some(), window)
        changed = []
        for one in some():
            draw = one.draw_watts.copy()
            draw[seen.values.shape[1] :] = 1e9
            late = tuple(p for p in one.pods if p.begin < seen.values.shape[1] - HISTORY_BINS + 1)
            changed.append(
                PowerDomain(
                    draw,
                    one.held,
                    one.requests,
                    one.limit_watts,
                    one.serving_boards,
                    one.pod_boards,
                    late,
                )
            )
        again = present_of(changed, window)
        assert again.values.tolist() == seen.values.tolist()
        assert again.startable_watts.tolist() == seen.startable_watts.tolist()


def test_references_get_the_smallest_offset_that_keeps_the_risk() -> None:
    random = np.random.default_rng(3)
    peaks, scales = random.uniform(50, 100, (40, 10)), random.uniform(1, 3, (40, 10))
    seen = Windows(peaks, scales, np.zeros((4, 40, 10)), np.full(40, 1e6))
    reserves = random.uniform(40, 90, (40, 10))
    moved = at_equal_risk(reserves, seen)
    assert violated(moved, seen).sum() == 4
    lower = reserves + (((moved - reserves) / scales).mean() - 1e-6) * scales
    assert violated(lower, seen).sum() == 5


def test_windows_are_maxima_of_what_came_and_of_days_before() -> None:
    seen = windows_of(some())
    one = some()[2].draw_watts
    begin = HISTORY_BINS + 6 + 36 * 5
    assert seen.peaks.shape == (12, WINDOWS)
    assert seen.peaks[2, 5] == max(one[begin : begin + 36])
    assert seen.maxima[1, 2, 5] == max(one[begin - 3 * 144 : begin])
    steps = [abs(one[t] - one[t - 144]) for t in range(begin - 1440 + 144, begin)]
    assert seen.scales[2, 5] == pytest.approx(np.mean(steps))


def test_regression_quantiles_have_the_least_pinball_loss() -> None:
    random = np.random.default_rng(4)
    features = np.column_stack([np.ones(120), random.uniform(0, 1, 120)])
    values = features @ [2.0, 3.0] + random.exponential(1.0, 120)
    weights = regression_quantile(features, values, 0.9)

    def loss(at: np.ndarray) -> float:
        error = values - features @ at
        return float(np.maximum(0.9 * error, -0.1 * error).sum())

    assert all(loss(weights + step) >= loss(weights) for step in random.normal(0, 0.1, (200, 2)))


def test_the_quick_form_promises_what_it_keeps() -> None:
    result = power_forecast.run(Options(quick=True, seed=2, progress=lambda _: None))
    assert set(result.targets) <= set(result.figures)
    assert float(result.figures["violated_share"]) < 0.04
    assert float(result.figures["reserve_over_best_maximum"]) < 1.0
    assert float(result.figures["violated_share_of_bare_day_maximum"]) > 0.1
