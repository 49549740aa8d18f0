"""How long a silent watch is believed: quiet kinds break nothing, a dead server is noticed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3

from wattpack.clock import ManualClock
from wattpack.kube.client.client_api import ClientKube
from wattpack.kube.client.transport import Transport
from wattpack.kube.informer import Informer
from wattpack.kube.port import NODES
from wattpack.units import NS_PER_SECOND

IDLE_SECONDS = 30 * 60
NOTICED_WITHIN_SECONDS = 150.0


class Server:
    """A server in virtual time, spoken to like urllib3: lists, and watches with gaps.

    ``gaps`` are the seconds between two bookmarks; a gap beyond the client's patience is the read
    time-out that urllib3 raises. A dead server sends nothing, not even the end of a watch.
    """

    def __init__(self, clock: ManualClock, gaps: Iterator[float], *, dead: bool = False) -> None:
        self.clock, self.gaps, self.dead = clock, gaps, dead
        self.noticed_after_seconds: list[float] = []

    def request(self, method: str, url: str, **options: Any) -> Any:
        patience = options["_request_timeout"][1]
        query = dict(pair.split("=") for pair in url.partition("?")[2].split("&"))
        if "watch" not in query:
            body = json.dumps({"items": [], "metadata": {"resourceVersion": "7"}}).encode()
            return self._response(body, iter(()))
        return self._response(None, self._watch(patience, float(query["timeoutSeconds"])))

    def _response(self, data: bytes | None, stream: Iterator[bytes]) -> Any:
        inner = SimpleNamespace(
            stream=lambda size, decode_content: stream,
            close=lambda: None,
            release_conn=lambda: None,
        )
        return SimpleNamespace(status=200, headers={}, data=data, read=lambda: data, response=inner)

    def _watch(self, patience: float, seconds: float) -> Iterator[bytes]:
        ends_ns = self.clock.monotonic_ns() + round(seconds * NS_PER_SECOND)
        while True:
            left = (ends_ns - self.clock.monotonic_ns()) / NS_PER_SECOND
            gap = next(self.gaps)
            silence = float("inf") if self.dead else min(gap, left)
            if silence > patience:
                self.clock.advance_seconds(patience)
                self.noticed_after_seconds.append(patience)
                raise urllib3.exceptions.ReadTimeoutError(None, "", "read timed out")  # type: ignore[arg-type]
            self.clock.advance_seconds(silence)
            if gap >= left:
                return
            bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}
            yield json.dumps(bookmark).encode() + b"\n"


def idle(server: Server, clock: ManualClock, seed: int) -> None:
    """Follow a kind in which nothing happens, as the informer's thread does."""
    api = ClientKube(Transport(server, "https://server", lambda: None))
    informer = Informer(api, clock, NODES, seed=seed)
    while clock.monotonic_ns() < IDLE_SECONDS * NS_PER_SECOND:
        informer.follow_once()


def between(low: float, high: float, seed: int) -> Iterator[float]:
    dice = random.Random(seed)
    return iter(lambda: dice.uniform(low, high), None)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("low", "high"), [(50, 70), (60, 90), (200, 400), (1e9, 1e9)],
    ids=["every minute", "late", "rare", "never"],
)  # fmt: skip
def test_half_an_idle_hour_breaks_no_watch(low: float, high: float, seed: int) -> None:
    clock = ManualClock()
    server = Server(clock, between(low, high, seed))
    idle(server, clock, seed)
    assert server.noticed_after_seconds == []


@pytest.mark.parametrize("seed", range(10))
def test_a_dead_connection_is_noticed_within_two_and_a_half_minutes(seed: int) -> None:
    clock = ManualClock()
    server = Server(clock, between(1, 2, seed), dead=True)
    idle(server, clock, seed)
    assert server.noticed_after_seconds
    assert max(server.noticed_after_seconds) <= NOTICED_WITHIN_SECONDS
