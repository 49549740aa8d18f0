"""The node agent's side of the socket.

ActuatorError
├── ActuatorUnavailable   nobody answers; leases run out on their own, try again next tick
├── ActuatorRefused       this process may not use the actuator; never retry
└── ActuatorProtocolError the answer is not what the protocol says; never retry
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path
from typing import Any

from actuator.lease_messages import ActuatorStatus, ApplyResult, LeaseCommand
from actuator.unix_socket.encoding import (
    MAX_LINE_BYTES,
    Ask,
    decode_object,
    encode_ask,
    encode_command,
    encode_status_request,
    parse_result,
    parse_status,
)
from wattpack.clock import Clock
from wattpack.errors import InputError, PermanentError, TransientError, WattpackError
from wattpack.units import NS_PER_SECOND

DEADLINE_SECONDS = 2.0
"""Longer than the actuator's own deadline for a hung board, shorter than a lease."""


class ActuatorError(WattpackError):
    """The actuator could not be used."""


class ActuatorUnavailable(ActuatorError, TransientError):
    """Nobody answers on the socket within the deadline."""


class ActuatorRefused(ActuatorError, PermanentError):
    """This process's user and group may not use the actuator."""


class ActuatorProtocolError(ActuatorError, PermanentError):
    """The answer is not what the protocol says."""


def connect_in_line(stream: socket.socket, path: Path, deadline_seconds: float) -> None:
    """Connect; where others knock as well, wait for our turn.

    A non-blocking connect to a full backlog fails at once (EAGAIN), so that a crowd would keep us
    out for ever; a blocking one waits in the order of coming (unix(7), socket(7): SO_SNDTIMEO).

    Raises:
        OSError: nobody listens, or our turn did not come within the deadline.
    """
    seconds = int(deadline_seconds)
    timeval = struct.pack("ll", seconds, int((deadline_seconds - seconds) * 1e6))
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
    stream.connect(os.fspath(path))


class ActuatorClient:
    """One connection to one actuator; not for several threads at a time.

    Args:
        path: The socket.
        clock: For the deadline over several reads.
        deadline_seconds: For one call, connecting included.
    """

    def __init__(
        self, path: Path, clock: Clock, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._path = path
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._stream: socket.socket | None = None
        self._asked = False

    def ask_status(self) -> None:
        """Send the request of the next ``status`` ahead, while others are still being asked.

        Nothing is sent without a connection, and ``status`` tells of every failure.
        """
        if self._stream is None or self._asked:
            return
        try:
            self._stream.sendall(encode_status_request())
        except OSError:
            self.close()
            return
        self._asked = True

    def status(self) -> ActuatorStatus:
        """The present state with a fresh nonce.

        Raises:
            ActuatorError: as drawn above.
        """
        answer = self._call(encode_status_request())
        try:
            return parse_status(answer.get("status"))
        except InputError as error:
            raise self._protocol_error(str(error)) from error

    def apply(self, command: LeaseCommand) -> ApplyResult:
        """The actuator's judgement; a refusal is a result, not an exception.

        Raises:
            ActuatorError: as drawn above; whether the command was applied is then unknown, and
                the next status tells.
        """
        answer = self._call(encode_command(command))
        try:
            return parse_result(answer.get("result"))
        except InputError as error:
            raise self._protocol_error(str(error)) from error

    def restore_defaults(self) -> ApplyResult:
        """Have the boards given their default limits back; for an operator at the node.

        Raises:
            ActuatorError: as drawn above.
        """
        answer = self._call(encode_ask(Ask.RESTORE_DEFAULTS))
        try:
            return parse_result(answer.get("result"))
        except InputError as error:
            raise self._protocol_error(str(error)) from error

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._asked = False

    def _call(self, request: bytes) -> dict[str, Any]:
        try:
            answer = decode_object(self._exchange_again(request), str(self._path))
        except OSError as error:
            self.close()
            raise ActuatorUnavailable(f"{self._path}: {error}") from error
        except InputError as error:
            raise self._protocol_error(str(error)) from error
        problem = answer.get("error")
        if problem is None:
            return answer
        self.close()
        field = problem.get("field") if isinstance(problem, dict) else None
        if field == "peer":
            wanted, got = problem.get("expected"), problem.get("got")
            raise ActuatorRefused(f"{self._path}: expected {wanted}, got {got}")
        if field == "rate":
            raise ActuatorUnavailable(f"{self._path}: too many messages", 1.0)
        raise ActuatorProtocolError(f"{self._path} refused the message: {problem}")

    def _exchange_again(self, request: bytes) -> bytes:
        """The answer, over a new connection if the old one had gone.

        A command that had been carried out already is then refused by its sequence.
        """
        had_connection = self._stream is not None
        try:
            return self._exchange(request)
        except ConnectionError:
            self.close()
            if not had_connection:
                raise
            return self._exchange(request)

    def _exchange(self, request: bytes) -> bytes:
        deadline_ns = self._clock.monotonic_ns() + round(self._deadline_seconds * NS_PER_SECOND)
        stream = self._connected()
        if self._asked:
            self._asked = False
            answer = self._read_line(stream, deadline_ns)
            if request == encode_status_request():
                return answer
        # A refused peer is told why before the connection is closed: then only reading works.
        with contextlib.suppress(BrokenPipeError):
            stream.sendall(request)
        return self._read_line(stream, deadline_ns)

    def _read_line(self, stream: socket.socket, deadline_ns: int) -> bytes:
        buffer = bytearray()
        while (end := buffer.find(b"\n")) < 0:
            if len(buffer) > MAX_LINE_BYTES:
                raise self._protocol_error("the answer is too long")
            if self._clock.monotonic_ns() > deadline_ns:
                raise TimeoutError("no complete answer within the deadline")
            data = stream.recv(MAX_LINE_BYTES)
            if not data:
                raise ConnectionResetError("the actuator closed the connection")
            buffer += data
        return bytes(buffer[:end])

    def _connected(self) -> socket.socket:
        if self._stream is None:
            stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connect_in_line(stream, self._path, self._deadline_seconds)
            except OSError:
                stream.close()
                raise
            stream.settimeout(self._deadline_seconds)
            self._stream = stream
        return self._stream

    def _protocol_error(self, message: str) -> ActuatorProtocolError:
        self.close()
        return ActuatorProtocolError(f"{self._path}: {message}")
