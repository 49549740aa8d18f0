"""Says in the statuses of a round how many replicas each service should have, without flutter.

What was decided by minutes (``replica_minutes``) counts; the steps of the round's forecast decide
for services whose minutes nobody has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from wattpack.api.demand_forecast import ForecastLead
from wattpack.api.forecast_replicas import ReplicaNeed, ReplicaRule
from wattpack.kube.port import JsonObject

Status = dict[str, Any]

HOLD_SECONDS: Final = 1800.0
"""Where a rule names none: three rounds (assumed)."""


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
        before = self._steady.get(target.key) or as_told(told, now_seconds, monotonic_seconds)
        hold_seconds = HOLD_SECONDS if rule.hold_seconds is None else rule.hold_seconds
        steady, self._steady[target.key] = steadied_replicas(
            wish, monotonic_seconds, before, rule, hold_seconds
        )
        need = ReplicaNeed(
            count=round(steady.amount),
            within_seconds=round(start_seconds + self._interval_seconds, 1),
            short_risk=None if math.isnan(wish.shortfall_share) else wish.shortfall_share,
            reason=steady.reason[:512],
        )
        return with_lowerings(need, self._steady[target.key], now_seconds)


def _is_ready(status: Status) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status["conditions"])
