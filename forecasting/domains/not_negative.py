"""Values of a tree without negative ones, sums kept.

From the roots down the children of each parent are projected on the values that are not negative
and add up to it, those that err most moving most. Negative ones become 0, what they lacked is taken
from the others in proportion to their variance, until none is below 0.
Source: Michelot, "A finite algorithm for finding the projection of a point onto the canonical
simplex", J. Optimization Theory and Applications 50 (1986); here with weights.
"""

from __future__ import annotations

import numpy as np

from forecasting.domains.series_tree import Booleans, Families, SeriesTree
from forecasting.series_source import Floats


def not_negative(tree: SeriesTree, values: Floats, variances: Floats) -> Floats:
    """The values after that, (n, m); NaN stays, and what is below it is only cut at 0.

    Args:
        tree: Which sums hold.
        values: (n, m).
        variances: Positive, (n,): who moves most.
    """
    made = np.where(tree.parents[:, None] < 0, np.maximum(values, 0.0), values)
    for level in tree.levels:
        made[level.children] = _projected(level, made, variances[level.children])
    return np.asarray(_with_exact_sums(tree, made))


def _projected(level: Families, values: Floats, weights: Floats) -> Floats:
    """The children of one depth, (n_children, m)."""
    children = values[level.children]
    free = np.isnan(values[level.parents]) | np.isnan(level.sums(children))
    made = np.where(free[level.family], np.maximum(children, 0.0), children)
    columns = np.flatnonzero(_unsettled(level, values, made, free))
    if len(columns):
        made[:, columns] = _simplex(
            level, made[:, columns], values[level.parents][:, columns], weights, free[:, columns]
        )
    return made


def _unsettled(level: Families, values: Floats, children: Floats, free: Booleans) -> Booleans:
    """Columns in which some child is below 0 or some sum is off, (m,)."""
    whole = values[level.parents]
    off = np.abs(level.sums(children) - whole) > 1e-9 * (1.0 + np.abs(whole))
    below = np.logical_or.reduceat(children < 0, level.starts, axis=0)
    return np.asarray(np.any((off | below) & ~free, axis=0))


def _simplex(
    level: Families, children: Floats, whole: Floats, weights: Floats, free: Booleans
) -> Floats:
    """Weighted projection of each family on the values >= 0 with that sum."""
    active = np.ones(children.shape, dtype=np.bool_)
    made = children
    # Each turn settles one child of a family at least.
    for _ in range(int(np.bincount(level.family).max()) + 1):
        mass = level.sums(np.where(active, weights[:, None], 0.0))
        over = level.sums(np.where(active, children, 0.0)) - whole
        shift = (over / np.maximum(mass, np.finfo(float).tiny))[level.family]
        made = np.where(active, children - weights[:, None] * shift, 0.0)
        below = active & (made < 0) & ~free[level.family]
        if not below.any():
            break
        active &= ~below
    return np.where(free[level.family], children, np.maximum(made, 0.0))


def _with_exact_sums(tree: SeriesTree, values: Floats) -> Floats:
    """Parents as sums of what they are the sum of, where that is known."""
    sums = tree.summed(values)
    return np.where(np.isnan(sums), values, sums)
