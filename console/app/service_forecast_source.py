"""DemandForecasts of services, followed by a watch; a row is read when its object changes."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from console.app.placement_source import age_of
from console.freshness import Age
from console.histories import DayBins
from console.service_forecasts import (
    ServiceForecast,
    forecasts_view,
    read_service_forecast,
    steps_of,
)
from wattpack.api import DemandForecast
from wattpack.clock import Clock
from wattpack.kube.informer import Informer
from wattpack.kube.port import JsonObject, KubeApi
from wattpack.units import NS_PER_SECOND

MAX_DAYS = 1000
"""Services whose last day is kept: some 20 MB."""

Namespaces = frozenset[str] | None


@dataclass(frozen=True, slots=True)
class _Made:
    """What somebody was shown: of which rows, until when no row becomes too old, and its number."""

    rows_version: int
    from_seconds: float
    until_seconds: float
    version: int
    view: dict[str, object]

    def holds(self, rows_version: int, now_seconds: float) -> bool:
        """Whether the same would be made now."""
        is_in_time = self.from_seconds <= now_seconds <= self.until_seconds
        return self.rows_version == rows_version and is_in_time


class ServiceForecastSource:
    """The newest forecasts of services. Thread-safe.

    Args:
        api: Where they lie.
        clock: Of the watch; real time.
    """

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._clock = clock
        self._forecasts = Informer(api, clock, DemandForecast.meta.resource, seed=5)
        self._lock = threading.Lock()
        self._rows: dict[str, ServiceForecast] = {}
        self._days = DayBins(most=MAX_DAYS)
        self._version = 0
        self._made: dict[Namespaces, _Made] = {}
        self._forecasts.add_handler(self._changed)

    def start(self) -> None:
        """Follow in a thread."""
        self._forecasts.start()

    def stop(self) -> None:
        """End the thread at its next event; does not wait for it."""
        self._forecasts.stop()

    def pump(self) -> None:
        """Take over what changed until now, in the caller's thread."""
        self._forecasts.pump()

    def namespaces(self) -> set[str]:
        """Of the forecasts that are shown."""
        with self._lock:
            return {row.namespace for row in self._rows.values()}

    def view(
        self, namespaces: Namespaces = None, now_seconds: float | None = None
    ) -> tuple[int, dict[str, object]]:
        """What the page shows, and a version that rises when it changes.

        Args:
            namespaces: Whose forecasts may be shown; None for all.
            now_seconds: Unix time of the fleet, which a simulation may set; None for real time.
        """
        now = self._clock.wall_time_ns() / NS_PER_SECOND if now_seconds is None else now_seconds
        with self._lock:
            before, version = self._made.get(namespaces), self._version
            if before is not None and before.holds(version, now):
                return before.version, before.view
            rows = list(self._rows.values())
            shown = [row for row in rows if namespaces is None or row.namespace in namespaces]
            view = {**forecasts_view(shown, now), "hidden": len(rows) - len(shown)}
            if before is not None and view == before.view:
                number = before.version
            else:
                number = self._version = version + 1
            if len(self._made) > 64:
                self._made.clear()
            made = _Made(self._version, now, _next_expiry(shown, now), number, view)
            self._made[namespaces] = made
        return made.version, made.view

    def fan(self, name: str, namespaces: Namespaces = None) -> dict[str, object] | None:
        """Steps and last day of one forecast; None where there is none to be seen.

        Args:
            name: Namespace and name, as a row has it.
            namespaces: Whose forecasts may be shown; None for all.
        """
        namespace, _, own = name.partition("/")
        body = self._forecasts.get(own, namespace)
        with self._lock:
            is_shown = name in self._rows and (namespaces is None or namespace in namespaces)
            starts, means = self._days.means(name)
        if body is None or not is_shown:
            return None
        return {**steps_of(body), "past": {"start_seconds": starts, "values": means}}

    def ages(self) -> dict[str, Age]:
        """How long the watch has been broken; 0 s while it stands."""
        return {"forecasts": age_of(self._forecasts, self._clock)}

    def _changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        metadata = (new or old or {})["metadata"]
        name = f"{metadata.get('namespace', '')}/{metadata['name']}"
        row = None if new is None else read_service_forecast(new)
        with self._lock:
            before = self._rows.pop(name, None)
            if row is not None:
                self._rows[name] = row
                self._remember(row)
            if row != before:
                self._version += 1

    def _remember(self, row: ServiceForecast) -> None:
        """The newest value, which is of the bin before the data's end; under the lock."""
        if row.now is not None and row.data_until_seconds is not None:
            self._days.note(row.name, round(1000 * row.data_until_seconds) - 1, row.now)


def _next_expiry(rows: list[ServiceForecast], now_seconds: float) -> float:
    """When the next row becomes too old, Unix seconds."""
    ends = [row.valid_until_seconds for row in rows if row.valid_until_seconds is not None]
    return min((end for end in ends if end >= now_seconds), default=float("inf"))
