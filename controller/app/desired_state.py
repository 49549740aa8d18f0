"""What operators want, and the topology that is built from it.

Informers hand objects in; ``topology`` builds the arrays anew when an object or the fleet changed.
A spec that cannot be understood, or that would break I1, is not accepted: what ran before runs on
and the refusal becomes the object's ``Accepted`` condition.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from capacity.catalogue.pod_works import ObjectName, PodWorks
from capacity.profile_book import ProfileBook
from capacity.profile_library import ProfileLibrary, shipped_library
from forecasting.forecast_book import ForecastBook
from forecasting.issued_forecast import ForecastKey
from wattpack.api import (
    ApiObject,
    DemandForecast,
    GPUProfile,
    PowerDomain,
    PowerOverride,
    PowerPolicy,
    WorkloadProfile,
)
from wattpack.errors import InputError
from wattpack.kube.port import PODS, PRIORITY_CLASSES, JsonObject, Resource
from wattpack.object_names import SYSTEM_NAMESPACE
from wattpack.power.member_claims import MemberClaim, newest_claims
from wattpack.power.power_grid import accepted_domains

log = logging.getLogger(__name__)


MOST_GONE_NODES = 4096
"""Deleted Node objects that are remembered: more than the servers of one cluster, and bounded where
servers under ever new names come and go."""

ObjectId = tuple[str, str, str]
"""Kind, namespace (empty for cluster-wide kinds) and name."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an object's newest spec does not run."""

    kind: str
    name: str
    reason: str
    message: str
    generation: int


@dataclass(slots=True)
class Objects:
    """Parsed objects by name; plain ones where only a few fields are read."""

    domains: dict[str, PowerDomain] = field(default_factory=dict)
    policies: dict[str, PowerPolicy] = field(default_factory=dict)
    overrides: dict[str, PowerOverride] = field(default_factory=dict)
    plain_domains: dict[str, JsonObject] = field(default_factory=dict)
    #: The newest word of each domain on its members, also where the spec is unreadable otherwise.
    claims: dict[str, MemberClaim] = field(default_factory=dict)
    plain_profiles: dict[str, JsonObject] = field(default_factory=dict)
    #: WorkloadProfiles by kind, namespace and name.
    planning: dict[ObjectId, JsonObject] = field(default_factory=dict)
    priority_classes: dict[str, JsonObject] = field(default_factory=dict)
    pods: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    nodes: dict[str, JsonObject] = field(default_factory=dict)


