"""Reads what autoscalers have asked for, while somebody waits at our gate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler_plugin.app.served_kinds import ServedKinds
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.nodes_under_way import UnderWay, under_way
from wattpack.clock import Clock
from wattpack.kube.port import JsonObject, Resource
from wattpack.units import seconds_to_ns

__all__ = ["KEPT_SECONDS", "NODE_CLAIMS", "PROVISIONING_REQUESTS", "UnderWayReader"]

NODE_CLAIMS: Final = (Resource("karpenter.sh", "v1", "nodeclaims", "NodeClaim", False),)
PROVISIONING_REQUESTS: Final = tuple(
    Resource("autoscaling.x-k8s.io", version, "provisioningrequests", "ProvisioningRequest", True)
    for version in ("v1", "v1beta1")
)
#: A node takes a minute to come; a pod that no present node can serve is let go after as long.
KEPT_SECONDS: Final = 5.0


class UnderWayReader:
    """Claims and requests as they were read a moment ago.

    Args:
        kinds: That the cluster may serve and we may read.
        clock: For the age of what was read.
    """

    def __init__(self, kinds: ServedKinds, clock: Clock) -> None:
        self._kinds, self._clock = kinds, clock
        self._claims: tuple[JsonObject, ...] = ()
        self._requests: tuple[JsonObject, ...] = ()
        self._until_ns = clock.monotonic_ns()

    def read(self, nodes: Iterable[JsonObject], pods: tuple[JsonObject, ...]) -> UnderWay:
        """What is to come beside these nodes, for those of the pods that are at our gate.

        Raises:
            KubeError: if the API does not answer.
        """
        if not any(map(pod_facts.is_gated, pods)):
            return UnderWay()
        if self._clock.monotonic_ns() >= self._until_ns:
            self._claims = tuple(self._kinds.objects(NODE_CLAIMS))
            self._requests = tuple(self._kinds.objects(PROVISIONING_REQUESTS))
            self._until_ns = self._clock.monotonic_ns() + seconds_to_ns(KEPT_SECONDS)
        return under_way(self._claims, self._requests, nodes, pods)
