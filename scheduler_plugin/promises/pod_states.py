"""Where a pod stands, as its object and the ledger say it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from scheduler_plugin.documents.snapshot import PodState
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.promises.ledger import PIN_TIMEOUT_NS, Ledger
from wattpack.kube.port import JsonObject
from wattpack.object_names import GATE
from wattpack.units import NS_PER_SECOND

__all__ = ["PodStates"]


@dataclass(frozen=True, slots=True)
class PodStates:
    """Of the pods of one moment.

    Attributes:
        ledger: What was promised.
        rescued: Pods without our gate that are planned, too, by uid.
        shadow_namespaces: Whose pods are planned as if they were at our gate.
        wall_seconds: Unix time.
    """

    ledger: Ledger
    rescued: Collection[str]
    shadow_namespaces: Collection[str]
    wall_seconds: float

    def of(self, body: JsonObject) -> tuple[PodState | None, str]:
        """Where the pod stands and on which node; None leaves it out of the snapshot."""
        if pod_facts.is_finished(body):
            return None, ""
        if node := pod_facts.node_name(body):
            return PodState.BOUND, node
        if body["metadata"].get("deletionTimestamp"):
            return None, ""  # Nobody binds it any more, however long its finalizers keep it.
        if pod_facts.is_gated(body):
            if node := self.ledger.still_promised(pod_facts.uid(body)):
                return PodState.PROMISED, node
            if self.ledger.goes_unpinned(pod_facts.owner_key(body)):
                return None, ""
            alone = pod_facts.gates(body) == [GATE]
            return (PodState.PENDING, "") if alone else (None, "")
        if pod_facts.gates(body):
            return None, ""
        nominated = str((body.get("status") or {}).get("nominatedNodeName") or "")
        kept = self.ledger.moves.place_of(pod_facts.uid(body))
        if node := self._pinned(body) or kept or nominated:
            return PodState.PROMISED, node
        if pod_facts.uid(body) in self.rescued:
            return PodState.PENDING, ""
        shadow = pod_facts.namespace(body) in self.shadow_namespaces
        if shadow and not pod_facts.unmanaged_reason(body):
            return PodState.PENDING, ""
        return None, ""

    def _pinned(self, body: JsonObject) -> str:
        """The node that a pin names, as long as the pod may still be bound there at any moment.

        Whoever wrote another's pin may have named a node that never takes the pod.
        """
        if pod_facts.uid(body) not in self.ledger.promises:
            refused_seconds = pod_facts.without_a_node_seconds(body, self.wall_seconds)
            if refused_seconds * NS_PER_SECOND >= PIN_TIMEOUT_NS:
                return ""
        return pod_facts.pinned_node(body)
