"""Pods and plans, followed by watches: a change costs what changed, not a list of everything."""

from __future__ import annotations

import logging
import threading

from console.freshness import Age
from console.placement_rows import PodRow, placement_view, pod_row
from wattpack.api import PlacementPlan
from wattpack.clock import Clock
from wattpack.kube.claim_follower import ClaimFollower
from wattpack.kube.informer import Informer
from wattpack.kube.port import PODS, JsonObject, KubeApi, KubeError
from wattpack.resource_claims import ClaimBook, asks_for_claims
from wattpack.units import NS_PER_SECOND

Key = tuple[str, str]
log = logging.getLogger(__name__)


class PlacementSource:
    """Pods that ask for GPUs, and the newest plans. Thread-safe.

    Args:
        api: Where they lie.
        clock: Of the watches; real time.
    """

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._clock = clock
        self._pods = Informer(api, clock, PODS, seed=1)
        self._plans = Informer(api, clock, PlacementPlan.meta.resource, seed=2)
        self._claims = ClaimFollower(api, clock)
        self._book = ClaimBook()
        self._claiming: dict[Key, JsonObject] = {}
        self._lock = threading.Lock()
        self._rows: dict[Key, PodRow] = {}
        self._version = 0
        self._views: dict[frozenset[str] | None, tuple[int, dict[str, object]]] = {}
        self._pods.add_handler(self._pod_changed)
        self._plans.add_handler(self._plan_changed)

    def start(self) -> None:
        """Follow in threads."""
        self._claims.start()
        for informer in (self._pods, self._plans):
            informer.start()

    def stop(self) -> None:
        """End the threads at their next event; does not wait for them."""
        for informer in (self._pods, self._plans):
            informer.stop()
        self._claims.stop()

    def pump(self) -> None:
        """Take over what changed until now, in the caller's thread."""
        for informer in (self._pods, self._plans):
            informer.pump()

    def namespaces(self) -> set[str]:
        """Of the pods that are shown."""
        with self._lock:
            return {row.namespace for row in self._rows.values()}

    def view(self, namespaces: frozenset[str] | None = None) -> tuple[int, dict[str, object]]:
        """What the page shows, and a version that rises when it changes.

        Args:
            namespaces: Whose pods may be named; None for all.
        """
        self._count_claims()
        with self._lock:
            version, rows = self._version, list(self._rows.values())
            kept = self._views.get(namespaces)
        if kept is not None and kept[0] == version:
            return kept
        shown = [row for row in rows if namespaces is None or row.namespace in namespaces]
        made = placement_view(shown, self._plans.list())
        made["hidden"] = len(rows) - len(shown)
        with self._lock:
            if len(self._views) > 64:
                self._views.clear()
            self._views[namespaces] = version, made
        return version, made

    def ages(self) -> dict[str, Age]:
        """How long each watch has been broken; 0 s while it stands, however quiet it is."""
        return {
            "pods": age_of(self._pods, self._clock),
            "plans": age_of(self._plans, self._clock),
        }

    def _pod_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        metadata = (new or old or {})["metadata"]
        key = str(metadata.get("namespace", "")), str(metadata["name"])
        with self._lock:
            self._claiming.pop(key, None)
            if new is not None and asks_for_claims(new):
                self._claiming[key] = new
            self._take(key, new)

    def _count_claims(self) -> None:
        """Bring the rows of pods with claims up to date; where nobody answers they stay."""
        with self._lock:
            claiming = bool(self._claiming)
        if not claiming:
            return
        try:
            book = self._claims.book()
        except KubeError as error:
            log.debug("claims of pods are not shown: %s", error)
            return
        with self._lock:
            if book is not self._book:
                self._book = book
                for key, pod in self._claiming.items():
                    self._take(key, pod)

    def _take(self, key: Key, pod: JsonObject | None) -> None:
        """The pod's row as it is now; under the lock."""
        row = pod_row(pod, self._book.usable(pod)) if pod is not None else None
        before = self._rows.pop(key, None)
        if row is not None:
            self._rows[key] = row
        if row != before:
            self._version += 1

    def _plan_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        with self._lock:
            self._version += 1


def age_of(informer: Informer, clock: Clock) -> Age:
    """How long the informer's watch has been broken; 0 s while it stands."""
    broken = informer.broken()
    if informer.lists == 0:
        return Age(None, broken.cause if broken else "not read yet")
    if broken is None:
        return Age(0.0)
    seconds = (clock.monotonic_ns() - broken.since_ns) / NS_PER_SECOND
    return Age(max(0.0, seconds), broken.cause)
