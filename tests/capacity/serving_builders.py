"""A server whose iterations cost what a person can add up."""

from __future__ import annotations

from dataclasses import dataclass

from capacity.serving.engine import BatchingRules
from capacity.serving.served_requests import ClosedLoop, OpenLoop, Request, ServerRun, Size
from capacity.serving.server_simulation import simulate


@dataclass(frozen=True)
class ToyClock:
    """A second a decode iteration, and a second more for every hundred prompt tokens."""

    watts: float = 100.0

    def decode(self, decodes: int, context: float) -> tuple[float, float, float]:
        return 1.0, self.watts, 1.0

    def prompt(
        self, decodes: int, context: float, prompts: int, tokens: int, pairs: float
    ) -> tuple[float, float, float]:
        seconds = 1.0 + tokens / 100
        return seconds, seconds * self.watts, seconds


def rules(**changes: object) -> BatchingRules:
    values: dict[str, object] = {"token_budget": 1000, "largest_batch": 8} | changes
    return BatchingRules(**values)  # type: ignore[arg-type]


def clients(count: int, sizes: list[tuple[int, int]], cache: int = 10**6, **changes: object):  # noqa: ANN201
    """Closed loop; requests in the order they were sent."""
    work = ClosedLoop(count, tuple(Size(*size) for size in sizes))
    return in_order(simulate(work, ToyClock(), rules(**changes), cache))


def arrivals(times: list[float], sizes: list[tuple[int, int]], cache: int = 10**6, **changes):  # noqa: ANN003, ANN201
    """Open loop; requests in the order they came."""
    work = OpenLoop(tuple(times), tuple(Size(*size) for size in sizes))
    return in_order(simulate(work, ToyClock(), rules(**changes), cache))


def in_order(run: ServerRun) -> list[Request]:
    return sorted(run.requests, key=lambda one: one.number)
