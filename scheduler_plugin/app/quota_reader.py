"""Reads quotas of namespaces, while somebody waits for a place."""

from __future__ import annotations

from typing import Final

from scheduler_plugin.app.served_kinds import ServedKinds
from scheduler_plugin.kube_objects.quota_objects import QuotaBook
from wattpack.clock import Clock
from wattpack.kube.port import Resource
from wattpack.units import seconds_to_ns

__all__ = ["ELASTIC_QUOTAS", "KEPT_SECONDS", "QUOTAS", "QuotaReader"]

QUOTAS: Final = (Resource("", "v1", "resourcequotas", "ResourceQuota", True),)
ELASTIC_QUOTAS: Final = (
    Resource("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota", True),
)
#: People set quotas now and then. What pods use of them is counted from the pods.
KEPT_SECONDS: Final = 10.0


class QuotaReader:
    """Quotas as they were read a moment ago.

    Args:
        kinds: That the cluster may serve and we may read.
        clock: For the age of what was read.
    """

    def __init__(self, kinds: ServedKinds, clock: Clock) -> None:
        self._kinds, self._clock = kinds, clock
        self._book = QuotaBook()
        self._until_ns = clock.monotonic_ns()

    def book(self) -> QuotaBook:
        """All of them.

        Raises:
            KubeError: if the API does not answer.
        """
        if self._clock.monotonic_ns() >= self._until_ns:
            created = self._kinds.objects(QUOTAS)
            self._book = QuotaBook.of(created, self._kinds.objects(ELASTIC_QUOTAS))
            self._until_ns = self._clock.monotonic_ns() + seconds_to_ns(KEPT_SECONDS)
        return self._book
