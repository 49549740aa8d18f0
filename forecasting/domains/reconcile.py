"""Forecasts that add up, path by path: every series moves as far as it is known to err.

    base paths ──► least squares under the sums (MinT) ──► not below 0, sums kept ──► paths
                   diagonal: two passes over the tree
                   shared errors: sparse factor of C D C' + a small dense part

With a diagonal covariance the weighted least squares of a tree are messages: upwards each parent is
averaged with the sum of its children by precision, downwards what is left over goes to the children
in proportion to their variance. Exact, and linear in the number of series.
Source: ``forecasting.domains.forecast_errors`` names the paper; the messages are Gaussian belief
propagation (Pearl 1988, chapter 7), which is exact on trees.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from scipy.sparse import csc_array, dia_array
from scipy.sparse.linalg import splu

from forecasting.domains.forecast_errors import ErrorCovariance
from forecasting.domains.not_negative import not_negative
from forecasting.domains.series_tree import Booleans, Families, SeriesTree
from forecasting.series_source import Floats
from wattpack.errors import InputError

VALUES_AT_A_TIME: Final = 4_000_000
"""Of one chunk of paths: some arrays of 32 MB, whatever the number of series."""

UNKNOWN_VARIANCE: Final = 1e7
"""Of the largest: a series without a forecast, where errors are shared; else it is infinite."""


def reconcile(tree: SeriesTree, paths: Floats, errors: ErrorCovariance) -> Floats:
    """Paths nearest to the given ones of which every parent is the sum of its children.

    Args:
        tree: Which sums hold.
        paths: (n, …), for example (n, n_paths, horizon): steps and paths are reconciled each for
            itself. A row with a NaN has no forecast: what the others leave decides it, in equal
            parts among children of one parent.
        errors: Of the base forecasts.

    Returns:
        (n, …), never negative; NaN for a series of which neither it nor what it is the sum of, nor
        what it is a part of, is known.

    Raises:
        InputError: for rows that are not the tree's.
    """
    if paths.shape[0] != len(tree) or errors.own.shape != (len(tree),):
        raise InputError("paths", f"{len(tree)} series with their errors", paths.shape)
    flat = paths.reshape(len(tree), -1)
    missing = np.asarray(~np.isfinite(flat).all(axis=1))
    made = np.empty(flat.shape)
    at_a_time = max(1, VALUES_AT_A_TIME // len(tree))
    solver = None if errors.shared is None else _Shared(tree, errors, missing)
    for first in range(0, flat.shape[1], at_a_time):
        part = np.where(missing[:, None], 0.0, flat[:, first : first + at_a_time])
        solved = _by_variance(tree, part, errors.variances, missing)
        if solver is not None:
            solved = solver.solved(np.where(missing[:, None], solved, part))
        made[:, first : first + at_a_time] = not_negative(tree, solved, errors.variances)
    return made.reshape(paths.shape)


class _Message(NamedTuple):
    """What the children of one depth say of their parents.

    Attributes:
        mean: Sum of the children's, (n_families, m).
        variance: Sum over those that are known, (n_families,).
        unknown: Children of whom nothing is known, (n_families,).
    """

    mean: Floats
    variance: Floats
    unknown: Floats


def _by_variance(tree: SeriesTree, base: Floats, variances: Floats, missing: Booleans) -> Floats:
    """Weighted least squares; NaN where undetermined, (n, m)."""
    values, spread = base.copy(), variances.copy()
    unknown = missing.astype(np.float64)
    messages: list[_Message] = []
    for level in reversed(tree.levels):
        messages.append(_upwards(level, values, spread, unknown, missing))
    values[(tree.parents < 0) & (unknown > 0)] = np.nan
    for level, said in zip(tree.levels, reversed(messages), strict=True):
        _downwards(level, said, values, spread, unknown)
    return values


def _upwards(
    level: Families, values: Floats, spread: Floats, unknown: Floats, missing: Booleans
) -> _Message:
    """Average each parent with its children's sum; in place."""
    said = _Message(
        level.sums(values[level.children]),
        level.sums(np.where(unknown[level.children] > 0, 0.0, spread[level.children])),
        level.sums(unknown[level.children]),
    )
    mine = spread[level.parents]
    gain = said.variance / (said.variance + mine)
    averaged = said.mean + gain[:, None] * (values[level.parents] - said.mean)
    alone, silent = missing[level.parents], said.unknown > 0
    values[level.parents] = np.where(
        alone[:, None], said.mean, np.where(silent[:, None], values[level.parents], averaged)
    )
    spread[level.parents] = np.where(alone, said.variance, np.where(silent, mine, gain * mine))
    unknown[level.parents] = np.where(alone, said.unknown, 0.0)
    return said


def _downwards(
    level: Families, said: _Message, values: Floats, spread: Floats, unknown: Floats
) -> None:
    """Deal out what a parent has beyond its children's sum; in place."""
    rest = (values[level.parents] - said.mean)[level.family]
    here, all_unknown = unknown[level.children], said.unknown[level.family]
    whole = np.where(said.variance > 0, said.variance, 1.0)[level.family]
    dealt = here / np.maximum(all_unknown, 1.0)
    part = np.where(all_unknown > 0, dealt, spread[level.children] / whole)
    # Known children of a parent that stays undetermined stay where they are: 0 of NaN is 0 here.
    values[level.children] += np.where(part[:, None] > 0, part[:, None] * rest, 0.0)


class _Shared:
    """Least squares with errors that series share, for one tree and set of missing series.

    With C the sums' constraints and W = D + F F' the answer is y - W C' (C W C')⁻¹ C y. C D C' is
    as sparse as the tree; the shared part has as many columns as there are times (Woodbury).
    """

    def __init__(self, tree: SeriesTree, errors: ErrorCovariance, missing: Booleans) -> None:
        shared = errors.shared
        assert shared is not None
        self._tree = tree
        own = np.where(missing, UNKNOWN_VARIANCE * errors.variances.max(), errors.own)
        self._shared = np.where(missing[:, None], 0.0, shared)
        self._sums, self._own = tree.constraints, own
        spread = dia_array((own[None, :], [0]), shape=(len(tree), len(tree)))
        self._solve = splu(csc_array(self._sums @ spread @ self._sums.T)).solve
        self._through = self._sums @ self._shared
        self._solved = self._solve(self._through)
        inner = np.eye(shared.shape[1]) + self._through.T @ self._solved
        self._inner = np.linalg.inv(inner)

    def solved(self, values: Floats) -> Floats:
        """The reconciled values, (n, m)."""
        lost = np.isnan(values)
        known = np.where(lost, self._tree.summed(np.where(lost, 0.0, values)), values)
        first = self._solve(self._sums @ known)
        pull = first - self._solved @ (self._inner @ (self._through.T @ first))
        moved = self._own[:, None] * (self._sums.T @ pull)
        moved += self._shared @ (self._through.T @ pull)
        return np.asarray(np.where(lost, np.nan, known - moved))
