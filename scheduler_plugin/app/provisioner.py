"""Asks autoscalers for what no present node can serve, one ProvisioningRequest a gang or pod.

Every step can be done twice: names are the demand's, what exists already is left as it is, and a
pod that changed since it was read is marked in the next cycle.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from scheduler_plugin.app.patch_crew import beside_each_other
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.served_kinds import ServedKinds
from scheduler_plugin.app.under_way_reader import KEPT_SECONDS, PROVISIONING_REQUESTS
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.provisioning_requests import (
    Demand,
    OwnRequest,
    Stage,
    mark_patch,
    named_request,
    own_requests,
    pod_templates,
    request_body,
)
from scheduler_plugin.promises.provisioning import Verdict, Wait, answer, next_free_seconds
from scheduler_plugin.promises.provisioning_settings import ProvisioningSettings
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.port import (
    PODS,
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    JsonObject,
    KubeApi,
    KubeError,
    NotFoundError,
    Resource,
)
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["ORPHAN_SECONDS", "POD_TEMPLATES", "Provisioner"]

POD_TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate", True)
#: A request that no pod at our gate has named for so long is taken back; longer than marking takes.
ORPHAN_SECONDS: Final = 30.0
#: Requests that we made are among those that we read after this, or were deleted by somebody.
UNREAD_SECONDS: Final = 2 * KEPT_SECONDS
#: What one cycle spends on marking pods; the rest follows in the next.
MARKING_NS: Final = 5 * NS_PER_SECOND
#: Members of a gang that get an Event; the others share its fate.
TOLD_PODS: Final = 10
log = logging.getLogger(__name__)
_Key = tuple[str, str]


class Provisioner:
    """Our side of ProvisioningRequests; makes none unless it is enabled.

    Those that there are when it is switched off are carried to their end: pods wait for them.

    Args:
        api: The cluster.
        clock: For the limit of an hour and for time-outs, by wall-clock time.
        recorder: Where Events go.
        metrics: Counts what becomes of requests.
        settings: Class and limits.
        at_once: How many patches may be under way.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        recorder: EventRecorder,
        metrics: PlacementMetrics,
        settings: ProvisioningSettings,
        at_once: int = 1,
    ) -> None:
        self._api, self._clock, self._recorder = api, clock, recorder
        self._metrics, self._settings, self._at_once = metrics, settings, at_once
        self._kinds = ServedKinds(api, clock)
        self._known: dict[_Key, OwnRequest] = {}
        #: Made by us and not among those read yet, with the time until which it must be.
        self._made: dict[_Key, tuple[OwnRequest, int]] = {}
        self._asked_at_seconds: dict[_Key, float] = {}
        #: Not provisioned, by the time since which no pod at our gate names them.
        self._unnamed_since_ns: dict[_Key, int] = {}

    @property
    def is_busy(self) -> bool:
        """Whether anybody is asked for, or was."""
        return self._settings.enabled or bool(self._known)

    def see(self, bodies: Iterable[JsonObject]) -> None:
        """Take note of the ProvisioningRequests that there are, all of them."""
        now_ns = self._clock.monotonic_ns()
        read = {(each.namespace, each.name): each for each in own_requests(bodies)}
        self._made = {
            key: made for key, made in self._made.items() if key not in read and now_ns < made[1]
        }
        self._known = read | {key: request for key, (request, _) in self._made.items()}
        for key, each in read.items():
            self._asked_at_seconds[key] = each.created_seconds
            if each.stage is Stage.WAITS:
                self._unnamed_since_ns.setdefault(key, now_ns)
            else:
                self._unnamed_since_ns.pop(key, None)

    def keeps(self, demand: Demand, wait: Wait) -> tuple[bool, str]:
        """Whether the pods stay at our gate, and else why their request let them down, if it did.

        Args:
            demand: The pods.
            wait: How they stand.
        """
        key, now = (demand.namespace, demand.request_name), self._wall_seconds()
        request = self._known.get(key)
        asked_at = self._asked_at_seconds.values()
        found = answer(demand, wait, request, asked_at, self._settings, now)
        if found.verdict is Verdict.END and request is not None:
            name = request.stage.name.lower()
            ended = name if request.stage.has_ended else "timed_out"
            self._metrics.provisioning_requests.labels(ended).inc()
            return False, found.why
        if found.verdict is Verdict.LIMITED:
            self._tell_of_limit(demand, now)
        if found.verdict is Verdict.ASK:
            return self._ask(demand), ""
        if found.unmarked:
            self._mark(demand, found.unmarked)
        return found.verdict is not Verdict.AS_EVER, ""

    def withdraw(self, pods: Iterable[JsonObject]) -> None:
        """Take back requests that wait and that no pod at our gate names any more.

        Their pods have found a place, were let go or are gone; nodes would come for nobody.

        Args:
            pods: All pods.
        """
        if not self._unnamed_since_ns:
            return
        now_ns = self._clock.monotonic_ns()
        gated = filter(pod_facts.is_gated, pods)
        named = {(pod_facts.namespace(pod), named_request(pod)) for pod in gated}
        for key, since_ns in list(self._unnamed_since_ns.items()):
            if key in named:
                self._unnamed_since_ns[key] = now_ns
            elif now_ns - since_ns >= seconds_to_ns(ORPHAN_SECONDS):
                self._take_back(key)

    def again_ns(self) -> int | None:
        """When a request may have to be taken back, on the monotonic clock."""
        first_ns = min(self._unnamed_since_ns.values(), default=None)
        return None if first_ns is None else first_ns + seconds_to_ns(ORPHAN_SECONDS)

    def _ask(self, demand: Demand) -> bool:
        """Make templates, request and marks; whether the pods wait for what comes of it."""
        key = (demand.namespace, demand.request_name)
        try:
            self._kinds.objects(PROVISIONING_REQUESTS)
            if not self._kinds.is_served(PROVISIONING_REQUESTS):
                raise NotFoundError("ProvisioningRequests are not served here, or not for us")
            # Before the answer, which may be lost.
            self._asked_at_seconds[key] = self._wall_seconds()
            stored = self._create(demand)
        except (InputError, InvalidError, ForbiddenError, NotFoundError) as error:
            self._asked_at_seconds.pop(key, None)
            self._metrics.provisioning_requests.labels("refused").inc()
            note = f"No ProvisioningRequest can be made for it: {error}"
            self._tell(demand, EventReason.PROVISIONING_REFUSED, note, warning=True)
            return False
        except KubeError as error:
            log.warning("ProvisioningRequest %s/%s is not made: %s", *key, error)
            return True
        if stored is not None:
            until_ns = self._clock.monotonic_ns() + seconds_to_ns(UNREAD_SECONDS)
            for each in own_requests([stored]):
                self._made[key] = (each, until_ns)
            self._metrics.provisioning_requests.labels("created").inc()
            note = (
                f"No present node can serve it: ProvisioningRequest {key[1]} of class "
                f"{self._settings.class_name} asks for nodes"
            )
            self._tell(demand, EventReason.PROVISIONING_REQUESTED, note)
        self._unnamed_since_ns[key] = self._clock.monotonic_ns()
        self._mark(demand, [pod for pod in demand.pods if not named_request(pod)])
        return True

    def _create(self, demand: Demand) -> JsonObject | None:
        """The request as stored; None where another process made it.

        Templates come first: a request whose templates are missing fails.
        """
        kind = self._kinds.version(PROVISIONING_REQUESTS)
        templates = pod_templates(demand)
        body = request_body(demand, kind.api_version, self._settings.class_name, templates)
        for template, _ in templates:
            try:
                self._api.create(POD_TEMPLATES, template, demand.namespace)
            except AlreadyExistsError:
                log.debug("PodTemplate %s is there", template["metadata"]["name"])
        try:
            return self._api.create(kind, body, demand.namespace)
        except AlreadyExistsError:
            log.info("ProvisioningRequest %s/%s is there", demand.namespace, demand.request_name)
            return None

    def _mark(self, demand: Demand, pods: Sequence[JsonObject]) -> None:
        """Have pods name the request, as many as there is time for."""
        patch_by_name = {
            str(pod["metadata"]["name"]): mark_patch(
                pod, demand.request_name, self._settings.class_name
            )
            for pod in pods
        }
        latest_ns = self._clock.monotonic_ns() + MARKING_NS

        def marked(name: str) -> None:
            try:
                self._api.patch_json(PODS, name, patch_by_name[name], demand.namespace)
            except (ConflictError, NotFoundError) as error:
                log.info("%s/%s is marked later: %s", demand.namespace, name, error)
            except (InvalidError, ForbiddenError) as error:
                log.warning("%s/%s may not be marked: %s", demand.namespace, name, error)

        try:
            beside_each_other(
                list(patch_by_name),
                marked,
                self._at_once,
                lambda: self._clock.monotonic_ns() <= latest_ns,
            )
        except KubeError as error:
            log.warning("pods of %s are marked later: %s", demand.request_name, error)

    def _take_back(self, key: _Key) -> None:
        namespace, name = key
        try:
            there = own_requests(self._kinds.objects(PROVISIONING_REQUESTS))
            for each in there:
                if (each.namespace, each.name) == key and each.stage is Stage.WAITS:
                    kind = self._kinds.version(PROVISIONING_REQUESTS)
                    self._api.delete(kind, name, namespace, uid=each.uid)
                    self._metrics.provisioning_requests.labels("withdrawn").inc()
                    log.info("ProvisioningRequest %s/%s is taken back: nobody waits", *key)
        except (NotFoundError, ConflictError, ForbiddenError) as error:
            log.warning("ProvisioningRequest %s/%s is not taken back: %s", *key, error)
        except KubeError as error:
            log.warning("ProvisioningRequest %s/%s is taken back later: %s", *key, error)
            self._unnamed_since_ns[key] = self._clock.monotonic_ns()
            return
        self._unnamed_since_ns.pop(key, None)
        self._made.pop(key, None)

    def _tell_of_limit(self, demand: Demand, now_seconds: float) -> None:
        per_hour, asked_at = self._settings.per_hour, self._asked_at_seconds.values()
        seconds = next_free_seconds(asked_at, per_hour, now_seconds) - now_seconds
        note = (
            f"{per_hour} ProvisioningRequests were made within an hour, and no more may be: "
            f"the next one in {seconds:.0f} s"
        )
        self._tell(demand, EventReason.PROVISIONING_REFUSED, note, warning=True)

    def _tell(
        self, demand: Demand, reason: EventReason, note: str, *, warning: bool = False
    ) -> None:
        for body in demand.pods[:TOLD_PODS]:
            regarding: Mapping[str, object] = {
                "apiVersion": PODS.api_version,
                "kind": PODS.kind,
                **body,
            }
            self._recorder.emit(
                dict(regarding), reason, note, action="Provisioning", warning=warning
            )

    def _wall_seconds(self) -> float:
        return self._clock.wall_time_ns() / NS_PER_SECOND
