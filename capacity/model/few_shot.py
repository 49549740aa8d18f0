"""The smooth part of what a few measured kernels tell about the rest: a Gaussian process.

Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006): equations 2.25
and 2.26 (prediction), 2.30 (evidence), 5.12 (leave one out in closed form); Matérn covariance of
order 3/2, whose functions bend once, as times do at a roof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

LENGTH: Final = 4.0
"""In natural logarithms: shapes within a factor of about 50 tell of each other."""

NOISE_SHARES: Final = (0.03, 0.1, 0.3, 1.0)
"""Variance of what is not smooth over that of what is; the evidence chooses."""

_CHUNK: Final = 20_000
_ROOT3: Final = float(np.sqrt(3.0))


@dataclass(frozen=True, slots=True)
class FewShot:
    """A fitted process.

    Attributes:
        points: Features of the observations over ``LENGTH``, shape (n, d).
        weights: Of the likenesses, shape (n,).
        inverse: Of likeness plus noise, shape (n, n).
        variance: Of the smooth part; ``noise`` is the variance of the rest over it.
    """

    points: Floats
    weights: Floats
    inverse: Floats
    variance: float
    noise: float

    def predict(self, features: Floats) -> Floats:
        """Mean of the unknown function, shape (m,)."""
        parts = [_likeness(part, self.points) @ self.weights for part in _chunks(features)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def deviation(self, features: Floats) -> Floats:
        """Standard deviation of an observation there, shape (m,)."""
        parts = []
        for part in _chunks(features):
            shared = _likeness(part, self.points)
            known = np.einsum("ij,jk,ik->i", shared, self.inverse, shared, optimize=True)
            parts.append(np.sqrt(self.variance * np.maximum(1 + self.noise - known, self.noise)))
        return np.concatenate(parts) if parts else np.zeros(0)

    def without(self, held: Indices) -> FewShot:
        """The process that never saw these observations, its variances kept: in closed form."""
        kept = np.setdiff1d(np.arange(len(self.weights)), held)
        across = self.inverse[np.ix_(kept, held)]
        across = across @ np.linalg.inv(self.inverse[np.ix_(held, held)])
        weights = self.weights[kept] - across @ self.weights[held]
        inverse = self.inverse[np.ix_(kept, kept)] - across @ self.inverse[np.ix_(held, kept)]
        return FewShot(self.points[kept], weights, inverse, self.variance, self.noise)

    def scores(self) -> Floats:
        """Error at each observation from all the others, in its own deviations, shape (n,)."""
        spread = np.sqrt(self.variance / np.diag(self.inverse))
        errors = self.weights / np.diag(self.inverse)
        return np.asarray(errors / spread)


def fit_few_shot(features: Floats, values: Floats) -> FewShot:
    """The process of most evidence that explains the values, whose prior mean is 0.

    Args:
        features: Natural logarithms, shape (n, d), n of at least 1.
        values: Shape (n,).
    """
    points = features / LENGTH
    likeness = _likeness(points, points)
    best: FewShot | None = None
    most = -np.inf
    for noise in NOISE_SHARES:
        covariance = likeness + noise * np.eye(len(values))
        inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        weights = inverse @ values
        variance = max(float(values @ weights) / len(values), 1e-12)
        evidence = -len(values) * np.log(variance) - float(np.linalg.slogdet(covariance)[1])
        if best is None or evidence > most:
            best, most = FewShot(points, weights, inverse, variance, noise), evidence
    assert best is not None
    return best


def _chunks(features: Floats) -> list[Floats]:
    scaled = features / LENGTH
    return [scaled[start : start + _CHUNK] for start in range(0, len(scaled), _CHUNK)]


def _likeness(left: Floats, right: Floats) -> Floats:
    """1 for equal rows: (n, d), (m, d) -> (n, m)."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :]
    gaps = _ROOT3 * np.sqrt(np.maximum(squares - 2 * left @ right.T, 0.0))
    return np.asarray((1.0 + gaps) * np.exp(-gaps))
