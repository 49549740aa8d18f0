"""Whether a plan leaves alone what is held for overdue work: plain Python over the snapshot."""

from __future__ import annotations

from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Hold, Snapshot
from scheduler_plugin.judge.power_judge import full_watts, promised_watts

__all__ = ["hold_complaints"]


def hold_complaints(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Pods on held nodes, or on held watts, that are neither more important nor the held work.

    Args:
        snapshot: What the plan was made for.
        plan: Whose pods and nodes are all known.
    """
    if not snapshot.holds:
        return []
    about = _Cluster(snapshot)
    arrivals = about.arrivals(plan)
    found: list[str] = []
    for hold in snapshot.holds:
        if not about.has(hold.work):
            continue
        others = [arrival for arrival in arrivals if about.is_bound(hold, arrival[0])]
        found += [
            f"pod {uid} on node {node}: the node is held for {hold.work}"
            for uid, node, _ in others
            if node in hold.nodes
        ]
        for domain, watts in sorted(hold.watts.items()):
            added = sum(
                each for uid, node, each in others if about.counts(domain, node, about.rank(uid))
            )
            left = max(0, about.left(domain) - watts)
            if added > left:
                held = f"{watts} W are held for {hold.work}"
                found.append(f"domain {domain}: {added} W added, {left} W may be: {held}")
    return found


class _Cluster:
    """What is asked of a snapshot for each hold."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._pods = {pod.uid: pod for pod in snapshot.pods}
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._domains = {domain.name: domain for domain in snapshot.domains}
        self._gangs = {pod.gang for pod in snapshot.pods}
        # A gang starts as a whole, so its most important waiting member speaks for all.
        self._of_gang: dict[str, int] = {}
        for pod in snapshot.pods:
            if pod.gang and pod.state.waits:
                most = self._of_gang.get(pod.gang, pod.priority)
                self._of_gang[pod.gang] = max(pod.priority, most)

    def has(self, work: str) -> bool:
        """Whether a gang has a member here, or a pod without a gang is here."""
        pod = self._pods.get(work)
        alone = pod is not None and not pod.gang
        return alone or work in self._gangs

    def arrivals(self, plan: Plan) -> list[tuple[str, str, int]]:
        """Uid, node and watts of whoever comes to a node, running pods that move too."""
        found = {p.uid: (p.uid, p.node, p.watts) for p in plan.placements}
        for step in plan.steps:
            pod, node = self._pods.get(step.uid), self._nodes.get(step.node)
            if step.arrives and step.uid not in found and pod and node:
                found[step.uid] = (step.uid, step.node, full_watts(pod, node))
        return list(found.values())

    def rank(self, uid: str) -> int:
        """The priority that a pod is planned at."""
        pod = self._pods[uid]
        return self._of_gang.get(pod.gang, pod.priority) if pod.state.waits else pod.priority

    def is_bound(self, hold: Hold, uid: str) -> bool:
        """Whether the hold is kept from this pod."""
        its = self._pods[uid].gang or uid
        return its != hold.work and self.rank(uid) <= hold.priority

    def counts(self, domain: str, node: str, priority: int) -> bool:
        """Whether a domain is above a node and counts pods of a priority."""
        name = self._nodes[node].domain
        while name and name != domain:
            name = self._domains[name].parent
        least = self._domains[name].least_priority if name else None
        return bool(name) and (least is None or priority >= least)

    def left(self, domain: str) -> int:
        """Watts of a domain beside what is bound and promised; 0 for one that is not there."""
        if domain not in self._domains:
            return 0
        promised = sum(
            promised_watts(pod, self._nodes[pod.node], self._snapshot)
            for pod in self._snapshot.pods
            if pod.state == "promised"
            and pod.node in self._nodes
            and self.counts(domain, pod.node, pod.priority)
        )
        return self._domains[domain].limit_watts - self._domains[domain].used_watts - promised
