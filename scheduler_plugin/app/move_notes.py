"""What people learn of moves: Events on the pods that leave and on those that wait, and metrics."""

from __future__ import annotations

import logging

from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.promises.move_book import Coming, Leaving
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.port import PODS, JsonObject

__all__ = ["MoveNotes"]

log = logging.getLogger(__name__)


class MoveNotes:
    """Tells what became of each step.

    Args:
        recorder: Where Events go.
        metrics: Where they are counted.
    """

    def __init__(self, recorder: EventRecorder, metrics: PlacementMetrics) -> None:
        self._recorder = recorder
        self.metrics = metrics

    def evicted(self, step: Leaving, body: JsonObject, made_for: str) -> None:
        """The API took the eviction."""
        self.metrics.evictions.labels("move" if step.target else "make_room").inc()
        if step.target:
            note = (
                f"moved from {step.source} to {step.target} to make room for {made_for}; the pod \
that replaces it gets its place there"
            )
        else:
            note = f"evicted from {step.source} for {made_for}, which is more important; the pod \
that replaces it waits for a place"
        self._emit(body, EventReason.POD_EVICTED, note, "Evicting")

    def refused(self, step: Leaving, body: JsonObject, why: str, text: str) -> None:
        """The API did not let the pod go."""
        self.metrics.evictions_refused.labels(why).inc()
        note = f"not evicted from {step.source}: {text}"
        self._emit(body, EventReason.EVICTION_REFUSED, note, "Waiting", warning=True)

    def done(self, outcome: str) -> None:
        """A step ended: ``arrived``, ``elsewhere``, ``no_successor`` or ``given_up``."""
        self.metrics.moves.labels(outcome).inc()

    def given_up(self, step: Coming, body: JsonObject | None, why: str) -> None:
        """A waiting pod does not get the room that was to be made for it."""
        self.done("given_up")
        nodes = ", ".join(sorted({member.node for member in step.members})[:8])
        note = f"making room on {nodes} is given up: {why}; it is planned anew"
        log.warning("%s: %s", step.members[0].key, note)
        if body is not None:
            self._emit(body, EventReason.MOVE_GIVEN_UP, note, "GivingUp", warning=True)

    def _emit(
        self,
        body: JsonObject,
        reason: EventReason,
        note: str,
        action: str,
        *,
        warning: bool = False,
    ) -> None:
        regarding = {"apiVersion": PODS.api_version, "kind": PODS.kind, **body}
        self._recorder.emit(regarding, reason, note, action=action, warning=warning)
