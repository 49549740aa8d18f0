"""The time model of one group of kernels on one GPU type, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from capacity.kernels import Kernel
from capacity.model.conformal import ConformalScores
from capacity.model.few_shot import FewShot
from capacity.model.group_layers import Layers, fit_layers
from capacity.model.hold_outs import hold_out_folds, hold_out_group
from capacity.model.kernel_features import KernelTable, kernel_table
from capacity.model.kernel_samples import Floats, TimeSamples
from capacity.model.neighbours import Neighbourhood, kinship, neighbourhood
from capacity.model.residual_trees import ResidualTrees, TreeFeatures, grow_trees
from capacity.model.rising_times import rising_log_seconds
from capacity.model.roofline import RooflineConstants
from capacity.roofs import Roofs
from wattpack.errors import InputError

OTHERS_HELP_BELOW: Final = 4_000
"""Own rows above which the neighbours' residuals no longer help (held out: 2.8 to 3.0 %)."""

DIFFICULTY_TREES: Final = 20
DIFFICULTY_LEAF: Final = 60
LEAST_DIFFICULTY: Final = 0.004
"""In log units: what two runs of one kernel differ by."""

CHUNK: Final = 100_000
"""Kernels at a time: some 150 MB of features."""

UNKNOWN_ERROR: Final = 1.0
"""Log error promised at any coverage where nothing was ever judged: a factor e."""


@dataclass(frozen=True, slots=True)
class GroupTime:
    """A fitted group.

    Attributes:
        scores: Errors of kernels that the fit did not see, over their difficulty.
        difficulty: Trees that tell the size of an error beforehand, where there is data for it.
        unseen: Errors of forecasts without own rows, for where ``scores`` are too few.
    """

    group: str
    roofs: Roofs
    layers: Layers
    scores: ConformalScores
    difficulty: ResidualTrees | None
    unseen: ConformalScores

    def seconds(self, kernels: Sequence[Kernel]) -> Floats:
        """Shape (n_kernels,)."""
        if self._may_fall and len(kernels):
            return np.exp(rising_log_seconds(kernels, self._log_seconds))
        return np.exp(self._log_seconds(kernels))

    @property
    def _may_fall(self) -> bool:
        """A correction from few rows may; where tables of other types say it, times really do."""
        sized = self.group.startswith(("gemm", "attention"))
        return sized and self.layers.smooth is not None and not self.layers.neighbours.members

    def _log_seconds(self, kernels: Sequence[Kernel]) -> Floats:
        parts = [kernels[start : start + CHUNK] for start in range(0, len(kernels), CHUNK)]
        made = [self.layers.log_seconds(kernel_table(self.group, p, self.roofs)) for p in parts]
        return np.concatenate(made) if made else np.zeros(0)

    def log_reach(self, kernels: Sequence[Kernel], coverage: float) -> Floats:
        """How far intervals reach below and above the middle in log units, (n_kernels, 2)."""
        factors = self.scores.factors(coverage)
        if factors is not None:
            sizes = self._difficulties(kernel_table(self.group, kernels, self.roofs))
            return np.outer(sizes, factors)
        unseen = self.unseen.factor(coverage)
        return np.full((len(kernels), 2), UNKNOWN_ERROR if unseen is None else unseen)

    def _difficulties(self, table: KernelTable) -> Floats:
        if self.difficulty is not None:
            return _difficulties(self.difficulty, _clues(self.layers, table))
        if self.layers.smooth is not None:
            features = table.smooth_features(self.layers.constants)
            return self.layers.smooth.deviation(features)
        return np.ones(len(table.shape))


def fit_group_time(
    group: str, own: TimeSamples, roofs: Roofs, others: tuple[TimeSamples, ...]
) -> GroupTime:
    """The group's model from own rows, if any, and other types' rows, if any.

    Raises:
        InputError: neither own rows nor other types' hold a kernel of the group.
    """
    nearby = neighbourhood(group, roofs, () if len(own) >= OTHERS_HELP_BELOW else others)
    if not len(own) and not nearby.members:
        raise InputError("kernels", f"rows of {group} to learn from", roofs.model)
    table = kernel_table(group, own.kernels, roofs)
    layers = fit_layers(group, table, own.seconds, nearby)
    unseen = _unseen_scores(group, nearby)
    if layers.trees is not None:
        scores, difficulty = _calibrated(group, own, roofs, nearby)
        return GroupTime(group, roofs, layers, scores, difficulty, unseen)
    fitted = GroupTime(group, roofs, layers, ConformalScores(np.zeros(0)), None, unseen)
    if fitted._may_fall:
        scores = _rising_scores(fitted, own)
    elif layers.smooth is not None:
        scores = ConformalScores.from_errors(layers.smooth.scores())
    else:
        errors = np.log(own.seconds) - layers.log_seconds(table)
        scores = ConformalScores.from_errors(errors)
    return replace(fitted, scores=scores)


