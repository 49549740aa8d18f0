"""Why a pod has no place: one dominant cause, with the figures of the binding constraint."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scheduler_plugin.greedy import Packing
from scheduler_plugin.matching import affinity_matches, taints_tolerated
from scheduler_plugin.plan_document import Pending, PendingReason
from scheduler_plugin.problem import (
    GPUS,
    MEMORY,
    MILLI_CPU,
    PODS,
    Assignment,
    BoolArray,
    Job,
    Problem,
)
from scheduler_plugin.snapshot import Node, Pod

Cause = tuple[PendingReason, str]
_BYTES_PER_GIB = 1024**3
_SHORT = {
    GPUS: PendingReason.INSUFFICIENT_GPUS,
    MILLI_CPU: PendingReason.INSUFFICIENT_CPU,
    MEMORY: PendingReason.INSUFFICIENT_MEMORY,
    PODS: PendingReason.TOO_MANY_PODS,
}


def explain_pending(problem: Problem, assignment: Assignment) -> tuple[Pending, ...]:
    """A reason for every waiting pod that the assignment leaves out, by uid."""
    packing = Packing(problem, assignment)
    placed = [0] * len(problem.classes)
    for (class_index, _), count in assignment.items():
        placed[class_index] += count
    pending = [Pending(uid=b.uid, gang=b.gang, reason=b.reason, message=b.message)
               for b in problem.blocked]  # fmt: skip
    for job in problem.jobs:
        left = {c: problem.classes[c].uids[placed[c] :] for c in job.classes}
        if not any(left.values()):
            continue
        reason, message = _gang_cause(packing, job) if job.gang else _cause(packing, job.classes[0])
        pending += [
            Pending(uid=uid, gang=job.gang, reason=reason, message=message)
            for uids in left.values()
            for uid in uids
        ]
    return tuple(sorted(pending, key=lambda p: p.uid))


def _gang_cause(packing: Packing, job: Job) -> Cause:
    """The cause of the first member that finds no place beside the others."""
    problem = packing.problem
    wanted = sum(int(problem.counts[c]) for c in job.classes)
    mark, fitted = packing.mark(), 0
    try:
        for c in job.classes:
            count = int(problem.counts[c])
            found = packing.place(c, count)
            fitted += found
            if found < count:
                reason, message = _cause(packing, c)
                static = fitted == 0 and reason in _STATIC_REASONS
                text = f"{job.gang}: {fitted} of {wanted} members fit; next member: {message}"
                return reason if static else PendingReason.GANG_DOES_NOT_FIT, text
    finally:
        packing.undo_to(mark)
    return PendingReason.GANG_DOES_NOT_FIT, f"{job.gang}: displaced by work planned before it"


def _cause(packing: Packing, class_index: int) -> Cause:
    problem = packing.problem
    pod = problem.classes[class_index].pod
    candidates = np.ones(len(problem.node_names), dtype=bool)
    if not candidates.any():
        return PendingReason.NO_NODES, "the cluster has no nodes"
    for reason, rule, text in _STATIC_RULES:
        kept = candidates & _mask(problem, pod, candidates, rule)
        if not kept.any():
            return reason, text(problem, pod, int(candidates.sum()))
        candidates = kept
    margin = candidates & problem.usable
    if not margin.any():
        return (
            PendingReason.GUARANTEED_CAPS_INFEASIBLE,
            "guaranteed caps do not fit below the domains of every eligible node (I1)",
        )
    return _shortage(packing, class_index, margin)


def _mask(
    problem: Problem, pod: Pod, candidates: BoolArray, rule: Callable[[Pod, Node], bool]
) -> BoolArray:
    result = np.zeros(len(candidates), dtype=bool)
    for i in np.flatnonzero(candidates):
        result[i] = rule(pod, problem.snapshot.nodes[i])
    return result


def _shortage(packing: Packing, class_index: int, candidates: BoolArray) -> Cause:
    """Which resource, or which power domain, is short on the nodes that could be used."""
    problem = packing.problem
    request = problem.requests[class_index]
    if not (problem.total[candidates] >= request).all(axis=1).any():
        worst = [r for r in _SHORT if not (problem.total[candidates, r] >= request[r]).any()]
        what = _amount(worst[0], int(request[worst[0]])) if worst else "this combination"
        text = f"no eligible node has {what} in total ({int(candidates.sum())} eligible)"
        return PendingReason.LARGER_THAN_ANY_NODE, text
    enough = packing.free[candidates] >= request
    if enough.all(axis=1).any():
        roomy = np.flatnonzero(candidates)[enough.all(axis=1)]
        return _power_cause(packing, class_index, roomy)
    for resource, reason in _SHORT.items():
        if not enough[:, resource].any():
            most = _amount(resource, int(packing.free[candidates, resource].max()))
            text = (
                f"needs {_amount(resource, int(request[resource]))} on one node; "
                f"{int(candidates.sum())} eligible nodes have at most {most} free"
            )
            return reason, text
    counts = ", ".join(
        f"{int(enough[:, r].sum())} have the {name}"
        for r, name in ((GPUS, "GPUs"), (MILLI_CPU, "CPU"), (MEMORY, "memory"), (PODS, "pod slots"))
    )
    return PendingReason.FRAGMENTED, f"of {int(candidates.sum())} eligible nodes {counts}, none all"


def _power_cause(packing: Packing, class_index: int, nodes: np.ndarray) -> Cause:
    """The domain that is nearest to letting the pod in."""
    problem = packing.problem
    best: tuple[int, int, int, int] | None = None
    for node in nodes:
        above = problem.path[node]
        domain = int(above[np.argmin(packing.headroom[above])])
        watts, left = int(problem.watts[class_index, node]), int(packing.headroom[domain])
        if best is None or watts - left < best[0]:
            best = (watts - left, domain, watts, left)
    if best is None or best[0] <= 0:
        return PendingReason.FRAGMENTED, "a place appeared after the plan was made"
    _, domain, watts, left = best
    name = problem.snapshot.domains[domain].name
    text = f"{name} needs {watts:,} W, {left:,} W left"
    return PendingReason.POWER_DOMAIN_FULL, text


def _amount(resource: int, value: int) -> str:
    match resource:
        case 0:
            return f"{value} GPUs"
        case 1:
            return f"{value / 1000:g} CPUs"
        case 2:
            return f"{value / _BYTES_PER_GIB:.1f} GiB of memory"
        case _:
            return f"{value} pod slots"


def _model_text(problem: Problem, pod: Pod, left: int) -> str:
    have = sorted({n.gpu_model for n in problem.snapshot.nodes if n.gpu_model})
    return f"wants {' or '.join(pod.gpu_models)}; the cluster has {', '.join(have) or 'no GPUs'}"


def _affinity_text(problem: Problem, pod: Pod, left: int) -> str:
    return f"node selector or required affinity matches none of {left} nodes"


def _taint_text(problem: Problem, pod: Pod, left: int) -> str:
    keys = sorted({t.key for n in problem.snapshot.nodes for t in n.taints})
    return f"none of {left} matching nodes is free of untolerated taints ({', '.join(keys[:4])})"


def _ready_text(problem: Problem, pod: Pod, left: int) -> str:
    return f"all {left} matching nodes are not ready, cordoned or about to be disrupted"


def _power_text(problem: Problem, pod: Pod, left: int) -> str:
    unknown = [n for n in problem.snapshot.nodes if not n.power_known]
    models = sorted({n.gpu_model or "unlabelled" for n in unknown if not n.rival_domains})
    told = [f"no GPUProfile says what {', '.join(models[:4])} draws"] if models else []
    for node in [n for n in unknown if n.rival_domains][:4]:
        claims = " and ".join((node.domain, *node.rival_domains))
        told.append(f"{node.name} is claimed by {claims}, of two branches of the power tree")
    return f"{'; '.join(told)} ({left} matching nodes)"


def _quarantine_text(problem: Problem, pod: Pod, left: int) -> str:
    return f"all {left} matching nodes refused this pod before"


_STATIC_RULES: tuple[
    tuple[PendingReason, Callable[[Pod, Node], bool], Callable[[Problem, Pod, int], str]], ...
] = (
    (
        PendingReason.NO_GPU_MODEL,
        lambda pod, node: not pod.gpu_models or node.gpu_model in pod.gpu_models,
        _model_text,
    ),
    (PendingReason.NODE_AFFINITY, affinity_matches, _affinity_text),
    (
        PendingReason.TAINT_NOT_TOLERATED,
        lambda pod, node: taints_tolerated(node.taints, pod.tolerations),
        _taint_text,
    ),
    (
        PendingReason.NO_READY_NODE,
        lambda pod, node: node.ready and node.schedulable and not node.disrupted,
        _ready_text,
    ),
    (PendingReason.GPU_POWER_UNKNOWN, lambda pod, node: node.power_known, _power_text),
    (
        PendingReason.QUARANTINED,
        lambda pod, node: node.name not in pod.excluded_nodes,
        _quarantine_text,
    ),
)
_STATIC_REASONS = frozenset(
    [
        *(reason for reason, _, _ in _STATIC_RULES),
        PendingReason.LARGER_THAN_ANY_NODE,
        PendingReason.NO_NODES,
        PendingReason.GUARANTEED_CAPS_INFEASIBLE,
    ]
)
