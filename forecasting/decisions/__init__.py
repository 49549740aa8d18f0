"""What is decided from forecasts: an amount, its risk, and why, in words.

    joint paths of the level that owns the actuator ─► amount at a price or risk ─► steadied
                                    └─ shares of the levels below, of the same paths

Pure: no clock, no cluster. Who calls what: ``docs/decisions.md``.
"""

from forecasting.decisions.amounts import (
    Prices,
    budgeted_risk,
    cost_and_risk,
    highest_within,
    least_priced_violations,
    mean_and_tail,
)
from forecasting.decisions.decision import Decision
from forecasting.decisions.forecast_worth import FORECAST_CHANGES, losses_by_change
from forecasting.decisions.levels import Level, decide_at_actuators, shares_of
from forecasting.decisions.mix_demand import mix_demand
from forecasting.decisions.prewarm import PrewarmRule, StartTimes, prewarm
from forecasting.decisions.priority_risks import RiskBand, risk_bands
from forecasting.decisions.steadiness import ChangeLimits, SteadyState, steadied
from forecasting.decisions.watts import promisable_watts

__all__ = [
    "FORECAST_CHANGES",
    "ChangeLimits",
    "Decision",
    "Level",
    "PrewarmRule",
    "Prices",
    "RiskBand",
    "StartTimes",
    "SteadyState",
    "budgeted_risk",
    "cost_and_risk",
    "decide_at_actuators",
    "highest_within",
    "least_priced_violations",
    "losses_by_change",
    "mean_and_tail",
    "mix_demand",
    "prewarm",
    "promisable_watts",
    "risk_bands",
    "shares_of",
    "steadied",
]
