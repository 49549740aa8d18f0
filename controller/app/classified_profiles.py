"""Writes a WorkloadProfile for the owners of pods that nobody described (docs/adr/0026).

WorkloadWatch ──verdicts──┐
pods ──owners, labels─────┼──> OwnerVerdicts ──due──> unforced server-side apply
WorkloadProfiles ─────────┘

All replicas look, so that a new leader knows; only the leader writes. What people wrote, or took
over, is never touched. Ownership leaves deleting to Kubernetes.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.pod_works import is_classified
from controller.app.running_topology import DesiredTopology
from controller.work_seen import PodWork
from controller.work_verdicts import Classified, OwnerVerdicts
from wattpack.api import WorkloadProfile
from wattpack.clock import Clock
from wattpack.errors import TransientError
from wattpack.kube.port import ConflictError, JsonObject, KubeApi, KubeError
from wattpack.kube.write_budget import TokenBucket
from wattpack.object_names import CLASSIFIED_LABEL
from wattpack.periodic import PeriodicThread
from wattpack.pod_owner import PodOwner, owner_of
from wattpack.units import ns_to_seconds, seconds_to_ns

log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "wattpack-classifier"
LOOK_NS: Final = seconds_to_ns(5)
WRITES_A_SECOND: Final = 1.0
REFUSED_NS: Final = seconds_to_ns(3600)
"""After a conflict with a person, or an answer that asking again cannot change."""

SETTLE_NS: Final = seconds_to_ns(60)
"""Until a write is seen in the informer's copy, at most; after a failure, others come first."""

_LONGEST_NAME: Final = 253
_NO_OWNER: Final = frozenset({"Node"})
"""Kinds that own pods of all kinds of work (static pods)."""

_KIND: Final = WorkloadProfile.meta.kind
OwnerKey = tuple[str, str]
"""Namespace and UID."""


