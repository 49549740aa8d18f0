"""ResourceClaims, followed from the moment that a pod has one, where the cluster serves them."""

from __future__ import annotations

import logging
import threading

from wattpack.clock import Clock
from wattpack.kube.informer import Informer
from wattpack.kube.port import (
    ForbiddenError,
    KubeApi,
    NotFoundError,
    Resource,
    UnavailableError,
)
from wattpack.resource_claims import ClaimBook

__all__ = ["CLAIM_KINDS", "ClaimFollower"]

#: The newest first; what is read of them is the same in both.
CLAIM_KINDS = tuple(
    Resource("resource.k8s.io", version, "resourceclaims", "ResourceClaim", True)
    for version in ("v1", "v1beta1")
)
log = logging.getLogger(__name__)


class ClaimFollower:
    """Asks for nothing until ``book`` is called for the first time. Thread-safe.

    Args:
        api: The cluster.
        clock: Of the watch.
    """

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api, self._clock, self._threaded = api, clock, False
        self._lock = threading.Lock()
        self._informer: Informer | None = None
        self._served: bool | None = None
        self._changes = self._booked = 0
        self._book = ClaimBook()

    def start(self) -> None:
        """Follow in a thread once there is something to follow; before, each ``book`` looks."""
        self._threaded = True

    def book(self) -> ClaimBook:
        """The claims as they are now; an empty one where the cluster knows no claims.

        Raises:
            KubeError: until they were read once.
        """
        with self._lock:
            if self._served is None:
                self._begin()
            informer = self._informer
            if informer is None:
                return self._book
            if not self._threaded:
                informer.pump()
            if not informer.synced():
                raise UnavailableError("not read yet: resourceclaims")
            changes = self._changes
            if changes != self._booked:
                self._book, self._booked = ClaimBook.of(informer.list()), changes
            return self._book

    def stop(self) -> None:
        """End the thread at its next event; does not wait for it."""
        if self._informer is not None:
            self._informer.stop()

    def _begin(self) -> None:
        """Find the version that is served, and follow it; a cluster without is told once."""
        for kind in CLAIM_KINDS:
            try:
                self._api.list(kind)
            except NotFoundError:
                continue
            except ForbiddenError as error:
                log.warning("GPUs that pods claim are not counted: %s", error)
                self._served = False
                return
            self._follow(kind)
            return
        log.info("this cluster has no resourceclaims: pods hold GPUs by resource names alone")
        self._served = False

    def _follow(self, kind: Resource) -> None:
        self._informer, self._served = Informer(self._api, self._clock, kind, seed=3), True
        self._informer.add_handler(lambda old, new: self._changed())
        if self._threaded:
            self._informer.pump()
            self._informer.start()

    def _changed(self) -> None:
        self._changes += 1
