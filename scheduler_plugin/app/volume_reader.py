"""Reads claims of volumes, only while a pod without a node mounts one."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_plugin.app.served_kinds import ServedKinds
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.volume_places import VolumePlaces, claim_keys
from wattpack.clock import Clock
from wattpack.kube.port import JsonObject, Resource
from wattpack.units import seconds_to_ns

__all__ = ["CLAIMS", "KEPT_SECONDS", "VOLUMES", "VolumeReader"]

CLAIMS = (Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True),)
VOLUMES = (Resource("", "v1", "persistentvolumes", "PersistentVolume", False),)
#: A bound claim stays bound; one that is not yet is looked at again in every cycle.
KEPT_SECONDS = 60.0


class VolumeReader:
    """Where volumes are, as it was read a moment ago.

    Args:
        kinds: That we may read.
        clock: For the age of what was read.
    """

    def __init__(self, kinds: ServedKinds, clock: Clock) -> None:
        self._kinds, self._clock = kinds, clock
        self._places = VolumePlaces()
        self._until_ns = clock.monotonic_ns()

    def places(self, pods: Iterable[JsonObject]) -> VolumePlaces:
        """Nothing while no pod without a node mounts a claim.

        Raises:
            KubeError: if the API does not answer.
        """
        waiting = (p for p in pods if p["spec"].get("volumes") and not pod_facts.node_name(p))
        wanted = {key for pod in waiting for key in claim_keys(pod)}
        if not wanted:
            return VolumePlaces()
        known = self._places.volume_of or {}
        if self._clock.monotonic_ns() >= self._until_ns or not all(map(known.get, wanted)):
            claims, volumes = self._kinds.objects(CLAIMS), self._kinds.objects(VOLUMES)
            readable = self._kinds.is_served(CLAIMS) and self._kinds.is_served(VOLUMES)
            self._places = VolumePlaces.of(claims, volumes) if readable else VolumePlaces()
            self._until_ns = self._clock.monotonic_ns() + seconds_to_ns(KEPT_SECONDS)
        return self._places
