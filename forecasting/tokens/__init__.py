"""Token demand: requests forecast as paths, times lengths that nobody knows before they end.

    bins of requests and their tokens ─► moments of lengths (half-life 6 h) ─┐
    joint paths of request rates ────────────────────────────────────────────┴─► paths of tokens

``forecasting.token_demand`` puts them together for one client: its DemandForecast.
"""

from forecasting.tokens.binned_lengths import LengthStatistics, binned_lengths
from forecasting.tokens.compound_sums import drawn_sums, token_paths, token_variance
from forecasting.tokens.length_tails import lognormal_from_p99

__all__ = [
    "LengthStatistics",
    "binned_lengths",
    "drawn_sums",
    "lognormal_from_p99",
    "token_paths",
    "token_variance",
]