class ClassifiedProfiles(PeriodicThread):
    """Looks at all verdicts every few seconds and writes what is due.

    Args:
        desired: Pods and WorkloadProfiles as the informers have them.
        works: What every pod's work looks like.
        leading: Whether this replica may write.
        bucket: The write budget of the process.

    Attributes:
        outcomes: Writes by outcome: written, kept_by_people, failed.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        desired: DesiredTopology,
        works: Callable[[], Mapping[str, PodWork]],
        leading: Callable[[], bool],
        bucket: TokenBucket,
    ) -> None:
        super().__init__(clock, "classified profiles", LOOK_NS)
        self._api, self._desired, self._works = api, desired, works
        self._leading, self._budget = leading, bucket
        burst = WRITES_A_SECOND * ns_to_seconds(LOOK_NS)
        self._pace = TokenBucket(WRITES_A_SECOND, burst, clock.monotonic_ns())
        self._owners: dict[OwnerKey, PodOwner] = {}
        self._verdicts: dict[OwnerKey, OwnerVerdicts] = {}
        self._not_before_ns: dict[OwnerKey, int] = {}
        self._last: OwnerKey = ("", "")
        self.outcomes: Counter[str] = Counter({"written": 0, "kept_by_people": 0, "failed": 0})

    def run_once(self) -> None:
        """Look at every owner; write the next ones that are due."""
        now_ns = self._clock.monotonic_ns()
        self._look(now_ns)
        if not self._leading():
            return
        for lowers, key, said in self._due(now_ns):
            if not self._pace.take(now_ns) or not self._budget.take(now_ns):
                return
            self._last = self._last if lowers else key
            if not self._write(key, self._owners[key], said, now_ns):
                return

    def _due(self, now_ns: int) -> list[tuple[bool, OwnerKey, Classified]]:
        """What to write, and whether it lowers trust.

        That first: a thousand new owners take a quarter of an hour. Then from the owner after the
        last one on: old ones whose work keeps changing hold up no others.
        """
        profiles = self._desired.newest().planning
        due: list[tuple[bool, OwnerKey, Classified]] = []
        for key in sorted(self._verdicts, key=lambda key: (key <= self._last, key)):
            if now_ns < self._not_before_ns.get(key, now_ns):
                continue
            owner = self._owners[key]
            body = profiles.get((_KIND, key[0], profile_name(owner)))
            if body is not None and not (is_classified(body) and self._may_speak_for(key, body)):
                continue
            written = _written(body, owner)
            said = self._verdicts[key].due(written, now_ns)
            if said is None:
                continue
            lowers = written is not None and said.confidence < written.confidence
            due.append((lowers, key, said))
        return sorted(due, key=lambda one: not one[0])

    def _look(self, now_ns: int) -> None:
        """Take the verdicts in; owners without pods, or with a label's word, are forgotten."""
        works = self._works()
        seen: dict[OwnerKey, list[PodWork]] = {}
        described: set[OwnerKey] = set()
        present: dict[OwnerKey, PodOwner] = {}
        for (namespace, name), body in self._desired.pods().items():
            owner = owner_of(body)
            if not owner.uid or owner.kind in _NO_OWNER:
                continue
            key = (namespace, owner.uid)
            present[key] = owner
            work = works.get(f"{namespace}/{name}")
            if work is not None and work.source == "label":
                described.add(key)
            elif work is not None and work.source == "telemetry":
                seen.setdefault(key, []).append(work)
        known = present.keys() - described
        for book in (self._owners, self._verdicts, self._not_before_ns):
            for key in book.keys() - known:
                del book[key]
        for key in sorted(seen.keys() & known):
            self._owners[key] = present[key]
            self._verdicts.setdefault(key, OwnerVerdicts()).look(seen[key], now_ns)

    def _may_speak_for(self, key: OwnerKey, body: JsonObject) -> bool:
        """Whether the object is this owner's, or nobody's who is still there.

        A Job of Kubernetes and one of Volcano, say, may have the same name.
        """
        owners = {(key[0], uid) for uid in _owner_uids(body)}
        return key in owners or not owners & self._owners.keys()

    def _write(self, key: OwnerKey, owner: PodOwner, said: Classified, now_ns: int) -> bool:
        """Apply one profile; whether to go on with the next."""
        body = profile_of(owner, key[0], said)
        where = f"{key[0]}/{body['metadata']['name']}"
        try:
            self._api.apply(
                WorkloadProfile.meta.resource,
                body,
                field_manager=FIELD_MANAGER,
                namespace=key[0],
                force=False,
            )
        except ConflictError as error:
            self._not_before_ns[key] = now_ns + REFUSED_NS
            self.outcomes["kept_by_people"] += 1
            log.info("WorkloadProfile %s is left as people set it: %s", where, error)
            return True
        except KubeError as error:
            self.outcomes["failed"] += 1
            log.warning("WorkloadProfile %s not written: %s", where, error)
            transient = isinstance(error, TransientError)
            self._not_before_ns[key] = now_ns + (SETTLE_NS if transient else REFUSED_NS)
            return not transient
        self._verdicts[key].told_ns = now_ns
        self._not_before_ns[key] = now_ns + SETTLE_NS
        self.outcomes["written"] += 1
        log.info("WorkloadProfile %s: %s (%s)", where, said.workload, said.bound)
        return True


def profile_name(owner: PodOwner) -> str:
    """Of the owner's profile; cut and made unique where it would be too long."""
    name = f"{owner.kind.lower()}-{owner.name}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9].rstrip('.-')}-{digest}"


def profile_of(owner: PodOwner, namespace: str, said: Classified) -> JsonObject:
    """The object as it is applied: only fields that are ours."""
    resource = WorkloadProfile.meta.resource
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": profile_name(owner),
            "namespace": namespace,
            "labels": {CLASSIFIED_LABEL: said.bound},
            "ownerReferences": [reference],
        },
        "spec": {
            "kind": shipped_catalogue()[said.workload].kind,
            "workload": said.workload,
            "confidence": said.confidence,
        },
    }


def _owner_uids(body: JsonObject) -> list[str]:
    return [str(o.get("uid", "")) for o in body["metadata"].get("ownerReferences") or ()]


def _written(body: JsonObject | None, owner: PodOwner) -> Classified | None:
    """What the object says of this owner; one of an owner before it says nothing."""
    if body is None:
        return None
    metadata, spec = body["metadata"], body.get("spec") or {}
    if owner.uid not in _owner_uids(body):
        return None
    confidence = spec.get("confidence")
    return Classified(
        str(metadata["labels"][CLASSIFIED_LABEL]),
        str(spec.get("workload", "")),
        float(confidence) if isinstance(confidence, float | int) else 0.0,
    )
