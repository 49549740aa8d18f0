"""The newest live view of the controllers, how old it is, and what was seen of the last day.

Each replica is read in a thread of its own: one that hangs delays nobody. A view counts as new when
its tick moved; an answer that repeats itself ages like no answer. A browser never causes a request.
"""

from __future__ import annotations

import logging
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from console.freshness import GREY_SECONDS, Age, age
from console.histories import DayBins, Histories
from wattpack.clock import Clock
from wattpack.live_client import READ_ERRORS, LiveClient, cause_of
from wattpack.live_view import LiveView
from wattpack.periodic import PeriodicThread
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Replica:
    """What one controller said last."""

    view: LiveView | None = None
    changed_ns: int = -1
    cause: str = ""
    tried_ns: int = -1


class LiveSource:
    """Reads ``/v1/live`` of every controller replica and shows the leader's view. Thread-safe.

    Args:
        urls: One a replica.
        clock: Of ages; real time, also beside a simulated fleet.
        token_file: Our own bearer token, read anew for each request; None for none.
    """

    def __init__(self, urls: Sequence[str], clock: Clock, token_file: Path | None = None) -> None:
        self.urls, self._clock = tuple(urls), clock
        self._client = LiveClient(clock, token_file)
        self._lock = threading.Lock()
        self._replicas = {url: _Replica() for url in self.urls}
        self._histories, self._days = Histories(), DayBins()
        self._shown_key: tuple[object, ...] = ()
        self._begun_ns = clock.monotonic_ns()
        self.failures = 0

    def latest(self) -> tuple[LiveView | None, Age]:
        """The view to show, and how old it is."""
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            best = self._best(now_ns)
            cause = "; ".join(
                f"{_short(url)}: {replica.cause}"
                for url, replica in self._replicas.items()
                if replica.cause
            )
            if best is None:
                return None, age(now_ns, None, cause)
            return best.view, age(now_ns, best.changed_ns, cause)

    def history(self, domain: str) -> dict[str, list[float | None]]:
        """The kept columns of a domain."""
        with self._lock:
            return self._histories.columns(domain)

    def day(self, domain: str) -> Mapping[str, Sequence[float | None]]:
        """Ten-minute means of a domain's last day."""
        with self._lock:
            return self._days.columns(domain)

    def idle_seconds(self) -> float:
        """Since the last attempt to read anything: whether the reading itself hangs."""
        with self._lock:
            last = max((r.tried_ns for r in self._replicas.values()), default=-1)
            return (self._clock.monotonic_ns() - max(last, self._begun_ns)) / NS_PER_SECOND

    def poll(self) -> None:
        """Read every replica once, one after the other."""
        for url in self.urls:
            self.read(url)

    def read(self, url: str) -> None:
        """Read one replica once and keep what it says."""
        replica = self._replicas[url]
        view, cause = None, ""
        try:
            view = self._client.read(url)
        except READ_ERRORS as error:
            cause = cause_of(error)
            log.debug("no live view from %s: %s", url, error)
        with self._lock:
            replica.tried_ns, replica.cause = self._clock.monotonic_ns(), cause
            self.failures += bool(cause)
            if view is not None and _key(view) != _key(replica.view):
                replica.view, replica.changed_ns = view, replica.tried_ns
                self._remember(replica.tried_ns)

    def _remember(self, now_ns: int) -> None:
        best = self._best(now_ns)
        if best is not None and best.view is not None and _key(best.view) != self._shown_key:
            self._shown_key = _key(best.view)
            time_ms = best.view.wall_time_ns // 1_000_000
            self._histories.add(time_ms, now_ns, best.view.domains)
            self._days.add(time_ms, best.view.domains)

    def _best(self, now_ns: int) -> _Replica | None:
        """A fresh leader, else somebody fresh, else whoever led last."""
        heard = [replica for replica in self._replicas.values() if replica.view is not None]

        def rank(replica: _Replica) -> tuple[object, ...]:
            view = replica.view
            if view is None:
                return ()
            fresh = now_ns - replica.changed_ns <= GREY_SECONDS * NS_PER_SECOND
            return fresh, view.leading, view.epoch, replica.changed_ns

        return max(heard, key=rank, default=None)


class ReplicaReader(PeriodicThread):
    """Reads one replica every second."""

    def __init__(self, source: LiveSource, url: str, clock: Clock) -> None:
        super().__init__(clock, f"console-live-{_short(url)}", NS_PER_SECOND)
        self._source, self._url = source, url

    def run_once(self) -> None:
        """One reading."""
        self._source.read(self._url)


def _key(view: LiveView | None) -> tuple[object, ...]:
    return () if view is None else (view.epoch, view.leading, view.tick, view.wall_time_ns)


def _short(url: str) -> str:
    """Host of the address, the part that tells replicas apart."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or url
    named = host.partition(".")[0]
    return f"{host}:{parts.port}" if named.isdigit() else named
