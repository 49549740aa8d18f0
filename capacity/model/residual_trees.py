"""Extremely randomised trees: the one door to scikit-learn, opened only when trees are grown.

Neither the agent nor the controller comes here: importing the library costs 60 MB and a second.
Source: Geurts, Ernst, Wehenkel, "Extremely randomized trees" (Machine Learning 2006).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
AnyFloats = npt.NDArray[np.floating[Any]]
TreeFeatures = npt.NDArray[np.float32]
"""Trees compare at this width anyway; making it once saves every forest a copy."""

SEED: Final = 20261122
"""Of every forest: the same rows give the same model."""


@dataclass(frozen=True, slots=True)
class ResidualTrees:
    """A grown forest."""

    forest: Any = field(repr=False)

    def predict(self, features: AnyFloats) -> Floats:
        """Mean over the trees, shape (n,).

        As the forest's own ``predict``, less what that spends on checks and threads at each tree.
        """
        total = np.zeros(len(features))
        narrow = _narrow(features)
        for tree in self.forest.estimators_ if len(features) else ():
            total += tree.tree_.predict(narrow)[:, 0]
        return total / len(self.forest.estimators_)

    def spread(self, features: AnyFloats) -> Floats:
        """Standard deviation between the trees, shape (n,): large where few rows were near."""
        narrow = _narrow(features)
        told = [tree.tree_.predict(narrow)[:, 0] for tree in self.forest.estimators_]
        return np.asarray(np.std(told, axis=0))


def grow_trees(
    features: AnyFloats,
    targets: Floats,
    trees: int,
    smallest_leaf: int = 2,
    least_gain: float = 0.0,
) -> ResidualTrees:
    """A forest that predicts the targets.

    Args:
        features: Shape (n, d).
        targets: Shape (n,).
        least_gain: Variance of all targets that a branch has to explain for each of its leaves;
            others are cut off (minimal cost-complexity pruning, Breiman et al. 1984).
    """
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(
        trees, min_samples_leaf=smallest_leaf, random_state=SEED, ccp_alpha=least_gain
    )
    return ResidualTrees(forest.fit(features, targets))


def _narrow(features: AnyFloats) -> TreeFeatures:
    return np.ascontiguousarray(features, dtype=np.float32)
