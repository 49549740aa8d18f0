"""Cheaper places for as much, where nodes have prices or carbon and the problem is small.

A greedy order that has placed all that there is ends the search before CP-SAT was asked.
"""

from __future__ import annotations

from scheduler_plugin.solver.neighbourhoods import Goal, everything
from scheduler_plugin.solver.search import NO_LIMIT, WHOLE_MOVES_COUNTS, WHOLE_MOVES_SHARE, Search

__all__ = ["cheapen"]


def cheapen(search: Search) -> None:
    """One call that holds placed values, for all stages of the objective that are sums."""
    problem = search.problem
    if not problem.placement_costs or not problem.classes or search.is_over():
        return
    could, whole = everything(problem)
    if int(could.sum()) <= WHOLE_MOVES_COUNTS:
        search.attempt(whole, Goal.FEWER_MOVES, NO_LIMIT, WHOLE_MOVES_SHARE)