class ObjectStore:
    """Takes objects from informers, keeps the last good parse of each. Thread-safe.

    Args:
        authority: Namespace whose forecasts count for domains.
        library: GPU types that GPUProfile objects lie over.

    Attributes:
        profiles: GPU types; replaced under ``lock`` like the forecasts.
        forecasts: The book; replaced under ``lock``, never changed in place.
    """

    def __init__(
        self, authority: str = SYSTEM_NAMESPACE, library: ProfileLibrary | None = None
    ) -> None:
        self.lock = threading.RLock()
        self.objects = Objects()
        self.version = 0
        self.profiles = ProfileBook.shipped(library or shipped_library())
        self._works = PodWorks()
        #: What was read of WorkloadProfiles since, empty of those that are gone.
        self._changed_works: dict[ObjectName, PodWorks] = {}
        self.forecasts = ForecastBook(authority)
        self.forecast_version = 0
        #: Labels of deleted Node objects, whose machines may still draw power, the newest last.
        self.gone_nodes: dict[str, Mapping[str, str]] = {}
        self._unreadable: dict[tuple[str, str], Refusal] = {}
        self._ended: set[ObjectId] = set()

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        """An informer's handler for every kind that the controller follows."""
        with self.lock:
            if resource.kind == PODS.kind and not _matters(old, new):
                return
            metadata = (new or old or {})["metadata"]
            name = str(metadata["name"])
            key = (resource.kind, str(metadata.get("namespace", "")), name)
            if old is not None and (new is None or _uid(old) != _uid(new)):
                self._ended.add(key)
            if resource.kind in _PLANNING:
                self._take_work(key, new)
            elif resource.kind == DemandForecast.meta.kind:
                self._take_forecast(name, new, old or {})
            elif resource.kind == GPUProfile.meta.kind:
                self._take_profile(name, new)
            elif resource.kind in _MODELS:
                if resource.kind == PowerDomain.meta.kind:
                    self._take_claim(name, new)
                self._take_model(resource.kind, name, new)
            else:
                self._take_plain(resource, name, new or old or {}, gone=new is None)

    def works(self) -> PodWorks:
        """Which work pods do; changes are merged when somebody asks, not at each event."""
        with self.lock:
            if self._changed_works:
                self._works = self._works.with_changes(self._changed_works)
                self._changed_works = {}
            return self._works

    def take_ended(self) -> set[ObjectId]:
        """Objects that ended since the last call; one of the same name may have followed."""
        with self.lock:
            ended, self._ended = self._ended, set()
        return ended

    def snapshot(self) -> Objects:
        """The newest objects in maps of their own: informers change theirs at any moment."""
        with self.lock:
            now = self.objects
            return replace(
                now,
                domains=dict(now.domains),
                claims=dict(now.claims),
                policies=dict(now.policies),
                overrides=dict(now.overrides),
                plain_profiles=dict(now.plain_profiles),
                planning=dict(now.planning),
                pods=dict(now.pods),
                nodes=dict(now.nodes),
            )

    def unreadable(self) -> list[Refusal]:
        """Objects whose newest spec could not be parsed."""
        with self.lock:
            return list(self._unreadable.values())

    def _take_work(self, key: ObjectId, new: JsonObject | None) -> None:
        old = self.objects.planning.pop(key, None)
        if new is not None:
            self.objects.planning[key] = new
        if _said_of_work(old) == _said_of_work(new):
            return
        said = () if new is None else (new,)
        self._changed_works[key[1:]] = PodWorks.of(said, self._kernel_classes())
        self.version += 1

    def _kernel_classes(self) -> set[str]:
        return {name for profile in self.profiles.profiles() for name in profile.kernel_classes}

    def _take_profile(self, name: str, new: JsonObject | None) -> None:
        old = self.objects.plain_profiles.pop(name, {})
        if new is not None:
            self.objects.plain_profiles[name] = new
        if new is None or old.get("spec") != new.get("spec"):
            self.profiles = self.profiles.with_objects(self.objects.plain_profiles.values())
            self._works = PodWorks.of(self.objects.planning.values(), self._kernel_classes())
            self._changed_works = {}
            self.version += 1

    def _take_claim(self, name: str, new: JsonObject | None) -> None:
        """A word that cannot be read leaves the last one that could."""
        before = self.objects.claims.get(name)
        if new is None:
            self.objects.claims.pop(name, None)
        else:
            self.objects.claims |= newest_claims([new])
        if self.objects.claims.get(name) != before:
            self.version += 1

    def _take_forecast(self, name: str, new: JsonObject | None, old: JsonObject) -> None:
        if new is not None:
            self.forecasts = self.forecasts.with_object(new)
        else:
            namespace = str(old["metadata"].get("namespace", ""))
            self.forecasts = self.forecasts.without(ForecastKey(namespace, name))
        self.forecast_version += 1

    def _take_model(self, kind: str, name: str, new: JsonObject | None) -> None:
        model, attribute = _MODELS[kind]
        known: dict[str, Any] = getattr(self.objects, attribute)
        if new is None:
            known.pop(name, None)
            self._unreadable.pop((kind, name), None)
        else:
            try:
                parsed = model.read(new)
            except InputError as error:
                self._unreadable[kind, name] = Refusal(
                    kind,
                    name,
                    "Unreadable",
                    f"{error.field}: expected {error.expected}",
                    int(new["metadata"].get("generation", 0)),
                )
                self._keep_accepted(kind, name, new)
                return
            self._unreadable.pop((kind, name), None)
            before = known.get(name)
            known[name] = parsed
            self._keep_plain(kind, name, new)
            if before is not None and before.spec == _spec(parsed):
                return  # a status changed, perhaps by ourselves: no new topology
        self._keep_plain(kind, name, new)
        self.version += 1

    def _keep_accepted(self, kind: str, name: str, new: JsonObject) -> None:
        """Of a domain that was never readable here, what an earlier leader accepted runs on."""
        if kind == PowerDomain.meta.kind and name not in self.objects.domains:
            ran = accepted_domains([new])
            self.objects.domains |= ran
            if ran:
                self._keep_plain(kind, name, new)
                self.version += 1

    def _keep_plain(self, kind: str, name: str, new: JsonObject | None) -> None:
        if kind == PowerDomain.meta.kind:
            self.objects.plain_domains.pop(name, None)
            if new is not None:
                self.objects.plain_domains[name] = new

    def _take_plain(self, resource: Resource, name: str, body: JsonObject, *, gone: bool) -> None:
        if resource.kind == PODS.kind:
            key = (str(body["metadata"].get("namespace", "")), name)
            self.objects.pods.pop(key, None)
            if not gone:
                self.objects.pods[key] = body
        else:
            kept = (
                self.objects.priority_classes
                if resource.kind == PRIORITY_CLASSES.kind
                else self.objects.nodes
            )
            old = kept.pop(name, None)
            if not gone:
                kept[name] = body
            if kept is self.objects.nodes:
                self._remember_gone(name, body, gone=gone)
            if not gone and old is not None and _told(old) == _told(body):
                return
        self.version += 1

    def _remember_gone(self, name: str, body: JsonObject, *, gone: bool) -> None:
        """By the labels that it had, a machine that goes on drawing counts where it hangs."""
        self.gone_nodes.pop(name, None)
        if gone:
            self.gone_nodes[name] = _labels(body) or {}
        while len(self.gone_nodes) > MOST_GONE_NODES:
            del self.gone_nodes[next(iter(self.gone_nodes))]


