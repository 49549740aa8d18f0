"""Whether power domains bear what a plan adds: plain Python over the snapshot."""

from __future__ import annotations

import math
from collections import Counter

from scheduler_plugin.documents.plan_document import Placement
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.judge.board_checker import part_of_watts

__all__ = ["full_watts", "power_complaints", "promised_watts"]


def full_watts(pod: Pod, node: Node) -> int:
    """What it adds on a node without a cap, AC."""
    if pod.expected_watts_per_gpu is not None:
        each = pod.expected_watts_per_gpu
    elif pod.kernel_class in node.class_watts_per_gpu:
        each = node.class_watts_per_gpu[pod.kernel_class]
    else:
        each = node.watts_per_gpu
    return part_of_watts(pod, each)


def _watts_at(pod: Pod, node: Node, cap_watts: int, snapshot: Snapshot) -> tuple[int, str]:
    """Watts with the boards at a cap, and why the plan may not count on that cap, if it may not."""
    each = node.class_watts_per_gpu.get(pod.kernel_class)
    offered = [
        option
        for option in snapshot.cap_options
        if option.gpu_model == node.gpu_model
        and option.kernel_class == pod.kernel_class
        and option.cap_watts == cap_watts
    ]
    if not node.caps_held:
        return full_watts(pod, node), "nobody holds caps there"
    if not offered or each is None or pod.expected_watts_per_gpu is not None:
        return full_watts(pod, node), "this cap is not on offer"
    if pod.gpu_milli < 1000 or pod.mig_profiles or pod.drawn_milli:
        return full_watts(pod, node), "it has no boards to itself"
    if offered[0].cap_milli < pod.least_cap_milli:
        return full_watts(pod, node), f"its policies keep {pod.least_cap_milli} / 1000 of the limit"
    return part_of_watts(pod, math.ceil(each * offered[0].watts_milli / 1000)), ""


def promised_watts(pod: Pod, node: Node, snapshot: Snapshot) -> int:
    """At the cap that it was planned at; a cap that is no longer on offer counts as none."""
    if not pod.cap_watts:
        return full_watts(pod, node)
    # What its policies keep was judged when it was planned.
    kept = pod.model_copy(update={"least_cap_milli": 0})
    return _watts_at(kept, node, pod.cap_watts, snapshot)[0]


def power_complaints(
    snapshot: Snapshot,
    placements: tuple[Placement, ...],
    pods: dict[str, Pod],
    nodes: dict[str, Node],
) -> list[str]:
    """Domains that would be over, or may take nothing, and watts that are stated wrongly."""
    domains = {domain.name: domain for domain in snapshot.domains}
    # A gang starts as a whole, so its most important waiting member speaks for all.
    of_gang: dict[str, int] = {}
    for pod in snapshot.pods:
        if pod.gang and pod.state.waits:
            of_gang[pod.gang] = max(pod.priority, of_gang.get(pod.gang, pod.priority))
    promised: Counter[str] = Counter()
    added: Counter[str] = Counter()
    touched: set[str] = set()
    found: list[str] = []

    def above(name: str) -> list[str]:
        names: list[str] = []
        while name:
            names.append(name)
            name = domains[name].parent
        return names

    for pod in snapshot.pods:
        if pod.state == "promised" and pod.node in nodes:
            for name in above(nodes[pod.node].domain):
                least = domains[name].least_priority
                if least is None or pod.priority >= least:
                    promised[name] += promised_watts(pod, nodes[pod.node], snapshot)
    for placement in placements:
        node = nodes[placement.node]
        pod = pods[placement.uid]
        watts, why = full_watts(pod, node), ""
        if placement.cap_watts:
            watts, why = _watts_at(pod, node, placement.cap_watts, snapshot)
        if why:
            found.append(f"pod {pod.uid} at {placement.cap_watts} W: {why}")
        if placement.watts != watts:
            found.append(f"pod {placement.uid}: {placement.watts} W stated, {watts} W expected")
        for name in above(node.domain):
            touched.add(name)
            least = domains[name].least_priority
            if least is None or of_gang.get(pod.gang, pod.priority) >= least:
                added[name] += watts
    for name in sorted(touched):
        domain = domains[name]
        load = domain.used_watts + promised[name] + added[name]
        if added[name] and load > domain.limit_watts:
            found.append(f"domain {name}: {load} W of {domain.limit_watts} W")
        if domain.guaranteed_margin_watts < 0:
            found.append(f"domain {name}: guaranteed caps do not fit, nothing may be added")
    return found
