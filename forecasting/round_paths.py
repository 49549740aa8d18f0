"""Joint paths of a round's series, those of one power tree made to add up; their quantiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from forecasting.clean_history import Cleaned, clean
from forecasting.domains.coherent_paths import CoherentPaths
from forecasting.domains.round_tree import RoundTree, own_name
from forecasting.domains.series_tree import Booleans, Integers
from forecasting.engine_question import Question, Shape
from forecasting.past_changes import past_changes
from forecasting.peak_policy.coupling import PATHS, couple, step_quantiles, tie_order
from forecasting.peak_policy.evidence import PeakEvidence
from forecasting.series_source import Floats, History, SeriesId
from forecasting.tiers.naive import LastValue
from forecasting.tiers.records import Records

PATH_CELLS: Final = 4_000_000
"""Steps of paths that are made at once, 32 MB: those of 10,000 series and six hours are 1.2 GB with
what they are made of. Only a tree's are kept."""


class RoundPaths(NamedTuple):
    """What the tiers say, as paths.

    Attributes:
        steps: Quantiles of each step, shape (n_series, horizon, n_levels).
        evidence: What a peak policy may look at.
        coherent: Of the tree among the series; None without one.
        tree: That tree.
    """

    steps: Floats
    evidence: PeakEvidence
    coherent: CoherentPaths | None
    tree: RoundTree | None


class RowsTold(NamedTuple):
    """Who says what comes of each series.

    Attributes:
        judged: A model or the last day's maximum, (n_series,).
        by_load: Its load, through the capacity model, (n_series,).
    """

    judged: Booleans
    by_load: Booleans


def round_paths(
    shape: Shape,
    question: Question,
    cleaned: Cleaned,
    believed: Booleans,
    told: RowsTold,
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
        told: Who stands behind the steps.
        steps: Combined quantiles over ``shape.grid``.
    """
    tree = _tree_of(shape, question, believed)
    evidence, paths = _evidence(shape, cleaned, steps, () if tree is None else tree.rows)
    if tree is None:
        return RoundPaths(steps, evidence, None, None)
    own = own_paths(shape, tree, question.history)
    errors = tree.spread(paths, own, told.judged, told.by_load)
    made = tree.coherent(paths, own, told.judged, errors)
    there = told.judged[tree.rows]
    rows, sums = tree.rows[there], made[: len(tree.rows)][there]
    steps, path_peaks = steps.copy(), evidence.path_peaks.copy()
    steps[rows], path_peaks[rows] = step_quantiles(sums, shape.grid), sums.max(axis=2)
    evidence = replace(evidence, path_peaks=path_peaks)
    return RoundPaths(steps, evidence, CoherentPaths(tree.tree, tree.rows, made), tree)


def _tree_of(shape: Shape, question: Question, believed: Booleans) -> RoundTree | None:
    """The power tree among the series, None without one."""
    if not question.beside.parents:
        return None
    history = question.history
    values = np.where(believed, history.values, np.nan)
    return RoundTree.of(history.series, question.beside.parents, values, shape.day_steps)


def _evidence(
    shape: Shape, cleaned: Cleaned, steps: Floats, kept: Sequence[int] | Integers
) -> tuple[PeakEvidence, Floats]:
    """What peaks rest on, and the paths of some series, (n_kept, n_paths, horizon)."""
    place = np.full(len(steps), -1, dtype=np.intp)
    place[np.asarray(kept, dtype=np.intp)] = np.arange(len(kept))
    paths = np.empty((len(kept), PATHS, shape.horizon))
    order, parts = tie_order(), []
    for part in parts_of_rows(len(steps), PATHS * shape.horizon):
        filled, length = cleaned.filled[part], cleaned.length[part]
        errors = past_changes(filled, length, shape.horizon, shape.day_steps, PATHS)
        made = couple(steps[part], shape.grid, errors, PATHS, order)
        parts.append(PeakEvidence.of(filled, made, shape.day_steps))
        wanted = place[part] >= 0
        paths[place[part][wanted]] = made[wanted]
    return PeakEvidence.joined(parts), paths


def parts_of_rows(n_rows: int, cells: int) -> Iterator[slice]:
    """Rows in parts that are made at once, at least one part.

    Args:
        n_rows: How many.
        cells: Steps of all paths of one of them.
    """
    size = max(1, PATH_CELLS // cells)
    for start in range(0, max(1, n_rows), size):
        yield slice(start, start + size)


def own_paths(shape: Shape, tree: RoundTree, history: History, n: int = PATHS) -> Floats:
    """Joint paths of the own parts by their last value, NaN without a day of history."""
    if not len(tree.history):
        return np.empty((0, n, shape.horizon))
    names = [own_name(SeriesId(name)) for name in tree.tree.names[len(tree.rows) :]]
    model = LastValue(Records())
    model.update(History(names, tree.history, history.until_seconds, history.step_seconds))
    steps = model.quantiles(shape.horizon, shape.grid)
    cleaned = clean(tree.history, shape.day_steps)
    errors = past_changes(cleaned.filled, cleaned.length, shape.horizon, shape.day_steps, n)
    unknown = np.asarray(~np.isfinite(steps).all(axis=(1, 2)))
    made = couple(np.where(unknown[:, None, None], 0.0, steps), shape.grid, errors, n)
    made[unknown] = np.nan
    return made
