"""Who waits only since room is held for overdue work, and what that work still lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from scheduler_plugin.documents.hold import Hold
from scheduler_plugin.documents.host_resources import gpus_text
from scheduler_plugin.documents.plan_document import Pending, PendingReason
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Snapshot
from scheduler_plugin.documents.snapshot_domain import domain_words
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.greedy_fill import fill
from scheduler_plugin.packing.held_rooms import concerns, counted_holds
from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.packing.problem import Assignment, Problem
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

__all__ = ["with_held"]

TOLD_NODES: Final = 4


def with_held(
    problem: Problem,
    assignment: Assignment,
    pending: Iterable[Pending],
    late: Callable[[], bool] = lambda: False,
) -> tuple[Pending, ...]:
    """The entries with what holds have to do with them.

    Args:
        problem: What was planned, without its holds.
        assignment: The plan.
        pending: An entry for everybody whom it leaves out, with other causes.
        late: Whether the time is over.
    """
    holds = counted_holds(problem.snapshot)
    found = {entry.uid: entry for entry in pending}
    if not holds:
        return tuple(found.values())
    names = _work_names(problem.snapshot)
    packing = Packing(problem, assignment)
    for job in problem.jobs:
        uids = [u for c in job.classes for u in problem.classes[c].uids if u in found]
        if not uids or late():
            continue
        own = next((h for h in holds if h.is_for(uids[0], job.gang)), None)
        if own is not None:
            text = f"; {_kept(own)} for it {_until(own)}{_lacks(packing, own, job)}"
            found |= {u: _and(found[u], text) for u in uids}
        elif (hold := _in_the_way(packing, job)) is not None:
            text = f"{_kept(hold)} for {names.get(hold.work, hold.work)} {_until(hold)}"
            told = {"reason": PendingReason.HELD_FOR, "message": text, "domains": ()}
            found |= {u: found[u].model_copy(update=told) for u in uids}
    return tuple(found.values())


def _in_the_way(packing: Packing, job: Job) -> Hold | None:
    """The hold without which a job, or one pod of it, would have a place; None for none."""
    problem = packing.problem
    first = problem.classes[job.classes[0]]
    holds = [h for h in counted_holds(problem.snapshot) if concerns(h, first)]
    if not holds:
        return None
    mark = packing.mark()
    fill(packing, [job])
    nodes = [node for _, node, count in packing.booked_since(mark) if count > 0]
    packing.undo_to(mark)
    if not nodes:
        return None
    return next((h for h in holds if _is_above(problem, h, nodes)), holds[0])


def _is_above(problem: Problem, hold: Hold, nodes: Iterable[int]) -> bool:
    """Whether one of the nodes is held, or below a domain whose watts are."""
    domains = problem.snapshot.domains
    for node in nodes:
        above = {domains[d].name for d in problem.path[node].tolist() if d < len(domains)}
        if problem.node_names[node] in hold.nodes or above & hold.watts.keys():
            return True
    return False


def _and(entry: Pending, text: str) -> Pending:
    return entry.model_copy(update={"message": entry.message + text})


def _kept(hold: Hold) -> str:
    names = ", ".join(hold.nodes[:TOLD_NODES])
    more = f" and {len(hold.nodes) - TOLD_NODES} more" if len(hold.nodes) > TOLD_NODES else ""
    kept = [names + more] if names else []
    kept += [f"{watts:,} W of {domain_words(name)}" for name, watts in hold.watts.items()]
    is_one = len(hold.nodes) == 1 and not hold.watts
    return f"{' and '.join(kept)} {'is' if is_one else 'are'} held"


def _work_names(snapshot: Snapshot) -> dict[str, str]:
    """What pods that have a hold are called, by uid; a gang's id is its name."""
    works = {hold.work for hold in snapshot.holds}
    pods = (pod for pod in snapshot.pods if pod.uid in works and pod.name and not pod.gang)
    return {pod.uid: f"{pod.namespace}/{pod.name}" for pod in pods}


def _until(hold: Hold) -> str:
    since, until = hold.since_unix_seconds, hold.until_unix_seconds
    return f"since {rfc3339(seconds_to_ns(since))}, at most until {rfc3339(seconds_to_ns(until))}"


def _lacks(packing: Packing, hold: Hold, job: Job) -> str:
    """What is not free yet of what is held for a job."""
    problem = packing.problem
    asked = sum(int(problem.gpu_milli[c]) * problem.classes[c].count for c in job.classes)
    nodes = [i for i, name in enumerate(problem.node_names) if name in hold.nodes]
    free = int(packing.states.gpu_milli(np.array(nodes)).sum()) if nodes else 0
    domains = enumerate(problem.snapshot.domains)
    left = {domain.name: int(packing.headroom[d]) for d, domain in domains}
    lacks = [gpus_text((asked - free) / MILLI_PER_GPU)] if asked > free else []
    lacks += [
        f"{watts - left[name]:,} W of {domain_words(name)}"
        for name, watts in hold.watts.items()
        if name in left and watts > left[name]
    ]
    return f"; lacks {' and '.join(lacks)}" if lacks else ""
