"""Replicas ahead of need: the rate that the coming minutes need, as quantiles, and what to start.

    minutes of demand ─► features ─► trees, one a level ─► quantiles of the needed rate ─► replicas

Forecasts of ten-minute bins see nothing of the minutes within a start; these quantiles are of the
start's own horizon. Made anew from what was seen last, they need no state.
"""

from forecasting.prewarming.needed_quantiles import NeededQuantiles, fit_needed_quantiles
from forecasting.prewarming.needed_rate import needed_rates
from forecasting.prewarming.priced_replicas import priced_replicas

__all__ = ["NeededQuantiles", "fit_needed_quantiles", "needed_rates", "priced_replicas"]
