"""How often replicas may be lowered, and how that outlives a restart: in the status.

Raising is never held back. What was lowered within the last hour stands beside the count, so that a
forecaster that starts again, or takes over from another one, has no hour of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forecasting.decisions import ChangeLimits, Decision, SteadyState, steadied
from forecasting.told_time import told_seconds
from wattpack.api.forecast_replicas import ReplicaNeed, ReplicaRule
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns


def steadied_replicas(
    wish: Decision, now_seconds: float, state: SteadyState, rule: ReplicaRule, hold_seconds: float
) -> tuple[Decision, SteadyState]:
    """Fewer after the hold and at most so often in any hour, more at once, never above ``most``.

    Args:
        wish: Within the rule's bounds.
        now_seconds: Monotonic.
        state: From the call before, or ``as_told``.
        rule: Of the object.
        hold_seconds: 0 where somebody else holds.
    """
    limits = ChangeLimits(hold_seconds=hold_seconds, most_changes=rule.most_lowerings, urgent="up")
    made, after = steadied(wish, now_seconds, state, limits)
    if made.amount <= rule.most:
        return made, after
    # There is room for no more since somebody said so.
    told = f"{rule.most} replicas are the most"
    return made.because("limit", rule.most, told), replace(after, amount=rule.most)


def with_lowerings(need: ReplicaNeed, state: SteadyState, now_seconds: float) -> ReplicaNeed:
    """The need with what is to be remembered of its past hour.

    Args:
        need: As decided.
        state: After the decision.
        now_seconds: Unix time of the decision.
    """
    lowered = [at for at, moved in state.changes if moved < 0]
    if not lowered:
        return need
    at_seconds = now_seconds - (state.at_seconds - lowered[-1])
    told = {"lowerings": len(lowered), "lowered_at": rfc3339(seconds_to_ns(at_seconds))}
    return need.model_copy(update=told)


def as_told(told: object, now_seconds: float, monotonic_seconds: float) -> SteadyState:
    """In force since just now, if an earlier process said something: a restart drops no replica.

    All of its lowerings count as young as the last one was: only how many they were is known.

    Args:
        told: ``status.replicas`` as it is stored, whoever wrote it.
        now_seconds: Unix time.
        monotonic_seconds: Of a clock that is never set.
    """
    count = told.get("count") if isinstance(told, Mapping) else None
    if not isinstance(told, Mapping) or not isinstance(count, int):
        return SteadyState()
    age_seconds = _age_seconds(told.get("loweredAt"), now_seconds)
    lowerings = told.get("lowerings") if age_seconds is not None else 0
    times = lowerings if isinstance(lowerings, int) else 0
    changes = ((monotonic_seconds - (age_seconds or 0.0), -1.0),) * times
    return SteadyState(count, changes, ((monotonic_seconds, count),), monotonic_seconds)


def _age_seconds(text: object, now_seconds: float) -> float | None:
    """Since that time, none in the future; None for no time."""
    at_seconds = told_seconds(text)
    return None if at_seconds is None else max(0.0, now_seconds - at_seconds)
