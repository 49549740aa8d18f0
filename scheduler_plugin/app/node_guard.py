"""Optimistic concurrency by node: a promise is kept only to the node that it was planned for.

Between a snapshot and its last patch lie seconds. A node that was replaced under its name, cordoned
or filled by somebody else meanwhile gets no pod that was meant for the former one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from scheduler_plugin.app.node_watch import NodeWatch
from scheduler_plugin.documents.plan_document import Placement
from scheduler_plugin.kube_objects.planned_nodes import PlannedNodes
from scheduler_plugin.promises.ledger import Promise, Stage
from wattpack.kube.port import JsonObject

__all__ = ["NodeGuard"]

log = logging.getLogger(__name__)


class NodeGuard:
    """Remembers what promises were planned for, until they are patched.

    Args:
        watch: What nodes are now.
    """

    def __init__(self, watch: NodeWatch) -> None:
        self._watch = watch
        self._planned = PlannedNodes({}, frozenset())
        self._planned_for: dict[str, PlannedNodes] = {}

    def begin_cycle(self, pods: Iterable[JsonObject]) -> None:
        """From now on plans are made for the nodes as they are seen now, and for these pods."""
        self._planned = PlannedNodes.of(self._watch.nodes(), pods)

    def stale(self, placements: Collection[Placement]) -> list[Placement]:
        """Placements that must not be promised, gangs whole: a node of theirs has changed."""
        self._watch.refresh()
        nodes = {placement.node for placement in placements}
        why = {node: text for node in sorted(nodes) if (text := self._why(node, self._planned))}
        for node, text in why.items():
            log.info("nothing is promised on %s: %s", node, text)
        gangs = {p.gang for p in placements if p.gang and p.node in why}
        return [p for p in placements if p.node in why or p.gang in gangs]

    def promised(self, uids: Iterable[str], open_uids: Collection[str]) -> None:
        """These were planned in this cycle; of earlier ones those that are open stay known."""
        kept = {u: planned for u, planned in self._planned_for.items() if u in open_uids}
        self._planned_for = kept | dict.fromkeys(uids, self._planned)

    def is_void(self, promise: Promise) -> bool:
        """Its node is not the one that it was planned for, and no patch of it was sent yet.

        One that was sent may still be made: it stays, and a pin that leads nowhere is given up.
        """
        planned = self._planned_for.get(promise.uid)
        if planned is None or promise.stage is not Stage.WRITTEN:
            return False
        why = self._why(promise.node, planned)
        if why:
            log.info("%s is planned anew: %s, %s", promise.key, promise.node, why)
        return bool(why)

    def _why(self, node: str, planned: PlannedNodes) -> str:
        return planned.changed(node, self._watch.node(node), self._watch.bound(node))
