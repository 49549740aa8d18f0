"""Intervals that hold as often as they say, whatever the model behind them is worth.

Split conformal prediction with locally scaled scores: the error of kernels that the fit did not
see, over a difficulty known beforehand, is ranked; the interval is that rank times the difficulty
of the kernel asked for. Source: Lei et al., "Distribution-free predictive inference for
regression" (JASA 2018), theorem 2.2 and section 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wattpack.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ConformalScores:
    """Absolute scaled errors of kernels that the fit did not see, ascending, shape (n,)."""

    ascending: Floats

    @classmethod
    def from_errors(cls, errors: Floats, difficulties: Floats | float = 1.0) -> ConformalScores:
        """Scores of errors in any unit over difficulties in the same."""
        return cls(np.sort(np.abs(errors) / difficulties))

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
