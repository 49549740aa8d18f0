"""GPU types for the page: GPUProfile objects by watch, measured rows from the package."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from capacity.bench.measurement_row import MeasurementRow
from capacity.bench.shipped_rows import shipped_rows, shipped_runs
from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from console.gpu_types import gpu_type_views
from wattpack.api import GPUProfile
from wattpack.clock import Clock
from wattpack.kube.informer import Informer
from wattpack.kube.port import JsonObject, KubeApi


class GpuTypesSource:
    """The types that are known now; an object's change costs one book. Thread-safe."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._profiles = Informer(api, clock, GPUProfile.meta.resource, seed=3)
        self._lock = threading.Lock()
        self._book = ProfileBook.shipped(shipped_library())
        self._stale = False
        self._views: list[dict[str, Any]] | None = None
        self._profiles.add_handler(self._changed)

    def start(self) -> None:
        """Follow in a thread."""
        self._profiles.start()

    def stop(self) -> None:
        """End the thread at its next event; does not wait for it."""
        self._profiles.stop()

    def pump(self) -> None:
        """Take over what changed until now, in the caller's thread."""
        self._profiles.pump()

    def views(self) -> list[dict[str, Any]]:
        """What the page draws, one entry a type."""
        with self._lock:
            if self._stale:
                self._book = self._book.with_objects(self._profiles.list())
                self._stale, self._views = False, None
            if self._views is None:
                self._views = gpu_type_views(self._book.profiles(), measured_rows())
            return self._views

    def _changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        with self._lock:
            self._stale = True


@lru_cache(maxsize=1)
def measured_rows() -> tuple[MeasurementRow, ...]:
    """Every row that ships with the package."""
    return tuple(row for run in shipped_runs() for row in shipped_rows(run))
