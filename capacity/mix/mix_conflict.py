"""Why a demand cannot be met: the smallest set of constraints that cannot be kept together.

First one set from which nothing can be left out (deletion filter: Chinneck, Feasibility and
Infeasibility in Optimization, 2008, section 6.1), then a search for smaller ones, within a time
budget. Only what is proved infeasible counts as a conflict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations

from capacity.mix.constraint_names import constraint_names
from capacity.mix.mix_checker import complaints
from capacity.mix.mix_errors import InfeasibleMix
from capacity.mix.mix_model import NoMix, SolveOptions, solve_mix
from capacity.mix.mix_problem import MixProblem
from capacity.mix.mix_solution import MixSolution
from wattpack.clock import Clock
from wattpack.errors import DeadlineExceededError, PermanentError
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["find_conflict", "plan_mix"]


def plan_mix(problem: MixProblem, clock: Clock, seconds: float = 2.0) -> MixSolution:
    """The best mix found in the time given.

    Raises:
        InfeasibleMix: naming the constraints and demands that conflict.
        DeadlineExceededError: if nothing was found or proved in time.
        PermanentError: if the checker refuses the answer, which is a bug.
    """
    try:
        solution = solve_mix(problem, SolveOptions(seconds=seconds))
    except NoMix:
        raise find_conflict(problem, clock, 5 * seconds) from None
    wrong = complaints(problem, solution)
    if wrong:
        raise PermanentError(f"the GPU mix breaks its own constraints: {'; '.join(wrong)}")
    return solution


def find_conflict(problem: MixProblem, clock: Clock, seconds: float = 10.0) -> InfeasibleMix:
    """The conflict of a problem that has no mix, as the error to raise."""
    end_ns = clock.monotonic_ns() + seconds_to_ns(seconds)
    every = constraint_names(problem)

    def has_time() -> bool:
        return clock.monotonic_ns() < end_ns

    def conflicts(kept: Iterable[str], question: MixProblem = problem) -> bool:
        left_seconds = (end_ns - clock.monotonic_ns()) / NS_PER_SECOND
        return has_time() and _has_none(question, set(every) - set(kept), left_seconds)

    names = _deleted(every, conflicts)
    names = next((c for c in _smaller(every, len(names), has_time) if conflicts(c)), names)
    is_smallest = has_time()

    def conflicts_for(buckets: tuple[str, ...]) -> bool:
        return bool(buckets) and conflicts(names, _only(problem, buckets))

    demands = _deleted(tuple(bucket.name for bucket in problem.buckets), conflicts_for)
    return InfeasibleMix(names, demands, is_smallest)


def _has_none(problem: MixProblem, without: set[str], seconds: float) -> bool:
    """Whether it is proved that there is no mix."""
    try:
        solve_mix(problem, SolveOptions(seconds=seconds, gap=1.0, without=frozenset(without)))
    except NoMix:
        return True
    except DeadlineExceededError:
        return False
    return False


def _only(problem: MixProblem, names: tuple[str, ...]) -> MixProblem:
    """The problem without the other buckets."""
    buckets = tuple(bucket for bucket in problem.buckets if bucket.name in names)
    shapes = tuple(
        dataclasses.replace(
            shape, rates={key: rate for key, rate in shape.rates.items() if key[0] in names}
        )
        for shape in problem.shapes
    )
    return dataclasses.replace(problem, buckets=buckets, shapes=shapes)


def _deleted(
    names: tuple[str, ...], conflicts: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...]:
    """What is left when everything without which the conflict stays is taken away."""
    kept = names
    for name in names:
        fewer = tuple(other for other in kept if other != name)
        if conflicts(fewer):
            kept = fewer
    return kept


def _smaller(
    names: tuple[str, ...], size: int, has_time: Callable[[], bool]
) -> Iterator[tuple[str, ...]]:
    """Every set of fewer than ``size`` names, the fewest first, until time is up."""
    for fewer in range(1, size):
        for chosen in combinations(names, fewer):
            if not has_time():
                return
            yield chosen
