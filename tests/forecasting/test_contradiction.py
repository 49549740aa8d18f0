"""How fast measured minutes disprove a forecast, and how rarely they wrong a right one."""

from __future__ import annotations

import numpy as np

from forecasting.contradiction import MINUTE_NS, Minute, MinuteDraws, contradicts

RNG_SEED = 11
WINDOW_MINUTES = 360


def _loads(n: int, rng: np.random.Generator) -> np.ndarray:
    """Loads of one window each: a slow part of two hours' memory and as much minute noise."""
    memory = np.exp(-1 / 120)
    slow = np.empty((n, WINDOW_MINUTES))
    slow[:, 0] = rng.normal(size=n)
    for t in range(1, WINDOW_MINUTES):
        slow[:, t] = memory * slow[:, t - 1] + np.sqrt(1 - memory**2) * rng.normal(size=n)
    return 100 + 10 * slow + 10 * rng.normal(size=(n, WINDOW_MINUTES))


def _fires(load: np.ndarray, p99: float) -> bool:
    above = np.convolve(load > p99, np.ones(10), "full")[: len(load)]
    return bool((above >= 7).any())


def test_a_right_forecast_is_contradicted_in_about_the_stated_share_of_windows() -> None:
    rng = np.random.default_rng(RNG_SEED)
    peaks = _loads(20_000, rng).reshape(20_000, -1, 10).mean(axis=2).max(axis=1)
    p99 = float(np.quantile(peaks, 0.99))
    false = np.mean([_fires(load, p99) for load in _loads(2_000, rng)])
    assert 0.003 <= false <= 0.015


def test_the_array_form_of_this_test_and_the_rule_agree() -> None:
    rng = np.random.default_rng(1)
    for load in _loads(20, rng):
        for p99 in (110.0, 118.0, 125.0):
            seen = [Minute(60.0 * i, float(w)) for i, w in enumerate(load)]
            rule = any(contradicts(seen[: i + 1], p99) for i in range(len(seen)))
            assert rule == _fires(load, p99)


def test_minute_means_are_whole_minutes_of_the_last_ten() -> None:
    draws = MinuteDraws()
    for second in range(20 * 60):
        draws.add({"row": float(second // 60)}, second * MINUTE_NS // 60)
    seen = draws.of("row", 20 * 60.0)
    assert [minute.draw_watts for minute in seen] == [float(m) for m in range(9, 19)]
    assert draws.of("other", 0.0) == ()


def test_old_minutes_are_no_evidence_after_a_gap() -> None:
    draws = MinuteDraws()
    for second in range(120):
        draws.add({"row": 5.0}, second * MINUTE_NS // 60)
    assert draws.of("row", 90_000.0) == ()


def test_a_clock_that_goes_back_forgets_the_future() -> None:
    draws = MinuteDraws()
    for second in (600, 700, 60, 61, 130):
        draws.add({"row": float(second)}, second * MINUTE_NS // 60)
    assert draws.of("row", 200.0) == (Minute(60.0, 60.5),)
