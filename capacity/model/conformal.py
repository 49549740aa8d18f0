"""Intervals that hold as often as they say, whatever the model behind them is worth.

Split conformal prediction with locally scaled scores: the error of kernels that the fit did not
see, over a difficulty known beforehand, is ranked; the interval is that rank times the difficulty
of the kernel asked for. Source: Lei et al., "Distribution-free predictive inference for
regression" (JASA 2018), theorem 2.2 and section 5.2. Where errors lean to one side, each end is
ranked by itself: Linusson, Johansson and Löfström, "Signed-error conformal regression" (PAKDD
2014).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ConformalScores:
    """Scaled errors of kernels that the fit did not see.

    Attributes:
        ascending: Without their signs, ascending, shape (n,).
        signed: With them, ascending, shape (n,), where the two ends are ranked apart; else none.
    """

    ascending: Floats
    signed: Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def from_errors(cls, errors: Floats, difficulties: Floats | float = 1.0) -> ConformalScores:
        """Scores of errors in any unit over difficulties in the same."""
        return cls(np.sort(np.abs(errors) / difficulties))

    @classmethod
    def from_sided_errors(cls, errors: Floats, difficulties: Floats | float) -> ConformalScores:
        """As ``from_errors``, of errors that may lean to one side; positive: above the middle."""
        scaled = errors / difficulties
        return cls(np.sort(np.abs(scaled)), np.sort(scaled))

    def factors(self, coverage: float) -> tuple[float, float] | None:
        """As ``factor``, for the end below and the end above the middle.

        Both ends miss equally often where the signed scores are enough to promise that; fewer
        scores promise one width for both.

        Raises:
            InputError: as ``factor``.
        """
        both = self.factor(coverage)
        if both is None:
            return None
        rank = int(np.ceil((len(self.signed) + 1) * (1 + coverage) / 2))
        if rank > len(self.signed):
            return both, both
        return max(0.0, -float(self.signed[-rank])), max(0.0, float(self.signed[rank - 1]))

    def factor(self, coverage: float) -> float | None:
        """What to multiply a difficulty with; None if there are too few scores to promise that.

        Raises:
            InputError: a coverage that is not between 0 and 1.
        """
        require_coverage(coverage)
        rank = int(np.ceil((len(self.ascending) + 1) * coverage))
        return float(self.ascending[rank - 1]) if rank <= len(self.ascending) else None


def require_coverage(coverage: float) -> None:
    """Refuse what is no share.

    Raises:
        InputError: naming the bounds.
    """
    if not 0 < coverage < 1:
        raise InputError("coverage", "above 0 and below 1", coverage)


def winkler_score(low: Floats, high: Floats, actual: Floats, coverage: float) -> float:
    """Mean width plus the penalty of what was missed; lower is better.

    Source: Gneiting and Raftery, "Strictly proper scoring rules" (JASA 2007), equation 43.
    """
    missed = np.maximum(low - actual, 0) + np.maximum(actual - high, 0)
    return float(np.mean(high - low + 2 / (1 - coverage) * missed))
