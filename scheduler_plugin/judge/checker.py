"""An independent judge of plans: plain Python over the snapshot, no code shared with planners.

It runs on every plan before anything is promised. A complaint means that the plan is refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from scheduler_plugin.documents.node_rules import NodeTerm, Requirement, Taint, Toleration
from scheduler_plugin.documents.plan_document import Placement, Plan
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.judge.board_checker import (
    NodeBoards,
    Places,
    boards_in_use,
    expected_places,
    worth_milli,
)
from scheduler_plugin.judge.gang_judge import gang_complaints
from scheduler_plugin.judge.hold_judge import hold_complaints
from scheduler_plugin.judge.link_judge import link_complaints
from scheduler_plugin.judge.peer_judge import peer_complaints
from scheduler_plugin.judge.power_judge import full_watts, power_complaints
from scheduler_plugin.judge.quota_judge import quota_complaints

_HOLDS_PLACE = ("bound", "promised")
#: A node that does not state one of these is not limited by it.
_HOST = (
    *(f"wattpack.io/{of}-bandwidth-megabytes-per-second" for of in ("memory", "pcie", "nvme")),
    *("wattpack.io/network-bandwidth-megabits-per-second", "wattpack.io/nvme-megabytes"),
)
_SHARES = ("wattpack.io/shared-compute-milli", "wattpack.io/shared-bandwidth-milli")


def complaints(snapshot: Snapshot, plan: Plan, *, digest: str = "") -> tuple[str, ...]:
    """What is wrong with the plan, in words; empty means that it may be carried out.

    Args:
        snapshot: What the plan was made for.
        plan: The plan.
        digest: The snapshot's digest if the caller has it already.
    """
    if plan.snapshot_digest != (digest or snapshot.digest()):
        return ("the plan was made for another snapshot",)
    found = _identities(snapshot, plan)
    if found:
        return tuple(found)
    pods = {pod.uid: pod for pod in snapshot.pods}
    nodes = {node.name: node for node in snapshot.nodes}
    for placement in plan.placements:
        found += _static(pods[placement.uid], nodes[placement.node])
    found += gang_complaints(snapshot, plan.placements)
    found += link_complaints(snapshot, plan.placements)
    found += peer_complaints(snapshot, plan.placements, _suits, _tolerates)
    found += quota_complaints(snapshot, plan)
    found += hold_complaints(snapshot, plan)
    if plan.steps:
        return tuple(found + _steps(snapshot, plan, pods, nodes))
    found += _capacity(snapshot, plan.placements, pods, nodes)
    found += power_complaints(snapshot, plan.placements, pods, nodes)
    return tuple(found)


def _identities(snapshot: Snapshot, plan: Plan) -> list[str]:
    waiting = {pod.uid for pod in snapshot.pods if pod.state not in _HOLDS_PLACE}
    named = Counter([p.uid for p in plan.placements] + [p.uid for p in plan.pending])
    found = [f"pod {uid} is named {n} times" for uid, n in named.items() if n > 1]
    found += [f"pod {uid} does not wait for a place" for uid in named.keys() - waiting]
    found += [f"pod {uid} has neither a place nor a reason" for uid in waiting - named.keys()]
    known = {node.name for node in snapshot.nodes}
    return found + [
        f"pod {p.uid} is sent to the unknown node {p.node}"
        for p in plan.placements
        if p.node not in known
    ]


def _static(pod: Pod, node: Node) -> list[str]:
    pair = f"pod {pod.uid} on node {node.name}"
    found: list[str] = []
    has_known_power = node.power_known and not node.rival_domains
    if not (node.ready and node.schedulable and has_known_power) or node.disrupted:
        found.append(f"{pair}: the node takes no new pods")
    if node.name in pod.excluded_nodes:
        found.append(f"{pair}: the pair is under quarantine")
    if pod.gpu_models and node.gpu_model not in pod.gpu_models:
        found.append(f"{pair}: GPU model {node.gpu_model!r} is not one of {pod.gpu_models}")
    for has, allowed in ((node.cpu_class, pod.cpu_classes), (node.nic_class, pod.nic_classes)):
        if len(allowed) and not allowed.count(has):
            found.append(f"{pair}: class {has!r} is not one of {allowed}")
    found += [f"{pair}: {why}" for why in _unsuited(pod, node)]
    return found + [f"{pair}: taint {taint.key} is not tolerated" for taint in _hard(pod, node)]


def _unsuited(pod: Pod, node: Node) -> list[str]:
    found = [
        f"label {key} is not {wanted!r}"
        for key, wanted in pod.node_selector.items()
        if key not in node.labels or node.labels[key] != wanted
    ]
    if pod.required_terms and not [t for t in pod.required_terms if _satisfied(t, node)]:
        found.append("no required affinity term matches")
    return found


def _hard(pod: Pod, node: Node) -> list[Taint]:
    return [
        taint
        for taint in node.taints
        if taint.effect.value != "PreferNoSchedule"
        and not [t for t in pod.tolerations if _covers(t, taint)]
    ]


def _suits(pod: Pod, node: Node) -> bool:
    return not _unsuited(pod, node)


def _tolerates(pod: Pod, node: Node) -> bool:
    return not _hard(pod, node)


def _satisfied(term: NodeTerm, node: Node) -> bool:
    rules = [(rule, node.labels.get(rule.key)) for rule in term.match_expressions]
    rules += [
        (rule, node.name if rule.key == "metadata.name" else None) for rule in term.match_fields
    ]
    return bool(rules) and not [rule for rule, value in rules if not _true(rule, value)]


def _true(rule: Requirement, value: str | None) -> bool:
    if rule.operator == "DoesNotExist":
        return value is None
    if rule.operator == "NotIn":
        return value is None or value not in set(rule.values)
    if value is None:
        return False
    if rule.operator == "Exists":
        return True
    if rule.operator == "In":
        return value in set(rule.values)
    try:
        difference = int(value) - int(rule.values[0])
    except (ValueError, IndexError):
        return False
    return len(rule.values) == 1 and (difference > 0 if rule.operator == "Gt" else difference < 0)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    effect_fits = toleration.effect in (None, taint.effect)
    if toleration.operator == "Exists":
        return effect_fits and toleration.key in ("", taint.key)
    return effect_fits and (toleration.key, toleration.value) == (taint.key, taint.value)


def _taken(pod: Pod) -> dict[str, int]:
    named = {"gpu_milli": pod.gpu_milli, "milli_cpu": pod.milli_cpu}
    return {**pod.resources, **named, "memory_bytes": pod.memory_bytes, "pods": 1}


def _offered(node: Node) -> dict[str, int]:
    named = {"gpu_milli": node.gpu_milli, "milli_cpu": node.milli_cpu, "pods": node.pods}
    return {**node.resources, **named, "memory_bytes": node.memory_bytes}


def _capacity(
    snapshot: Snapshot,
    placements: tuple[Placement, ...],
    pods: dict[str, Pod],
    nodes: dict[str, Node],
) -> list[str]:
    there = {name: _Held(nodes[name]) for name in {p.node for p in placements}}
    boards = boards_in_use(snapshot)
    for pod in snapshot.pods:
        if pod.node in there and pod.state in _HOLDS_PLACE:
            there[pod.node].add(pod, (boards or {}).get(pod.uid, ()))
    for placement in placements:
        there[placement.node].add(pods[placement.uid], expected_places(placement))
    pairs = {(s.gpu_model, s.work, s.beside): s.slow_down_milli for s in snapshot.slow_downs}
    asked: dict[str, list[Pod]] = defaultdict(list)
    for placement in placements:
        asked[placement.node].append(pods[placement.uid])
    found = [why for name in asked for why in there[name].complaints(asked[name], pairs)]
    if boards is not None:
        found += [why for name in asked for why in there[name].boards.complaints(asked[name])]
    return found


class _Held:
    """What the pods on one node take together."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.taken: Counter[str] = Counter()
        self.sharers: dict[str, Pod] = {}
        self.boards = NodeBoards(node)

    def add(self, pod: Pod, places: Places) -> None:
        self.taken.update(_taken(pod))
        self.boards.add(pod, places)
        if _feels(pod):
            self.sharers[pod.uid] = pod

    def remove(self, pod: Pod) -> None:
        self.taken.subtract(_taken(pod))
        self.boards.remove(pod)
        self.sharers.pop(pod.uid, None)

    def complaints(self, new: list[Pod], pairs: dict[tuple[str, str, str], int]) -> list[str]:
        """What is too much of that which the new ones of them ask for."""
        node, found = self.node, []
        slow, measured = 0, False
        if pairs and any(_feels(pod) for pod in new):
            slow, measured = _shared(node, list(self.sharers.values()), pairs)
        if slow > node.slow_down_limit_milli > 0:
            share = f"pods that share it would take {slow} / 1000 of their time"
            found.append(f"node {node.name}: {share}")
        offered = _offered(node)
        for resource in {name for pod in new for name, amount in _taken(pod).items() if amount}:
            if resource in _HOST and resource not in offered:
                continue
            wanted, limit = self.taken[resource], offered.get(resource, 0)
            if wanted > limit and not (measured and resource in _SHARES):
                found.append(f"node {node.name}: {resource} would be {wanted} of {limit}")
        return sorted(found)


