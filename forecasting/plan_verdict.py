"""What is said of a CapacityPlan: conditions with their reasons, over the last figures."""

from __future__ import annotations

from dataclasses import dataclass

from capacity.mix.mix_answer import Answer
from capacity.mix.mix_errors import InfeasibleMix
from wattpack.api.capacity_plan import CapacityPlan, CapacityPlanStatus, PlanReason
from wattpack.api.conditions import Finding, own_conditions, set_condition
from wattpack.errors import DeadlineExceededError, InputError

__all__ = ["PlanVerdict", "accepted", "refused", "said_of", "solved", "told_of"]

#: An answer this far from the proved bound is worth a word.
_GAP = 0.01


@dataclass(frozen=True, slots=True)
class PlanVerdict:
    """Whether the spec is understood and whether the figures answer it.

    Attributes:
        is_accepted: Whether the spec is understood.
        is_ready: Whether the figures answer it.
        reason: Why, of the condition that fails first.
        message: For people.
    """

    is_accepted: bool
    is_ready: bool
    reason: PlanReason
    message: str


def refused(error: InputError) -> PlanVerdict:
    """The spec cannot be used."""
    return PlanVerdict(False, False, PlanReason.SPEC_REFUSED, str(error))


def accepted() -> PlanVerdict:
    """The spec is understood and waits for its answer."""
    words = "this spec was not solved yet: figures below, if any, answer an earlier one"
    return PlanVerdict(True, False, PlanReason.AWAITING_ANSWER, words)


def solved(answer: Answer) -> PlanVerdict:
    """The figures answer the question."""
    gap, costs = answer.solution.gap, answer.explanation.costs if answer.explanation else ()
    words = f"proved to be within {max(gap, 1e-4):.2%} of the best"
    if costs:
        words += f"; without {costs[0].constraint} it would gain {costs[0].gain:.4g}"
    reason = PlanReason.GAP_LEFT if gap > _GAP else PlanReason.SOLVED
    return PlanVerdict(True, True, reason, words)


def told_of(error: Exception) -> PlanVerdict:
    """Why there is no answer."""
    if isinstance(error, InfeasibleMix):
        reason = PlanReason.INFEASIBLE
    elif isinstance(error, InputError):
        reason = PlanReason.RATES_UNKNOWN
    elif isinstance(error, DeadlineExceededError):
        reason = PlanReason.OUT_OF_TIME
    else:
        reason = PlanReason.SOLVER_FAILED
    return PlanVerdict(True, False, reason, str(error) or type(error).__name__)


def said_of(
    plan: CapacityPlan, figures: CapacityPlanStatus, verdict: PlanVerdict, wall_time_ns: int
) -> CapacityPlanStatus:
    """The status with these figures and this verdict; times move only when a status does."""
    conditions = own_conditions(plan.status.conditions, ("Accepted", "Ready"))
    understood = PlanReason.VALID if verdict.is_accepted else verdict.reason
    words = "the spec is understood" if verdict.is_accepted else verdict.message
    for finding in (
        Finding("Accepted", verdict.is_accepted, understood.value, words),
        Finding("Ready", verdict.is_ready, verdict.reason.value, verdict.message),
    ):
        conditions = set_condition(
            conditions, finding, observed_generation=plan.generation, wall_time_ns=wall_time_ns
        )
    return figures.model_copy(
        update={"observed_generation": plan.generation, "conditions": conditions}
    )
