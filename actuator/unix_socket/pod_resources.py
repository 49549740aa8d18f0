"""A connection to the kubelet's pod-resources API, opened by root and handed to the agent.

The kubelet keeps that socket in a folder that only root may enter (0750). The privileged process
connects and passes the connected file descriptor on (SCM_RIGHTS, unix(7)); it neither reads nor
writes a byte of what is said there, and the API behind it only tells, it changes nothing
(docs/adr/0015-the-actuator-opens-pod-resources.md).
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from actuator.unix_socket.client import DEADLINE_SECONDS, connect_in_line
from actuator.unix_socket.encoding import Ask, encode_ask
from wattpack.errors import InputError, TransientError

_ANSWER_BYTES = 4096


class NoPodResources(TransientError):
    """No connection to the kubelet could be had now."""


class PodResourcesDoor:
    """Opens connections to one kubelet.

    Args:
        path: The kubelet's socket; from this process's own command line, never from a peer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> socket.socket:
        """One more connection; does not wait.

        Raises:
            InputError: as it is told to the peer.
        """
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream.setblocking(False)
        try:
            stream.connect(os.fspath(self._path))
        except OSError as error:
            stream.close()
            expected = f"a kubelet that answers on {self._path}"
            raise InputError("pod_resources", expected, str(error)) from error
        return stream


def borrow_connection(actuator: Path, deadline_seconds: float = DEADLINE_SECONDS) -> socket.socket:
    """A connection to the kubelet that the process behind ``actuator`` opened.

    Raises:
        NoPodResources: nobody answers, this user may not ask, or the kubelet does not answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        try:
            connect_in_line(stream, actuator, deadline_seconds)
            stream.settimeout(deadline_seconds)
            stream.sendall(encode_ask(Ask.POD_RESOURCES))
            answer, descriptors, _flags, _address = socket.recv_fds(stream, _ANSWER_BYTES, 1)
        except OSError as error:
            raise NoPodResources(f"{actuator}: {error}") from error
    if descriptors:
        return socket.socket(fileno=descriptors[0])
    raise NoPodResources(f"{actuator}: {_problem(answer)}")


def _problem(answer: bytes) -> str:
    try:
        error = json.loads(answer)["error"]
        return f"{error['field']}: expected {error['expected']}, got {error['got']}"
    except (ValueError, KeyError, TypeError):
        return "no connection came with the answer"
