"""``/metrics`` for those who may read them, ``/healthz`` for the kubelet: the same in each process.

Where one process follows another, ``/readyz`` says when the other may go.

access = reader_access(host, insecure=False, reviews=lambda: kube, clock=clock)
http = metrics_port((host, port), registry, access, lambda: "the loop hangs" if late else "")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from wattpack.clock import Clock
from wattpack.hosts import is_loopback
from wattpack.http_access import METRICS, Caller, HttpAccess
from wattpack.http_port import HttpAnswer, HttpPort, Route, health
from wattpack.kube.port import AccessReviews

__all__ = ["RefusalCollector", "health_route", "metrics_port", "metrics_route", "reader_access"]


def reader_access(
    host: str, insecure: bool, reviews: Callable[[], AccessReviews], clock: Clock
) -> HttpAccess:
    """Who may read: on loopback, or where somebody said ``insecure``, whoever reaches the port.

    Args:
        host: That the port is bound to.
        insecure: Ask nobody who they are.
        reviews: Called only where readers are asked who they are; its errors are passed on.
        clock: Of the kept answers' age.
    """
    if insecure or is_loopback(host):
        return HttpAccess.insecure((), clock)
    # Prometheus and the kubelet ask for a pod by its address; it has no other name.
    return HttpAccess((), reviews(), clock)


def metrics_port(
    address: tuple[str, int],
    registry: CollectorRegistry,
    access: HttpAccess,
    failure: Callable[[], str] = str,
    unready: Callable[[], str] | None = None,
) -> HttpPort:
    """The port, not started yet; the registry learns of refused requests, too.

    Args:
        address: Host and port; port 0 for any.
        registry: Shown as text.
        access: Who may read it.
        failure: Why the process does not work; empty while it does.
        unready: What it waits for before its work can rest on it; None for no ``/readyz``.

    Raises:
        InputError: if the port is taken.
    """
    registry.register(RefusalCollector(access.refused))
    routes = {
        "/metrics": metrics_route(lambda: generate_latest(registry)),
        "/healthz": health_route(failure),
    }
    if unready is not None:
        routes["/readyz"] = health_route(unready)
    return HttpPort(*address, routes, access)


def metrics_route(text: Callable[[], bytes]) -> Route:
    """The exposition text, for callers with the right to it."""

    def answer(caller: Caller) -> HttpAnswer:
        return HttpAnswer(200, "text/plain; version=0.0.4", text())

    return Route(answer, METRICS)


def health_route(failure: Callable[[], str]) -> Route:
    """Open to all: 200, or 503 with what is wrong."""

    def answer() -> HttpAnswer:
        wrong = failure()
        return HttpAnswer(503 if wrong else 200, "text/plain", f"{wrong or 'ok'}\n".encode())

    return health(answer)


class RefusalCollector(Collector):
    """Requests that were refused.

    Args:
        refused: Counts by the name of the error.
    """

    def __init__(self, refused: Callable[[], Mapping[str, int]]) -> None:
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        """One counter."""
        metric = CounterMetricFamily(
            "wattpack_http_refused_requests",
            "HTTP requests that were refused, by error.",
            labels=["reason"],
        )
        for reason, count in self._refused().items():
            metric.add_metric([reason], count)
        yield metric
