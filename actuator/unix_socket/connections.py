"""One peer's connection, and which one goes when there are too many.

Every peer may come in at any time, however many others hold connections: newcomers are let in and
the connection that matters least is closed for them. Who has lately had a command accepted matters
most (it carries the node's leases); among the others those that have been silent for longest go
first. A process holds a few connections only; its next one closes an earlier one of its own.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from actuator.lease_table import MAX_TTL_MS
from actuator.unix_socket.peers import Peer
from wattpack.units import NS_PER_MS, NS_PER_SECOND

MAX_CONNECTIONS = 64
MAX_CONNECTIONS_A_PROCESS = 8
"""Where the kernel tells the process; it does not across containers."""

IDLE_NS = 30 * NS_PER_SECOND
"""The agent speaks every second; who has said nothing for this long is disconnected."""

PROVEN_NS = MAX_TTL_MS * NS_PER_MS
"""No accepted command is worth anything for longer."""

MESSAGES_PER_SECOND = 50
MESSAGE_BURST = 100


@dataclass(slots=True, eq=False)
class Connection:
    """One peer's connection.

    Attributes:
        spoke_ns: When it came, or said its last whole message.
        proven_ns: When its last accepted command came.
    """

    stream: socket.socket
    peer: Peer
    spoke_ns: int
    proven_ns: int | None = None
    buffer: bytearray = field(default_factory=bytearray)
    tokens: float = MESSAGE_BURST

    def take_line(self) -> bytes | None:
        """The next whole message, None while there is none."""
        end = self.buffer.find(b"\n")
        if end < 0:
            return None
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        return line

    def within_rate(self, now_ns: int) -> bool:
        """Count one message; False if it is one too many."""
        earned = (now_ns - self.spoke_ns) * MESSAGES_PER_SECOND / NS_PER_SECOND
        self.tokens = min(MESSAGE_BURST, self.tokens + earned) - 1
        self.spoke_ns = now_ns
        return self.tokens >= 0

    def worth(self, now_ns: int) -> tuple[bool, int]:
        """What counts when somebody has to go: the least goes."""
        proven = self.proven_ns is not None and now_ns - self.proven_ns <= PROVEN_NS
        return proven, self.spoke_ns


def leaver(connections: Sequence[Connection], now_ns: int) -> Connection | None:
    """Which connection has to go for the newest (the last one); None if there is room."""
    newest, others = connections[-1], connections[:-1]
    pid = newest.peer.pid
    of_process = [one for one in others if one.peer.pid == pid] if pid else []
    if len(of_process) >= MAX_CONNECTIONS_A_PROCESS:
        others = of_process
    elif len(connections) <= MAX_CONNECTIONS:
        return None
    return min(others, key=lambda one: one.worth(now_ns))
