"""Fitting and asking boosted trees with LightGBM.

Source: Ke et al., LightGBM, NeurIPS 2017; objective: quantile loss, one forest a level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forecasting.lightgbm_library import lightgbm_at_work
from forecasting.series_source import Floats
from forecasting.tiers.boosted_features import Sample

FITTED_LEVELS: Final = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)

FEWEST_LEAVES: Final = 6
MOST_LEAVES: Final = 24
LEAVES_PER_ROOT: Final = 3
LEAF_POINTS: Final = 100
LEAF_POINTS_OF_ONE: Final = 2400
"""Trees over few series are kept small: points of one series overlap, and 24 leaves of 50 points
learned four totals by heart (inner loss 0.665 of seasonal naive's; 0.598 with 6 leaves of 600)."""

TREES: Final = 120
SETTINGS: Final[dict[str, Any]] = {
    "objective": "quantile",
    "learning_rate": 0.08,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "max_bin": 127,
    # The same sample gives the same forest, bit for bit.
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "seed": 1,
    "verbose": -1,
}
"""Chosen on bins 0-1439; 200 trees at 0.05 with 31 leaves cost twice as much for the same loss."""


@dataclass(frozen=True, slots=True)
class Forests:
    """One forest a level, as LightGBM's model text.

    Attributes:
        texts: In the order of ``FITTED_LEVELS``.
        until_seconds: End of the data that they were fitted on, Unix time.
    """

    texts: tuple[str, ...]
    until_seconds: int


def tree_size(n_series: int) -> dict[str, int]:
    """Leaves of a tree and points of a leaf, for samples of so many series."""
    leaves = LEAVES_PER_ROOT * math.ceil(math.sqrt(n_series))
    return {
        "num_leaves": min(max(leaves, FEWEST_LEAVES), MOST_LEAVES),
        "min_data_in_leaf": max(LEAF_POINTS, LEAF_POINTS_OF_ONE // max(1, n_series)),
    }


def fit_forests(sample: Sample, until_seconds: int) -> Forests:
    """Forests of all levels; about 15 s of one core for a full sample.

    Raises:
        ForestsError: the library cannot be loaded, or refuses the sample.
    """
    settings = {**SETTINGS, **tree_size(sample.n_series)}
    texts = []
    with lightgbm_at_work() as lightgbm:
        data = lightgbm.Dataset(
            sample.features,
            sample.changes,
            weight=sample.weights,
            params={"max_bin": SETTINGS["max_bin"], "verbose": -1},
            free_raw_data=False,
        )
        for level in FITTED_LEVELS:
            forest = lightgbm.train({**settings, "alpha": level}, data, TREES)
            texts.append(forest.model_to_string())
    return Forests(tuple(texts), until_seconds)


def load(forests: Forests) -> list[Any]:
    """Forests that can be asked.

    Raises:
        ForestsError: the library cannot be loaded, or the texts are none of its.
    """
    with lightgbm_at_work() as lightgbm:
        return [lightgbm.Booster(model_str=text) for text in forests.texts]


def ask(loaded: list[Any], features: np.ndarray) -> Floats:
    """Changes at the fitted levels, sorted, shape (n_points, n_fitted).

    Raises:
        ForestsError: the library cannot compute with the features.
    """
    with lightgbm_at_work():
        answers = [forest.predict(features, num_threads=1) for forest in loaded]
    result: Floats = np.sort(np.stack(answers, axis=-1), axis=-1)
    return result
