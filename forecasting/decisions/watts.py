"""Watts that may be promised, and watts that still fit: what draws together peaks together.

The breaker is kept by the power loop whatever is decided here (I1 to I10): these amounts decide how
often it has to cap, and whom.
"""

from __future__ import annotations

from collections.abc import Mapping

from forecasting.decisions.amounts import highest_within, within_risk
from forecasting.decisions.decision import Decision
from forecasting.series_source import Floats
from wattpack.units import require_number


def promisable_watts(
    draws: Floats, limit_watts: float, promised_watts: float, risks: Mapping[str, float]
) -> dict[str, Decision]:
    """Watts that may be promised in a domain by each priority, beyond what is promised now.

    What is promised draws less than it may; the room that this leaves is promised once more. A
    promise of low priority may count on room that is there most of the time, since it is capped
    first; one of high priority only on what is nearly always there.

    Called by the controller for each PowerDomain that has a forecast, which tells it as advice: it
    sets no budget, and the planner of pods does not ask it.

    Args:
        draws: Joint paths of the domain's draw, shape (n, horizon), watts.
        limit_watts: Upper edge of the domain's cap band.
        promised_watts: Sum of what is promised.
        risks: By priority the share of windows in which it may be capped: 0.28 of a week's 28 are
            0.01.

    Returns:
        By priority the watts above ``promised_watts``; without any risk none beyond the limit.
    """
    require_number("limitWatts", limit_watts, exclusive_minimum=0)
    require_number("promisedWatts", promised_watts, minimum=0)
    peaks = highest_within(draws)
    return {
        name: _promisable(peaks, limit_watts, promised_watts, risk) for name, risk in risks.items()
    }


def _promisable(peaks: Floats, limit: float, promised: float, risk: float) -> Decision:
    need = within_risk(peaks, risk)
    if promised <= 0:
        return need.because("limit", limit, "nothing is promised yet")
    # What is promised more draws as what is promised now does: a share of it at the same moments.
    drawn_share = need.amount / promised
    most = limit / drawn_share if drawn_share > 0 else limit
    room = max(0.0, (limit if risk == 0 else max(most, 0.0)) - promised)
    told = f"{drawn_share:.1%} of what is promised is drawn at the peak"
    return need.because("risk" if risk else "limit", room, told)
