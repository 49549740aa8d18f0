"""Ways to plan a "Priority Matters" instance: each turns a case into a proposal.

The limit is wall time from the call on; it and what it is overrun by cover snapshot and plan, not
the imports. On a machine that other work keeps busy a solve may get a twentieth of a core, so CPU
time can be counted instead, which says what an idle core would do.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from benchmarks._priority_instances import COMBINATIONS, Case, Combination, Placement, draw_case
from benchmarks._priority_judge import Proposal, Turn, judge, outcome
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Node, Pod, PodState, Snapshot
from scheduler_plugin.solve import SearchSettings, plan
from wattpack.clock import Clock, SystemClock
from wattpack.units import NS_PER_SECOND

__all__ = ["ARMS", "Arm", "Job", "case_of", "one_solve"]

#: More deterministic work than any wall limit lets through.
UNLIMITED_SECONDS: Final = 1e6
LEAST_SECONDS: Final = 0.01
#: Every running pod costs the same to move, as in the published objective.
MOVE_SECONDS: Final = 1
#: The published nodes hold as many pods as have room.
PODS_A_NODE: Final = 1000


class Arm(Protocol):
    """One way to plan.

    Attributes:
        proves: A gap of 0 is a proof for the instance, not only for what this arm may touch.
    """

    proves: bool

    def start(self, case: Case) -> Placement:
        """Where pods are when it is asked."""
        ...

    def propose(self, case: Case, limit_seconds: float, clock: Clock) -> Proposal:
        """Its plan, by that clock."""
        ...


class CpuClock(SystemClock):
    """Goes on while this process computes."""

    def monotonic_ns(self) -> int:
        """CPU time of all its threads."""
        return time.process_time_ns()


class Planner:
    """This project's planner on one worker.

    Args:
        bound: The default placement runs already; otherwise all pods wait.
        moves: What runs may be moved.
    """

    def __init__(self, *, bound: bool, moves: bool) -> None:
        self._bound, self._moves = bound, moves
        self.proves = moves or not bound

    def start(self, case: Case) -> Placement:
        """Of the default scheduler, or nowhere."""
        return case.start if self._bound else {}

    def propose(self, case: Case, limit_seconds: float, clock: Clock) -> Proposal:
        """The plan of a snapshot of the case; making the snapshot takes its part of the limit."""
        began_ns = clock.monotonic_ns()
        snapshot = snapshot_of(case, self.start(case), movable=self._moves)
        left = limit_seconds - (clock.monotonic_ns() - began_ns) / NS_PER_SECOND
        settings = SearchSettings(1, max(left, LEAST_SECONDS), self._moves, clock)
        return _proposal(plan(snapshot, deadline_seconds=UNLIMITED_SECONDS, settings=settings))


ARMS: Final[dict[str, Arm]] = {
    "with_moves": Planner(bound=True, moves=True),
    "as_deployed": Planner(bound=True, moves=False),
    "from_scratch": Planner(bound=False, moves=False),
}


def snapshot_of(case: Case, start: Placement, *, movable: bool) -> Snapshot:
    instance = case.instance
    nodes = tuple(
        Node(
            name=_name(index),
            milli_cpu=instance.node_milli_cpu,
            memory_bytes=instance.node_memory_bytes,
            pods=PODS_A_NODE,
        )
        for index in range(instance.nodes)
    )
    pods = tuple(
        Pod(
            uid=_name(index),
            namespace="test",
            name=f"rs-{ask.replica_set}-{index}",
            priority=ask.priority,
            milli_cpu=ask.milli_cpu,
            memory_bytes=ask.memory_bytes,
            state=PodState.BOUND if index in start else PodState.PENDING,
            node=_name(start[index]) if index in start else "",
            move_seconds=MOVE_SECONDS if movable and index in start else None,
        )
        for index, ask in enumerate(instance.pods)
    )
    return Snapshot(nodes=nodes, pods=pods)


def _name(index: int) -> str:
    """Sorted as the index is."""
    return f"{index:05d}"


def _proposal(made: Plan) -> Proposal:
    turns = [Turn(int(step.uid), int(step.node), step.arrives) for step in made.steps]
    if not turns:
        turns = [Turn(int(one.uid), int(one.node), True) for one in made.placements]
    # A pod without GPUs counts as one GPU, in thousandths.
    gaps = [(t.bound_value - t.cumulative_value, t.bound_value) for t in made.tiers]
    return Proposal(
        tuple(turns),
        gap_pods=max((gap // MILLI_PER_GPU for gap, _ in gaps), default=0),
        gap_share=max((gap / bound for gap, bound in gaps if bound), default=0.0),
        failure=made.refusals[0] if made.method == "none" and made.refusals else "",
    )


# -- one solve -------------------------------------------------------------------------------------


def case_of(seed: int, number: int) -> Case:
    """Cases are counted through: all cells of the first instance, then of the second."""
    instance, cell = divmod(number, len(COMBINATIONS))
    return draw_case(COMBINATIONS[cell], seed, instance)


class Job(NamedTuple):
    """A solve to be made.

    Attributes:
        arm: Its name.
        counts_cpu: The limit is of CPU time.
        seed: Of the benchmark.
        number: Of the case.
    """

    arm: str
    limit_seconds: float
    counts_cpu: bool
    seed: int
    number: int


def one_solve(job: Job) -> dict[str, Any]:
    """A row of one case."""
    name, limit_seconds, counts_cpu, seed, number = job
    case = case_of(seed, number)
    row: dict[str, Any] = {
        "number": number,
        "instance_seed": case.instance_seed,
        "pods": len(case.instance.pods),
        "default": case.instance.counts(case.start),
    }
    if case.all_placed:
        return row | _answer("no_calls", row["default"])
    arm = ARMS[name]
    _warm()
    began, cpu_began = time.perf_counter(), time.process_time()
    proposal = _asked(arm, case, limit_seconds, CpuClock() if counts_cpu else SystemClock())
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    verdict = judge(case.instance, arm.start(case), proposal.turns)
    complaint = proposal.failure or verdict.complaint
    every_pod = sum(verdict.counts) == len(case.instance.pods)
    proved = every_pod or (arm.proves and proposal.gap_pods == 0)
    found = outcome(row["default"], verdict.counts, failed=bool(complaint), proved=proved)
    return row | _answer(
        found.value,
        verdict.counts,
        complaint=complaint[:200],
        # Of an arm that may not touch everything the bound says nothing of the instance.
        gap_pods=proposal.gap_pods if arm.proves else None,
        gap_share=proposal.gap_share if arm.proves else None,
        moved=verdict.moved,
        evicted=verdict.evicted,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
    )


def _answer(found: str, counts: tuple[int, ...], **others: object) -> dict[str, Any]:
    """The same columns whether anybody was asked or not."""
    nothing = {"complaint": "", "gap_pods": 0, "gap_share": 0.0, "moved": 0, "evicted": 0}
    times = {"seconds": None, "cpu_seconds": None}
    return {"outcome": found, "counts": counts, **nothing, **times, **others}


def _asked(arm: Arm, case: Case, limit_seconds: float, clock: Clock) -> Proposal:
    try:
        return arm.propose(case, limit_seconds, clock)
    except Exception as error:
        # Whatever breaks a planner, it has no plan: that is what is counted.
        return Proposal(failure=repr(error))


@cache
def _warm() -> None:
    """Imports and first calls, once a process."""
    small = Combination(4, 4, 2, 1.05)
    for arm in ARMS.values():
        arm.propose(draw_case(small, 0, 0), 0.05, SystemClock())
