"""Why a pod has no place: one dominant cause, with the figures of the binding constraint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from scheduler_plugin.documents.change_text import BYTES_PER_GIB, quota_amount
from scheduler_plugin.documents.host_resources import amount_text, gpus_text
from scheduler_plugin.documents.plan_document import Pending, PendingReason
from scheduler_plugin.documents.snapshot_domain import domain_words
from scheduler_plugin.explain.link_causes import short_uplinks
from scheduler_plugin.explain.static_needs import NodeRules
from scheduler_plugin.packing.empty_nodes import EmptyNodes
from scheduler_plugin.packing.greedy import Packing
from scheduler_plugin.packing.pod_classes import Job
from scheduler_plugin.packing.problem import Assignment, BoolArray, IntArray, Problem, placed_counts
from scheduler_plugin.packing.whole_gangs import left_over
from scheduler_plugin.room.board_neighbours import Neighbours, Sharer
from scheduler_plugin.room.pod_demand import Demand
from scheduler_plugin.room.resource_columns import GPUS, MEMORY, MILLI_CPU, PODS
from scheduler_plugin.rules.gang_domains import GangDomain
from scheduler_plugin.rules.static_rules import STATIC_RULES
from wattpack.gpu_resources import GpuKind, gpu_kind


class Cause(NamedTuple):
    """Why a pod waits; ``domains`` are the power domains that are short, the tightest first."""

    reason: PendingReason
    message: str
    domains: tuple[str, ...] = ()


_NOT_LOOKED_FOR = Cause(
    PendingReason.NOT_EXPLAINED, "the deadline came before a cause was looked for"
)
_SHORT = {
    GPUS: PendingReason.INSUFFICIENT_GPUS,
    MILLI_CPU: PendingReason.INSUFFICIENT_CPU,
    MEMORY: PendingReason.INSUFFICIENT_MEMORY,
    PODS: PendingReason.TOO_MANY_PODS,
}
_WORDS = {GPUS: "GPUs", MILLI_CPU: "CPU", MEMORY: "memory", PODS: "pod slots"}


def explain_pending(
    problem: Problem,
    assignment: Assignment,
    rules: NodeRules | None = None,
    late: Callable[[], bool] = lambda: False,
) -> tuple[Pending, ...]:
    """A reason for every waiting pod that the assignment leaves out, by uid.

    Args:
        problem: What was planned.
        assignment: The plan.
        rules: Over its nodes, where somebody has them.
        late: Whether the time is over; who has no cause by then is told so.
    """
    look = _Look(Packing(problem, assignment), rules or NodeRules(problem.snapshot))
    placed = placed_counts(problem, assignment)
    pending = [Pending(uid=b.uid, gang=b.gang, reason=b.reason, message=b.message)
               for b in problem.blocked]  # fmt: skip
    for job in problem.jobs:
        # Running pods that may move are placed before those that wait.
        run = {c: len(problem.classes[c].running) for c in job.classes}
        left = {c: problem.classes[c].uids[max(0, placed[c] - run[c]) :] for c in job.classes}
        if not any(left.values()):
            continue
        if late():
            cause = _NOT_LOOKED_FOR
        else:
            cause = _gang_cause(look, job) if job.gang else _cause(look, job.classes[0])
        pending += [
            Pending(uid=uid, gang=job.gang, **cause._asdict())
            for uids in left.values()
            for uid in uids
        ]
    return tuple(sorted(pending, key=lambda p: p.uid))


class _Look:
    """What is asked for every cause."""

    def __init__(self, packing: Packing, rules: NodeRules) -> None:
        self.packing, self._rules = packing, rules
        self.problem = packing.problem
        self._empty: EmptyNodes | None = None

    def failed(self, class_index: int) -> IntArray:
        """Rules that do not hold, as bits, shape (n,)."""
        return self._rules.needs(self.problem.classes[class_index].pod).failed

    def rooms_when_empty(self, class_index: int) -> IntArray:
        """Pods of a class that each node which suits it holds if nothing else runs there, (n,)."""
        lasting = sum(
            1 << i for i, rule in enumerate(STATIC_RULES) if rule.reason not in _PASSING_REASONS
        )
        self._empty = self._empty or EmptyNodes(self.problem)
        rooms = self._empty.room(class_index, int(self.problem.counts[class_index]))
        suits: IntArray = np.where(self.failed(class_index) & lasting == 0, rooms, 0)
        return suits


def _gang_cause(look: _Look, job: Job) -> Cause:
    """The cause of the first member that finds no place beside the others."""
    problem, packing = look.problem, look.packing
    counts = {c: int(problem.counts[c]) for c in job.classes}
    wanted, mark = sum(counts.values()), packing.mark()
    try:
        left = left_over(packing.place, counts, packing.wants_others)
        if left:
            c, fitted = next(iter(left)), wanted - sum(left.values())
            cause = _cause(look, c)
            static = fitted == 0 and cause.reason in _STATIC_REASONS
            static |= cause.reason is PendingReason.QUOTA_EXCEEDED
            if not static and (most := int(look.rooms_when_empty(c).sum())) < counts[c]:
                need = f"{job.gang}: the cluster has room for {most} of {counts[c]} such members"
                return Cause(PendingReason.GANG_EXCEEDS_CLUSTER, f"{need} when it is empty")
            text = f"{job.gang}: {fitted} of {wanted} members fit; next member: {cause.message}"
            reason = cause.reason if static else PendingReason.GANG_DOES_NOT_FIT
            return Cause(reason, text, cause.domains)
    finally:
        packing.undo_to(mark)
    if uplinks := short_uplinks(packing, job):
        return Cause(PendingReason.UPLINK_FULL, f"{job.gang}: {uplinks}")
    domain = problem.domains_of_gangs.get(job.gang)
    if domain is not None and domain.required:
        text = _domain_text(look, job, domain, wanted)
        return Cause(PendingReason.GANG_DOES_NOT_FIT, f"{job.gang}: {text}")
    return Cause(
        PendingReason.GANG_DOES_NOT_FIT, f"{job.gang}: displaced by work planned before it"
    )


def _domain_text(look: _Look, job: Job, domain: GangDomain, wanted: int) -> str:
    """Whether there is such a domain, whether one holds the gang at all, or only not now."""
    if (domain.of_node < 0).all():
        return f"no node has the label {domain.key}, whose value all {wanted} members have to share"
    counts = [int(look.problem.counts[c]) for c in job.classes]
    rooms = [look.rooms_when_empty(c) for c in job.classes]
    ever = (
        ""
        if next(domain.candidates(rooms, counts), None) is not None
        else ", also when it is empty"
    )
    return f"no {domain.key} has room for all {wanted} members{ever}"


def _cause(look: _Look, class_index: int) -> Cause:
    problem, failed = look.problem, look.failed(class_index)
    if not len(failed):
        return Cause(PendingReason.NO_NODES, "the cluster has no nodes")
    for i, rule in enumerate(STATIC_RULES):
        if not (failed & (2 << i) - 1 == 0).any():
            matching = int((failed & (1 << i) - 1 == 0).sum())
            pod = problem.classes[class_index].pod
            return Cause(rule.reason, rule.says(problem.snapshot, pod, matching))
    margin: BoolArray = (failed == 0) & problem.margin_ok
    if not margin.any():
        return Cause(
            PendingReason.GUARANTEED_CAPS_INFEASIBLE,
            "guaranteed caps do not fit below the domains of every eligible node (I1)",
        )
    return _shortage(look.packing, class_index, margin)


def _shortage(packing: Packing, class_index: int, candidates: BoolArray) -> Cause:
    """Which resource, or which power domain, is short on the nodes that could be used."""
    problem = packing.problem
    request, count = problem.requests[class_index], int(candidates.sum())
    demand = problem.demands[class_index]
    nodes = np.flatnonzero(candidates)
    has, enough = problem.total[candidates] >= request, packing.free[candidates] >= request
    if demand.asks_for_part:
        request = request.copy()
        request[GPUS] = 1
        has[:, GPUS] = EmptyNodes(problem).board_room(class_index, nodes) > 0
        enough[:, GPUS] = packing.states.board_rooms(demand, nodes) > 0
    asked = [resource for resource in _by_weight(problem) if request[resource]]
    if not has.all(axis=1).any():
        worst = [r for r in asked if not has[:, r].any()]
        what = _wanted(problem, worst[0], class_index) if worst else "this combination"
        text = f"no eligible node has {what} in total ({count} eligible)"
        return Cause(PendingReason.LARGER_THAN_ANY_NODE, text)
    if why := _full_quotas(packing, class_index):
        return Cause(PendingReason.QUOTA_EXCEEDED, why)
    sharer = problem.sharers[class_index]
    if problem.neighbours is not None and sharer is not None:
        enough[:, list(problem.share_columns)] = True
    if enough.all(axis=1).any():
        roomy = np.flatnonzero(candidates)[enough.all(axis=1)]
        if problem.neighbours is not None and sharer is not None:
            cause = _neighbour_cause(packing, problem.neighbours, sharer, roomy)
            if cause is not None:
                return cause
        if packing.peers is not None and (why := packing.peers.why(class_index, roomy)):
            return Cause(PendingReason.POD_AFFINITY, why)
        return _power_cause(packing, class_index, roomy)
    for resource in asked:
        if not enough[:, resource].any():
            most = (
                f"at most {_amount(problem, resource, packing.free[candidates].max(axis=0))} free"
            )
            if demand.asks_for_part and resource == GPUS:
                most = _most_of_a_board(packing, demand, nodes)
            text = (
                f"needs {_wanted(problem, resource, class_index)} on one node; "
                f"{_eligible(count)} {most}"
            )
            return Cause(_SHORT.get(resource, PendingReason.INSUFFICIENT_RESOURCE), text)
    names = [(r, _WORDS.get(r, problem.columns[r])) for r in asked]
    counts = ", ".join(f"{int(enough[:, r].sum())} have the {name}" for r, name in names)
    return Cause(PendingReason.FRAGMENTED, f"of {count} eligible nodes {counts}, none all")


def _full_quotas(packing: Packing, class_index: int) -> str:
    """The quotas that do not let one more pod of the class in; empty if all do."""
    quotas, found = packing.problem.quotas, []
    for row, amount in quotas.asked[class_index] if quotas.rows else ():
        if row < len(quotas.rows) and amount > packing.quota_left[row]:
            (name, what), limit = quotas.rows[row], quotas.limits[row]
            held = max(limit, quotas.used[row]) - packing.quota_left[row]
            asked, of = quota_amount(what, amount), quota_amount(what, limit).partition(" ")[0]
            found.append(f"quota {name}: {quota_amount(what, held)} of {of} in use, needs {asked}")
    return "; ".join(found)


def _eligible(count: int) -> str:
    return f"{count} eligible nodes have" if count > 1 else "the only eligible node has"


def _neighbour_cause(
    packing: Packing, rule: Neighbours, sharer: Sharer, nodes: np.ndarray
) -> Cause | None:
    """Who shares the boards of the node where the pod would be borne best, if nobody bears it."""
    best: tuple[int, int] | None = None
    for node in map(int, nodes):
        together = packing.states.crowd(node).plus(sharer, 1)
        if not rule.is_limited(node) or rule.holds(node, together):
            return None
        slow = rule.worst_milli(node, together)
        best = min(best or (slow, node), (slow, node))
    if best is None:
        return None
    slow, node = best
    at = packing.problem.snapshot.nodes[node]
    allowed = at.slow_down_limit_milli
    if slow > allowed:
        text = f"would take {slow / 1000:.2f} times as long, {allowed / 1000:.2f} is allowed"
        text = f"beside who shares {at.name} one of them {text} (measured pairs)"
    else:
        text = f"shares of who is on {at.name} would exceed {allowed / 1000:.2f}; a pair of them"
        text += " was never measured"
    return Cause(PendingReason.SLOW_NEIGHBOURS, text)


def _by_weight(problem: Problem) -> list[int]:
    """Columns in the order in which a shortage is told: GPU resources are told as GPUs."""
    others = [
        i
        for i, name in enumerate(problem.columns)
        if i > PODS and gpu_kind(name) is not GpuKind.WHOLE
    ]
    named = [i for i in range(PODS + 1, len(problem.columns)) if i not in others]
    return [*range(PODS + 1), *others, *named]


def _power_cause(packing: Packing, class_index: int, nodes: np.ndarray) -> Cause:
    """Every domain that is short above the node that is nearest to letting the pod in."""
    problem = packing.problem
    watts_there = problem.watts[class_index, nodes]
    short = watts_there - problem.least_above(class_index, packing.headroom)[nodes]
    if not len(nodes) or short.min() <= 0:
        return Cause(PendingReason.FRAGMENTED, "a place appeared after the plan was made")
    node = int(nodes[short.argmin()])
    watts = int(problem.watts[class_index, node])
    counting = problem.counting(class_index, node).tolist()
    above = [domain for domain in counting if packing.headroom[domain] < watts]
    binding = sorted(dict.fromkeys(above), key=lambda domain: int(packing.headroom[domain]))
    names = tuple(problem.snapshot.domains[domain].name for domain in binding)
    parts = [
        f"{domain_words(name)} needs {watts:,} W, {int(packing.headroom[domain]):,} W left"
        for name, domain in zip(names, binding, strict=True)
    ]
    return Cause(PendingReason.POWER_DOMAIN_FULL, "; ".join(parts), names)


def _most_of_a_board(packing: Packing, demand: Demand, nodes: np.ndarray) -> str:
    if demand.mig_profiles:
        return "no boards with the slices free"
    states = (packing.states.board_states(int(node)) for node in nodes)
    return f"at most {max(0, max(max(left, default=0) for left in states)) / 1000:g} free"


def _wanted(problem: Problem, resource: int, class_index: int) -> str:
    share = problem.demands[class_index].share_milli
    if share and resource == GPUS:
        return f"{share / 1000:g} of one GPU"
    instances = Counter(problem.demands[class_index].mig_profiles)
    if instances and resource == GPUS:
        return " and ".join(f"{count} x MIG {name}" for name, count in instances.items())
    return _amount(problem, resource, problem.requests[class_index])


def _amount(problem: Problem, resource: int, amounts: np.ndarray) -> str:
    value = int(amounts[resource])
    if resource == MILLI_CPU:
        return f"{value / 1000:g} CPUs"
    if resource == MEMORY:
        return f"{value / BYTES_PER_GIB:.1f} GiB of memory"
    if resource == GPUS:
        return gpus_text(value)
    if resource in _WORDS:
        return f"{value} {_WORDS[resource]}"
    return amount_text(problem.columns[resource], value)


#: Node rules that a new profile or some time removes: they say nothing about the cluster's size.
_PASSING_REASONS = frozenset([PendingReason.GPU_POWER_UNKNOWN, PendingReason.QUARANTINED])
_STATIC_REASONS = frozenset(
    [
        *(rule.reason for rule in STATIC_RULES),
        PendingReason.LARGER_THAN_ANY_NODE,
        PendingReason.NO_NODES,
        PendingReason.GUARANTEED_CAPS_INFEASIBLE,
    ]
)
