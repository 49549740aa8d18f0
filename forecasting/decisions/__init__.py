"""What is decided from forecasts: an amount, its risk, and why, in words.

    joint paths, or quantiles of a peak ─► amount at prices or a risk ─► bounded ─► steadied

Each amount is decided for the object that acts on it. Pure: no clock, no cluster. Who calls what:
``docs/decisions.md``.
"""

from forecasting.decisions.amounts import (
    Prices,
    Tail,
    highest_within,
    least_priced_violations,
    mean_and_tail,
    within_risk,
)
from forecasting.decisions.decision import Decision
from forecasting.decisions.forecast_worth import FORECAST_CHANGES, losses_by_change
from forecasting.decisions.mix_demand import mix_demand
from forecasting.decisions.priority_risks import RiskBand, risk_bands
from forecasting.decisions.steadiness import ChangeLimits, SteadyState, steadied
from forecasting.decisions.watts import promisable_watts

__all__ = [
    "FORECAST_CHANGES",
    "ChangeLimits",
    "Decision",
    "Prices",
    "RiskBand",
    "SteadyState",
    "Tail",
    "highest_within",
    "least_priced_violations",
    "losses_by_change",
    "mean_and_tail",
    "mix_demand",
    "promisable_watts",
    "risk_bands",
    "steadied",
    "within_risk",
]
