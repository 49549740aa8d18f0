"""Without a told tail, how far requests stray is read from bins, whatever their means do."""

from __future__ import annotations

import numpy as np
import pytest

from forecasting.tokens.binned_lengths import binned_lengths

BINS, STEP_SECONDS, MEAN = 288, 600, 400.0
COURSES = {
    "steady": np.full(BINS, MEAN),
    "twice as long for two hours": np.where(np.arange(BINS) < BINS - 12, MEAN, 2 * MEAN),
    "a third up and down within a day": MEAN * (1 + np.sin(np.arange(BINS) * 2 * np.pi / 144) / 3),
}


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize(("requests", "sigma"), [(30, 0.5), (300, 1.0), (3000, 1.0)])
def test_only_single_requests_that_stray_are_a_spread(
    course: str, requests: int, sigma: float
) -> None:
    """A shift of a busy client's lengths was read as 20 to 1,200 times the requests' variance."""
    rng = np.random.default_rng(7)
    counts = rng.poisson(requests, BINS)
    owner = np.repeat(np.arange(BINS), counts)
    lengths = COURSES[course][owner] * rng.lognormal(-(sigma**2) / 2, sigma, len(owner))
    tokens = np.bincount(owner, lengths, minlength=BINS) / STEP_SECONDS
    found = binned_lengths(counts / STEP_SECONDS, tokens, None, STEP_SECONDS)
    assert found is not None
    variance = found.second_moment - found.mean**2
    true = found.mean**2 * np.expm1(sigma**2)
    assert 0.6 * true < variance < 1.9 * true


def test_one_bin_tells_a_mean_and_no_spread() -> None:
    found = binned_lengths(np.array([1.0]), np.array([400.0]), None, STEP_SECONDS)
    assert found is not None
    assert (found.mean, found.second_moment, found.p99) == (400.0, 160_000.0, 400.0)
