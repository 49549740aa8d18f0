"""Who is at the other end of a socket, and what they may ask."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, as the kernel says; pid 0 for a process of another container."""

    pid: int
    uid: int
    gid: int


def peer_credentials(connection: socket.socket) -> Peer:
    """SO_PEERCRED: process, user and group at the time of connect."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(data))


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may connect.

    Attributes:
        uids: Users that may command.
        gids: Primary groups that may command.
        readers: Users that may only ask for the status: the probe, which is the actuator's own.
    """

    uids: frozenset[int]
    gids: frozenset[int] = frozenset()
    readers: frozenset[int] = frozenset()

    def may_command(self, peer: Peer) -> bool:
        """Whether the peer's user or group is listed."""
        return peer.uid in self.uids or peer.gid in self.gids

    def admits(self, peer: Peer) -> bool:
        """Whether the peer may ask at all."""
        return peer.uid in self.readers or self.may_command(peer)
