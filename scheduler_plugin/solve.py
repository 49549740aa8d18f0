"""Snapshot in, plan out: incumbent, bound, search where it can help, judge, explain.

Pure: no I/O, no threads, no clock but one that is given. With one worker and without a wall limit
the same snapshot, budget and seed give the same plan; the hard deadline is the business of
``scheduler_plugin.app.solver_process``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from scheduler_plugin.checker import complaints
from scheduler_plugin.move_advice import with_moves
from scheduler_plugin.objective import demanded_values, placed_values
from scheduler_plugin.pending_causes import explain_pending
from scheduler_plugin.plan_document import Pending, PendingReason, Placement, Plan, Statistics, Tier
from scheduler_plugin.problem import compile_problem
from scheduler_plugin.search import (
    WORK_PER_SECOND,
    Search,
    SearchSettings,
    cumulative,
    improve_all,
)
from scheduler_plugin.snapshot import Pod, PodState, Snapshot
from scheduler_plugin.steps import changes, in_order

__all__ = ["SearchSettings", "plan", "refused"]

OnPlan = Callable[[Plan], None]


def plan(
    snapshot: Snapshot,
    *,
    deadline_seconds: float = 1.0,
    seed: int = 0,
    settings: SearchSettings | None = None,
    on_plan: OnPlan | None = None,
) -> Plan:
    """A plan that the independent checker accepts; never worse than the greedy incumbent.

    Args:
        snapshot: What is known.
        deadline_seconds: About what the search may take, counted in deterministic work; the
            incumbent comes on top.
        seed: Of the search.
        settings: Of the search; None for one worker, as long as it takes, no moves.
        on_plan: Called with the incumbent's plan before CP-SAT starts, and after improvements.
    """
    settings = settings or SearchSettings()
    began_ns = 0 if settings.clock is None else settings.clock.monotonic_ns()
    digest = snapshot.digest()
    problem = compile_problem(snapshot, moves=settings.moves)
    work = deadline_seconds * WORK_PER_SECOND
    search = Search(problem, work, seed, settings, began_ns)
    greedy_plan = _judged(_assemble(search, digest, "greedy"), snapshot, digest)
    if on_plan is not None:
        on_plan(greedy_plan)
    before = search.best_objective
    if not search.done():
        improve_all(search)
    if search.best_objective == before and not search.proved:
        return greedy_plan
    method: Literal["greedy", "cp_sat"] = "cp_sat" if search.improving else "greedy"
    better = _judged(_assemble(search, digest, method), snapshot, digest)
    if better.refusals:
        return greedy_plan.model_copy(update={"refusals": better.refusals + greedy_plan.refusals})
    return better


def _assemble(search: Search, digest: str, method: Literal["greedy", "cp_sat"]) -> Plan:
    """The plan of the best assignment."""
    problem = search.problem
    found = changes(problem, search.best)
    placements = (
        Placement(
            uid=one.uid,
            node=problem.node_names[one.node],
            gang=problem.classes[one.class_index].pod.gang,
            watts=int(problem.watts[one.class_index, one.node]),
            boards=one.boards,
        )
        for one in found.arrivals
        if one.source < 0
    )
    tiers = _tiers(search)
    return Plan(
        snapshot_digest=digest,
        method=method,
        placements=tuple(sorted(placements, key=lambda p: p.uid)),
        pending=with_moves(problem, search.best, explain_pending(problem, search.best)),
        steps=in_order(problem, found),
        tiers=tiers,
        objective=search.best_objective,
        gap=max(
            (1 - t.cumulative_value / t.bound_value for t in tiers if t.bound_value), default=0.0
        ),
        statistics=Statistics(
            nodes=len(problem.node_names),
            pending_pods=sum(len(c.uids) for c in problem.classes) + len(problem.blocked),
            pod_classes=len(problem.classes),
            rounds=search.rounds,
            improving_rounds=search.improving,
            deterministic_time=round(search.solver_work, 6),
            incumbent_value=search.start_values,
        ),
    )


def _tiers(search: Search) -> tuple[Tier, ...]:
    problem = search.problem
    placed = placed_values(problem, search.best)
    rows = zip(
        problem.tiers,
        demanded_values(problem),
        placed,
        cumulative(placed),
        search.tier_bounds(),
        strict=True,
    )
    return tuple(
        Tier(
            priority=priority,
            demanded_value=demanded,
            placed_value=value,
            cumulative_value=cumulative,
            bound_value=bound,
        )
        for priority, demanded, value, cumulative, bound in rows
    )


def _judged(candidate: Plan, snapshot: Snapshot, digest: str) -> Plan:
    """The plan if the checker accepts it, otherwise one that places nothing and says why."""
    refusals = complaints(snapshot, candidate, digest=digest)
    return refused(snapshot, digest, refusals) if refusals else candidate


def refused(snapshot: Snapshot, digest: str, why: tuple[str, ...]) -> Plan:
    """Nothing is placed; every waiting pod says that its plan was refused."""

    def entry(pod: Pod) -> Pending:
        return Pending(
            uid=pod.uid, gang=pod.gang, reason=PendingReason.PLAN_REFUSED, message=why[0][:500]
        )

    waiting = [p for p in snapshot.pods if p.state in (PodState.PENDING, PodState.ABSENT)]
    return Plan(
        snapshot_digest=digest,
        method="none",
        pending=tuple(entry(pod) for pod in waiting),
        gap=1.0 if waiting else 0.0,
        refusals=why,
    )
