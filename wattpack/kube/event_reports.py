"""Events of events.k8s.io/v1: one a transition, never one a tick.

A repetition of the same transition on the same object joins a series: it is counted, and the
count is written at most once a minute.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum

from wattpack.clock import Clock
from wattpack.kube.port import EVENTS, JsonObject, KubeApi, KubeError, NotFoundError
from wattpack.times import rfc3339_micro
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)

# The API takes notes of up to 1 kB; client-go ends a series after six quiet minutes.
MAX_NOTE_BYTES = 1024
SERIES_ENDS_AFTER_NS = 360 * NS_PER_SECOND
SERIES_WRITTEN_EVERY_NS = 60 * NS_PER_SECOND


class EventReason(StrEnum):
    """Why something was reported; every reason that wattpack writes."""

    BRAKE_ENGAGED = "BrakeEngaged"
    BUDGET_AT_RISK = "BudgetAtRisk"
    CAPS_LOWERED = "CapsLowered"
    CAPS_RESTORED = "CapsRestored"
    DOMAIN_DEGRADED = "DomainDegraded"
    DOMAIN_READY = "DomainReady"
    EVICTION_REFUSED = "EvictionRefused"
    FORECAST_FALLBACK = "ForecastFallback"
    FORECAST_RESTORED = "ForecastRestored"
    GANG_TIMED_OUT = "GangTimedOut"
    MOVE_GIVEN_UP = "MoveGivenUp"
    NODE_CONTROLLED = "NodeControlled"
    NODE_NOT_UNDERSTOOD = "NodeNotUnderstood"
    NODE_UNCONTROLLED = "NodeUncontrolled"
    PIN_REFUSED = "PinRefused"
    PLACEMENT_RELEASED = "PlacementReleased"
    PLANNER_FAILING = "PlannerFailing"
    POD_EVICTED = "PodEvicted"
    POD_PENDING = "PodPending"
    PROVISIONING_REFUSED = "ProvisioningRefused"
    PROVISIONING_REQUESTED = "ProvisioningRequested"
    SERVERS_COUNTED_ASIDE = "ServersCountedAside"
    SERVERS_UNCOUNTED = "ServersUncounted"
    SOLVER_FAILED = "SolverFailed"


@dataclass(slots=True)
class _Series:
    """An event and how often it was repeated."""

    name: str
    namespace: str
    count: int
    last_ns: int
    last_text: str
    written_count: int
    written_ns: int


class EventRecorder:
    """Writes events for one component; an event that cannot be written is counted and logged.

    Args:
        api: Where they go.
        clock: For their times.
        controller: Reporting controller, for example ``wattpack.io/controller``.
        instance: Reporting instance, for example the pod's name.
    """

    def __init__(self, api: KubeApi, clock: Clock, controller: str, instance: str) -> None:
        self._api = api
        self._clock = clock
        self._controller = controller
        self._instance = instance
        self._series: dict[tuple[str, ...], _Series] = {}
        self._serial = 0
        self.lost = 0

    def emit(
        self,
        regarding: JsonObject,
        reason: EventReason,
        note: str,
        *,
        action: str,
        warning: bool = False,
    ) -> None:
        """Report a transition of an object.

        Args:
            regarding: The object, as read from the API.
            reason: Why.
            note: For people, with the figures; cut to 1 kB.
            action: What was done, one CamelCase word.
            warning: Whether somebody should look.
        """
        reference = _reference(regarding)
        now_ns = self._clock.monotonic_ns()
        key: tuple[str, ...] = (
            str(reference.get("uid", reference["name"])),
            reason,
            action,
            str(warning),
        )
        series = self._series.get(key)
        if series is not None and now_ns - series.last_ns < SERIES_ENDS_AFTER_NS:
            series.count += 1
            series.last_ns = now_ns
            series.last_text = rfc3339_micro(self._clock.wall_time_ns())
            return
        body = self._event(reference, reason, note, action, warning)
        metadata = body["metadata"]
        self._series[key] = _Series(
            metadata["name"], metadata["namespace"], 1, now_ns, body["eventTime"], 1, now_ns
        )
        try:
            self._api.create(EVENTS, body, metadata["namespace"])
        except KubeError as error:
            del self._series[key]
            self._lose(reason, error)

    def flush(self) -> None:
        """Write the counts of series that grew, and forget those that ended."""
        now_ns = self._clock.monotonic_ns()
        for key, series in list(self._series.items()):
            has_ended = now_ns - series.last_ns >= SERIES_ENDS_AFTER_NS
            is_due = now_ns - series.written_ns >= SERIES_WRITTEN_EVERY_NS
            if series.count > series.written_count and (is_due or has_ended):
                self._write_count(series, now_ns)
            if has_ended:
                del self._series[key]

    def close(self) -> None:
        """Write every count that grew, for no later flush will; an API that fails is left alone."""
        now_ns, lost = self._clock.monotonic_ns(), self.lost
        for series in self._series.values():
            if series.count > series.written_count and self.lost == lost:
                self._write_count(series, now_ns)
        self._series.clear()

    def _write_count(self, series: _Series, now_ns: int) -> None:
        value = {"count": series.count, "lastObservedTime": series.last_text}
        operation = {"op": "add", "path": "/series", "value": value}
        series.written_ns, series.written_count = now_ns, series.count
        try:
            self._api.patch_json(EVENTS, series.name, [operation], series.namespace)
        except NotFoundError:
            # Events live an hour; a series may outlive its first event.
            log.debug("event %s expired before its series ended", series.name)
        except KubeError as error:
            self._lose(series.name, error)

    def _lose(self, what: str, error: KubeError) -> None:
        self.lost += 1
        log.warning("event %s was not written: %s", what, error)

    def _event(
        self, reference: JsonObject, reason: EventReason, note: str, action: str, warning: bool
    ) -> JsonObject:
        wall_ns = self._clock.wall_time_ns()
        self._serial += 1
        namespace = reference.get("namespace") or "default"
        name = f"{reference['name'][:200]}.{wall_ns:x}.{self._serial:x}"
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": rfc3339_micro(wall_ns),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "action": action,
            "reason": str(reason),
            "regarding": reference,
            "note": note.encode()[:MAX_NOTE_BYTES].decode(errors="ignore"),
            "type": "Warning" if warning else "Normal",
        }


def _reference(body: JsonObject) -> JsonObject:
    metadata = body["metadata"]
    parts = {
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "name": metadata["name"],
        "namespace": metadata.get("namespace"),
        "uid": metadata.get("uid"),
        "resourceVersion": metadata.get("resourceVersion"),
    }
    return {key: value for key, value in parts.items() if value}
