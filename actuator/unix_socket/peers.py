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
        operators: Users that may ask for the status and give the boards back: the actuator's
            own, root on a real node. Not the agent: who breaks into it gains no raise that way.
    """

    uids: frozenset[int]
    gids: frozenset[int] = frozenset()
    operators: frozenset[int] = frozenset()

    def may_command(self, peer: Peer) -> bool:
        """Whether the peer's user or group is listed."""
        return peer.uid in self.uids or peer.gid in self.gids

    def may_operate(self, peer: Peer) -> bool:
        """Whether the peer is root's own: somebody at the node."""
        return peer.uid in self.operators

    def admits(self, peer: Peer) -> bool:
        """Whether the peer may ask at all."""
        return self.may_operate(peer) or self.may_command(peer)
