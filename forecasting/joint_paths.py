"""Joint sample paths of what is published: each step's values are the forecast's, hours are real.

    published steps ─┐
    past hours ──────┴─► coupled (ranks of one hour in path j of every series) ─┬─► of no tree
    own parts of a power tree: last value ─► coupled ──► reconciled, leaves add up, below their tops

Calibrated quantiles of a tree are of no common paths (ADR 39). So paths are made of them once more
and moved as little as sums need (MinT): each series then errs from its published steps by what its
relatives' corrections disagree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forecasting.clean_history import Cleaned
from forecasting.domains.round_tree import RoundTree
from forecasting.domains.series_tree import Integers, SeriesTree
from forecasting.engine_question import Shape
from forecasting.past_changes import past_changes
from forecasting.peak_policy.coupling import PATHS, couple, tie_order
from forecasting.round_paths import RowsTold, own_paths, parts_of_rows
from forecasting.series_source import Floats, History


class Published(NamedTuple):
    """What is told about the series of a round.

    Attributes:
        steps: Quantiles over ``shape.grid``, calibrated and bounded, (n_series, horizon, n_levels).
        tops: What no path may exceed, (n_series,).
        told: Who stands behind each.
    """

    steps: Floats
    tops: Floats
    told: RowsTold


def joint_paths(
    shape: Shape,
    published: Published,
    cleaned: Cleaned,
    history: History,
    tree: RoundTree | None,
    n: int,
) -> Floats:
    """Paths of all series: path j of each has the ranks of one past hour, the same for all.

    No random number is drawn but the order of equal errors, which is always the same: equal
    histories give equal paths, bit for bit.

    Args:
        shape: What is asked.
        published: Told by this round.
        cleaned: The history that ranks come from.
        history: Of the round.
        tree: The power tree among the series; None without one.
        n: How many, at least 1. Hours are spread over the history; where it has fewer, they repeat.

    Returns:
        (n_series, n, horizon), within 0 and the tops; of a tree each parent is the sum of its
        leaves, but for what nobody knows.
    """
    made = _coupled(shape, published.steps, cleaned, n)
    if tree is not None:
        told = _added_up(shape, published, cleaned, history, tree, made[tree.rows])
        made[tree.rows] = np.where(np.isnan(told), made[tree.rows], told)
    return np.clip(made, 0.0, published.tops[:, None, None], out=made)


def _added_up(
    shape: Shape,
    published: Published,
    cleaned: Cleaned,
    history: History,
    tree: RoundTree,
    paths: Floats,
) -> Floats:
    """Paths of the tree's series that add up, (n_rows, n, horizon); NaN for what nobody knows."""
    rows, (judged, by_load) = tree.rows, published.told
    # Of a fixed number: how series err must not hang on how many paths somebody wants.
    many = _coupled(shape, published.steps, cleaned, PATHS, rows)
    errors = tree.spread(many, own_paths(shape, tree, history), judged, by_load)
    own = own_paths(shape, tree, history, paths.shape[1])
    made = tree.coherent(paths, own, judged, errors)
    tops = np.full(len(made), np.inf)
    # Who has neither a history nor a ceiling has a top of 0, and takes what its relatives leave.
    known = judged[rows] | (published.tops[rows] > 0)
    tops[: len(rows)] = np.where(known, published.tops[rows], np.inf)
    return below_tops(tree.tree, made, tops)[: len(rows)]


def _coupled(
    shape: Shape, steps: Floats, cleaned: Cleaned, n: int, rows: Integers | None = None
) -> Floats:
    """Paths by their own steps of some series, or of all, (n_rows, n, horizon)."""
    chosen = np.arange(len(steps)) if rows is None else rows
    made, order = np.empty((len(chosen), n, shape.horizon)), tie_order()
    for part in parts_of_rows(len(chosen), n * shape.horizon):
        here = chosen[part]
        filled, length = cleaned.filled[here], cleaned.length[here]
        errors = past_changes(filled, length, shape.horizon, shape.day_steps, n)
        made[part] = couple(steps[here], shape.grid, errors, n, order)
    return made


def below_tops(tree: SeriesTree, values: Floats, tops: Floats) -> Floats:
    """The values with no node above its top and every parent the sum of its children.

    What is above a parent's top is taken from its children in proportion to what they have.

    Args:
        tree: Which sums hold.
        values: At least 0, parents sums of their children, (n, …).
        tops: At least 0, (n,); infinite for none.
    """
    most = tops.reshape(-1, *(1,) * (values.ndim - 1))
    if not np.any(values > most):
        return values
    made = np.minimum(values, most)
    for level in reversed(tree.levels):
        sums = level.sums(made[level.children])
        made[level.parents] = np.minimum(
            np.where(np.isnan(sums), np.inf, sums), made[level.parents]
        )
    for level in tree.levels:
        sums = level.sums(made[level.children])
        share = np.where(sums > 0, made[level.parents] / np.where(sums > 0, sums, 1.0), 1.0)
        made[level.children] *= share[level.family]
    sums = tree.summed(made)
    return np.where(np.isnan(sums), made, np.minimum(sums, most))
