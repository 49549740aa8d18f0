"""What BMCs say of whole servers, out of a Prometheus that scrapes IPMI or Redfish exporters.

    server_power_query ──> thread, every 2 s ──> newest readings ──read()──> tick

One question brings all servers. A plain series tells its samples' times; any other expression
seems to be of the moment of the question, so its query has to drop what is old by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from controller.app.told_once import ToldOnce
from controller.host_draws import ServerReading
from forecasting.prometheus.query import QueryApi, named_once
from wattpack.clock import Clock
from wattpack.errors import WattpackError
from wattpack.periodic import PeriodicThread
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["NoServerPower", "ServerPower", "ServerPowerSource"]

log = logging.getLogger(__name__)

PERIOD_NS: Final = 2 * NS_PER_SECOND
HIGHEST_WATTS: Final = 1e6
SUBJECT: Final = "power of whole servers"


class ServerPowerSource(Protocol):
    """The newest reading of each server's BMC."""

    @property
    def max_age_ns(self) -> int:
        """Older readings count as missing."""
        ...

    def read(self) -> Mapping[str, ServerReading]:
        """By Node name; never waits."""
        ...


class NoServerPower:
    """Nobody tells."""

    max_age_ns = 0

    def read(self) -> Mapping[str, ServerReading]:
        """Nothing."""
        return {}


class ServerPower(PeriodicThread, ServerPowerSource):
    """Readings of every server that one query names.

    Args:
        api: Prometheus, path ``query``.
        clock: Time stamps are brought onto its monotonic side.
        query: PromQL of one series a server, AC watts.
        label: With the Node's name.
        max_age_seconds: Of a reading.
    """

    def __init__(
        self, api: QueryApi, clock: Clock, query: str, label: str, max_age_seconds: float
    ) -> None:
        super().__init__(clock, "server power", PERIOD_NS)
        self._api, self._query, self._label = api, query, label
        self._max_age_ns = seconds_to_ns(max_age_seconds)
        self._readings: Mapping[str, ServerReading] = {}
        self._told = ToldOnce(log, "%s: %s", "%s: all is read again")

    @property
    def max_age_ns(self) -> int:
        """Older readings count as missing."""
        return self._max_age_ns

    def read(self) -> Mapping[str, ServerReading]:
        """The last good one of each server; who takes them judges their age."""
        return self._readings

    def stop(self, patience_seconds: float = 5.0) -> None:
        """End the thread; an open question is waited for."""
        super().stop(patience_seconds)
        self._api.close()

    def run_once(self) -> None:
        """Ask once; without an answer, or a place in it, the last readings age."""
        try:
            refused = self._ask()
        except WattpackError as error:
            self._told.tell(SUBJECT, str(error))
        else:
            nobody = f"no server has a reading and one {self._label!r}"
            self._told.tell(SUBJECT, refused or ("" if self._readings else nobody))

    def _ask(self) -> str:
        """Ask; what is wrong with a server that was left out, empty for nothing."""
        now_ns, now_seconds = self._clock.monotonic_ns(), self._clock.wall_time_ns() / NS_PER_SECOND
        watts = self._by_server(self._query, now_seconds)
        stamps = self._by_server(f"timestamp({self._query})", now_seconds)
        found, refused = {}, ""
        for name in sorted(watts.keys() & stamps.keys()):
            age_seconds = now_seconds - stamps[name]
            # One BMC that tells nonsense (exporters write NaN) must not blind the row to the rest.
            if not 0.0 <= watts[name] <= HIGHEST_WATTS:
                refused = refused or f"{name}: expected AC watts from 0 to 1e6, got {watts[name]}"
            elif abs(age_seconds) <= self._max_age_ns / NS_PER_SECOND:
                # A clock that is ahead of ours must not make a reading one of the future.
                age_ns = max(0, seconds_to_ns(age_seconds))
                found[name] = ServerReading(watts[name], now_ns - age_ns)
        # Who is not among them was not scraped now, or nobody was since Prometheus began again.
        before = {n: r for n, r in self._readings.items() if now_ns - r.time_ns <= self._max_age_ns}
        # Replaced whole: the tick reads it from another thread.
        self._readings = {**before, **found}
        return refused

    def _by_server(self, query: str, at_seconds: float) -> dict[str, float]:
        """A server that several series name is left out: their sum may count a supply twice."""
        return named_once(self._api, query, at_seconds, lambda labels: labels.get(self._label, ""))
