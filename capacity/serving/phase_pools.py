"""Several servers: whole requests on each, or prefill and decode on separate ones.

A request joins the shortest queue: the server with the least prompt work before it, or, for
decodes, the fewest requests in flight. With separate phases its keys and values cross the prefill
server's link one request after another, and a decode server goes on from the second token. Time to
the first token is the prefill pool's alone; the wait for link and decode server counts as
generation.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from capacity.serving.served_requests import OpenLoop, Request, ServerRun, Size, Work
from wattpack.errors import InputError
from wattpack.units import require_number


class Server(Protocol):
    """One server that takes work: a ``Deployment``, or anything with measured times."""

    def serve(self, work: Work) -> ServerRun:
        """These requests, from an empty server."""
        ...


@dataclass(frozen=True, slots=True)
class QueueEstimate:
    """What a router knows of a server's speed: enough to tell the shortest queue.

    Attributes:
        prompt_seconds: Of a prompt of so many tokens that runs alone.
        token_seconds: Of a token of a request in flight.
    """

    prompt_seconds: Callable[[int], float]
    token_seconds: float

    def __post_init__(self) -> None:
        require_number("queue.token_seconds", self.token_seconds, exclusive_minimum=0)


@dataclass(frozen=True, slots=True)
class PoolsRun:
    """Outcome of a simulation of several servers.

    Attributes:
        requests: As their clients saw them, in the order they were sent.
        runs: Of each server that had work, with that server.
    """

    requests: Sequence[Request]
    runs: Sequence[tuple[Server, ServerRun]]


@dataclass(frozen=True, slots=True)
class Pool:
    """So many equal servers behind one router."""

    server: Server
    servers: int
    estimate: QueueEstimate

    def __post_init__(self) -> None:
        if self.servers < 1:
            raise InputError("servers", "at least 1", self.servers)

    def serve(self, times: Sequence[float], sizes: Sequence[Size]) -> PoolsRun:
        """Whole requests, in the order of ``times``."""
        done: dict[int, Request] = {}
        runs: list[tuple[Server, ServerRun]] = []
        for mine in self.by_prompt_work(times, sizes):
            work = OpenLoop([times[i] for i in mine], tuple(sizes[i] for i in mine))
            run = self.server.serve(work)
            runs.append((self.server, run))
            done |= zip(mine, _in_order(run), strict=True)
        return PoolsRun([done[index] for index in range(len(times))], runs)

    def by_prompt_work(self, times: Sequence[float], sizes: Sequence[Size]) -> list[list[int]]:
        """Indices of each busy server's requests: least prompt work first."""
        dealt: list[list[int]] = [[] for _ in range(self.servers)]
        free = [0.0] * self.servers
        for index, (time, size) in enumerate(zip(times, sizes, strict=True)):
            best = min(range(self.servers), key=lambda k: (max(0.0, free[k] - time), len(dealt[k])))
            work = self.estimate.prompt_seconds(size.prompt - size.cached)
            free[best] = max(free[best], time) + work
            dealt[best].append(index)
        return [mine for mine in dealt if mine]

    def by_flight(self, times: Sequence[float], sizes: Sequence[Size]) -> list[list[int]]:
        """Indices of each busy server's requests: fewest in flight first; any order of times."""
        dealt: list[list[int]] = [[] for _ in range(self.servers)]
        flights: list[list[float]] = [[] for _ in range(self.servers)]
        for index in sorted(range(len(times)), key=lambda i: times[i]):
            for flight in flights:
                while flight and flight[0] <= times[index]:
                    heapq.heappop(flight)
            best = min(range(self.servers), key=lambda k: len(flights[k]))
            ends = times[index] + sizes[index].output * self.estimate.token_seconds
            heapq.heappush(flights[best], ends)
            dealt[best].append(index)
        return [mine for mine in dealt if mine]


@dataclass(frozen=True, slots=True)
class Handover:
    """The link between the pools.

    Attributes:
        bytes_per_second: Of one prefill server.
        bytes_per_token: Keys and values of a whole server, all GPUs together.
        visible_share: Of the transfer that does not hide behind the prefill's later layers.
    """

    bytes_per_second: float
    bytes_per_token: float
    visible_share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("bytes_per_second", "bytes_per_token"):
            require_number(f"handover.{name}", getattr(self, name), exclusive_minimum=0)
        require_number("handover.visible_share", self.visible_share, minimum=0, maximum=1)

    def seconds(self, prompt: int) -> float:
        """On the link, for one request."""
        return prompt * self.bytes_per_token / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class PhasePools:
    """A pool for each phase."""

    prefill: Pool
    decode: Pool
    handover: Handover

    def serve(self, times: Sequence[float], sizes: Sequence[Size]) -> PoolsRun:
        """Every request as its client saw it, in the order of ``times``."""
        runs: list[tuple[Server, ServerRun]] = []
        requests = [Request(t, s.prompt, s.output) for t, s in zip(times, sizes, strict=True)]
        arrivals = [0.0] * len(requests)
        for mine in self.prefill.by_prompt_work(times, sizes):
            run = self._prefill([requests[i] for i in mine], [sizes[i] for i in mine])
            runs.append((self.prefill.server, run))
            ends = _on_link([requests[i] for i in mine], self.handover)
            for index, end in zip(mine, ends, strict=True):
                arrivals[index] = end
        rest = [index for index, request in enumerate(requests) if request.output > 1]
        when, left = [arrivals[i] for i in rest], [sizes[i] for i in rest]
        for mine in self.decode.by_flight(when, left):
            run = self._decode([requests[rest[k]] for k in mine], [when[k] for k in mine])
            runs.append((self.decode.server, run))
        return PoolsRun(requests, runs)

    def _prefill(self, requests: Sequence[Request], sizes: Sequence[Size]) -> ServerRun:
        first = tuple(Size(one.prompt, 1, one.cached) for one in sizes)
        run = self.prefill.server.serve(OpenLoop([one.sent for one in requests], first))
        for request, done in zip(requests, _in_order(run), strict=True):
            request.first = request.last = done.first
        return run

    def _decode(self, requests: Sequence[Request], arrivals: Sequence[float]) -> ServerRun:
        rest = tuple(Size(one.prompt + 1, one.output - 1, one.prompt) for one in requests)
        run = self.decode.server.serve(OpenLoop(list(arrivals), rest))
        for request, done in zip(requests, _in_order(run), strict=True):
            request.last = done.last
        return run


def _on_link(requests: Sequence[Request], handover: Handover) -> list[float]:
    """When each request's cache has arrived: one at a time, in order of their first tokens."""
    free = 0.0
    ends = [0.0] * len(requests)
    for index in sorted(range(len(requests)), key=lambda i: requests[i].first):
        first, busy = requests[index].first, handover.seconds(requests[index].prompt)
        hidden = busy * (1 - handover.visible_share)
        free = max(free, first - hidden) + busy
        ends[index] = max(first, free)
    return ends


def _in_order(run: ServerRun) -> list[Request]:
    """In the order they were sent in."""
    return sorted(run.requests, key=lambda one: one.number)
