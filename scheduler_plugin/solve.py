"""Snapshot in, plan out: incumbent, bound, search where it can help, explain, judge.

Pure: no I/O, no threads, no clock but one that is given. With one worker and without a wall limit
the same snapshot, budget and seed give the same plan; the hard deadline is the business of
``scheduler_plugin.app.solver_process``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from scheduler_plugin.documents.plan_document import (
    Pending,
    PendingReason,
    Placement,
    Plan,
    Statistics,
    Tier,
)
from scheduler_plugin.documents.snapshot import Pod, Snapshot
from scheduler_plugin.explain.pending_remedies import explained
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.greedy_orders import orders_of, pack
from scheduler_plugin.packing.held_rooms import with_holds
from scheduler_plugin.packing.objective import (
    demanded_by_stage,
    demanded_values,
    objective,
    placed_by_stage,
    placed_values,
)
from scheduler_plugin.packing.problem import Assignment, Problem, compile_problem
from scheduler_plugin.solver.cheaper import cheapen
from scheduler_plugin.solver.improving import improve_all
from scheduler_plugin.solver.search import (
    WORK_PER_SECOND,
    Search,
    SearchSettings,
    cumulative,
)
from scheduler_plugin.solver.steps import changes, in_order, told
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["SearchSettings", "plan", "refused"]

OnPlan = Callable[[Plan], None]
Method = Literal["greedy", "cp_sat"]
CAUSES_SECONDS: Final = 0.2
"""For dominant causes after the search, however late it is: 0.03 s of CPU at 5,000 nodes."""


def plan(
    snapshot: Snapshot,
    *,
    deadline_seconds: float = 1.0,
    seed: int = 0,
    settings: SearchSettings | None = None,
    on_plan: OnPlan | None = None,
    digest: str = "",
) -> Plan:
    """A plan that the independent checker accepts; never worse than the greedy incumbent.

    Args:
        snapshot: What is known.
        deadline_seconds: About what the search may take, counted in deterministic work; the
            incumbent comes on top.
        seed: Of the search.
        settings: Of the search; None for one worker, as long as it takes, no moves.
        on_plan: Called with the first greedy plan as soon as there is one, and with the best of
            them before the search. They name no causes, and whoever gets them asks the checker.
        digest: The snapshot's digest if the caller has it already.
    """
    settings = settings or SearchSettings()
    began_ns = 0 if settings.clock is None else settings.clock.monotonic_ns()
    digest = digest or snapshot.digest()
    problem = with_holds(compile_problem(snapshot, moves=settings.moves, caps=True))
    first = None
    if on_plan is not None:
        first = pack(problem, orders_of(problem)[0][0])
        on_plan(_assemble(_Found.greedy(first), digest, _NO_LOOKS))
        settings = _hurried(settings, began_ns)
    search = Search(problem, deadline_seconds * WORK_PER_SECOND, seed, settings, began_ns, first)
    is_done = search.done()  # From here on it has bounds.
    start = _Found.of(search)
    if not is_done:
        if on_plan is not None and (first is None or start.assignment != first.assignment):
            on_plan(_assemble(start, digest, _NO_LOOKS))
        improve_all(search)
    cheapen(search)
    best = _Found.of(search)
    looks = _Looks.of(settings, began_ns)
    answer = _judged(_assemble(best, digest, looks), snapshot, digest)
    if answer.refusals and best.assignment != start.assignment:
        incumbent = _judged(_assemble(start, digest, looks), snapshot, digest)
        return incumbent.model_copy(update={"refusals": answer.refusals + incumbent.refusals})
    return answer


def _hurried(settings: SearchSettings, began_ns: int) -> SearchSettings:
    """As much time as the first plan took is kept free: judging and sending one takes as much."""
    if settings.clock is None:
        return settings
    kept_seconds = (settings.clock.monotonic_ns() - began_ns) / NS_PER_SECOND
    wall, explain = settings.wall_seconds, settings.explain_seconds
    return replace(
        settings,
        wall_seconds=None if wall is None else max(0.0, wall - kept_seconds),
        explain_seconds=None if explain is None else max(0.0, explain - kept_seconds),
    )


class _Looks(NamedTuple):
    """Until when is looked for sets of changes, and for causes, of pods without a place.

    Attributes:
        leaving: Nodes of which no set of changes says that they come back.
    """

    no_sets: Callable[[], bool] = lambda: False
    no_causes: Callable[[], bool] = lambda: False
    leaving: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: SearchSettings, began_ns: int) -> _Looks:
        """By the settings; causes have ``CAUSES_SECONDS`` from now in any case."""
        clock, seconds = settings.clock, settings.explain_seconds
        if clock is None or seconds is None:
            return cls(leaving=settings.leaving)
        sets_end_ns = began_ns + seconds_to_ns(seconds)
        causes_end_ns = max(sets_end_ns, clock.monotonic_ns() + seconds_to_ns(CAUSES_SECONDS))
        return cls(
            lambda: clock.monotonic_ns() > sets_end_ns,
            lambda: clock.monotonic_ns() > causes_end_ns,
            settings.leaving,
        )


_NO_LOOKS: Final = _Looks(lambda: True, lambda: True)


@dataclass(frozen=True, slots=True)
class _Found:
    """An assignment, and what the search knew when it had it: bounds are by stage."""

    problem: Problem
    assignment: Assignment
    objective: tuple[int, ...]
    bounds: tuple[int, ...]
    method: Method = "greedy"
    rounds: int = 0
    improving_rounds: int = 0
    solver_work: float = 0.0
    incumbent_value: tuple[int, ...] = ()

    @classmethod
    def greedy(cls, packing: Packing) -> _Found:
        """Before any bound but the demand is known."""
        problem, assignment = packing.problem, packing.assignment
        values = placed_values(problem, assignment)
        bounds = cumulative(demanded_by_stage(problem))
        return cls(problem, assignment, objective(packing), bounds, incumbent_value=values)

    @classmethod
    def of(cls, search: Search) -> _Found:
        """The best that the search has."""
        return cls(
            search.problem,
            dict(search.best),
            search.best_objective,
            search.stage_bounds(),
            "cp_sat" if search.improving else "greedy",
            search.rounds,
            search.improving,
            search.solver_work,
            search.start_values,
        )


def _assemble(found: _Found, digest: str, looks: _Looks) -> Plan:
    """The plan of an assignment."""
    problem = found.problem
    difference = changes(problem, found.assignment)
    placements = (
        Placement(
            uid=one.uid,
            node=problem.node_names[one.node],
            gang=problem.classes[one.class_index].pod.gang,
            watts=int(problem.watts[one.class_index, one.node]),
            cap_watts=0 if problem.caps is None else int(problem.caps[one.class_index, one.node]),
            **told(problem.demands[one.class_index], one.boards),
        )
        for one in difference.arrivals
        if one.source < 0
    )
    tiers = _tiers(found)
    return Plan(
        snapshot_digest=digest,
        method=found.method,
        placements=tuple(sorted(placements, key=lambda p: p.uid)),
        pending=explained(problem, found.assignment, *looks),
        steps=in_order(problem, difference),
        tiers=tiers,
        objective=found.objective,
        gap=max((tier.gap for tier in tiers), default=0.0),
        statistics=Statistics(
            nodes=len(problem.node_names),
            pending_pods=sum(len(c.uids) for c in problem.classes) + len(problem.blocked),
            pod_classes=len(problem.classes),
            rounds=found.rounds,
            improving_rounds=found.improving_rounds,
            deterministic_time=round(found.solver_work, 6),
            incumbent_value=found.incumbent_value,
        ),
    )


def _tiers(found: _Found) -> tuple[Tier, ...]:
    problem = found.problem
    reached = cumulative(placed_by_stage(problem, found.assignment))
    rows = zip(
        problem.tiers,
        demanded_values(problem),
        placed_values(problem, found.assignment),
        reached[0::2],
        found.bounds[0::2],
        reached[1::2],
        found.bounds[1::2],
        strict=True,
    )
    return tuple(
        Tier(
            priority=priority,
            demanded_value=demanded,
            placed_value=placed,
            cumulative_value=with_hosts,
            bound_value=most,
            cumulative_gpu_value=gpus,
            bound_gpu_value=most_gpus,
        )
        for priority, demanded, placed, gpus, most_gpus, with_hosts, most in rows
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

    waiting = [p for p in snapshot.pods if p.state.waits]
    return Plan(
        snapshot_digest=digest,
        method="none",
        pending=tuple(entry(pod) for pod in waiting),
        gap=1.0 if waiting else 0.0,
        refusals=why,
    )
