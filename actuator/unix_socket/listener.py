"""Actuators behind Unix sockets: one selector for any number of nodes, strict and bounded.

A socket has mode 0660, and the kernel's word (SO_PEERCRED) on who connects is checked besides.
Each message is one line of at most 64 KiB, at most 50 a second a connection. A peer that breaks a
rule is told which, and disconnected.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from actuator.app.node_actuator import Actuator
from actuator.audit_log import AuditSink, SparseAudit
from actuator.lease_messages import LeaseCommand
from actuator.unix_socket.connections import (
    IDLE_NS,
    MESSAGES_PER_SECOND,
    Connection,
    leaver,
)
from actuator.unix_socket.encoding import (
    MAX_LINE_BYTES,
    Ask,
    decode_request,
    encode_error,
    encode_pod_resources,
    encode_result,
    encode_status,
)
from actuator.unix_socket.peers import Admission, Peer, peer_credentials
from actuator.unix_socket.pod_resources import PodResourcesDoor
from actuator.unix_socket.socket_file import listen
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND

_ACCEPTS_A_TURN = 16
_MESSAGES_A_TURN = 4


@dataclass(slots=True, eq=False)
class _Endpoint:
    listener: socket.socket
    path: Path
    actuator: Actuator
    admission: Admission
    audit: SparseAudit
    door: PodResourcesDoor | None
    keep_file: Callable[[], None]
    connections: list[Connection] = field(default_factory=list)


class SocketServer:
    """Answers for one or many actuators from one thread.

    Args:
        clock: For rates and time-outs.
        peer_of: Tells who connected.
    """

    def __init__(
        self, clock: Clock, peer_of: Callable[[socket.socket], Peer] = peer_credentials
    ) -> None:
        self._clock = clock
        self._peer_of = peer_of
        self._selector = selectors.DefaultSelector()
        self._endpoints: list[_Endpoint] = []
        self._behind: dict[Connection, _Endpoint] = {}
        self._swept_ns = clock.monotonic_ns()
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
        door: PodResourcesDoor | None = None,
    ) -> None:
        """Listen on a path for one actuator.

        Args:
            path: Of the socket.
            actuator: Answers status and apply.
            admission: Who may ask.
            audit: Takes what strangers and garbage do.
            gid: Group of the socket file.
            door: Opens connections to the kubelet; None where that is not offered.

        Raises:
            SocketTaken: if somebody answers there already.
            InputError: if the path is too long for a socket.
        """
        listener, keep_file = listen(path, gid)
        sparse = SparseAudit(audit, self._clock)
        endpoint = _Endpoint(listener, path, actuator, admission, sparse, door, keep_file)
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
        """Serve what is there, or comes within the timeout, or until ``wake``.

        Each peer gets a small turn, those that are connected before those that knock: the time
        of one call is bounded, whatever they send, and the caller's leases end in time.
        """
        turn, self._behind = self._behind, {}
        knocked: list[_Endpoint] = []
        for key, _ in self._selector.select(0 if turn else timeout_seconds):
            if key.data is None:
                self._wakened.recv(4096)
            elif isinstance(key.data, _Endpoint):
                knocked.append(key.data)
            elif key.data[0] not in turn and self._receive(*key.data):
                turn[key.data[0]] = key.data[1]
        for connection, endpoint in turn.items():
            self._serve(connection, endpoint)
        for endpoint in knocked:
            self._accept(endpoint)
        self._sweep()

    def wake(self) -> None:
        """Make a ``poll`` in another thread, or the interrupted one, return."""
        # A wake-up is already on its way, or nobody polls any more.
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def close(self) -> None:
        """Stop listening, drop everybody, remove the socket files."""
        for endpoint in self._endpoints:
            for connection in tuple(endpoint.connections):
                self._drop(connection, endpoint)
            self._selector.unregister(endpoint.listener)
            # First the file: once nobody listens, another process may have put its own there.
            endpoint.path.unlink(missing_ok=True)
            endpoint.listener.close()
            endpoint.keep_file()
        self._endpoints.clear()
        self._selector.close()
        self._waker.close()
        self._wakened.close()

    def _accept(self, endpoint: _Endpoint) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            try:
                stream, _address = endpoint.listener.accept()
            except OSError:  # nobody waits any more, or no file descriptor is left for them
                return
            stream.setblocking(False)
            self._admit(stream, endpoint)

    def _admit(self, stream: socket.socket, endpoint: _Endpoint) -> None:
        peer = self._peer_of(stream)
        now_ns = self._clock.monotonic_ns()
        if not endpoint.admission.admits(peer):
            who = {"peer_uid": peer.uid, "peer_gid": peer.gid, "peer_pid": peer.pid}
            endpoint.audit("peer_refused", {"event": "peer_refused", **who})
            _send(stream, encode_error(_not_allowed(peer)))
            stream.close()
            return
        connection = Connection(stream, peer, now_ns)
        endpoint.connections.append(connection)
        self._selector.register(stream, selectors.EVENT_READ, (connection, endpoint))
        gone = leaver(endpoint.connections, now_ns)
        if gone is not None:
            self._drop(gone, endpoint)

    def _receive(self, connection: Connection, endpoint: _Endpoint) -> bool:
        """Take in what is there; False if the peer has gone."""
        try:
            data = connection.stream.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._drop(connection, endpoint)
            return False
        connection.buffer += data
        return True

    def _serve(self, connection: Connection, endpoint: _Endpoint) -> None:
        for _ in range(_MESSAGES_A_TURN):
            line = connection.take_line()
            if line is None:
                break
            if not self._answer(connection, endpoint, line):
                self._drop(connection, endpoint)
                return
        if b"\n" in connection.buffer:
            self._behind[connection] = endpoint
        elif len(connection.buffer) > MAX_LINE_BYTES:
            error = InputError("message", f"at most {MAX_LINE_BYTES} bytes", "more")
            _send(connection.stream, encode_error(error))
            self._drop(connection, endpoint)

    def _answer(self, connection: Connection, endpoint: _Endpoint, line: bytes) -> bool:
        """Answer one line; False if the peer is to be dropped."""
        if not connection.within_rate(self._clock.monotonic_ns()):
            expected = f"at most {MESSAGES_PER_SECOND} messages a second"
            _send(connection.stream, encode_error(InputError("rate", expected, "more")))
            return False
        peer = connection.peer
        try:
            return self._carry_out(connection, endpoint, decode_request(line))
        except InputError as error:
            event = "peer_refused" if error.field == "peer" else "malformed"
            entry = {"event": event, "peer_uid": peer.uid, "field": error.field}
            endpoint.audit(event, {**entry, "expected": error.expected})
            return _send(connection.stream, encode_error(error))

    def _carry_out(
        self, connection: Connection, endpoint: _Endpoint, request: LeaseCommand | Ask
    ) -> bool:
        """Answer one well-formed request; False if the peer is to be dropped.

        Raises:
            InputError: the peer may not ask this, or nobody here can do it.
        """
        stream, peer = connection.stream, connection.peer
        if request is Ask.STATUS:
            return _send(stream, encode_status(endpoint.actuator.status()))
        if request is Ask.RESTORE_DEFAULTS:
            if not endpoint.admission.may_operate(peer):
                endpoint.audit(
                    "release_refused", {"event": "release_refused", "peer_uid": peer.uid}
                )
                raise InputError("peer", "the actuator's own user (root)", f"uid {peer.uid}")
            return _send(stream, encode_result(endpoint.actuator.restore_defaults(peer.uid)))
        if not endpoint.admission.may_command(peer):
            raise _not_allowed(peer)
        if isinstance(request, Ask):
            return self._open_pod_resources(connection, endpoint)
        result = endpoint.actuator.apply(request, peer.uid)
        if result.accepted:
            connection.proven_ns = connection.spoke_ns
        return _send(stream, encode_result(result))

    def _open_pod_resources(self, connection: Connection, endpoint: _Endpoint) -> bool:
        if endpoint.door is None:
            raise InputError("request", "status or apply: the kubelet is not offered here", "")
        with endpoint.door.open() as kubelet:
            who = {"peer_uid": connection.peer.uid, "peer_pid": connection.peer.pid}
            endpoint.audit("pod_resources", {"event": "pod_resources_opened", **who})
            try:
                answer = [encode_pod_resources()]
                socket.send_fds(connection.stream, answer, [kubelet.fileno()])
            except OSError:
                return False
        return True

    def _sweep(self) -> None:
        """Once a second, let go of peers that have been silent for long."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._swept_ns < NS_PER_SECOND:
            return
        self._swept_ns = now_ns
        for endpoint in self._endpoints:
            for connection in tuple(endpoint.connections):
                if now_ns - connection.spoke_ns > IDLE_NS:
                    self._drop(connection, endpoint)

    def _drop(self, connection: Connection, endpoint: _Endpoint) -> None:
        self._behind.pop(connection, None)
        endpoint.connections.remove(connection)
        self._selector.unregister(connection.stream)
        connection.stream.close()


def _not_allowed(peer: Peer) -> InputError:
    return InputError("peer", "an allowed user or group", f"uid {peer.uid}")


def _send(stream: socket.socket, data: bytes) -> bool:
    """Whether the whole reply fitted; a peer that does not read is not waited for."""
    try:
        return stream.send(data) == len(data)
    except OSError:
        return False
