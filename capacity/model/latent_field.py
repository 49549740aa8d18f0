"""A smooth unknown function, learned from values that are known, or known to be at least so much.

A Gaussian process whose observations are Gaussian where a value was measured and Tobit where it
only was censored from above (a board held at its limit): the mode of the posterior is found by
Newton's method and its curvature gives the spread. Source: Rasmussen and Williams, "Gaussian
Processes for Machine Learning" (2006), algorithm 3.1; Tobin, "Estimation of relationships for
limited dependent variables" (1958).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from capacity.model import standard_normal
from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Covariance = Callable[[Floats, Floats], Floats]
"""Covariance of the function between the rows of two feature arrays: (n, d), (m, d) -> (n, m)."""

MAX_STEPS: Final = 100
SETTLED: Final = 1e-9
LEAST_CURVATURE: Final = 1e-6
"""Of a censored value far below the function, which tells nothing more."""


def likeness(left: Floats, right: Floats, length_scales: Floats | float) -> Floats:
    """Squared-exponential likeness of rows, 1 where they are equal: (n, d), (m, d) -> (n, m)."""
    a, b = left / length_scales, right / length_scales
    gaps = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
    return np.asarray(np.exp(-0.5 * np.maximum(gaps, 0.0)))


@dataclass(frozen=True, slots=True)
class LatentField:
    """The posterior of the function.

    Attributes:
        rows: Features of the observations, shape (n, d).
        weights: Of the covariances with the observations, shape (n,).
        certainties: Square roots of the observations' curvatures, shape (n,).
        factor: Lower Cholesky factor of I + certainty K certainty, shape (n, n).
    """

    covariance: Covariance
    rows: Floats
    weights: Floats
    certainties: Floats
    factor: Floats

    def mean(self, rows: Floats) -> Floats:
        """The most likely function at these features, shape (m,)."""
        return np.asarray(self.covariance(rows, self.rows) @ self.weights)

    def spread(self, rows: Floats) -> Floats:
        """Standard deviation of the function there, without the noise of a measurement."""
        shared = self.covariance(self.rows, rows) * self.certainties[:, None]
        known = (solve_triangular(self.factor, shared, lower=True) ** 2).sum(axis=0)
        prior = np.array([self.covariance(row[None], row[None])[0, 0] for row in rows])
        return np.asarray(np.sqrt(np.maximum(prior - known, 0.0)))


def fit_latent_field(
    covariance: Covariance,
    rows: Floats,
    values: Floats,
    noise: Floats | float,
    at_least: Bools | None = None,
) -> LatentField:
    """The function's posterior given its values.

    Args:
        covariance: Prior; the prior mean is 0.
        rows: Features, shape (n, d).
        values: Measured values, shape (n,).
        noise: Standard deviation of a measurement, one for all or one each.
        at_least: True where the value is only a lower bound; None where there is none.

    Raises:
        InputError: no observation, or one that is not finite.
    """
    if not len(rows) or not np.all(np.isfinite(rows)) or not np.all(np.isfinite(values)):
        raise InputError("values", "at least one observation, all finite", values)
    bound = np.zeros(len(values), dtype=bool) if at_least is None else at_least
    sigma = np.broadcast_to(np.asarray(noise, dtype=np.float64), values.shape)
    prior = covariance(rows, rows)
    function, weights = np.where(bound, values + sigma, values), np.zeros(len(values))
    for _ in range(MAX_STEPS):
        slope, curvature = _likelihood(function, values, sigma, bound)
        certainties = np.sqrt(curvature)
        factor = cho_factor(
            np.eye(len(values)) + certainties[:, None] * prior * certainties, lower=True
        )
        target = curvature * function + slope
        weights = target - certainties * cho_solve(factor, certainties * (prior @ target))
        stepped = prior @ weights
        moved = float(np.max(np.abs(stepped - function)))
        function = stepped
        if moved < SETTLED:
            break
    return LatentField(covariance, rows, weights, certainties, np.tril(factor[0]))


def log_likelihood(function: Floats, values: Floats, noise: Floats | float, bound: Bools) -> float:
    """Of the observations given the function: normal density, or probability of being above."""
    z = (values - function) / noise
    return float(
        np.where(
            bound, standard_normal.log_below(-z), standard_normal.log_density(z) - np.log(noise)
        ).sum()
    )


def _likelihood(
    function: Floats, values: Floats, sigma: Floats, bound: Bools
) -> tuple[Floats, Floats]:
    """Slope and negative curvature of each observation's log likelihood in the function."""
    z = (function - values) / sigma
    ratio = standard_normal.hazard_below(z)
    slope = np.where(bound, ratio / sigma, -z / sigma)
    curvature = np.where(bound, np.maximum(ratio * (z + ratio), LEAST_CURVATURE), 1.0) / sigma**2
    return slope, curvature
