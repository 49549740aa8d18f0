"""How forecasts of a tree's series err: what reconciliation weighs them by.

Source: Wickramasuriya, Athanasopoulos and Hyndman, "Optimal forecast reconciliation for
hierarchical and grouped time series through trace minimization", JASA 114 (2019): variance scaling
(section 2.3, WLS) and the shrunken covariance (section 2.4, shrinkage after Schäfer and Strimmer,
Statistical Applications in Genetics and Molecular Biology 4, 2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.series_source import Floats
from wattpack.errors import InputError

LEAST_VARIANCE: Final = 1e-9
"""Of the largest: a series that never erred takes next to nothing of a difference, not an
undefined part of it."""

FEWEST_ERRORS: Final = 8
"""Fewer errors at one time tell nothing of how series err together."""


@dataclass(frozen=True, slots=True)
class ErrorCovariance:
    """The errors' covariance as ``diag(own) + shared @ shared.T``; never a dense matrix.

    Attributes:
        own: Positive, (n,).
        shared: (n, n_times); None where series err on their own.
    """

    own: Floats
    shared: Floats | None = None

    def __post_init__(self) -> None:
        if not np.all(np.isfinite(self.own) & (self.own > 0)):
            raise InputError("own", "variances above 0, one a series", None)
        if self.shared is not None and self.shared.shape[:1] != self.own.shape:
            raise InputError("shared", f"{len(self.own)} rows", self.shared.shape)

    @property
    def variances(self) -> Floats:
        """Of each series, (n,)."""
        if self.shared is None:
            return self.own
        return np.asarray(self.own + np.einsum("ij,ij->i", self.shared, self.shared))


def variance_scaling(errors: Floats) -> ErrorCovariance:
    """Each series by its own mean squared error.

    Args:
        errors: Value minus forecast at times that all share, (n, n_times); NaN where unknown. A
            series without any error is taken for as uncertain as the median.
    """
    known = np.isfinite(errors)
    counts = known.sum(axis=1)
    squares = np.where(known, errors, 0.0) ** 2
    means = squares.sum(axis=1) / np.maximum(counts, 1)
    usual = float(np.median(means[counts > 0])) if np.any(counts > 0) else 1.0
    return ErrorCovariance(_floored(np.where(counts > 0, means, usual)))


def shrunken_covariance(errors: Floats) -> ErrorCovariance:
    """The sample covariance, correlations shrunk towards 0 by what their own noise asks for.

    Times at which any series' error is unknown are left out; with fewer than ``FEWEST_ERRORS`` left
    it is variance scaling. Cost: n_series · n_times², no matrix of series by series.

    Args:
        errors: As ``variance_scaling``.
    """
    scaled = variance_scaling(errors)
    known = np.isfinite(errors)
    answers = np.asarray(known.any(axis=1))
    whole = errors[:, np.asarray(known[answers].all(axis=0))]
    whole = np.where(answers[:, None], whole, 0.0)
    n_times = whole.shape[1]
    if n_times < FEWEST_ERRORS:
        return scaled
    ratios = whole / np.sqrt(scaled.variances)[:, None]
    shrink = _shrinkage(ratios)
    shared = whole * np.sqrt((1.0 - shrink) / n_times)
    own = scaled.variances - np.einsum("ij,ij->i", shared, shared)
    return ErrorCovariance(np.maximum(own, _floored(shrink * scaled.variances)), shared)


def _floored(variances: Floats) -> Floats:
    largest = float(variances.max(initial=0.0))
    return np.asarray(np.maximum(variances, LEAST_VARIANCE * largest if largest > 0 else 1.0))


def _shrinkage(ratios: Floats) -> float:
    """Sum of correlations' variances over sum of their squares, in [0, 1].

    Sums over pairs of series are taken as sums over pairs of times, which are fewer.

    Args:
        ratios: Errors over their spread, (n, n_times).
    """
    n_times = ratios.shape[1]
    squares = ratios**2
    gram = ratios.T @ ratios
    products = (squares.sum(axis=0) ** 2).sum() - (squares**2).sum()
    means = (gram**2).sum() / n_times**2 - ((squares.sum(axis=1) / n_times) ** 2).sum()
    if means <= 0:
        return 1.0
    noise = n_times / (n_times - 1) ** 3 * (products - n_times * means)
    return float(np.clip(noise / (means * (n_times / (n_times - 1)) ** 2), 0.0, 1.0))
