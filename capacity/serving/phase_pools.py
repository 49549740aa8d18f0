"""Prefill and decode on separate servers, the cache handed over a link between them.

A request is prefilled on one of the prefill servers, its keys and values cross that server's link
one request after another, and a decode server goes on from the second token. Requests are dealt out
in turn. Time to the first token is the prefill pool's alone; the wait for link and decode server
counts as generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from capacity.serving.server_simulation import OpenLoop, Request, ServerRun, Size, Work
from wattpack.errors import InputError
from wattpack.units import require_number


class Server(Protocol):
    """One server that takes work: a ``Deployment``, or anything with measured times."""

    def serve(self, work: Work) -> ServerRun:
        """These requests, from an empty server."""
        ...


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
    """So many servers for each phase."""

    prefill: Server
    decode: Server
    prefill_servers: int
    decode_servers: int
    handover: Handover

    def __post_init__(self) -> None:
        for name in ("prefill_servers", "decode_servers"):
            if getattr(self, name) < 1:
                raise InputError(name, "at least 1", getattr(self, name))

    def serve(self, times: Sequence[float], sizes: Sequence[Size]) -> list[Request]:
        """Every request as its client saw it."""
        requests = [Request(t, s.prompt, s.output) for t, s in zip(times, sizes, strict=True)]
        arrivals: list[float] = [0.0] * len(requests)
        for server in range(self.prefill_servers):
            mine = range(server, len(requests), self.prefill_servers)
            self._prefill([requests[i] for i in mine], [sizes[i] for i in mine])
            ends = _on_link([requests[i] for i in mine], self.handover)
            for index, end in zip(mine, ends, strict=True):
                arrivals[index] = end
        waiting = sorted(
            (i for i in range(len(requests)) if requests[i].output > 1), key=lambda i: arrivals[i]
        )
        for server in range(self.decode_servers):
            taken = waiting[server :: self.decode_servers]
            self._decode([requests[i] for i in taken], [arrivals[i] for i in taken])
        return requests

    def _prefill(self, requests: Sequence[Request], sizes: Sequence[Size]) -> None:
        if not requests:
            return
        first = tuple(Size(one.prompt, 1, one.cached) for one in sizes)
        run = self.prefill.serve(OpenLoop([one.sent for one in requests], first))
        for request, done in zip(requests, _in_order(run), strict=True):
            request.first = request.last = done.first

    def _decode(self, requests: Sequence[Request], arrivals: Sequence[float]) -> None:
        if not requests:
            return
        rest = tuple(Size(one.prompt + 1, one.output - 1, one.prompt) for one in requests)
        run = self.decode.serve(OpenLoop(list(arrivals), rest))
        for request, done in zip(requests, _in_order(run), strict=True):
            request.last = done.last


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
