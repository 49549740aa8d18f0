"""ResourceClaims, followed from the moment that a pod has one, where the cluster serves them."""

from __future__ import annotations

import logging
import threading

from wattpack.clock import Clock
from wattpack.kube.informer import Informer
from wattpack.kube.port import (
    ForbiddenError,
    KubeApi,
    KubeError,
    NotFoundError,
    Resource,
    UnavailableError,
)
from wattpack.resource_claims import ClaimBook
from wattpack.units import seconds_to_ns

__all__ = ["CLAIM_KINDS", "LOOK_AGAIN_SECONDS", "ClaimFollower"]

#: The newest first; what is read of them is the same in both.
CLAIM_KINDS = tuple(
    Resource("resource.k8s.io", version, "resourceclaims", "ResourceClaim", True)
    for version in ("v1", "v1beta1")
)
#: A server that is starting, or of an older release, does not know what the next one serves.
LOOK_AGAIN_SECONDS = 60.0
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
        self._kind: Resource | None = None
        self._look_at_ns = clock.monotonic_ns()
        self._told = False
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
            if self._clock.monotonic_ns() >= self._look_at_ns and not self._is_followed():
                self._look()
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

    def _is_followed(self) -> bool:
        return self._informer is not None and self._informer.broken() is None

    def _look(self) -> None:
        """Follow the version that is served; one that is served no more keeps its last words."""
        try:
            kind = self._served_kind()
        except KubeError:
            if self._informer is None:
                raise
            return  # the informer says so, and asks again
        self._look_at_ns = self._clock.monotonic_ns() + seconds_to_ns(LOOK_AGAIN_SECONDS)
        if kind is not None and kind != self._kind:
            self.stop()
            self._follow(kind)

    def _served_kind(self) -> Resource | None:
        """The newest version; a cluster without is told once."""
        for kind in CLAIM_KINDS:
            try:
                self._api.list(kind)
            except NotFoundError:
                continue
            except ForbiddenError as error:
                self._tell(logging.WARNING, f"GPUs that pods claim are not counted: {error}")
                return None
            return kind
        self._tell(logging.INFO, "no resourceclaims here: pods hold GPUs by resource names alone")
        return None

    def _tell(self, level: int, text: str) -> None:
        if not self._told:
            log.log(level, "%s", text)
        self._told = True

    def _follow(self, kind: Resource) -> None:
        self._kind = kind
        self._informer = Informer(self._api, self._clock, kind, seed=3)
        self._informer.add_handler(lambda old, new: self._changed())
        self._changes += 1
        if self._threaded:
            self._informer.pump()
            self._informer.start()

    def _changed(self) -> None:
        self._changes += 1
