"""Says in the statuses of a round how many replicas each service should have, without flutter.

What was decided by minutes (``replica_minutes``) counts; the steps of the round's forecast decide
for services whose minutes nobody has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from forecasting.app.replica_minutes import MinuteAnswers
from forecasting.decisions import ChangeLimits, SteadyState, steadied
from forecasting.lead_time import StepWindow
from forecasting.prewarming.replica_need import (
    LONGEST_START_SECONDS,
    ExpectedDemand,
    needed_replicas,
)
from forecasting.prewarming.start_times import StartTimes
from forecasting.round.target_forecast import TargetForecast
from forecasting.targets import TargetKey
from wattpack.api.demand_forecast import ForecastLead, ReplicaNeed, ReplicaRule
from wattpack.kube.port import JsonObject

Status = dict[str, Any]

HOLD_SECONDS: Final = 1800.0
"""Where a rule names none: three rounds (assumed)."""


class ReplicaNeeds:
    """Remembers what it asked for: more at once, fewer after the hold.

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
        bodies: Mapping[tuple[str, str], JsonObject],
        leads: Mapping[TargetKey, ForecastLead],
        now_seconds: float,
        monotonic_seconds: float,
    ) -> None:
        """Fill ``replicas`` of those that ask for it and whose forecast is ready.

        Args:
            statuses: Of this round, changed here.
            answers: Of this round.
            bodies: Objects as they were read.
            leads: Starts of what runs there.
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
            lead = leads.get(key)
            need = self._need(
                answer,
                ReplicaRule.model_validate(asked),
                LONGEST_START_SECONDS if lead is None else lead.seconds,
                (now_seconds, monotonic_seconds),
                (bodies[key].get("status") or {}).get("replicas"),
            )
            if need is not None:
                statuses[key]["replicas"] = need.to_json()

    def _need(
        self,
        answer: TargetForecast,
        rule: ReplicaRule,
        start_seconds: float,
        now: tuple[float, float],
        told: object,
    ) -> ReplicaNeed | None:
        made, target = answer.made, answer.target
        if made is None or not math.isfinite(newest := float(made.now[answer.row])):
            return None
        if rule.start_seconds is not None:
            start_seconds = rule.start_seconds
        now_seconds, monotonic_seconds = now
        window = StepWindow(made.data_until_seconds, target.step_seconds)
        demand = ExpectedDemand(window, made.levels, made.quantiles[answer.row], newest)
        starts = StartTimes(start_seconds, self._interval_seconds)
        wish = needed_replicas(rule, demand, now_seconds, starts)
        if wish is None:
            return None
        before = self._steady.get(target.key) or _as_told(told, monotonic_seconds)
        hold_seconds = HOLD_SECONDS if rule.hold_seconds is None else rule.hold_seconds
        limits = ChangeLimits(hold_seconds=hold_seconds, urgent="up")
        steady, self._steady[target.key] = steadied(wish, monotonic_seconds, before, limits)
        return ReplicaNeed(
            count=round(steady.amount),
            within_seconds=round(start_seconds + self._interval_seconds, 1),
            short_risk=None if math.isnan(wish.shortfall_share) else wish.shortfall_share,
            reason=steady.reason[:512],
        )


def _is_ready(status: Status) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status["conditions"])


def _as_told(told: object, now_seconds: float) -> SteadyState:
    """In force since just now, if an earlier process said something: a restart drops no replica."""
    count = told.get("count") if isinstance(told, Mapping) else None
    if not isinstance(count, int):
        return SteadyState()
    return SteadyState(count, (), ((now_seconds, count),), now_seconds)
