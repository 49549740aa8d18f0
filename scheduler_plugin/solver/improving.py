"""What a search tries, one after the other: chains, proofs of small problems, neighbourhoods.

More is to be placed first, then the same with fewer moves, and both once more with what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.solver.neighbourhoods import Goal, Neighbourhood, Neighbourhoods, everything
from scheduler_plugin.solver.search import (
    NO_LIMIT,
    PATIENCE,
    PLACING_SHARES,
    WHOLE_MOVES_COUNTS,
    WHOLE_MOVES_SHARE,
    Attempt,
    Search,
)

__all__ = ["improve_all"]

#: Up to this many integers CP-SAT takes the whole problem (it stops helping above about 64 nodes).
WHOLE_PROBLEM_COUNTS = 3000
#: With running pods that may move, far fewer can be proved in the time that there is.
WHOLE_WITH_MOVES_COUNTS = 250
#: What such a proof may take of what is left.
PROOF_SHARE = 0.3
#: Nodes of a neighbourhood in which fewer moves are looked for, in turn.
MOVES_SIZES = (2, 3, 4)
#: Up to so many pods contents are made for all nodes at once, else for nodes with so many.
PODS_OF_CONTENTS = 140
#: Neighbourhoods of contents without a gain before the search turns to something else.
CONTENTS_PATIENCE = 10
#: Of the search, what other places of kept jobs may take before CP-SAT has its turn.
REORDER_SHARE = 0.2


def improve_all(search: Search) -> None:
    """The whole problem if it is small, else neighbourhoods around one waiting job at a time.

    Jobs that CP-SAT leaves where they are get other places between its turns. What is left of the
    budget when nothing more comes in is spent on fewer moves.
    """
    problem = search.problem
    jobs = [job for job in search.jobs if search.kept.isdisjoint(job.classes)]
    if not jobs:
        search.reorder()
        return
    could, whole = everything(problem)
    integers = int(could.sum())
    if integers <= WHOLE_PROBLEM_COUNTS and not problem.start:
        search.tighten()
        search.reorder(search.progress() + REORDER_SHARE)
        _prove(search, whole)
        return
    jobs = [job for job in jobs if all(could[c].any() for c in job.classes)]
    search.short_chains(jobs)
    search.tighten()
    search.reorder(search.progress() + REORDER_SHARE)
    if integers <= WHOLE_WITH_MOVES_COUNTS and not search.done():
        proved = search.attempt(whole, Goal.PROOF, NO_LIMIT, PROOF_SHARE).proved
        search.proved = proved and not search.kept
    neighbourhoods = Neighbourhoods(problem, could, search.random)
    for share in PLACING_SHARES:
        _place_more(search, neighbourhoods, jobs, share)
        _move_less(search, neighbourhoods, whole if integers <= WHOLE_MOVES_COUNTS else None)


def _prove(search: Search, whole: Neighbourhood) -> None:
    """No better assignment is there, or the budget is spent."""
    # CP-SAT counts wall time: of a limit in CPU time one call leaves most on a busy machine.
    while not search.done():
        proved = search.attempt(whole, Goal.PROOF, NO_LIMIT).proved
        # Where some jobs stay as they are, another place for them might let more in.
        search.proved = proved and not search.kept
        if proved and search.kept and not search.reorder():
            return


def _place_more(
    search: Search, neighbourhoods: Neighbourhoods, jobs: Sequence[Job], share: float
) -> None:
    fruitless = turn = 0
    while fruitless < PATIENCE and not search.done():
        if search.problem.start and search.progress() > share:
            return
        turn += 1
        around = neighbourhoods.next_one(search.packing, jobs, turn)
        if around is None:
            return
        better = search.attempt(around, Goal.BETTER).better
        fruitless = 0 if better else fruitless + 1


def _move_less(search: Search, neighbourhoods: Neighbourhoods, whole: Neighbourhood | None) -> None:
    """Fewer moves for the same placed values."""
    if not search.moves_more_than_one() or search.is_over():
        return
    search.take_moves_back()
    if _other_contents(search, neighbourhoods):
        return
    if (
        whole is not None
        and search.attempt(whole, Goal.FEWER_MOVES, NO_LIMIT, WHOLE_MOVES_SHARE).proved
    ):
        return
    fruitless = turn = 0
    while fruitless < PATIENCE and search.moves_more_than_one() and not search.is_over():
        turn += 1
        size = MOVES_SIZES[turn % len(MOVES_SIZES)]
        around = neighbourhoods.around_moves(search.packing, size)
        if around is None:
            return
        better = search.attempt(around, Goal.FEWER_MOVES).better
        fruitless = 0 if better else fruitless + 1


def _other_contents(search: Search, neighbourhoods: Neighbourhoods) -> bool:
    """All nodes together if they are few, else some around a move at a time; if none is missed."""
    problem = search.problem
    nodes, pods = len(problem.node_names), int(problem.counts.sum())
    if pods <= PODS_OF_CONTENTS:
        whole = Neighbourhood(range(len(problem.classes)), range(nodes))
        made = Attempt(better=True, proved=False)
        while made.better and search.moves_more_than_one() and not search.is_over():
            made = search.change_contents(whole)
        return made.proved
    fruitless, size = 0, max(2, nodes * PODS_OF_CONTENTS // pods)
    while fruitless < CONTENTS_PATIENCE and search.moves_more_than_one() and not search.is_over():
        around = neighbourhoods.around_moves(search.packing, size)
        if around is None:
            return True
        fruitless = 0 if search.change_contents(around).better else fruitless + 1
    return False
