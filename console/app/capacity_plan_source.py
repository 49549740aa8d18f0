"""CapacityPlans, followed by a watch."""

from __future__ import annotations

import threading

from console.app.placement_source import age_of
from console.capacity_plan_rows import capacity_view
from console.freshness import Age
from wattpack.api import CapacityPlan
from wattpack.clock import Clock
from wattpack.kube.informer import Informer
from wattpack.kube.port import JsonObject, KubeApi


class CapacityPlanSource:
    """The newest CapacityPlans. Thread-safe.

    Args:
        api: Where they lie.
        clock: Of the watch; real time.
    """

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._clock = clock
        self._plans = Informer(api, clock, CapacityPlan.meta.resource, seed=4)
        self._lock = threading.Lock()
        self._version = 0
        self._views: dict[frozenset[str] | None, tuple[int, dict[str, object]]] = {}
        self._plans.add_handler(self._changed)

    def start(self) -> None:
        """Follow in a thread."""
        self._plans.start()

    def stop(self) -> None:
        """End the thread at its next event; does not wait for it."""
        self._plans.stop()

    def pump(self) -> None:
        """Take over what changed until now, in the caller's thread."""
        self._plans.pump()

    def namespaces(self) -> set[str]:
        """Of the plans that are shown."""
        return {str(body["metadata"].get("namespace", "")) for body in self._plans.list()}

    def view(self, namespaces: frozenset[str] | None = None) -> tuple[int, dict[str, object]]:
        """What the page shows, and a version that rises when it changes.

        Args:
            namespaces: Whose plans may be shown; None for all.
        """
        with self._lock:
            version, kept = self._version, self._views.get(namespaces)
        if kept is not None and kept[0] == version:
            return kept
        every = self._plans.list()
        shown = [b for b in every if namespaces is None or b["metadata"]["namespace"] in namespaces]
        made = capacity_view(shown)
        made["hidden"] = len(every) - len(shown)
        with self._lock:
            if len(self._views) > 64:
                self._views.clear()
            self._views[namespaces] = version, made
        return version, made

    def ages(self) -> dict[str, Age]:
        """How long the watch has been broken; 0 s while it stands."""
        return {"capacity": age_of(self._plans, self._clock)}

    def _changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        with self._lock:
            self._version += 1
