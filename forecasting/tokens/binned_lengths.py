"""Lengths of requests from bins: rates of requests and of their tokens, and perhaps a p99.

A history keeps sums of ten minutes, not requests. Their mean is tokens over requests; how far
lengths stray is told by a series of their second moment or of their p99, or, without either, by how
far means of bins stray from one another: a mean of n requests has the n-th part of a length's
variance. Bins are compared with their neighbours: lengths that drift by a third within a day were
read as 5 to 400 times their variance otherwise. Of second moment and p99 the one that nobody told
is the log-normal's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.series_source import Floats
from forecasting.tokens.length_tails import Z99, lognormal_from_p99

HALF_LIFE_SECONDS: Final = 6 * 3600
"""Lengths follow what a client does, which changes within a day (assumed)."""

LONGEST: Final = 1 << 24
"""Tokens; beyond any context there is."""

LEAST_REQUESTS: Final = 30.0
"""Requests in all bins, older ones counted less (assumed): fewer tell no length."""

WIDEST_SIGMA: Final = Z99
"""Of a log-normal: the widest whose p99 lies above its mean as far as any does."""

HIGHEST_P99: Final = float(np.exp(WIDEST_SIGMA**2 / 2))
HIGHEST_SQUARE: Final = float(np.exp(WIDEST_SIGMA**2))
"""That log-normal's p99 over its mean, and second moment over the mean's square: what is told
beyond is of another series, or of another unit."""

MANY_REQUESTS: Final = 100.0
"""In each of two bins: their means stray as a normal law does, so a large difference is a change.
Of fewer requests one long answer makes it."""

MOST_DEVIATIONS: Final = 5.0
"""Beyond so many standard deviations a difference of bins counts no more (assumed)."""

MEDIAN_OF_SQUARES: Final = 0.4549
"""Of a standard normal variable: the median of chi-squared with one degree of freedom."""


@dataclass(frozen=True, slots=True)
class LengthStatistics:
    """Of one client's requests.

    Attributes:
        mean: Tokens.
        second_moment: Mean of the squared length.
        p99: Tokens that one request in a hundred exceeds.
    """

    mean: float
    second_moment: float
    p99: float


def binned_lengths(
    requests: Floats,
    tokens: Floats,
    p99: Floats | None,
    step_seconds: float,
    second_moment: Floats | None = None,
) -> LengthStatistics | None:
    """Of one client; older bins count less, half after six hours.

    Args:
        requests: A second, (n_bins,); NaN for gaps.
        tokens: Of these requests, a second, the same shape.
        p99: Tokens that one request in a hundred exceeds, the same shape; None for unknown.
        step_seconds: Width of a bin.
        second_moment: Mean of the squared length, the same shape; None for unknown.

    Returns:
        None with too few requests to tell.
    """
    known = np.isfinite(requests) & np.isfinite(tokens) & (requests > 0) & (tokens >= 0)
    counts = np.where(known, requests, 0.0) * step_seconds
    ages = (len(requests) - 1 - np.arange(len(requests))) * step_seconds
    decay = 0.5 ** (ages / HALF_LIFE_SECONDS)
    weights = decay * counts
    whole = float(weights.sum())
    if whole < LEAST_REQUESTS:
        return None
    means = np.divide(tokens, requests, out=np.zeros(len(requests)), where=known)
    means = np.minimum(means, LONGEST)
    mean = float(weights @ means) / whole
    if mean <= 0:
        return None
    told = square = None
    if p99 is not None:
        told = _told(p99, weights, mean, min(float(LONGEST), mean * HIGHEST_P99))
    if second_moment is not None:
        most = min(float(LONGEST) ** 2, mean**2 * HIGHEST_SQUARE)
        square = _told(second_moment, weights, mean**2, most)
    if square is not None:
        sigma = min(float(np.sqrt(np.log(square / mean**2))), WIDEST_SIGMA)
    elif told is not None:
        sigma = float(lognormal_from_p99(np.array([mean]), np.array([told]))[1][0])
    else:
        sigma = _spread(means, counts, decay, mean)
    if square is None:
        square = mean**2 * float(np.exp(sigma**2))
    if told is None:
        told = mean * float(np.exp(Z99 * sigma - sigma**2 / 2))
    return LengthStatistics(mean, square, told)


def _told(figure: Floats, weights: Floats, least: float, most: float) -> float | None:
    """A figure over bins, weighted by requests; None where no bin tells it."""
    seen = np.isfinite(figure) & (weights > 0)
    if not seen.any():
        return None
    return float(np.clip(weights[seen] @ figure[seen] / weights[seen].sum(), least, most))


def _spread(means: Floats, counts: Floats, decay: Floats, mean: float) -> float:
    """Sigma of the log-normal whose bins' means stray like these.

    Neighbours are compared, so that lengths which drift, or are others from some bin on, are not
    read as lengths of requests that stray; one pair that differs by far is a change, too.
    """
    bins = np.flatnonzero(counts > 0)
    if len(bins) < 2:
        return 0.0
    before, after = bins[:-1], bins[1:]
    shared = 1.0 / (1.0 / counts[before] + 1.0 / counts[after])
    variances = shared * (means[after] - means[before]) ** 2
    weights = decay[after]
    ranked = np.argsort(variances)
    reached = np.cumsum(weights[ranked])
    median = variances[ranked[reached.searchsorted(reached[-1] / 2.0)]]
    many = shared >= MANY_REQUESTS / 2.0
    most = MOST_DEVIATIONS**2 * median / MEDIAN_OF_SQUARES
    variances = np.where(many, np.minimum(variances, most), variances)
    variance = float(weights @ variances) / float(weights.sum())
    return float(min(np.sqrt(np.log1p(variance / mean**2)), WIDEST_SIGMA))