_MODELS: Mapping[str, tuple[type[ApiObject], str]] = {
    PowerDomain.meta.kind: (PowerDomain, "domains"),
    PowerPolicy.meta.kind: (PowerPolicy, "policies"),
    PowerOverride.meta.kind: (PowerOverride, "overrides"),
}


_PLANNING = frozenset({WorkloadProfile.meta.kind})


def _uid(body: JsonObject) -> object:
    return body["metadata"].get("uid")


def _spec(parsed: Any) -> object:  # noqa: ANN401 - every kind has its own
    return parsed.spec


def _labels(body: JsonObject) -> Mapping[str, str] | None:
    labels: Mapping[str, str] | None = body["metadata"].get("labels")
    return labels


def _said_of_work(body: JsonObject | None) -> object:
    """What of a WorkloadProfile pods are judged by: not its status, which we write ourselves."""
    if body is None:
        return None
    return body.get("spec"), _labels(body), body["metadata"].get("ownerReferences")


def _told(body: JsonObject) -> object:
    """What of a node or a class the topology is made of."""
    return (
        _labels(body),
        (body.get("status") or {}).get("capacity"),
        body.get("value"),
    )


def _matters(old: JsonObject | None, new: JsonObject | None) -> bool:
    """Whether a pod's change can move priorities: it appeared, went, was bound, or is another.

    An informer that lost its watch tells a pod's end and its successor's begin as one change.
    """
    if old is None or new is None or _uid(old) != _uid(new):
        return True
    return bool(
        old["spec"].get("nodeName") != new["spec"].get("nodeName") or _labels(old) != _labels(new)
    )