def _feels(pod: Pod) -> bool:
    return bool(pod.shared_work) or any(pod.resources.get(name) for name in _SHARES)


def _shared(
    node: Node, sharers: list[Pod], pairs: dict[tuple[str, str, str], int]
) -> tuple[int, bool]:
    """The worst slow-down on a board, thousandths, and whether all pairs are known and limited."""
    on_board = -(-len(sharers) // node.shared_boards)
    worst, known = 1000, node.slow_down_limit_milli > 0
    for pod in sharers:
        told = [
            pairs.get((node.gpu_model, pod.shared_work, other.shared_work))
            for other in sharers
            if other is not pod
        ]
        known = known and None not in told
        added = sorted((milli - 1000 for milli in told if milli is not None), reverse=True)
        worst = max(worst, 1000 + sum(added[: on_board - 1]))
    return worst, known


def _steps(
    snapshot: Snapshot, plan: Plan, pods: dict[str, Pod], nodes: dict[str, Node]
) -> list[str]:
    """Walks the list: who leaves is there and may, who arrives has room at that moment."""
    start = {p.uid: p.node for p in snapshot.pods if p.state in _HOLDS_PLACE}
    at, held = dict(start), {name: _Held(node) for name, node in nodes.items()}
    boards = boards_in_use(snapshot)
    for uid, name in start.items():
        if name in held:
            held[name].add(pods[uid], (boards or {}).get(uid, ()))
    pairs = {(s.gpu_model, s.work, s.beside): s.slow_down_milli for s in snapshot.slow_downs}
    arrived: list[Placement] = []
    found: list[str] = []
    stated = {p.uid: (p.watts, p.cap_watts) for p in plan.placements}
    for number, step in enumerate(plan.steps):
        pod, here = pods.get(step.uid), f"step {number + 1}, pod {step.uid}"
        if pod is None or step.node not in nodes:
            return [*found, f"{here}: unknown pod or node {step.node}"]
        if step.arrives and step.uid not in at:
            at[step.uid] = step.node
            held[step.node].add(pod, expected_places(step))
            # Who moves is in no placement, and counts without a cap.
            watts, cap = stated.get(step.uid, (full_watts(pod, nodes[step.node]), 0))
            arrived.append(Placement(uid=step.uid, node=step.node, watts=watts, cap_watts=cap))
            why = [*_static(pod, nodes[step.node]), *held[step.node].complaints([pod], pairs)]
            why += held[step.node].boards.complaints([pod]) if boards is not None else []
            found += [f"{here}: {one}" for one in why]
        elif not step.arrives and at.get(step.uid) == step.node:
            held[at.pop(step.uid)].remove(pod)
            if pod.state != "bound" or pod.move_seconds is None or _bound_to(pod):
                found.append(f"{here}: it may not be moved")
        else:
            return [*found, f"{here}: it is on {at.get(step.uid, 'no node')}"]
    waiting = {u: (n, held[n].boards.places(pods[u])) for u, n in at.items() if u not in start}
    if waiting != {
        placed.uid: (placed.node, expected_places(placed)) for placed in plan.placements
    }:
        found.append("the steps do not end where the placements are")
    return found + power_complaints(snapshot, tuple(arrived), pods, nodes) + _lost(start, at, pods)


def _bound_to(pod: Pod) -> bool:
    """Others depend on where it is, or it on them."""
    return bool(pod.gang or pod.groups or pod.peer_rules)


def _lost(start: dict[str, str], end: dict[str, str], pods: dict[str, Pod]) -> list[str]:
    """Who is evicted makes room for something more important, by value counted from the top.

    In each tier pods with GPUs come before pods without.
    """
    gone = [uid for uid in start if uid not in end]
    balance: Counter[tuple[int, bool]] = Counter()
    for sign, uids in ((1, end.keys() - start.keys()), (-1, gone)):
        for uid in uids:
            worth = worth_milli(pods[uid])
            balance[pods[uid].priority, worth > 0] += sign * (worth or 1000)
    for (priority, _), milli in sorted(balance.items(), reverse=True):
        if milli > 0:
            return []
        if milli < 0:
            lost = f"{-milli / 1000:g}"
            return [f"priority {priority} would lose {lost} and nothing above gains"]
    return []
