"""When Prometheus fails, in whatever way, the last forecast stays, says so, and ages out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest

from forecasting.app.forecast_loop import ForecasterProcess
from forecasting.forecast_book import ForecastBook, Question
from forecasting.prometheus import PrometheusSource
from simulation.kube import EmbeddedKube
from wattpack.api.demand_forecast import DemandForecast
from wattpack.clock import ManualClock
from wattpack.units import NS_PER_SECOND

NOW = 12 * 86_400
RESOURCE = DemandForecast.meta.resource
Answer = Callable[[dict[str, Any]], httpx.Response]


def _matrix(*rows: list[Any]) -> dict[str, Any]:
    result = [{"metric": {}, "values": values} for values in rows]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def _points(asked: dict[str, Any]) -> list[Any]:
    first, last, step = (int(asked[name][0]) for name in ("start", "end", "step"))
    return [[t, f"{100 + 40 * np.sin(t / 13_751):.2f}"] for t in range(first, last + 1, step)]


def good(asked: dict[str, Any]) -> httpx.Response:
    """Ten days of an ordinary series."""
    return httpx.Response(200, json=_matrix(_points(asked)))


def raising(error: Exception) -> Answer:
    def answer(_: dict[str, Any]) -> httpx.Response:
        raise error

    return answer


OUTAGES: dict[str, Answer] = {
    "away": raising(httpx.ConnectError("refused")),
    "slow": raising(httpx.ReadTimeout("late")),
    "busy": lambda _: httpx.Response(503),
    "asked too much": lambda _: httpx.Response(429),
    "its own time-out": lambda _: httpx.Response(
        503, json={"status": "error", "errorType": "timeout", "error": "query timed out"}
    ),
    "a store away": lambda asked: httpx.Response(
        200, json=_matrix(_points(asked)[:200]) | {"warnings": ["store-2: connection refused"]}
    ),
    "a proxy's page": lambda _: httpx.Response(200, text="<html>please log in</html>"),
    "truncated": lambda asked: httpx.Response(200, content=good(asked).content[:-40]),
    "times backwards": lambda asked: httpx.Response(200, json=_matrix(_points(asked)[::-1])),
}


class World:
    """A forecaster whose history answers as ``answer`` says."""

    def __init__(self) -> None:
        self.answer: Answer = good
        self.clock = ManualClock(wall_offset_ns=NOW * NS_PER_SECOND)
        self.kube = EmbeddedKube(self.clock)
        client = httpx.Client(transport=httpx.MockTransport(self._handle))
        source = PrometheusSource("http://p:9090", client=client, clock=self.clock)
        body = {
            "apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind,
            "metadata": {"name": "row", "namespace": "power"},
            "spec": {"target": {"powerDomain": "row", "series": "sum(watts)"}},
        }  # fmt: skip
        self.kube.create(RESOURCE, body, "power")
        self.process = ForecasterProcess(self.clock, self.kube, source)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        return self.answer(parse_qs(request.content.decode()))

    def status(self) -> dict[str, Any]:
        return dict(self.kube.get(RESOURCE, "row", "power")["status"])

    def ready(self) -> dict[str, Any]:
        (found,) = [c for c in self.status()["conditions"] if c["type"] == "Ready"]
        return dict(found)

    def is_believed(self) -> bool:
        book = ForecastBook.of("power", self.kube.list(RESOURCE).items)
        at_seconds = self.clock.wall_time_ns() / NS_PER_SECOND
        return not book.of_domain("row", Question(at_seconds, 1000)).is_fallback


@pytest.mark.parametrize("outage", sorted(OUTAGES))
def test_an_outage_keeps_the_last_figures_until_they_are_too_old(outage: str) -> None:
    world = World()
    assert world.process.tick()
    before = world.status()
    assert world.ready()["status"] == "True"
    assert world.is_believed()
    world.answer = OUTAGES[outage]
    world.clock.advance_seconds(600)
    world.process.tick()
    during = world.status()
    for figure in ("p50", "p95", "p99", "quantiles", "dataUntil", "validUntil", "windowStart"):
        assert during[figure] == before[figure], "no figure comes of a failed read"
    told = world.ready()
    assert (told["status"], told["reason"]) == ("False", "HistoryUnavailable")
    assert len(told["message"]) < 1500
    world.answer = good
    world.clock.advance_seconds(600)
    assert world.process.tick()
    assert world.ready()["status"] == "True"
    assert world.is_believed()
    assert world.status()["dataUntil"] > before["dataUntil"]


def test_a_forecaster_that_is_gone_is_believed_only_as_long_as_it_said() -> None:
    world = World()
    assert world.process.tick()
    world.clock.advance_seconds(1700)
    assert world.is_believed()
    world.clock.advance_seconds(200)
    assert not world.is_believed()
