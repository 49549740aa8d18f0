"""What metrics show of one object: figures of an answer, or the last ones while none comes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from forecasting.forecast import FALLBACKS
from forecasting.forecast_status import has_figures
from forecasting.peak_quantiles import NAMED_LEVELS
from forecasting.round.target_forecast import TargetForecast
from forecasting.told_time import told_seconds
from wattpack.api.demand_forecast import DemandForecastStatus, ForecastLead

HISTORY_AWAY: Final = "history-away"
"""Flag of the metrics alone, while a history cannot be read: all else is of the last forecast."""


@dataclass(frozen=True, slots=True)
class ShownForecast:
    """Figures of one object.

    Attributes:
        status: As it was written; what it says of promises and tokens is shown from it.
        valid_until_seconds: After which nobody is to see them, Unix time.
        peaks: Of the window, by level.
        observed: Newest bin; None without one.
        data_until_seconds: Its end, Unix time.
        is_fallback: Whether no model made them; None for unknown.
        flags: One word each.
        lead: What may be needed until a new replica works.
    """

    status: Mapping[str, Any]
    valid_until_seconds: float = -math.inf
    peaks: Mapping[float, float] = field(default_factory=dict)
    observed: float | None = None
    data_until_seconds: float | None = None
    is_fallback: bool | None = None
    flags: tuple[str, ...] = ()
    lead: ForecastLead | None = None

    @property
    def replicas(self) -> int | None:
        """As the status says; None where it says none."""
        told = self.status.get("replicas")
        return None if told is None else int(told["count"])


def shown_of(
    answer: TargetForecast, status: Mapping[str, Any], lead: ForecastLead | None
) -> ShownForecast:
    """Of an answer of this round.

    Args:
        answer: With a forecast or without.
        status: As it is written.
        lead: Of the object.
    """
    made, row = answer.made, answer.row
    until_seconds = told_seconds(status.get("validUntil"))
    valid_until_seconds = -math.inf if until_seconds is None else until_seconds
    if made is None:
        return ShownForecast(status, valid_until_seconds, lead=lead)
    newest = float(made.now[row])
    levels = zip(made.levels, answer.peaks.tolist(), strict=True) if has_figures(answer) else ()
    is_seen = math.isfinite(newest)
    return ShownForecast(
        status,
        valid_until_seconds,
        dict(levels),
        newest if is_seen else None,
        float(made.observed_until_seconds[row]) if is_seen else None,
        made.methods[row] in FALLBACKS,
        answer.flags,
        lead,
    )


def shown_as_stored(status: Mapping[str, Any]) -> ShownForecast | None:
    """Of a status that an earlier process wrote; None for one that cannot be read."""
    try:
        told = DemandForecastStatus.model_validate(status)
    except ValidationError:
        return None
    until_seconds = told_seconds(told.valid_until)
    if until_seconds is None:
        return None
    named = {level: getattr(told, name) for name, level in NAMED_LEVELS.items()}
    return ShownForecast(
        told.to_json(),
        until_seconds,
        {level: peak for level, peak in named.items() if peak is not None},
        told.now,
        told_seconds(told.data_until),
        told.fallback,
        tuple(told.flags),
        told.lead,
    )
