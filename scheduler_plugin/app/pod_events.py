"""Events on pending pods: said once for each new cause."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_plugin.app.waiting_pods import REFUSED
from wattpack.clock import Clock
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.port import PODS, JsonObject
from wattpack.units import NS_PER_SECOND

#: Beyond this the API is slow, and planning must not wait for what only people read.
TELLING_NS = 5 * NS_PER_SECOND


class PendingEvents:
    """Tells people why their pods wait.

    Args:
        recorder: Where events go.
        clock: For the time that a call may take.
        per_cycle: Upper bound of events in one call; the others follow in later cycles.
    """

    def __init__(self, recorder: EventRecorder, clock: Clock, per_cycle: int) -> None:
        self._recorder = recorder
        self._clock = clock
        self._per_cycle = per_cycle
        self._told: dict[str, str] = {}

    def tell(self, causes: Mapping[str, tuple[str, str]], pods: Mapping[str, JsonObject]) -> None:
        """Write an Event for each pod whose cause is new.

        Args:
            causes: Reason and message by pod uid.
            pods: Pods by uid.
        """
        self._told = {uid: reason for uid, reason in self._told.items() if uid in causes}
        fresh = [uid for uid in sorted(causes) if self._told.get(uid) != causes[uid][0]]
        latest_ns = self._clock.monotonic_ns() + TELLING_NS
        for uid in [uid for uid in fresh if uid in pods][: self._per_cycle]:
            if self._clock.monotonic_ns() > latest_ns:
                break
            reason, message = causes[uid]
            regarding = {"apiVersion": PODS.api_version, "kind": PODS.kind, **pods[uid]}
            note = f"{reason}: {message}"
            # A series has one note: what hinders the plan and what refuses its patch are two.
            action = "Releasing" if reason == REFUSED else "Planning"
            self._recorder.emit(
                regarding, EventReason.POD_PENDING, note, action=action, warning=True
            )
            self._told[uid] = reason
        self._recorder.flush()
