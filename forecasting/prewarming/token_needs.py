"""Quantiles of the tokens a second that services need, of those of the requests a second.

    quantiles of the needed requests ─► even samples ─► minutes of tokens ─► quantiles, in tokens
    lengths of the last hours ─────────────────────────┘

The rate of requests that is needed has its own uncertainty; how long these requests are is on top:
of few long ones a minute may hold twice the mean's tokens, of many it holds the mean's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from forecasting.peak_policy.coupling import path_levels, quantile_function, ranked_quantiles
from forecasting.prewarming.needed_rate import needed_in_windows
from forecasting.series_source import Floats
from forecasting.tokens import LengthStatistics, drawn_sums

SAMPLES: Final = 2000
"""Four of them lie above the highest level that forests of minutes have."""

SEED: Final = 39
"""Any number would do, as long as it stays: the next minute's answer differs by what it knows."""


def needed_tokens(
    needed: Floats,
    levels: Sequence[float],
    lengths: LengthStatistics,
    steps: int,
    step_seconds: float,
    wait_seconds: float,
) -> Floats:
    """Quantiles of the needed tokens a second.

    Each sample of the needed requests is taken to come in every step: bursts leave quieter steps
    between them, so this is no less than what they need. How many requests come has been observed,
    chance and all; of a known number n the tokens have the variance ``n Var(L)``.

    Args:
        needed: Quantiles of the needed requests a second, shape (n_levels,).
        levels: Rising, as is what is returned.
        lengths: Of one request.
        steps: Of the horizon.
        step_seconds: Width of a step.
        wait_seconds: Longest wait that is within the objective.

    Returns:
        Shape (n_levels,), none negative.
    """
    rates = np.maximum(quantile_function(needed, levels, path_levels(SAMPLES)), 0.0)
    requests = np.broadcast_to(rates[:, None] * step_seconds, (SAMPLES, steps))
    variance = requests * max(lengths.second_moment - lengths.mean**2, 0.0)
    tokens = drawn_sums(requests * lengths.mean, variance, SEED) / step_seconds
    ranked = np.sort(needed_in_windows(tokens, step_seconds, wait_seconds))
    result: Floats = np.maximum.accumulate(np.maximum(ranked_quantiles(ranked, levels), 0.0))
    return result
