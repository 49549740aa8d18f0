"""The newest live view of the controllers, how old it is, and what was seen in the last half hour.

Each replica is read in a thread of its own: one that hangs delays nobody. A view counts as new when
its tick moved; an answer that repeats itself ages like no answer. A browser never causes a request.
"""

from __future__ import annotations

import http.client
import logging
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPMessage
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from console.freshness import GREY_SECONDS, Age, age
from console.histories import Histories
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.live_view import LiveView
from wattpack.periodic import PeriodicThread
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)
#: Ten thousand GPUs take 2 MiB.
MAX_VIEW_BYTES = 64 * 1024 * 1024
REQUEST_SECONDS = 3.0
#: For a whole answer, however slowly it drips.
ANSWER_SECONDS = 10.0
_CHUNK_BYTES = 1 << 16


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
        self.urls, self._clock, self._token_file = tuple(urls), clock, token_file
        self._lock = threading.Lock()
        self._replicas = {url: _Replica() for url in self.urls}
        self._histories = Histories()
        self._shown_key: tuple[object, ...] = ()
        self._begun_ns = clock.monotonic_ns()
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
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
            view = parse_view(self._fetch(url))
        except (OSError, http.client.HTTPException, InputError, ValueError) as error:
            cause = _words(error)
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

    def _fetch(self, url: str) -> bytes:
        request = urllib.request.Request(url)
        if self._token_file is not None:
            token = self._token_file.read_text(encoding="ascii").strip()
            request.add_header("Authorization", f"Bearer {token}")
        deadline_ns = self._clock.monotonic_ns() + round(ANSWER_SECONDS * NS_PER_SECOND)
        chunks, size = [], 0
        with self._opener.open(request, timeout=REQUEST_SECONDS) as answer:
            while chunk := answer.read1(_CHUNK_BYTES):
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_VIEW_BYTES:
                    raise InputError("live", f"at most {MAX_VIEW_BYTES} bytes", "more")
                if self._clock.monotonic_ns() > deadline_ns:
                    raise InputError("live", f"a whole answer within {ANSWER_SECONDS:g} s", "less")
            declared = answer.headers.get("Content-Length")
        if declared is not None and int(declared) != size:
            raise InputError("live", f"{declared} bytes, as declared", size)
        return b"".join(chunks)


class ReplicaReader(PeriodicThread):
    """Reads one replica every second."""

    def __init__(self, source: LiveSource, url: str, clock: Clock) -> None:
        super().__init__(clock, f"console-live-{_short(url)}", NS_PER_SECOND)
        self._source, self._url = source, url

    def run_once(self) -> None:
        """One reading."""
        self._source.read(self._url)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A controller redirects nobody; whoever does must not get our token."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """None: the redirection becomes an ``HTTPError``."""
        return


def parse_view(body: bytes) -> LiveView:
    """The view of an answer.

    Raises:
        InputError: naming the first field that this release does not understand.
    """
    try:
        return LiveView.model_validate_json(body, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "live"
        raise InputError(field, f"a live view of this release ({first['msg']})") from error


def _key(view: LiveView | None) -> tuple[object, ...]:
    return () if view is None else (view.epoch, view.leading, view.tick, view.wall_time_ns)


def _short(url: str) -> str:
    """Host of the address, the part that tells replicas apart."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or url
    named = host.partition(".")[0]
    return f"{host}:{parts.port}" if named.isdigit() else named


def _words(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error)[:200]