def _rising_scores(fitted: GroupTime, own: TimeSamples) -> ConformalScores:
    """Scores of the rising curve that is answered, each from a fit without its hold-out group.

    Shapes that no design holds are slower than a smooth correction says more often than faster,
    so the ends are ranked apart.
    """
    layers, smooth = fitted.layers, fitted.layers.smooth
    assert smooth is not None
    groups, mine = np.unique([hold_out_group(k) for k in own.kernels], return_inverse=True)
    unseeing = [smooth.without(np.flatnonzero(mine == row)) for row in range(len(groups))]

    def held_out(
        kernels: Sequence[Kernel], ask: Callable[[FewShot, Floats], Floats]
    ) -> tuple[KernelTable, Floats]:
        table = kernel_table(fitted.group, kernels, fitted.roofs)
        features = table.smooth_features(layers.constants)
        # Sizes of one family share its hold-out group.
        names = np.searchsorted(groups, [hold_out_group(k) for k in kernels])
        made = np.empty(len(kernels))
        for row, part in enumerate(unseeing):
            made[names == row] = ask(part, features[names == row])
        return table, made

    def log_seconds(kernels: Sequence[Kernel]) -> Floats:
        table, corrections = held_out(kernels, FewShot.predict)
        return replace(layers, smooth=None).log_seconds(table) + corrections

    errors = np.log(own.seconds) - rising_log_seconds(own.kernels, log_seconds)
    return ConformalScores.from_sided_errors(errors, held_out(own.kernels, FewShot.deviation)[1])


def _calibrated(
    group: str, own: TimeSamples, roofs: Roofs, nearby: Neighbourhood
) -> tuple[ConformalScores, ResidualTrees | None]:
    """Scores of all own kernels, each from a fit that saw none of its hold-out group.

    Trees learn from these errors how the size of an error depends on the kernel; for its own
    score, a kernel's difficulty comes from trees that did not see its group either.
    """
    clues, errors = _out_of_fold(group, own, roofs, nearby)
    if clues is None:
        return ConformalScores(np.zeros(0)), None
    difficulties = np.ones(len(own))
    halves = hold_out_folds(own.kernels, level=2) % 2
    for half in (0, 1):
        seen, held = np.flatnonzero(halves != half), np.flatnonzero(halves == half)
        if seen.size and held.size:
            learned = _grow_difficulty(clues[seen], errors[seen])
            difficulties[held] = _difficulties(learned, clues[held])
    return ConformalScores.from_errors(errors, difficulties), _grow_difficulty(clues, errors)


def _out_of_fold(
    group: str, own: TimeSamples, roofs: Roofs, nearby: Neighbourhood
) -> tuple[TreeFeatures | None, Floats]:
    """Clues to the difficulty and absolute log errors of every kernel; None if all are kin."""
    folds = hold_out_folds(own.kernels, level=1)
    clues: TreeFeatures | None = None
    errors = np.zeros(len(own))
    present = np.unique(folds).tolist()
    for fold in present if len(present) > 1 else ():
        held = own.take(np.flatnonzero(folds == fold))
        rest = own.take(np.flatnonzero(folds != fold))
        seen = kernel_table(group, rest.kernels, roofs)
        layers = fit_layers(group, seen, rest.seconds, nearby)
        table = kernel_table(group, held.kernels, roofs)
        found = _clues(layers, table)
        if clues is None:
            clues = np.zeros((len(own), found.shape[1]), dtype=np.float32)
        clues[folds == fold] = found
        errors[folds == fold] = np.abs(np.log(held.seconds) - layers.log_seconds(table))
    return clues, errors


def _clues(layers: Layers, table: KernelTable) -> TreeFeatures:
    """What tells beforehand how large an error will be, shape (n, d)."""
    features = table.tree_features(layers.constants)
    if layers.trees is None:
        return features
    strayed = layers.log_seconds(table) - np.log(layers.constants.seconds(table.roofs))
    spread = np.log(layers.trees.spread(features) + LEAST_DIFFICULTY)
    clues = [features, spread, np.abs(strayed)]
    return np.column_stack(clues).astype(np.float32)


def _grow_difficulty(clues: TreeFeatures, errors: Floats) -> ResidualTrees:
    return grow_trees(clues, errors, DIFFICULTY_TREES, DIFFICULTY_LEAF)


def _difficulties(trees: ResidualTrees, clues: TreeFeatures) -> Floats:
    return np.maximum(trees.predict(clues), LEAST_DIFFICULTY)


def _unseen_scores(group: str, nearby: Neighbourhood) -> ConformalScores:
    """How wrong forecasts without own rows are for the types that were measured.

    Each type in turn is forecast from the rest; the ranks are over all their kernels, so one
    strange type counts with its share.
    """
    errors = [np.zeros(0)]
    for target in nearby.members if len(nearby.members) > 1 else ():
        rest = kinship(target.roofs, tuple(m for m in nearby.members if m is not target)).nearest()
        layers = Layers(RooflineConstants.from_logs(rest.typical_logs()), rest)
        table = kernel_table(group, target.probes.kernels, target.roofs)
        errors.append(np.log(target.probes.seconds) - layers.log_seconds(table))
    return ConformalScores.from_errors(np.concatenate(errors))
