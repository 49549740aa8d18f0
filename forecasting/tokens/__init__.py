"""Token demand: requests forecast as paths, times lengths that nobody knows before they end.

lengths of finished requests ─► moments by client (half-life 6 h) ─┐
joint paths of request rates ──────────────────────────────────────┴─► joint paths of tokens
"""

from forecasting.tokens.compound_sums import token_paths, token_variance
from forecasting.tokens.length_records import LengthRecord, LengthStatistics
from forecasting.tokens.length_tails import (
    cvar_of_lengths,
    lognormal_from_p99,
    tail_inflated_expectation,
)

__all__ = [
    "LengthRecord",
    "LengthStatistics",
    "cvar_of_lengths",
    "lognormal_from_p99",
    "tail_inflated_expectation",
    "token_paths",
    "token_variance",
]
