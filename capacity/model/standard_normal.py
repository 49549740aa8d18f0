"""The standard normal distribution, without the second that importing ``scipy.stats`` takes."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr, ndtri

Floats = npt.NDArray[np.float64]

_LOG_ROOT_TWO_PI: Final = 0.5 * float(np.log(2.0 * np.pi))


def log_density(z: Floats) -> Floats:
    """Logarithm of the density at ``z``."""
    return np.asarray(-0.5 * np.square(z) - _LOG_ROOT_TWO_PI)


def density(z: Floats) -> Floats:
    """Density at ``z``."""
    return np.asarray(np.exp(log_density(z)))


def log_below(z: Floats) -> Floats:
    """Logarithm of the probability of a draw below ``z``."""
    return np.asarray(log_ndtr(z))


def hazard_below(z: Floats) -> Floats:
    """Density at ``z`` over the probability of a draw below it."""
    return np.asarray(np.exp(log_density(z) - log_ndtr(z)))


def above(z: Floats) -> Floats:
    """Probability of a draw above ``z``."""
    return np.asarray(ndtr(-np.asarray(z)))


def quantile(probability: float) -> float:
    """What a draw lies below with this probability."""
    return float(ndtri(probability))
