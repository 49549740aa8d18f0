"""Conditions as metav1.Condition wants them: transition times, generations, one entry a type."""

from __future__ import annotations

from collections.abc import Sequence

from wattpack.api.object_meta import Condition, ConditionStatus
from wattpack.api.times import rfc3339
from wattpack.errors import InputError

MAX_MESSAGE_LENGTH = 32768


def set_condition(
    conditions: Sequence[Condition],
    type: str,
    status: ConditionStatus | bool | None,
    reason: str,
    message: str,
    *,
    observed_generation: int,
    wall_time_ns: int,
) -> list[Condition]:
    """The conditions with one set; its transition time moves only when its status does.

    Args:
        conditions: The present ones.
        type: Of the condition to set.
        status: True, False, or None for Unknown.
        reason: One CamelCase word.
        message: For people, with the cause; cut to what the API takes.
        observed_generation: The generation that was judged.
        wall_time_ns: Now.

    Raises:
        InputError: for an empty message; who reads a condition wants to know why.
    """
    if not message:
        raise InputError(f"conditions.{type}.message", "the cause in words", message)
    if status is None:
        wanted = ConditionStatus.UNKNOWN
    elif isinstance(status, bool):
        wanted = ConditionStatus.TRUE if status else ConditionStatus.FALSE
    else:
        wanted = status
    present = find_condition(conditions, type)
    is_same = present is not None and present.status == wanted and present.last_transition_time
    new = Condition(
        type=type,
        status=wanted,
        reason=reason,
        message=message[:MAX_MESSAGE_LENGTH],
        observed_generation=observed_generation,
        last_transition_time=present.last_transition_time
        if present is not None and is_same
        else rfc3339(wall_time_ns),
    )
    if present is None:
        return [*conditions, new]
    return [new if condition.type == type else condition for condition in conditions]


def find_condition(conditions: Sequence[Condition], type: str) -> Condition | None:
    """The condition of a type, or None."""
    return next((condition for condition in conditions if condition.type == type), None)


def is_true(conditions: Sequence[Condition], type: str) -> bool:
    """Whether the condition is there and True."""
    condition = find_condition(conditions, type)
    return condition is not None and condition.status == ConditionStatus.TRUE
