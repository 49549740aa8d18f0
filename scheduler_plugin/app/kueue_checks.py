"""Answers Kueue's AdmissionChecks: a Workload may start once all of its pods have places."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from scheduler_plugin.app.served_kinds import ServedKinds
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.kube_objects.kueue_workloads import (
    Asked,
    ExpectedGang,
    activated,
    answered,
    asked_of_us,
)
from scheduler_plugin.promises.ledger import Ledger
from wattpack.clock import Clock
from wattpack.gang_sources import KUEUE_WORKLOADS
from wattpack.kube.port import (
    ConflictError,
    JsonObject,
    KubeApi,
    KubeError,
    NotFoundError,
    Resource,
)
from wattpack.times import rfc3339
from wattpack.units import seconds_to_ns

__all__ = ["ADMISSION_CHECKS", "EVERY_SECONDS", "RESOURCE_FLAVORS", "KueueChecks"]

_GROUP, _VERSIONS = "kueue.x-k8s.io", ("v1beta2", "v1beta1")
ADMISSION_CHECKS = tuple(
    Resource(_GROUP, version, "admissionchecks", "AdmissionCheck", False) for version in _VERSIONS
)
RESOURCE_FLAVORS = tuple(
    Resource(_GROUP, version, "resourceflavors", "ResourceFlavor", False) for version in _VERSIONS
)
#: How often Workloads are looked at; Kueue itself takes longer to admit one.
EVERY_SECONDS = 5.0
log = logging.getLogger(__name__)


class KueueChecks:
    """Our side of Kueue; does nothing unless it is enabled.

    Args:
        api: The cluster.
        clock: For times of transitions and the next look.
        ledger: Where places are kept.
        enabled: Whether AdmissionChecks of our name are answered.
    """

    def __init__(self, api: KubeApi, clock: Clock, ledger: Ledger, *, enabled: bool) -> None:
        self._api, self._clock, self._ledger = api, clock, ledger
        self._kinds = ServedKinds(api, clock)
        self._enabled = enabled
        self._asked: list[Asked] = []
        #: Gangs that were given back and have not asked again: their last pods are Kueue's to end.
        self._returned: set[str] = set()

    def expected(self) -> tuple[ExpectedGang, ...]:
        """Gangs that wait for our answer, or have it and are still to come.

        Raises:
            KubeError: if the API does not answer.
        """
        if not self._enabled:
            return ()
        checks = self._kinds.objects(ADMISSION_CHECKS)
        for check in checks:
            if body := activated(check, self._now()):
                self._write(ADMISSION_CHECKS, body, None)
        workloads = self._kinds.objects(KUEUE_WORKLOADS) if checks else ()
        flavors = self._kinds.objects(RESOURCE_FLAVORS) if workloads else ()
        self._asked = asked_of_us(workloads, checks, flavors)
        self._returned -= {one.gang.ref.id for one in self._asked if one.gang is not None}
        return tuple(one.gang for one in self._asked if one.gang is not None)

    def answer(self, plan: Plan | None, living: frozenset[str]) -> None:
        """Tell Kueue what became of what it asked.

        Args:
            plan: Of this cycle; None if nothing was planned.
            living: Gangs of which pods exist.
        """
        causes = {p.gang: f"{p.reason.value}: {p.message}" for p in plan.pending} if plan else {}
        for asked in self._asked:
            state, message = self._verdict(asked, living, causes)
            body = answered(asked, state, message, self._now()) if state else None
            if body is not None:
                self._write(KUEUE_WORKLOADS, body, str(body["metadata"].get("namespace")))

    def take_back(self, gang: str) -> bool:
        """Ask Kueue to take the Workload of a gang back whole; False where it is none of ours.

        Kueue evicts a Workload whose check says ``Retry``: its owner is suspended, all of its pods
        go, and it queues again.

        Args:
            gang: Id of the gang.
        """
        if gang in self._returned:
            return True
        for asked in self._asked:
            if asked.gang is not None and asked.gang.ref.id == gang and asked.state == "Ready":
                message = "a pod was not bound in time: its Workload is taken back whole"
                body = answered(asked, "Retry", message, self._now())
                space = str(asked.workload["metadata"].get("namespace"))
                if body is not None and self._write(KUEUE_WORKLOADS, body, space):
                    self._returned.add(gang)
                    return True
        return False

    def again_ns(self) -> int | None:
        """When to look again, on the monotonic clock."""
        if not self._enabled:
            return None
        return self._clock.monotonic_ns() + seconds_to_ns(EVERY_SECONDS)

    def _verdict(
        self, asked: Asked, living: frozenset[str], causes: Mapping[str, str]
    ) -> tuple[str, str]:
        """State and message; an empty state leaves both as they are."""
        if asked.gang is None:
            return "Ready", "nothing to keep places for"
        gang, size = asked.gang.ref.id, asked.gang.ref.size or 0
        if gang in living:
            # Its pods are there: how they start is no question of admission any more.
            return ("Ready", "its pods are there") if asked.state == "Pending" else ("", "")
        kept = self._ledger.gang_slots(gang)
        if len(kept) >= size:
            nodes = sorted({place.node for place in kept.values()})
            shown = ", ".join(nodes[:8]) + (" …" if len(nodes) > 8 else "")
            return "Ready", f"{size} places are kept on {shown}"
        if asked.state == "Ready":
            return "Retry", "its pods did not come in time: the places are given up"
        return ("Pending", causes[gang]) if gang in causes else ("", "")

    def _write(self, kinds: tuple[Resource, ...], body: JsonObject, namespace: str | None) -> bool:
        """Whether it was written."""
        served = self._kinds.version(kinds)
        name = body["metadata"]["name"]
        try:
            self._api.replace(served, body, namespace, subresource="status")
            return True
        except (ConflictError, NotFoundError) as error:
            log.info("%s %s changed meanwhile: %s", served.kind, name, error)
        except KubeError as error:
            log.warning("%s %s is not answered: %s", served.kind, name, error)
        return False

    def _now(self) -> str:
        return rfc3339(self._clock.wall_time_ns())
