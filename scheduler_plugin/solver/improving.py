"""What a search tries, one after the other: chains, proofs of small problems, neighbourhoods.

More is to be placed first, then the same with fewer moves, and both once more with what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.solver.neighbourhoods import Goal, Neighbourhood, Neighbourhoods, everything
from scheduler_plugin.solver.node_contents import plain_classes
from scheduler_plugin.solver.search import (
    NO_LIMIT,
    PATIENCE,
    PLACING_SHARES,
    WHOLE_MOVES_COUNTS,
    WHOLE_MOVES_SHARE,
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
#: Pods of the nodes whose contents are changed together: fewer at first, which takes less time.
PODS_OF_CONTENTS = (40, 60, 90, 140)
#: Such parts without a gain before larger ones have their turn.
CONTENTS_PATIENCE = 4
#: Parts of two to four nodes without a gain before contents have their turn.
FEW_TRIES = 8
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
    plain = bool(plain_classes(search.problem))
    if plain:
        _smaller_parts(search, neighbourhoods, FEW_TRIES)
        if _other_contents(search, neighbourhoods):
            return
    elif (
        whole is not None
        and search.attempt(whole, Goal.FEWER_MOVES, NO_LIMIT, WHOLE_MOVES_SHARE).proved
    ):
        return
    _smaller_parts(search, neighbourhoods, PATIENCE)


def _smaller_parts(search: Search, neighbourhoods: Neighbourhoods, patience: int) -> None:
    """Counts by class and node of two to four nodes around one move at a time."""
    fruitless = turn = 0
    while fruitless < patience and search.moves_more_than_one() and not search.is_over():
        turn += 1
        size = MOVES_SIZES[turn % len(MOVES_SIZES)]
        around = neighbourhoods.around_moves(search.packing, size)
        if around is None:
            return
        better = search.attempt(around, Goal.FEWER_MOVES).better
        fruitless = 0 if better else fruitless + 1


def _other_contents(search: Search, neighbourhoods: Neighbourhoods) -> bool:
    """Contents of some nodes around a move, then of more; whether all nodes were seen together."""
    problem = search.problem
    nodes, pods = len(problem.node_names), int(problem.counts.sum())
    together = Neighbourhood(range(len(problem.classes)), range(nodes))
    sizes = [max(2, nodes * most // pods) for most in PODS_OF_CONTENTS]
    if max(sizes[:-1]) >= nodes:
        sizes = [nodes]
    for size in sizes:
        fruitless = 0
        while fruitless < CONTENTS_PATIENCE:
            if search.is_over() or not search.moves_more_than_one():
                return False
            around = neighbourhoods.around_moves(search.packing, size)
            if around is None:
                return True
            made = search.change_contents(around if size < nodes else together)
            if size >= nodes and not made.better:
                return made.proved
            fruitless = 0 if made.better else fruitless + 1
    return False
