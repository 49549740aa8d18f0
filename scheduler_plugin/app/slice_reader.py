"""Reads devices and claim templates, only while a pod without a node has a claim."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_plugin.app.served_kinds import ServedKinds
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.pod_claims import ClaimObjects
from wattpack.clock import Clock
from wattpack.device_requests import DeviceSlices
from wattpack.kube.port import JsonObject, Resource
from wattpack.resource_claims import asks_for_claims
from wattpack.units import seconds_to_ns

__all__ = ["CLAIM_TEMPLATES", "KEPT_SECONDS", "RESOURCE_SLICES", "SliceReader"]

_GROUP, _VERSIONS = "resource.k8s.io", ("v1", "v1beta2", "v1beta1")
RESOURCE_SLICES = tuple(
    Resource(_GROUP, version, "resourceslices", "ResourceSlice", False) for version in _VERSIONS
)
CLAIM_TEMPLATES = tuple(
    Resource(_GROUP, version, "resourceclaimtemplates", "ResourceClaimTemplate", True)
    for version in _VERSIONS
)
#: Slices are large and change when a driver starts or a board fails.
KEPT_SECONDS = 10.0


class SliceReader:
    """Devices of all nodes, as the drivers told them a moment ago.

    Args:
        kinds: That the cluster may serve.
        clock: For the age of what was read.
    """

    def __init__(self, kinds: ServedKinds, clock: Clock) -> None:
        self._kinds, self._clock = kinds, clock
        self._slices = DeviceSlices()
        self._read_at_ns: int | None = None

    def objects(self, pods: Iterable[JsonObject]) -> ClaimObjects:
        """Nothing while no pod without a node has a claim.

        Raises:
            KubeError: if the API does not answer.
        """
        waiting = [p for p in pods if not pod_facts.node_name(p) and asks_for_claims(p)]
        if not waiting:
            return ClaimObjects()
        now_ns = self._clock.monotonic_ns()
        old = self._read_at_ns is None or now_ns - self._read_at_ns > seconds_to_ns(KEPT_SECONDS)
        if old:
            self._slices = DeviceSlices.of(self._kinds.objects(RESOURCE_SLICES))
            self._read_at_ns = now_ns
        templates = (
            self._kinds.objects(CLAIM_TEMPLATES) if any(map(_from_template, waiting)) else ()
        )
        named = {(b["metadata"].get("namespace", ""), b["metadata"]["name"]): b for b in templates}
        return ClaimObjects(self._slices, named)


def _from_template(pod: JsonObject) -> bool:
    asked = pod["spec"].get("resourceClaims") or ()
    return any(entry.get("resourceClaimTemplateName") for entry in asked)
