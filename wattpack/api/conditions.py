"""Conditions as metav1.Condition wants them: transition times, generations, one entry a type."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from wattpack.api.object_meta import Condition, ConditionStatus
from wattpack.errors import InputError
from wattpack.times import rfc3339

MAX_MESSAGE_LENGTH = 32768


@dataclass(frozen=True, slots=True)
class Finding:
    """What a judge says of one type of condition.

    Attributes:
        type: Of the condition.
        holds: True, False, or None for Unknown.
        reason: One CamelCase word.
        message: For people, with the cause; cut to what the API takes.

    Raises:
        InputError: for an empty message; who reads a condition wants to know why.
    """

    type: str
    holds: bool | None
    reason: str
    message: str

    def __post_init__(self) -> None:
        if not self.message:
            raise InputError(f"conditions.{self.type}.message", "the cause in words", self.message)


_STATUS = {
    True: ConditionStatus.TRUE,
    False: ConditionStatus.FALSE,
    None: ConditionStatus.UNKNOWN,
}


def set_condition(
    conditions: Sequence[Condition],
    finding: Finding,
    *,
    observed_generation: int,
    wall_time_ns: int,
) -> list[Condition]:
    """The conditions with one set; its transition time moves only when its status does.

    Args:
        conditions: The present ones.
        finding: What to say.
        observed_generation: The generation that was judged.
        wall_time_ns: Now.
    """
    wanted = _STATUS[finding.holds]
    present = find_condition(conditions, finding.type)
    is_same = present is not None and present.status == wanted and present.last_transition_time
    new = Condition(
        type=finding.type,
        status=wanted,
        reason=finding.reason,
        message=finding.message[:MAX_MESSAGE_LENGTH],
        observed_generation=observed_generation,
        last_transition_time=present.last_transition_time
        if present is not None and is_same
        else rfc3339(wall_time_ns),
    )
    if present is None:
        return [*conditions, new]
    return [new if condition.type == finding.type else condition for condition in conditions]


def own_conditions(conditions: Sequence[Condition], types: Collection[str]) -> list[Condition]:
    """Those of the types that a writer tells itself.

    Server-side apply keeps what others tell; who repeats it owns it from then on, and a list full
    of others' conditions has no room for one's own.
    """
    return [condition for condition in conditions if condition.type in types]


def find_condition(conditions: Sequence[Condition], type: str) -> Condition | None:
    """The condition of a type, or None."""
    return next((condition for condition in conditions if condition.type == type), None)


def is_true(conditions: Sequence[Condition], type: str) -> bool:
    """Whether the condition is there and True."""
    condition = find_condition(conditions, type)
    return condition is not None and condition.status == ConditionStatus.TRUE
