"""What each constraint costs: the plan is made again without it, within a time budget."""

from __future__ import annotations

from dataclasses import dataclass

from capacity.mix.constraint_names import constraint_names
from capacity.mix.mix_model import NoMix, SolveOptions, solve_mix
from capacity.mix.mix_problem import Goal, MixProblem
from capacity.mix.mix_solution import MixSolution
from wattpack.clock import Clock
from wattpack.errors import DeadlineExceededError
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["ConstraintCost", "Explanation", "explain_mix"]


@dataclass(frozen=True, slots=True)
class ConstraintCost:
    """One constraint and what the plan would gain without it.

    Attributes:
        constraint: Its name (``constraint_names``).
        gain: Dollars per hour saved, or share of the demand served on top.
        least_gain: What is proved: the gain less both plans' distance from their bounds.
    """

    constraint: str
    gain: float
    least_gain: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Constraints that cost something, the dearest first; for ``unasked`` no time was left."""

    costs: tuple[ConstraintCost, ...]
    free: tuple[str, ...]
    unasked: tuple[str, ...]


def explain_mix(
    problem: MixProblem, solution: MixSolution, clock: Clock, seconds: float = 10.0
) -> Explanation:
    """What each constraint costs in the objective's unit.

    A gain inside the gap of the two plans counts as none: it may be the search's own.
    """
    end_ns = clock.monotonic_ns() + seconds_to_ns(seconds)
    costs, free, unasked = [], [], []
    for name in constraint_names(problem):
        left_seconds = (end_ns - clock.monotonic_ns()) / NS_PER_SECOND
        options = SolveOptions(seconds=min(2.0, left_seconds), without=frozenset({name}))
        try:
            other = solve_mix(problem, options) if left_seconds > 0 else None
        except (DeadlineExceededError, NoMix):
            other = None
        if other is None:
            unasked.append(name)
            continue
        cost = _gain(problem, name, solution, other)
        if cost.gain > _noise(problem, solution):
            costs.append(cost)
        else:
            free.append(name)
    costs.sort(key=lambda cost: -cost.gain)
    return Explanation(tuple(costs), tuple(free), tuple(unasked))


def _gain(
    problem: MixProblem, name: str, solution: MixSolution, other: MixSolution
) -> ConstraintCost:
    if problem.goal is Goal.MOST_REQUESTS:
        gain = other.served_fraction - solution.served_fraction
        return ConstraintCost(name, gain, max(0.0, other.served_fraction - solution.bound))
    gain = solution.costs.total - other.costs.total
    return ConstraintCost(name, gain, max(0.0, solution.bound - other.costs.total))


def _noise(problem: MixProblem, solution: MixSolution) -> float:
    """Of the objective: what two searches for the same plan may differ by."""
    size = 1.0 if problem.goal is Goal.MOST_REQUESTS else solution.costs.total
    return max(1e-6, solution.gap) * size
