"""Joint paths of a round's series, those of one power tree made to add up; their quantiles."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forecasting.clean_history import Cleaned, clean
from forecasting.domains.coherent_paths import CoherentPaths
from forecasting.domains.round_tree import RoundTree, own_name, step_quantiles
from forecasting.domains.series_tree import Booleans
from forecasting.engine_question import Question, Shape
from forecasting.past_changes import past_changes
from forecasting.peak_policy.coupling import couple
from forecasting.series_source import Floats, History, SeriesId
from forecasting.tiers.naive import LastValue
from forecasting.tiers.records import Records

PATHS: Final = 200
"""Joint paths behind a peak: two of them lie above its 0.99 quantile."""


class RoundPaths(NamedTuple):
    """What the tiers say, as paths.

    Attributes:
        steps: Quantiles of each step, shape (n_series, horizon, n_levels).
        paths: Shape (n_series, n_paths, horizon).
        coherent: Of the tree among the series; None without one.
    """

    steps: Floats
    paths: Floats
    coherent: CoherentPaths | None


def round_paths(
    shape: Shape,
    question: Question,
    cleaned: Cleaned,
    believed: Booleans,
    judged: Booleans,
    steps: Floats,
) -> RoundPaths:
    """Joint paths with the ranks of past hours and the values of the forecast.

    Series of a tree are reconciled path by path, and their steps are then quantiles of these paths.
    This is done before calibration: what reconciling does to a level is corrected like all else
    that a level misses, and a parent keeps the coverage that it was promised.

    Args:
        shape: What is asked.
        question: With the observed history.
        cleaned: What models were told.
        believed: Where the observed history is, (n_series, n_bins).
        judged: Series that a model or the last day's maximum stands behind, (n_series,).
        steps: Combined quantiles over ``shape.grid``.
    """
    errors = past_changes(cleaned.filled, cleaned.length, shape.horizon, shape.day_steps, PATHS)
    paths = couple(steps, shape.grid, errors, PATHS)
    if not question.beside.parents:
        return RoundPaths(steps, paths, None)
    history = question.history
    values = np.where(believed, history.values, np.nan)
    tree = RoundTree.of(history.series, question.beside.parents, values, shape.day_steps)
    if tree is None:
        return RoundPaths(steps, paths, None)
    made = tree.coherent(paths, _own_paths(shape, tree, history), judged)
    there = judged[tree.rows]
    rows, told = tree.rows[there], made[: len(tree.rows)][there]
    paths[rows] = told
    steps = steps.copy()
    steps[rows] = step_quantiles(told, shape.grid)
    return RoundPaths(steps, paths, CoherentPaths(tree.tree, made))


def _own_paths(shape: Shape, tree: RoundTree, history: History) -> Floats:
    """Joint paths of the own parts by their last value, NaN without a day of history."""
    if not len(tree.history):
        return np.empty((0, PATHS, shape.horizon))
    names = [own_name(SeriesId(name)) for name in tree.tree.names[len(tree.rows) :]]
    model = LastValue(Records())
    model.update(History(names, tree.history, history.until_seconds, history.step_seconds))
    steps = model.quantiles(shape.horizon, shape.grid)
    cleaned = clean(tree.history, shape.day_steps)
    errors = past_changes(cleaned.filled, cleaned.length, shape.horizon, shape.day_steps, PATHS)
    unknown = np.asarray(~np.isfinite(steps).all(axis=(1, 2)))
    made = couple(np.where(unknown[:, None, None], 0.0, steps), shape.grid, errors, PATHS)
    made[unknown] = np.nan
    return made
