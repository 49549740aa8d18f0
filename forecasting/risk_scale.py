"""Between known quantiles: straight over the logarithm of the risk, as an exponential tail is.

It lies above the straight line over the risk wherever a tail is longer (assumed of peaks).
"""

from __future__ import annotations

import numpy as np

from forecasting.series_source import Floats


def risk_scale(levels: Floats) -> Floats:
    """Where levels in [0, 1) lie: minus the logarithm of what is above them."""
    result: Floats = -np.log1p(-levels)
    return result


def between_levels(asked: Floats, levels: Floats, values: Floats) -> Floats:
    """Quantiles at levels between known ones.

    Args:
        asked: In [0, 1), shape (n,).
        levels: Rising, shape (n_levels,).
        values: Theirs, the same shape.

    Returns:
        Shape (n,); beyond the outermost levels their values.
    """
    return np.interp(risk_scale(asked), risk_scale(levels), values)


def parts_of_levels(asked: Floats, levels: Floats) -> Floats:
    """How much of each known quantile is in those asked for, shape (n_levels, n).

    Beyond the outermost levels the lines between the last two go on. Arguments as above, at least
    two levels.
    """
    known, at = risk_scale(levels), risk_scale(asked)
    left = np.clip(np.searchsorted(known, at, side="right") - 1, 0, len(known) - 2)
    share = (at - known[left]) / (known[left + 1] - known[left])
    parts = np.zeros((len(known), len(at)))
    columns = np.arange(len(at))
    parts[left, columns] = 1.0 - share
    parts[left + 1, columns] += share
    return parts
