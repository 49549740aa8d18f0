"""Actuators behind Unix sockets: one selector for any number of nodes, strict and bounded.

A socket has mode 0660, and the kernel's word (SO_PEERCRED) on who connects is checked besides.
Each message is one line of at most 64 KiB; a peer may hold eight connections at a time and send
50 messages a second. A peer that breaks a rule is told which, and disconnected.
"""

from __future__ import annotations

import os
import selectors
import socket
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from actuator.audit_log import AuditSink
from actuator.node_actuator import Actuator
from actuator.unix_socket.encoding import (
    MAX_LINE_BYTES,
    decode_request,
    encode_error,
    encode_result,
    encode_status,
)
from wattpack.clock import Clock
from wattpack.errors import InputError, PermanentError
from wattpack.units import NS_PER_SECOND

MAX_CONNECTIONS = 8
MESSAGES_PER_SECOND = 50
MESSAGE_BURST = 100
_BACKLOG = 128
"""A full backlog refuses the agent at once (EAGAIN), so knocking strangers get some room."""

_MAX_PATH_BYTES = 107
"""sockaddr_un holds 108 bytes with the final zero (unix(7))."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, as the kernel says."""

    pid: int
    uid: int
    gid: int


def peer_credentials(connection: socket.socket) -> Peer:
    """SO_PEERCRED: process, user and group at the time of connect."""
    layout = struct.Struct("3i")
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)
    return Peer(*layout.unpack(data))


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may connect."""

    uids: frozenset[int]
    gids: frozenset[int] = frozenset()

    def admits(self, peer: Peer) -> bool:
        """Whether the peer's user or group is listed."""
        return peer.uid in self.uids or peer.gid in self.gids


class SocketTaken(PermanentError):
    """Another process answers on this socket, or the path is not a socket."""


@dataclass(slots=True, eq=False)
class _Endpoint:
    listener: socket.socket
    path: Path
    actuator: Actuator
    admission: Admission
    audit: AuditSink
    connections: list[_Connection] = field(default_factory=list)
    refused_audit_ns: int = -NS_PER_SECOND
    refused_peers: int = 0


@dataclass(slots=True, eq=False)
class _Connection:
    stream: socket.socket
    endpoint: _Endpoint
    peer: Peer
    refilled_ns: int
    buffer: bytearray = field(default_factory=bytearray)
    tokens: float = MESSAGE_BURST


