"""One term of leading: kept by success, checked before each write.

Being alive is not enough to lead. A term goes on while planning works (a cycle that ended well, a
loop that has nothing to do, a pod that was released); without any of that for ``GIVE_UP_SECONDS``
it is given up, so that the other replica has its chance before the watchdog's 30 s are over. Each
success counts up an annotation of the Lease: only that is a sign of life for the watchdog, because
two failing planners that take turns write the Lease, too.

The fence: every write of the planning loop goes through ``FencedKube``, which renews the Lease in
between and refuses once the term has ended. A write that was under way at that moment may still
land; it is in the PlacementPlan that the next leader reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence

from wattpack.clock import Clock
from wattpack.errors import WattpackError
from wattpack.kube.election import LeaderElector
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.port import (
    LEASES,
    PODS,
    Access,
    JsonObject,
    KubeApi,
    ObjectList,
    Resource,
    TokenIdentity,
    WatchEvent,
)
from wattpack.object_names import LEASE_NAME, SUCCESSES_ANNOTATION
from wattpack.times import rfc3339
from wattpack.units import ns_to_seconds, seconds_to_ns

log = logging.getLogger(__name__)
#: Half of the watchdog's patience: the other replica gets the second half.
GIVE_UP_SECONDS = 15.0


class LeadershipLostError(WattpackError):
    """The term is over: nothing more may be written in its name."""


class Term:
    """The time from winning the Lease until it is lost or given up.

    Args:
        clock: Time.
        elector: It leads now.
    """

    def __init__(self, clock: Clock, elector: LeaderElector) -> None:
        self._clock = clock
        self._elector = elector
        self.epoch = elector.epoch()
        self._success_ns = clock.monotonic_ns()
        self._renewed_ns = self._success_ns
        self.last_success = "never in this term"
        # Patches that are under way beside each other ask, and tell of success.
        self._one_at_a_time = threading.Lock()

    def succeeded(self) -> None:
        """Planning works: the next renewal will say so in the Lease."""
        with self._one_at_a_time:
            self._success_ns = self._clock.monotonic_ns()
            self.last_success = rfc3339(self._clock.wall_time_ns())
            known = self._elector.annotation(SUCCESSES_ANNOTATION)
            count = int(known) if known.isascii() and known.isdigit() and len(known) < 19 else 0
            self._elector.annotate(SUCCESSES_ANNOTATION, str(count + 1))

    def progressed(self) -> None:
        """One more kind was read: no success yet, and no reason to give up either."""
        self._success_ns = self._clock.monotonic_ns()

    def failing_seconds(self) -> float:
        """Time since planning last worked."""
        return ns_to_seconds(self._clock.monotonic_ns() - self._success_ns)

    def has_failed(self) -> bool:
        """Whether planning has not worked for so long that another should try."""
        return self.failing_seconds() >= GIVE_UP_SECONDS

    def renew_at_ns(self) -> int:
        """When the next renewal is due."""
        return self._renewed_ns + seconds_to_ns(self._elector.settings.retry_seconds)

    def check(self) -> None:
        """Renew if that is due.

        Raises:
            LeadershipLostError: if the term is over.
        """
        if self.has_failed():
            raise LeadershipLostError(f"no success for {self.failing_seconds():.0f} s")
        with self._one_at_a_time:
            now_ns = self._clock.monotonic_ns()
            if now_ns >= self.renew_at_ns():
                self._elector.attempt()
                self._renewed_ns = now_ns
        if self.epoch == 0 or self._elector.epoch() != self.epoch:
            raise LeadershipLostError("the Lease was not renewed in time, or another has it")


class FencedKube:
    """``KubeApi`` for one term: no write begins after it.

    Args:
        api: The cluster.
        term: Whose writes these are.
    """

    def __init__(self, api: KubeApi, term: Term) -> None:
        self._api = api
        self._term = term

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        """As the cluster answers."""
        return self._api.get(resource, name, namespace)

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """As the cluster answers."""
        return self._api.list(resource, namespace, label_selector, field_selector)

    def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        timeout_seconds: float = 300.0,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Iterator[WatchEvent]:
        """As the cluster answers."""
        return self._api.watch(
            resource, resource_version, namespace, timeout_seconds, label_selector, field_selector
        )

    def create(
        self, resource: Resource, body: JsonObject, namespace: str | None = None
    ) -> JsonObject:
        """The object as stored, within the term."""
        self._term.check()
        return self._api.create(resource, body, namespace)

    def replace(
        self,
        resource: Resource,
        body: JsonObject,
        namespace: str | None = None,
        subresource: str = "",
    ) -> JsonObject:
        """The object as stored, within the term."""
        self._term.check()
        return self._api.replace(resource, body, namespace, subresource)

    def apply(
        self,
        resource: Resource,
        body: JsonObject,
        *,
        field_manager: str,
        namespace: str | None = None,
        subresource: str = "",
        force: bool = True,
    ) -> JsonObject:
        """The object as applied, within the term."""
        self._term.check()
        return self._api.apply(
            resource,
            body,
            field_manager=field_manager,
            namespace=namespace,
            subresource=subresource,
            force=force,
        )

    def patch_json(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[JsonObject],
        namespace: str | None = None,
        subresource: str = "",
        *,
        dry_run: bool = False,
    ) -> JsonObject:
        """The object as patched, within the term; a pod that was patched is a success."""
        self._term.check()
        patched = self._api.patch_json(
            resource, name, operations, namespace, subresource, dry_run=dry_run
        )
        if resource == PODS and not dry_run:
            self._term.succeeded()
        return patched

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        """Accepted, within the term."""
        self._term.check()
        self._api.delete(
            resource, name, namespace, uid=uid, grace_period_seconds=grace_period_seconds
        )

    def evict(self, name: str, namespace: str, *, uid: str = "") -> None:
        """Accepted, within the term."""
        self._term.check()
        self._api.evict(name, namespace, uid=uid)

    def review_access(self, identity: TokenIdentity, access: Access) -> bool:
        """As the cluster answers."""
        return self._api.review_access(identity, access)

    def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
        """As the cluster answers."""
        return self._api.review_token(token, audiences)


def lease_reference(namespace: str) -> JsonObject:
    """The planner's Lease as the object of an Event."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": LEASE_NAME, "namespace": namespace},
    }


def report_failing(recorder: EventRecorder, namespace: str, term: Term) -> None:
    """Say on the Lease that this replica gave up leading because it could not plan."""
    note = (
        f"planning did not work for {term.failing_seconds():.0f} s (last success: "
        f"{term.last_success}); the Lease is given up, its log says why"
    )
    log.error("%s", note)
    recorder.emit(
        lease_reference(namespace),
        EventReason.PLANNER_FAILING,
        note,
        action="GivingUp",
        warning=True,
    )
