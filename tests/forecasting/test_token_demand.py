"""Token demand against simulated requests, one by one."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.tokens import (
    lognormal_from_p99,
    token_paths,
    token_variance,
)
from wattpack.errors import InputError

WINDOWS = Path(__file__).parents[2] / "benchmarks/data/forecasting/servegen_client_tokens_6h.csv.gz"


def simulated_tokens(rate: float, mu: float, sigma: float, seconds: float, runs: int) -> np.ndarray:
    """Tokens a second of steps in which every request is drawn by itself."""
    rng = np.random.default_rng(7)
    counts = rng.poisson(rate * seconds, runs)
    owner = np.repeat(np.arange(runs), counts)
    lengths = rng.lognormal(mu, sigma, len(owner))
    found: np.ndarray = np.bincount(owner, lengths, minlength=runs) / seconds
    return found


@pytest.mark.parametrize(("rate", "sigma"), [(0.05, 1.2), (0.5, 1.0), (5.0, 0.5)])
def test_sums_spread_as_simulated_requests_do(rate: float, sigma: float) -> None:
    mu, seconds, runs = 5.0, 60.0, 40_000
    simulated = simulated_tokens(rate, mu, sigma, seconds, runs)
    mean, square = np.exp(mu + sigma**2 / 2), np.exp(2 * mu + 2 * sigma**2)
    drawn = token_paths(
        np.full((1, runs, 1), rate), np.array([mean]), np.array([square]), seconds, seed=1
    )[0, :, 0]
    assert drawn.mean() == pytest.approx(simulated.mean(), rel=0.03)
    assert drawn.std() == pytest.approx(simulated.std(), rel=0.06)
    variance = token_variance(np.array([rate]), np.array([square]), seconds)[0]
    assert simulated.var() * seconds**2 == pytest.approx(variance, rel=0.12)
    # With three long-tailed requests a step the gamma distribution's quantiles are some 11 % off.
    for level in (0.75, 0.9, 0.99):
        assert np.quantile(drawn, level) == pytest.approx(np.quantile(simulated, level), rel=0.13)


def test_a_mean_alone_would_promise_too_little() -> None:
    """Two clients of one mean; the one with rare long answers needs more at the same risk."""
    rates, mean = np.full((2, 4000, 1), 0.2), np.array([200.0, 200.0])
    square = np.array([1.05, 12.0]) * mean**2
    even, wild = np.quantile(token_paths(rates, mean, square, 60, 3)[:, :, 0], 0.99, axis=1)
    assert wild > 1.5 * even > 40.0


def test_paths_keep_what_rates_share_and_repeat_by_seed() -> None:
    rates = np.random.default_rng(0).gamma(2, 2, (1, 500, 3)) * np.ones((4, 1, 1))
    mean = np.full(4, 50.0)
    tokens = token_paths(rates, mean, 2 * mean**2, 600, 5)
    assert np.array_equal(tokens, token_paths(rates, mean, 2 * mean**2, 600, 5))
    assert np.corrcoef(tokens[:, :, 0]).min() > 0.95
    idle = token_paths(np.zeros((1, 2, 2)), mean[:1], mean[:1] ** 2, 600, 5)
    assert np.array_equal(idle, np.zeros((1, 2, 2)))


@given(st.floats(1, 1e4), st.floats(0, 2.2))
def test_a_mean_and_a_p99_make_a_lognormal(mean: float, sigma: float) -> None:
    mu = np.log(mean) - sigma**2 / 2
    p99 = np.exp(mu + 2.3263478740408408 * sigma)
    if p99 >= mean:
        found = lognormal_from_p99(np.array(mean), np.array(p99))
        assert found == (pytest.approx(mu, abs=1e-4), pytest.approx(sigma, abs=1e-4))


def test_real_windows_all_have_moments_that_fit_them() -> None:
    """Means and p99s of ServeGen's clients: what is made of them has that mean and that p99."""
    with gzip.open(WINDOWS, "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "m-small"]
    mean = np.array([float(row["mean_output_tokens"]) for row in rows])
    p99 = np.array([float(row["p99_output_tokens"]) for row in rows])
    mu, sigma = lognormal_from_p99(mean, np.maximum(p99, mean))
    assert len(rows) > 1000
    assert np.exp(mu + sigma**2 / 2) == pytest.approx(mean)
    reachable = p99 / mean < 14.9
    assert reachable.mean() > 0.95
    assert np.exp(mu + 2.3263478740408408 * sigma)[reachable] == pytest.approx(p99[reachable])


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: lognormal_from_p99(np.array(0.0), np.array(1.0)), "mean"),
        (lambda: lognormal_from_p99(np.array(2.0), np.array(1.0)), "p99"),
        (lambda: token_paths(-np.ones((1, 1, 1)), np.ones(1), np.ones(1), 60, 0), "rates"),
        (lambda: token_paths(np.ones((1, 1, 1)), np.ones(2), np.ones(2), 60, 0), "mean"),
        (
            lambda: token_paths(np.ones((1, 1, 1)), np.full(1, 3.0), np.ones(1), 60, 0),
            "secondMoment",
        ),
    ],
)  # fmt: skip
def test_nonsense_is_refused_by_name(call: Callable[[], object], field: str) -> None:
    with pytest.raises(InputError) as refused:
        call()
    assert refused.value.field == field
