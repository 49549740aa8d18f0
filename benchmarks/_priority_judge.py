"""Judges a plan of a "Priority Matters" instance: recounts it step by step, shares no planner code.

Also the exact optimum of small instances, by a model of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from benchmarks._priority_instances import Instance, Placement

__all__ = ["Outcome", "Proposal", "Turn", "Verdict", "best_counts", "judge", "outcome"]


class Turn(NamedTuple):
    """A pod leaves a node or arrives there, all by index."""

    pod: int
    node: int
    arrives: bool


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a planner wants, in the order in which it is carried out.

    Attributes:
        turns: Every prefix has to fit.
        gap_pods: The most that a tier and those above may lack to its bound; 0 is a proof.
        gap_share: The same over the bound.
        failure: Why there is no plan; empty if there is one.
    """

    turns: tuple[Turn, ...] = ()
    gap_pods: int = 0
    gap_share: float = 0.0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a proposal really does.

    Attributes:
        complaint: The first thing that is wrong; empty for a plan that can be carried out.
        counts: Placed pods of each priority, the most important first.
        moved: Running pods that left their node and run again.
        evicted: Running pods that lost their place.
    """

    complaint: str
    counts: tuple[int, ...]
    moved: int
    evicted: int


def judge(instance: Instance, start: Placement, turns: tuple[Turn, ...]) -> Verdict:
    """Walks the turns from the start; what comes after the first wrong one does not count."""
    at = dict(start)
    free = _free(instance, at)
    complaint = ""
    left: set[int] = set()
    for turn in turns:
        complaint = _wrong(instance, at, free, turn)
        if complaint:
            break
        pod, sign = instance.pods[turn.pod], -1 if turn.arrives else 1
        free[turn.node] = (
            free[turn.node][0] + sign * pod.milli_cpu,
            free[turn.node][1] + sign * pod.memory_bytes,
        )
        if turn.arrives:
            at[turn.pod] = turn.node
        else:
            del at[turn.pod]
            left.add(turn.pod)
    moved = sum(pod in at for pod in left & start.keys())
    return Verdict(complaint, instance.counts(at), moved, len(start.keys() - at.keys()))


def _free(instance: Instance, at: Placement) -> list[tuple[int, int]]:
    free = [(instance.node_milli_cpu, instance.node_memory_bytes)] * instance.nodes
    for pod, node in at.items():
        ask = instance.pods[pod]
        free[node] = (free[node][0] - ask.milli_cpu, free[node][1] - ask.memory_bytes)
    return free


def _wrong(instance: Instance, at: Placement, free: list[tuple[int, int]], turn: Turn) -> str:
    if not (0 <= turn.pod < len(instance.pods) and 0 <= turn.node < instance.nodes):
        return f"{turn}: no such pod or node"
    if not turn.arrives:
        return "" if at.get(turn.pod) == turn.node else f"{turn}: it is not there"
    if turn.pod in at:
        return f"{turn}: it has a place"
    pod = instance.pods[turn.pod]
    fits = free[turn.node][0] >= pod.milli_cpu and free[turn.node][1] >= pod.memory_bytes
    return "" if fits else f"{turn}: no room"


class Outcome(StrEnum):
    """The published classes, and two that the published tables do not tell from a failure."""

    FAILURE = "failures"
    NO_CALL = "no_calls"
    DEFAULT_OPTIMAL = "default_optimal"
    BETTER = "better"
    BETTER_AND_OPTIMAL = "better_and_optimal"
    UNCHANGED = "unchanged_unproved"
    WORSE = "worse"


def outcome(
    start_counts: tuple[int, ...], counts: tuple[int, ...], *, failed: bool, proved: bool
) -> Outcome:
    """Of an instance in which a pod waits."""
    if failed:
        return Outcome.FAILURE
    if counts > start_counts:
        return Outcome.BETTER_AND_OPTIMAL if proved else Outcome.BETTER
    if counts < start_counts:
        return Outcome.WORSE
    return Outcome.DEFAULT_OPTIMAL if proved else Outcome.UNCHANGED


def best_counts(instance: Instance) -> tuple[int, ...]:
    """The best counts by priority of any placement; takes seconds from some 30 pods on."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    asks = {pod.replica_set: pod for pod in instance.pods}
    sizes = Counter(pod.replica_set for pod in instance.pods)
    here = {
        (replica_set, node): model.new_int_var(0, size, "")
        for replica_set, size in sizes.items()
        for node in range(instance.nodes)
    }
    nodes = range(instance.nodes)
    for replica_set, size in sizes.items():
        model.add(sum(here[replica_set, node] for node in nodes) <= size)
    for node in nodes:
        cpu = sum(asks[r].milli_cpu * here[r, node] for r in sizes)
        memory = sum(asks[r].memory_bytes * here[r, node] for r in sizes)
        model.add(cpu <= instance.node_milli_cpu)
        model.add(memory <= instance.node_memory_bytes)
    best = []
    for priority in instance.priorities:
        of_tier = [var for (r, _), var in here.items() if asks[r].priority == priority]
        model.maximize(sum(of_tier))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        if solver.solve(model) != cp_model.OPTIMAL:
            raise RuntimeError(f"no proof: {solver.status_name()}")
        best.append(round(solver.objective_value))
        model.add(sum(of_tier) == best[-1])
    return tuple(best)
