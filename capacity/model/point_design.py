"""Which few kernels to measure so that a model fitted on them is best on average.

Each next point takes away most variance summed over all candidates, in the space of what the
model sees; unlike the mode of a determinantal process, which seeks the corners first, it minds
where the candidates are. Source: Cohn, "Neural network exploration using optimal experiment
design" (1996), with the Gaussian process of Seo et al. (2000); errors of both on the tables of
three GPU types stand in docs/capacity.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.kernels import Kernel
from capacity.model.kernel_features import kernel_group, kernel_table
from capacity.model.residual_trees import SEED
from capacity.model.roofline import TYPICAL_LOGS, RooflineConstants
from capacity.roofs import Roofs
from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

MOST_CANDIDATES: Final = 2_500
"""Drawn evenly from more: the choice takes a matrix of their square."""

NOISE: Final = 0.01
"""Variance of a measurement over that of the function."""


def designed_points(
    kernels: Sequence[Kernel], roofs: Roofs, count: int, seed: int = SEED
) -> Indices:
    """Indices of ``count`` kernels to measure on this type, the most telling first.

    Args:
        kernels: Candidates, all of one group.

    Raises:
        InputError: candidates of several groups, or fewer than ``count``.
    """
    groups = sorted({kernel_group(kernel) for kernel in kernels})
    if len(groups) != 1:
        raise InputError("kernels", "candidates of one group", groups)
    if not 0 < count <= len(kernels):
        raise InputError("count", f"1 to {len(kernels)}", count)
    drawn = np.arange(len(kernels))
    if len(kernels) > MOST_CANDIDATES:
        draw = np.random.default_rng(seed)
        drawn = np.sort(draw.choice(len(kernels), max(MOST_CANDIDATES, count), replace=False))
    chosen = [kernels[index] for index in drawn.tolist()]
    table = kernel_table(groups[0], chosen, roofs)
    features = table.smooth_features(RooflineConstants.from_logs(TYPICAL_LOGS))
    spread = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.asarray(drawn[least_variance_subset(scaled, count)], dtype=np.int64)


def least_variance_subset(features: Floats, count: int) -> Indices:
    """Rows whose values, once known, leave least variance summed over all rows, best first.

    Args:
        features: Standardised, shape (n, d).
    """
    squares = (features**2).sum(axis=1)
    gaps = squares[:, None] + squares[None, :] - 2 * features @ features.T
    covariance = np.exp(-np.maximum(gaps, 0.0) / 2 / features.shape[1])
    chosen: list[int] = []
    for _ in range(count):
        gain = (covariance**2).sum(axis=0) / (np.diag(covariance) + NOISE)
        gain[chosen] = -np.inf
        best = int(np.argmax(gain))
        chosen.append(best)
        column = covariance[:, best].copy()
        covariance -= np.outer(column, column) / (column[best] + NOISE)
    return np.array(chosen, dtype=np.int64)