class SocketServer:
    """Answers for one or many actuators from one thread.

    Args:
        clock: For the rate limit.
        peer_of: Tells who connected.
    """

    def __init__(
        self, clock: Clock, peer_of: Callable[[socket.socket], Peer] = peer_credentials
    ) -> None:
        self._clock = clock
        self._peer_of = peer_of
        self._selector = selectors.DefaultSelector()
        self._endpoints: list[_Endpoint] = []
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)
        self._wakened.setblocking(False)
        self._selector.register(self._wakened, selectors.EVENT_READ, None)

    def add(
        self,
        path: Path,
        actuator: Actuator,
        admission: Admission,
        audit: AuditSink,
        gid: int | None = None,
    ) -> None:
        """Listen on a path for one actuator.

        Raises:
            SocketTaken: if somebody answers there already.
            InputError: if the path is too long for a socket.
        """
        listener = _listen(path, gid)
        endpoint = _Endpoint(listener, path, actuator, admission, audit)
        self._endpoints.append(endpoint)
        self._selector.register(listener, selectors.EVENT_READ, endpoint)

    def replace(self, path: Path, actuator: Actuator) -> None:
        """Answer for another actuator on a path: a simulated node has restarted."""
        for endpoint in self._endpoints:
            if endpoint.path == path:
                endpoint.actuator = actuator
                return
        raise ValueError(f"nobody listens on {path}")

    def poll(self, timeout_seconds: float | None) -> None:
        """Serve what is there, or comes within the timeout, or until ``wake``."""
        for key, _ in self._selector.select(timeout_seconds):
            if isinstance(key.data, _Endpoint):
                self._accept(key.data)
            elif isinstance(key.data, _Connection):
                self._serve(key.data)
            else:
                self._wakened.recv(4096)

    def wake(self) -> None:
        """Make a ``poll`` in another thread, or the interrupted one, return."""
        try:
            self._waker.send(b"x")
        except BlockingIOError:
            return  # a wake-up is already on its way

    def close(self) -> None:
        """Stop listening, drop everybody, remove the socket files."""
        for endpoint in self._endpoints:
            for connection in tuple(endpoint.connections):
                self._drop(connection)
            self._selector.unregister(endpoint.listener)
            endpoint.listener.close()
            endpoint.path.unlink(missing_ok=True)
        self._endpoints.clear()
        self._selector.close()
        self._waker.close()
        self._wakened.close()

    def _accept(self, endpoint: _Endpoint) -> None:
        try:
            stream, _ = endpoint.listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        stream.setblocking(False)
        peer = self._peer_of(stream)
        now_ns = self._clock.monotonic_ns()
        if not endpoint.admission.admits(peer):
            self._note_refused(endpoint, peer, now_ns)
            refusal = InputError("peer", "an allowed user or group", f"uid {peer.uid}")
            _send(stream, encode_error(refusal))
            stream.close()
            return
        connection = _Connection(stream, endpoint, peer, now_ns)
        endpoint.connections.append(connection)
        self._selector.register(stream, selectors.EVENT_READ, connection)
        if len(endpoint.connections) > MAX_CONNECTIONS:
            self._drop(endpoint.connections[0])

    def _note_refused(self, endpoint: _Endpoint, peer: Peer, now_ns: int) -> None:
        """One audit entry a second, however many knock."""
        endpoint.refused_peers += 1
        if now_ns - endpoint.refused_audit_ns >= NS_PER_SECOND:
            endpoint.refused_audit_ns = now_ns
            endpoint.audit(
                {
                    "event": "peer_refused",
                    "peer_uid": peer.uid,
                    "peer_gid": peer.gid,
                    "peer_pid": peer.pid,
                    "count": endpoint.refused_peers,
                }
            )

    def _serve(self, connection: _Connection) -> None:
        try:
            data = connection.stream.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        connection.buffer += data
        while (end := connection.buffer.find(b"\n")) >= 0:
            line = bytes(connection.buffer[:end])
            del connection.buffer[: end + 1]
            if not self._answer(connection, line):
                self._drop(connection)
                return
        if len(connection.buffer) > MAX_LINE_BYTES:
            error = InputError("message", f"at most {MAX_LINE_BYTES} bytes", "more")
            _send(connection.stream, encode_error(error))
            self._drop(connection)

    def _answer(self, connection: _Connection, line: bytes) -> bool:
        """Answer one line; False if the peer is to be dropped."""
        if not self._within_rate(connection):
            expected = f"at most {MESSAGES_PER_SECOND} messages a second"
            _send(connection.stream, encode_error(InputError("rate", expected, "more")))
            return False
        actuator = connection.endpoint.actuator
        try:
            command = decode_request(line)
        except InputError as error:
            connection.endpoint.audit(
                {"event": "malformed", "peer_uid": connection.peer.uid, "field": error.field}
            )
            return _send(connection.stream, encode_error(error))
        if command is None:
            reply = encode_status(actuator.status())
        else:
            reply = encode_result(actuator.apply(command, connection.peer.uid))
        return _send(connection.stream, reply)

    def _within_rate(self, connection: _Connection) -> bool:
        now_ns = self._clock.monotonic_ns()
        earned = (now_ns - connection.refilled_ns) * MESSAGES_PER_SECOND / NS_PER_SECOND
        connection.tokens = min(MESSAGE_BURST, connection.tokens + earned)
        connection.refilled_ns = now_ns
        connection.tokens -= 1
        return connection.tokens >= 0

    def _drop(self, connection: _Connection) -> None:
        connection.endpoint.connections.remove(connection)
        self._selector.unregister(connection.stream)
        connection.stream.close()


def _send(stream: socket.socket, data: bytes) -> bool:
    """Whether the whole reply fitted; a peer that does not read is not waited for."""
    try:
        return stream.send(data) == len(data)
    except OSError:
        return False


def _listen(path: Path, gid: int | None) -> socket.socket:
    """A listening socket of mode 0660; a dead predecessor's file is removed."""
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise InputError("socket", f"a path of at most {_MAX_PATH_BYTES} bytes", str(path))
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    _remove_dead(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # fchmod before bind is what the file is created with: it is never more open than 0660.
        os.fchmod(listener.fileno(), 0o660)
        listener.bind(os.fspath(path))
        path.chmod(0o660)
        if gid is not None:
            os.chown(path, -1, gid)
        listener.setblocking(False)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_dead(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketTaken(f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise SocketTaken(f"another process answers on {path}")
