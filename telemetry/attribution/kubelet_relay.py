"""A socket of the agent's own, whose connections the actuator opened: gRPC cannot take over one.

grpcio connects by itself and offers no way to hand it a connected file descriptor. So it connects
to a socket in a folder that only this process may enter, and bytes go to and fro unread.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from wattpack.errors import WattpackError
from wattpack.scratch_folder import ScratchFolder

log = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 1024

OpenConnection = Callable[[], socket.socket]


class KubeletRelay:
    """Listens until ``close``.

    Args:
        open_connection: Gives one connection to the kubelet; raises ``WattpackError`` if there is
            none now, and the client of the relay is then disconnected.
    """

    def __init__(self, open_connection: OpenConnection) -> None:
        self._open_connection = open_connection
        self._folder = ScratchFolder("wattpack-kubelet-")
        self.path = self._folder.path / "kubelet.sock"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(4)
        self._failing = False
        threading.Thread(target=self._accept, name="kubelet-relay", daemon=True).start()

    def close(self) -> None:
        """Take no more connections and remove the folder."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        self._listener.close()
        self._folder.close()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                kubelet = self._open_connection()
            except WattpackError as error:
                if not self._failing:
                    log.warning("no connection to the kubelet: %s", error)
                self._failing = True
                ours.close()
                continue
            self._failing = False
            kubelet.setblocking(True)
            for source, sink in ((ours, kubelet), (kubelet, ours)):
                threading.Thread(
                    target=_pump, args=(source, sink), name="kubelet-bytes", daemon=True
                ).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass bytes on until one side ends; then end both, which ends the other direction too."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            sink.sendall(data)
    for stream in (source, sink):
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)
    source.close()
