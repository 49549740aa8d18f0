"""Who asks for what on the row: POLCA's three workloads, one of them in both priorities.

Source: POLCA (arXiv 2308.12908), workload table, read second-hand: summarise 2048-8192 tokens in
and 256-512 out, 25 %, low; search 512-2048 and 1024-2048, 25 %, high; chat 2048-4096 and 128-2048,
50 %, half of it high. The shares are taken as shares of servers, lengths as even in their ranges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattpack.errors import InputError

Integers = NDArray[np.int64]

LOW, HIGH = 0, 1


@dataclass(frozen=True, slots=True)
class RequestClass:
    """One kind of requests, answered by servers of its own.

    Attributes:
        name: In results.
        priority: ``LOW`` or ``HIGH``.
        prompt_tokens: Shortest and longest prompt.
        output_tokens: Shortest and longest answer.
        server_share: Share of the row's servers.
    """

    name: str
    priority: int
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    server_share: float


POLCA_CLASSES = (
    RequestClass("summarise", LOW, (2048, 8192), (256, 512), 0.25),
    RequestClass("chat-low", LOW, (2048, 4096), (128, 2048), 0.25),
    RequestClass("search", HIGH, (512, 2048), (1024, 2048), 0.25),
    RequestClass("chat-high", HIGH, (2048, 4096), (128, 2048), 0.25),
)


def class_of_servers(n_servers: int, classes: tuple[RequestClass, ...] = POLCA_CLASSES) -> Integers:
    """Class of each server, dealt so that every stretch of the row has its share, (n_servers,).

    Raises:
        InputError: for fewer servers than classes.
    """
    if n_servers < len(classes):
        raise InputError("servers", f"at least {len(classes)}, one a class", n_servers)
    shares = np.array([one.server_share for one in classes])
    given = np.zeros(len(classes))
    of_server = np.empty(n_servers, dtype=np.int64)
    for server in range(n_servers):
        owed = shares * (server + 1) - given
        of_server[server] = int(np.argmax(owed))
        given[of_server[server]] += 1
    return of_server
