"""Exponential smoothing against its recursions written out, and what it picks."""

from __future__ import annotations

import numpy as np
import pytest

from forecasting.tiers import smoothing
from forecasting.tiers.smoothing import DAMPINGS, START_SHARE, Smoothing, smooth
from tests.forecasting.tiers.test_tiers import DAY, LEVELS, demand, history


def test_states_are_those_of_the_recursions() -> None:
    day, alpha, gamma = 5, 0.3, 0.2
    y = np.random.default_rng(0).random((23, 2))
    states = smooth(y, np.array([0.9, alpha]), np.array([0.1, gamma]), day)
    for i in range(2):
        level = base = float(np.mean(y[: 2 * day, i]))
        season = [START_SHARE * (float(np.mean(y[[j, j + day], i])) - base) for j in range(day)]
        for t, value in enumerate(y[:, i]):
            error = value - level - season[t % day]
            level += alpha * error
            season[t % day] += gamma * (1 - alpha) * error
            assert states.level[t, 1, i] == pytest.approx(level)
            assert states.season[t, 1, i] == pytest.approx(season[t % day])


def test_a_regular_day_is_continued_and_a_noisy_level_is_not_chased() -> None:
    t = np.arange(8 * DAY)
    regular = 10 + 5 * np.sin(2 * np.pi * t / DAY)
    noise = np.random.default_rng(1).gamma(5, 2.0, len(t))
    tier = Smoothing()
    tier.update(history(np.array([regular[:-36], noise[:-36]])))
    made = tier.quantiles(36, LEVELS)
    np.testing.assert_allclose(made[0, :, 2], regular[-36:], rtol=0.05)
    assert np.std(made[1, :, 2]) < 0.4 * np.std(noise)
    inside = (noise[-36:] >= made[1, :, 1]) & (noise[-36:] <= made[1, :, 3])
    assert inside.mean() > 0.6


def test_a_day_ahead_and_more_repeats_the_season() -> None:
    tier = Smoothing()
    tier.update(history(demand(2, 10 * DAY)))
    made = tier.quantiles(2 * DAY, (0.5,))[1, :, 0]
    assert np.corrcoef(made[:DAY], made[DAY:])[0, 1] > 0.95


def test_too_many_series_get_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoothing, "MOST_SERIES", 2)
    tier = Smoothing()
    tier.update(history(demand(3, 5 * DAY)))
    assert np.isnan(tier.quantiles(3, LEVELS)).all()
    assert max(DAMPINGS) == 1.0
