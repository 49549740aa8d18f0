"""Keeping promises: past misses move the peak quantiles until they hold as often as they say.

Each finished window gives the score (peak - promised) / scale. Scores of all series of a class are
pooled, since one series sees four windows a day. The correction is a high quantile of the scores;
its level follows adaptive conformal inference, alpha += 0.02 (target - missed), so that coverage
holds over the long run without any assumption on the data.
Source: Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forecasting.series_source import Floats

GAMMA: Final = 0.02
MIN_SCORES: Final = 20
MAX_SCORES: Final = 4000
WILD_SCORE: Final = 20.0
"""A miss by so many scales (assumed; the bound of a forecast over its record) is a meter's fault:
it says nothing of the other series of its pool."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known about the promises of one class of series.

    Attributes:
        levels: Quantile levels, ascending, shape (n_levels,).
        alphas: Present miss rate aimed at, one a level.
        scores: Uncorrected scores of finished windows, oldest first, shape (n, n_levels).
        windows: Windows counted so far.
        violations: Windows whose peak exceeded the corrected promise, one a level.
    """

    levels: tuple[float, ...]
    alphas: tuple[float, ...]
    scores: Floats
    windows: int
    violations: tuple[int, ...]

    @classmethod
    def new(cls, levels: tuple[float, ...]) -> Calibration:
        """Nothing seen yet: no correction."""
        alphas = tuple(1.0 - level for level in levels)
        return cls(levels, alphas, np.empty((0, len(levels))), 0, (0,) * len(levels))

    def offsets(self) -> Floats:
        """What to add to a promise, in units of the scale, shape (n_levels,)."""
        if len(self.scores) < MIN_SCORES:
            return np.zeros(len(self.levels))
        # Finite-sample rank of split conformal prediction: ceil((n + 1)(1 - alpha)) of n.
        n = len(self.scores)
        ranked = np.sort(self.scores, axis=0)
        ranks = np.ceil((n + 1) * (1 - np.array(self.alphas))).astype(np.intp)
        picked = np.clip(ranks, 1, n) - 1
        result: Floats = ranked[picked, np.arange(len(self.levels))]
        return result

    def after(self, scores: Floats) -> Calibration:
        """The state after one batch of finished windows.

        Args:
            scores: (peak - uncorrected promise) / scale, shape (n, n_levels); rows with a
                non-finite value (a window with no data) or a wild one are ignored.
        """
        sane = np.all(np.isfinite(scores) & (np.nan_to_num(scores) < WILD_SCORE), axis=1)
        usable = scores[sane]
        if len(usable) == 0:
            return self
        missed = usable > self.offsets() + 1e-9
        alphas = []
        for level, alpha, share in zip(self.levels, self.alphas, missed.mean(axis=0), strict=True):
            target = 1.0 - level
            moved = alpha + GAMMA * (target - float(share))
            alphas.append(float(np.clip(moved, 0.01 * target, min(5 * target, 1.0))))
        return replace(
            self,
            alphas=tuple(alphas),
            scores=np.concatenate([self.scores, usable])[-MAX_SCORES:],
            windows=self.windows + len(usable),
            violations=tuple(
                v + int(m) for v, m in zip(self.violations, missed.sum(axis=0), strict=True)
            ),
        )

    def coverage(self) -> tuple[float | None, ...]:
        """Share of windows within the corrected promise, one a level; None before the first."""
        if self.windows == 0:
            return (None,) * len(self.levels)
        return tuple(1.0 - v / self.windows for v in self.violations)
