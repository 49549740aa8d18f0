"""GPUs that pods hold through claims of dynamic resource allocation. Pure.

Source: ``resource.k8s.io/v1``, ``ResourceClaim.status``: ``allocation.devices.results`` names the
driver, pool and name of each device, ``reservedFor`` the pods that may use them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wattpack.gpu_resources import GPU_DRIVERS
from wattpack.kube.port import JsonObject

__all__ = ["ClaimBook", "asks_for_claims"]

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Allocated:
    """What one claim got.

    Attributes:
        gpus: Devices, each once.
        pods: UIDs of the pods that it is reserved for, the first one first. None where no pod is
            named, as for a group.
    """

    gpus: int
    pods: tuple[str, ...]

    def counts_for(self, uid: object) -> bool:
        """A claim that several pods share takes its devices once; a group's counts for each."""
        return not self.pods or self.pods[0] == uid


@dataclass(frozen=True, slots=True)
class ClaimBook:
    """Allocated claims with GPUs, by namespace and name."""

    _allocated: Mapping[_Key, _Allocated] = field(default_factory=dict)

    @classmethod
    def of(cls, claims: Iterable[JsonObject]) -> ClaimBook:
        """The book of ResourceClaim objects; one that cannot be read holds nothing."""
        found: dict[_Key, _Allocated] = {}
        for body in claims:
            status = _mapping(body.get("status"))
            gpus = len(_devices(_mapping(_mapping(status.get("allocation")).get("devices"))))
            if gpus:
                users = map(_mapping, _list(status.get("reservedFor")))
                pods = (str(u.get("uid", "")) for u in users if u.get("resource") == "pods")
                metadata = body["metadata"]
                key = str(metadata.get("namespace", "")), str(metadata["name"])
                found[key] = _Allocated(gpus, tuple(pods))
        return cls(found)

    def among(self, live: Collection[str]) -> ClaimBook:
        """The same claims held by these pods: one that is over hands on what it shared."""
        return ClaimBook(
            {
                key: replace(claim, pods=tuple(uid for uid in claim.pods if uid in live))
                for key, claim in self._allocated.items()
            }
        )

    def usable(self, pod: Mapping[str, Any]) -> int:
        """GPUs that the pod may use through its claims, also those that it shares."""
        return sum(claim.gpus for claim in self._of(pod))

    def held(self, pod: Mapping[str, Any]) -> int:
        """GPUs that count for this pod: over all pods each device counts once."""
        uid = _mapping(pod.get("metadata")).get("uid")
        return sum(claim.gpus for claim in self._of(pod) if claim.counts_for(uid))

    def _of(self, pod: Mapping[str, Any]) -> list[_Allocated]:
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


def _devices(devices: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """The GPUs of an allocation; who only looks after a device (``adminAccess``) takes none."""
    return {
        (str(result["driver"]), str(result.get("pool", "")), str(result.get("device", "")))
        for result in _list(devices.get("results"))
        if isinstance(result, Mapping)
        and result.get("driver") in GPU_DRIVERS
        and not result.get("adminAccess")
    }


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
