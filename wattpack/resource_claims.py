"""GPUs that pods hold through claims of dynamic resource allocation. Pure.

Source: ``resource.k8s.io/v1``, ``ResourceClaim.status``: ``allocation.devices.results`` names the
driver, pool and name of each device, ``reservedFor`` the pods that may use them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from wattpack.gpu_resources import GPU_DRIVERS
from wattpack.kube.port import JsonObject

__all__ = ["Allocated", "ClaimBook", "ClaimEntry", "asks_for_claims"]

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Allocated:
    """What one claim got.

    Attributes:
        devices: Driver, pool and name of its GPUs, each once.
        pods: UIDs of the pods that it is reserved for, the first one first. None where no pod is
            named, as for a group.
    """

    devices: frozenset[tuple[str, str, str]]
    pods: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """Devices, each once."""
        return len(self.devices)

    def counts_for(self, uid: object) -> bool:
        """A claim that several pods share takes its devices once; a group's counts for each."""
        return not self.pods or self.pods[0] == uid


class ClaimEntry(NamedTuple):
    """One of a pod's ``spec.resourceClaims``.

    Attributes:
        name: Of the object; empty where it is still to be made.
        template: That it is made from; empty for a claim of its own.
        body: The object, if it is there.
        allocated: Its GPUs, if it has any.
    """

    name: str
    template: str
    body: JsonObject | None
    allocated: Allocated | None


@dataclass(frozen=True, slots=True)
class ClaimBook:
    """All claims, and the GPUs of those that are allocated, by namespace and name."""

    _allocated: Mapping[_Key, Allocated] = field(default_factory=dict)
    _bodies: Mapping[_Key, JsonObject] = field(default_factory=dict)

    @classmethod
    def of(cls, claims: Iterable[JsonObject]) -> ClaimBook:
        """The book of ResourceClaim objects; one that cannot be read holds nothing."""
        found: dict[_Key, Allocated] = {}
        bodies: dict[_Key, JsonObject] = {}
        for body in claims:
            metadata = body["metadata"]
            key = str(metadata.get("namespace", "")), str(metadata["name"])
            bodies[key] = body
            status = _mapping(body.get("status"))
            devices = _devices(_mapping(_mapping(status.get("allocation")).get("devices")))
            if devices:
                users = map(_mapping, _list(status.get("reservedFor")))
                pods = (str(u.get("uid", "")) for u in users if u.get("resource") == "pods")
                found[key] = Allocated(devices, tuple(pods))
        return cls(found, bodies)

    def among(self, live: Collection[str]) -> ClaimBook:
        """The same claims held by these pods: one that is over hands on what it shared."""
        return ClaimBook(
            {
                key: replace(claim, pods=tuple(uid for uid in claim.pods if uid in live))
                for key, claim in self._allocated.items()
            },
            self._bodies,
        )

    def entries(self, pod: Mapping[str, Any]) -> list[ClaimEntry]:
        """The pod's claims, one by one, in its order."""
        space = str(_mapping(pod.get("metadata")).get("namespace", ""))
        made = {
            str(entry.get("name")): str(entry.get("resourceClaimName") or "")
            for entry in _list(_mapping(pod.get("status")).get("resourceClaimStatuses"))
            if isinstance(entry, Mapping)
        }
        found = []
        for asked in map(_mapping, _list(_mapping(pod.get("spec")).get("resourceClaims"))):
            name = str(asked.get("resourceClaimName") or made.get(str(asked.get("name")), ""))
            template = str(asked.get("resourceClaimTemplateName") or "")
            key = space, name
            found.append(
                ClaimEntry(name, template, self._bodies.get(key), self._allocated.get(key))
            )
        return found

    def held_devices(self, pod: Mapping[str, Any]) -> frozenset[tuple[str, str, str]]:
        """The GPUs that ``held`` counts."""
        uid = _mapping(pod.get("metadata")).get("uid")
        mine = (claim.devices for claim in self._of(pod) if claim.counts_for(uid))
        return frozenset().union(*mine)

    def usable(self, pod: Mapping[str, Any]) -> int:
        """GPUs that the pod may use through its claims, also those that it shares."""
        return sum(claim.gpus for claim in self._of(pod))

    def held(self, pod: Mapping[str, Any]) -> int:
        """GPUs that count for this pod: over all pods each device counts once."""
        uid = _mapping(pod.get("metadata")).get("uid")
        return sum(claim.gpus for claim in self._of(pod) if claim.counts_for(uid))

    def _of(self, pod: Mapping[str, Any]) -> list[Allocated]:
        if not self._allocated:
            return []
        space = str(_mapping(pod.get("metadata")).get("namespace", ""))
        keys = {(space, name) for name in _claim_names(pod)}
        return [self._allocated[key] for key in sorted(keys) if key in self._allocated]


def asks_for_claims(pod: Mapping[str, Any]) -> bool:
    """Whether claims can matter for the pod."""
    return bool(_mapping(pod.get("spec")).get("resourceClaims"))


def _claim_names(pod: Mapping[str, Any]) -> Iterable[str]:
    """Objects behind ``spec.resourceClaims``; those made from templates are named in the status."""
    asked = _list(_mapping(pod.get("spec")).get("resourceClaims"))
    made = _list(_mapping(pod.get("status")).get("resourceClaimStatuses"))
    for entry in (*asked, *made):
        if isinstance(entry, Mapping) and entry.get("resourceClaimName"):
            yield str(entry["resourceClaimName"])


def _devices(devices: Mapping[str, Any]) -> frozenset[tuple[str, str, str]]:
    """The GPUs of an allocation; who only looks after a device (``adminAccess``) takes none."""
    return frozenset(
        (str(result["driver"]), str(result.get("pool", "")), str(result.get("device", "")))
        for result in _list(devices.get("results"))
        if isinstance(result, Mapping)
        and result.get("driver") in GPU_DRIVERS
        and not result.get("adminAccess")
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
