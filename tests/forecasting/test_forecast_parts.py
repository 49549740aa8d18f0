"""The pieces: readings that are none, weighted quantiles, what misses are measured by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.clean_history import clean
from forecasting.miss_scale import level_scale
from forecasting.residuals import decay_weights, weighted_quantiles
from forecasting.series_source import Floats
from tests.examples import examples

DAY = 24
STEP = 3600


def _series(n: int = 3, days: int = 12, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    t = np.arange(days * DAY)
    return 50 + 20 * np.sin(2 * np.pi * t / DAY) + rng.normal(0, 4, (n, len(t)))


@pytest.mark.parametrize(
    ("odd", "flag"),
    [(-1.0, "negative"), (np.inf, "not-finite"), (1e300, "too-large"), (np.nan, "")],
)
def test_a_value_that_nothing_can_draw_is_a_gap(odd: float, flag: str) -> None:
    cleaned = clean(np.array([[5.0, 7.0, odd, 9.0]]), DAY)
    assert cleaned.known.tolist() == [[True, True, False, True]]
    assert cleaned.filled.tolist() == [[5.0, 7.0, 8.0, 9.0]]
    assert [f for f in cleaned.flags[0] if f != "gaps"] == ([flag] if flag else [])


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.floats(0.01, 0.99))
@examples(60)
def test_a_weighted_quantile_reaches_its_level_and_no_lower_value_does(
    values: list[float], level: float
) -> None:
    data = np.array(values, dtype=np.float32)
    weights = decay_weights(np.arange(len(values), dtype=float), STEP)
    found = weighted_quantiles(data, weights, np.array([level]))[0]
    assert weights[data <= found].sum() >= level - 1e-4
    assert weights[data < found].sum() < level + 1e-4


def test_unknown_values_do_not_count() -> None:
    values = np.array([[1.0, 2.0, 1e9]], dtype=np.float32)
    known = np.array([[True, True, False]])
    found = weighted_quantiles(values, np.full(3, 1 / 3), np.array([0.99]), known)
    assert found[0, 0] == 2.0
    nothing = weighted_quantiles(values, np.full(3, 1 / 3), np.array([0.5]), np.zeros((1, 3), bool))
    assert nothing[0, 0] == 0.0


def test_weights_halve_in_three_days() -> None:
    weights = decay_weights(np.array([0.0, 72.0]), STEP)
    assert weights[0] == pytest.approx(2 * weights[1])
    assert weights.sum() == pytest.approx(1.0)


def test_an_idle_client_is_not_blown_up_by_its_normalisation() -> None:
    values = np.zeros((1, 12 * DAY))
    values[0, 10] = 1000.0
    scale = level_scale(values, DAY)
    assert scale[0, 0] >= 1000 / 200
    assert level_scale(np.zeros((1, 48)), DAY)[0, 0] == 1.0
