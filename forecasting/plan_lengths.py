"""How long answers are that a CapacityPlan is solved for, where its forecasts are asked for that.

A mean moves with every round. What was planned for stays until it is 5 % and more away, and longer
where it only fell and the answer is young, as with the demand: it stands in the object's status, so
that neither a restart nor a second replica solves what is answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forecasting.plan_due import MOVED_SHARE, is_young
from wattpack.api.capacity_plan import BucketDemand, CapacityPlan
from wattpack.api.capacity_question import MOST_TOKENS, CapacityPlanSpec

__all__ = ["PlannedLength", "planned_lengths", "rows_with", "spec_with"]

#: Of a reason in a status.
_LONGEST = 512


@dataclass(frozen=True, slots=True)
class PlannedLength:
    """Of one bucket's answers.

    Attributes:
        tokens: To plan for.
        reason: Where they come from.
    """

    tokens: int
    reason: str


def planned_lengths(
    plan: CapacityPlan, told: Mapping[str, float], now_seconds: float, lower_seconds: float
) -> dict[str, PlannedLength]:
    """By bucket, of those that ask a forecast for their lengths.

    Args:
        plan: With the status that was said last.
        told: Mean tokens of an answer, by forecast.
        now_seconds: Unix time.
        lower_seconds: From an answer to one for less.
    """
    is_of_this_spec = plan.status.answered_generation == plan.generation
    planned = {row.bucket: row.output_tokens for row in plan.status.demand if is_of_this_spec}
    may_fall = not (is_of_this_spec and is_young(plan.status, now_seconds, lower_seconds))
    found = {}
    for bucket in plan.spec.buckets:
        if bucket.forecast is None or bucket.output_tokens is None or not bucket.follows_lengths:
            continue
        name, before = bucket.forecast.name, planned.get(bucket.name)
        if name not in told:
            tokens = before or bucket.output_tokens
            last = "planned last" if before else "stated"
            reason = f"{tokens} tokens an answer, as {last}: {name} tells none"
        else:
            tokens = _steady(told[name], before, may_fall=may_fall)
            reason = f"{tokens} tokens an answer, as {name} tells"
        found[bucket.name] = PlannedLength(tokens, reason)
    return found


def _steady(mean: float, before: int | None, *, may_fall: bool) -> int:
    wish = min(max(round(min(mean, MOST_TOKENS)), 1), MOST_TOKENS)
    if before is None:
        return wish
    is_same = abs(wish - before) <= MOVED_SHARE * before
    return before if is_same or (wish < before and not may_fall) else wish


def spec_with(spec: CapacityPlanSpec, lengths: Mapping[str, PlannedLength]) -> CapacityPlanSpec:
    """The question with these lengths in place of the stated ones."""
    if not lengths:
        return spec
    buckets = [
        bucket.model_copy(update={"output_tokens": lengths[bucket.name].tokens})
        if bucket.name in lengths
        else bucket
        for bucket in spec.buckets
    ]
    return spec.model_copy(update={"buckets": buckets})


def rows_with(
    rows: Sequence[BucketDemand], lengths: Mapping[str, PlannedLength]
) -> list[BucketDemand]:
    """Rows of a status that say which lengths were planned for, and why."""
    return [
        row.model_copy(update=_told(row, lengths[row.bucket])) if row.bucket in lengths else row
        for row in rows
    ]


def _told(row: BucketDemand, length: PlannedLength) -> dict[str, object]:
    reason = "; ".join(part for part in (row.reason, length.reason) if part)
    return {"output_tokens": length.tokens, "reason": reason[:_LONGEST]}
