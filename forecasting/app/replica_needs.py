"""Says in the statuses of a round how many replicas each service should have, without flutter.

What was decided by minutes (``replica_minutes``) counts; the steps of the round's forecast decide
for services whose minutes nobody has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forecasting.app.replica_minutes import MinuteAnswers
from forecasting.app.replica_steadiness import as_told, steadied_replicas, with_lowerings
from forecasting.decisions import SteadyState
from forecasting.lead_time import StepWindow
from forecasting.prewarming.replica_need import (
    LONGEST_START_SECONDS,
    ExpectedDemand,
    needed_replicas,
)
from forecasting.prewarming.start_times import StartTimes
from forecasting.round.target_forecast import TargetForecast
from forecasting.targets import TargetKey
from forecasting.token_statuses import TokenOutlook
from wattpack.api.demand_forecast import ForecastLead
from wattpack.api.forecast_replicas import ReplicaNeed, ReplicaRule
from wattpack.kube.port import JsonObject

Status = dict[str, Any]

HOLD_SECONDS: Final = 1800.0
"""Where a rule names none: three rounds (assumed)."""


@dataclass(frozen=True, slots=True)
class BesideForecasts:
    """What a round knows of its targets beside their forecasts.

    Attributes:
        leads: Starts of what runs there.
        tokens: Of the requests, where these are told.
    """

    leads: Mapping[TargetKey, ForecastLead]
    tokens: Mapping[TargetKey, TokenOutlook]


class ReplicaNeeds:
    """Remembers what it asked for: more at once, fewer after the hold and not too often.

    Args:
        interval_seconds: Between rounds.
        minutes: What is decided between them.
    """

    def __init__(self, interval_seconds: float, minutes: MinuteAnswers) -> None:
        self._interval_seconds = interval_seconds
        self._minutes = minutes
        self._steady: dict[TargetKey, SteadyState] = {}

    def add_to(
        self,
        statuses: Mapping[TargetKey, Status],
        answers: Sequence[TargetForecast],
        bodies: Mapping[TargetKey, JsonObject],
        beside: BesideForecasts,
        now_seconds: float,
        monotonic_seconds: float,
    ) -> None:
        """Fill ``replicas`` of those that ask for it and whose forecast is ready.

        Nothing new is said where tokens count and nobody ever told how long requests are.

        Args:
            statuses: Of this round, changed here.
            answers: Of this round.
            bodies: Objects as they were read.
            beside: What else is known of them.
            now_seconds: Unix time.
            monotonic_seconds: Of a clock that is never set.
        """
        self._minutes.learned({one.target.key: one.events for one in answers if one.made})
        self._steady = {key: state for key, state in self._steady.items() if key in statuses}
        for answer in answers:
            key = answer.target.key
            asked = (bodies[key].get("spec") or {}).get("replicas")
            if asked is None or key not in statuses:
                continue
            if (by_minutes := self._minutes.fresh(key, now_seconds)) is not None:
                statuses[key]["replicas"] = by_minutes.to_json()
                self._steady.pop(key, None)
                continue
            if not _is_ready(statuses[key]):
                continue
            lead = beside.leads.get(key)
            rule = ReplicaRule.model_validate(asked)
            outlook = None if rule.token_rate is None else beside.tokens.get(key)
            demand = _demand(answer, rule, outlook)
            if demand is None:
                continue
            need = self._need(
                key,
                rule,
                demand,
                LONGEST_START_SECONDS if lead is None else lead.seconds,
                (now_seconds, monotonic_seconds),
                (bodies[key].get("status") or {}).get("replicas"),
            )
            if need is not None and outlook is not None:
                reason = f"{need.reason}; {outlook.lengths}"[:512]
                need = need.model_copy(update={"reason": reason})
            if need is not None:
                statuses[key]["replicas"] = need.to_json()

    def _need(
        self,
        key: TargetKey,
        rule: ReplicaRule,
        demand: ExpectedDemand,
        start_seconds: float,
        now: tuple[float, float],
        told: object,
    ) -> ReplicaNeed | None:
        if rule.start_seconds is not None:
            start_seconds = rule.start_seconds
        now_seconds, monotonic_seconds = now
        starts = StartTimes(start_seconds, self._interval_seconds)
        wish = needed_replicas(rule, demand, now_seconds, starts)
        if wish is None:
            return None
        before = self._steady.get(key) or as_told(told, now_seconds, monotonic_seconds)
        hold_seconds = HOLD_SECONDS if rule.hold_seconds is None else rule.hold_seconds
        steady, self._steady[key] = steadied_replicas(
            wish, monotonic_seconds, before, rule, hold_seconds
        )
        need = ReplicaNeed(
            count=round(steady.amount),
            within_seconds=round(start_seconds + self._interval_seconds, 1),
            short_risk=None if math.isnan(wish.shortfall_share) else wish.shortfall_share,
            reason=steady.reason[:512],
        )
        return with_lowerings(need, self._steady[key], now_seconds)


def _demand(
    answer: TargetForecast, rule: ReplicaRule, outlook: TokenOutlook | None
) -> ExpectedDemand | None:
    """In the unit that the rule counts; None where nobody knows it."""
    made, row = answer.made, answer.row
    if made is None or (rule.token_rate is not None and outlook is None):
        return None
    window = StepWindow(made.data_until_seconds, answer.target.step_seconds)
    quantiles, newest = made.quantiles[row], float(made.now[row])
    if outlook is not None:
        quantiles, newest = outlook.demand.steps, outlook.now_rate
    if not math.isfinite(newest):
        return None
    return ExpectedDemand(window, made.levels, quantiles, newest)


def _is_ready(status: Status) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status["conditions"])
