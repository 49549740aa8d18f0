"""One question answered: the mix, what constraints cost, what is saved; and it all as a status."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from capacity.mix.mix_conflict import plan_mix
from capacity.mix.mix_explain import Explanation, explain_mix
from capacity.mix.mix_model import NoMix, SolveOptions, solve_mix
from capacity.mix.mix_problem import Goal, MixLimits, MixProblem, Phase, Tier
from capacity.mix.mix_solution import MixSolution
from capacity.mix.predicted_rates import RateMargin
from wattpack.api.capacity_plan import (
    MAX_COSTS,
    MAX_SERVES,
    BucketDemand,
    CapacityPlanStatus,
    ConstraintCostStatus,
    CountedRates,
    PlannedCosts,
    PlannedReplicas,
)
from wattpack.clock import Clock
from wattpack.errors import DeadlineExceededError

__all__ = ["Answer", "AnswerOptions", "answer_mix", "counted_rates", "status_of"]

_FIGURES = 8


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What an answer may take.

    Attributes:
        seconds: Wall time of the search; explaining and finding a conflict take up to five times
            as long each.
        explains: Whether to tell what constraints cost.
        keep_owned_within_cost_ratio: Use as few boards that are not owned as this multiple of the
            least cost allows; None: cost alone decides.
    """

    seconds: float = 2.0
    explains: bool = True
    keep_owned_within_cost_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A problem with its plan, and why it is this one.

    Attributes:
        problem: As it was solved for the plan.
        solution: The plan.
        explanation: What constraints cost the cheapest mix; None if nobody asked.
        saved_fraction: Of the cost of what runs today; None if nothing does.
        cheapest: The least-cost mix where keeping owned GPUs made the plan another one.
    """

    problem: MixProblem
    solution: MixSolution
    explanation: Explanation | None
    saved_fraction: float | None
    cheapest: MixSolution | None = None


def answer_mix(problem: MixProblem, clock: Clock, options: AnswerOptions) -> Answer:
    """The plan within the time allowed.

    Raises:
        InfeasibleMix: naming the constraints and demands that conflict.
        DeadlineExceededError: if nothing was found or proved in time.
        PermanentError: if the checker refuses the answer, which is a bug.
    """
    seconds = options.seconds
    cheapest = plan_mix(problem, clock, seconds)
    explanation = None
    if options.explains:
        explanation = explain_mix(problem, cheapest, clock, 5 * seconds)
    solution, solved, ratio = cheapest, problem, options.keep_owned_within_cost_ratio
    if ratio is not None and problem.goal is Goal.LEAST_COST:
        solved = _keeping(problem, cheapest, ratio)
        solution = plan_mix(solved, clock, seconds)
    return Answer(
        solved,
        solution,
        explanation,
        _saved(problem, solution, seconds),
        None if solution.replicas == cheapest.replicas else cheapest,
    )


def _keeping(problem: MixProblem, cheapest: MixSolution, ratio: float) -> MixProblem:
    """The same demand on as few boards that are not owned as so much more money allows."""
    most = cheapest.costs.total * ratio * (1 + 1e-9) or 1e-6
    stated = problem.limits.dollars_per_hour
    limits = MixLimits(most if stated is None else min(most, stated), problem.limits.grams_per_hour)
    return dataclasses.replace(problem, goal=Goal.LEAST_NEW_GPUS, limits=limits)


def _saved(problem: MixProblem, solution: MixSolution, seconds: float) -> float | None:
    """Share of the cost of what runs today, at its best caps; None if nothing does or it fails."""
    runs = any(sum(offer.running_replicas.values()) for offer in problem.offers)
    if not runs or problem.goal is not Goal.LEAST_COST:
        return None
    try:
        today = solve_mix(problem, SolveOptions(seconds=seconds, holds_running=True))
    except (NoMix, DeadlineExceededError):
        return None
    return 1.0 - solution.costs.total / today.costs.total if today.costs.total else 0.0


def counted_rates(answer: Answer, margin: RateMargin | None = None) -> CountedRates | None:
    """Lower over mean rates of what the plan serves in hard tiers; None if there is none.

    Args:
        margin: Of predicted rates; None if all were given.
    """
    rates = {shape.name: shape.rates for shape in answer.problem.shapes}
    hard = {bucket.name for bucket in answer.problem.buckets if bucket.tier is Tier.HARD}
    used = [rates[row.shape][row.bucket, row.phase] for row in answer.solution.served
            if row.bucket in hard]  # fmt: skip
    shares = [_rounded(rate.lower_requests_per_second / rate.requests_per_second) for rate in used]
    if not shares:
        return None
    return CountedRates(
        least_share=min(shares),
        most_share=max(shares),
        time_factor=margin.time_factor if margin else None,
        confidence=margin.confidence if margin else None,
    )


def status_of(
    answer: Answer,
    demand: Mapping[str, float],
    margin: RateMargin | None = None,
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> CapacityPlanStatus:
    """The figures of a status; who solved it when, and conditions, are the caller's.

    Args:
        demand: Requests a second by bucket.
        margin: Of predicted rates; None if all were given.
        reasons: How forecasts decided the demand, by bucket.
    """
    solution, costs = answer.solution, answer.solution.costs
    shapes = {shape.name: shape for shape in answer.problem.shapes}
    serves: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in sorted(solution.served, key=lambda row: (-row.share, row.bucket, row.phase)):
        phase = "" if row.phase is Phase.WHOLE else f" {row.phase.value}"
        serves[row.offer, row.shape].append(f"{row.bucket}{phase} {row.share:.1%}")
    return CapacityPlanStatus(
        counted_rates=counted_rates(answer, margin),
        demand=[
            BucketDemand(bucket=name, requests_per_second=_rounded(rate), reason=reasons.get(name))
            for name, rate in demand.items()
        ],
        cost_per_hour=_rounded(costs.total),
        costs=PlannedCosts(
            rent=_rounded(costs.rent),
            energy=_rounded(costs.energy),
            carbon=_rounded(costs.carbon),
            start=_rounded(costs.start),
        ),
        power_watts=_rounded(solution.mean_watts),
        p99_watts=_rounded(solution.p99_watts),
        operational_grams_per_hour=_rounded(solution.operational_grams_per_hour),
        embodied_grams_per_hour=_rounded(solution.embodied_grams_per_hour),
        served_fraction=_rounded(solution.served_fraction),
        replicas=[
            PlannedReplicas(
                gpu_model=shapes[row.shape].gpu_model,
                cap_watts=shapes[row.shape].cap_watts,
                gpus=shapes[row.shape].gpus,
                replicas=row.replicas,
                offer=row.offer,
                serves=serves[row.offer, row.shape][:MAX_SERVES],
            )
            for row in solution.replicas
        ],
        constraint_costs=_constraint_costs(answer.explanation),
        gap=_rounded(solution.gap),
        saved_fraction=None if answer.saved_fraction is None else _rounded(answer.saved_fraction),
    )


def _constraint_costs(explanation: Explanation | None) -> list[ConstraintCostStatus]:
    if explanation is None:
        return []
    return [
        ConstraintCostStatus(
            constraint=cost.constraint,
            gain=_rounded(cost.gain),
            least_gain=_rounded(cost.least_gain),
        )
        for cost in explanation.costs[:MAX_COSTS]
    ]


def _rounded(value: float) -> float:
    """Eight figures: the last digits of a solver would otherwise be a change worth a write."""
    return float(f"{value:.{_FIGURES}g}")
