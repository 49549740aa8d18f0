"""How often a window may be broken for the sake of whom: a budget of violations by priority.

Who is capped or preempted first may be let in where there is room most of the time; who is not,
only where there nearly always is. Priorities are those of pods (``spec.priority``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattpack.api.forecast_subject import LEAST_RISK, MOST_RISK
from wattpack.errors import InputError
from wattpack.units import require_number

__all__ = ["RiskBand", "risk_bands"]


@dataclass(frozen=True, slots=True)
class RiskBand:
    """Priorities that are decided for at one risk.

    Attributes:
        least_priority: Of those in it; None for all that no band before it has.
        risk: Share of windows whose peak may be above what was counted on.
    """

    least_priority: int | None
    risk: float


def risk_bands(below: Mapping[int, float], field: str = "risk_below_priority") -> list[RiskBand]:
    """The bands, the strictest first; without any setting one, at 1 %.

    Args:
        below: Risk of pods whose priority is below the key, the lowest such key counting.
        field: Named in errors.

    Raises:
        InputError: a risk outside 0.01 to 0.5, or one that falls with the priority.
    """
    bands, risk = [], LEAST_RISK
    for priority in sorted(below, reverse=True):
        bands.append(RiskBand(priority, risk))
        name = f"{field}.{priority}"
        own = require_number(name, below[priority], minimum=LEAST_RISK, maximum=MOST_RISK)
        if own < risk:
            raise InputError(name, f"at least {risk:g}, the risk of higher priorities", own)
        risk = own
    return [*bands, RiskBand(None, risk)]
