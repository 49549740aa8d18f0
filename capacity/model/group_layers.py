"""The three layers of one group's times: roofline, neighbours' residuals, own correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.model.few_shot import FewShot, fit_few_shot
from capacity.model.kernel_features import KernelTable
from capacity.model.kernel_samples import Floats
from capacity.model.neighbours import CONSTANTS_SPREAD, Neighbourhood
from capacity.model.residual_trees import ResidualTrees, grow_trees
from capacity.model.roofline import (
    TYPICAL_LOGS,
    TYPICAL_SPREAD,
    RooflineConstants,
    fit_constants,
)

FEW: Final = 400
"""Own rows up to which a smooth correction is used; its cost grows with their square."""

OWN_TREES: Final = 60
"""Held out inside the training rows, errors are 0.5 to 2 % smaller than of 30; 120 gain no more."""

PLAIN_GROUPS: Final = frozenset({"bandwidth"})
"""Streams: time is linear in bytes, and nothing is left for a correction to learn."""


@dataclass(frozen=True, slots=True)
class Layers:
    """A fitted group.

    Attributes:
        smooth: Correction from few own rows, ``trees`` from many; at most one of them.
    """

    constants: RooflineConstants
    neighbours: Neighbourhood
    smooth: FewShot | None = None
    trees: ResidualTrees | None = None

    def log_seconds(self, table: KernelTable) -> Floats:
        """Natural logarithm of the time, shape (n,)."""
        total = np.log(self.constants.seconds(table.roofs))
        features = table.tree_features(self.constants)
        total += self.neighbours.residuals(features)
        if self.smooth is not None:
            total += self.smooth.predict(table.smooth_features(self.constants))
        if self.trees is not None:
            total += self.trees.predict(features)
        return total


def fit_layers(
    group: str, table: KernelTable, seconds: Floats, neighbours: Neighbourhood
) -> Layers:
    """Each layer on what the one before left unexplained.

    Args:
        seconds: Of the own kernels in ``table``; may be none, then the neighbours decide.
    """
    if group in PLAIN_GROUPS and len(seconds):
        constants = fit_constants(table.roofs, seconds)
        return Layers(constants, Neighbourhood((), np.zeros(0)))
    typical, spread = TYPICAL_LOGS, TYPICAL_SPREAD
    if neighbours.members:
        typical, spread = neighbours.typical_logs(), CONSTANTS_SPREAD
    constants = fit_constants(table.roofs, seconds, typical, spread)
    if not len(seconds):
        return Layers(constants, neighbours.nearest())
    left = np.log(seconds / constants.seconds(table.roofs))
    if neighbours.members:
        features = table.tree_features(constants)
        lessons = [member.residuals(features) for member in neighbours.members]
        neighbours = neighbours.weighed(np.column_stack(lessons), left)
        left = left - neighbours.residuals(features)
    if len(seconds) <= FEW:
        smooth = fit_few_shot(table.smooth_features(constants), left)
        return Layers(constants, neighbours, smooth=smooth)
    trees = grow_trees(table.tree_features(constants), left, OWN_TREES)
    return Layers(constants, neighbours, trees=trees)
