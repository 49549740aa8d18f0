"""Connections that are no agents: handshakes without a word, and garbage below TLS. Loopback.

``python -m benchmarks._connection_storm PORT CONNECTIONS GARBAGE`` prints how many were made.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
import threading

THREADS = 8
GARBAGE_BYTES = 50


def connect_many(port: int, connections: int, *, garbage: bool) -> int:
    """Connects from eight threads; with ``garbage`` every other one sends 50 random bytes.

    Args:
        port: On loopback.
        connections: How many altogether, at most.
        garbage: Every other one is no TLS.

    Returns:
        How many were made.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    made = [0] * THREADS

    def work(thread: int) -> None:
        for number in range(connections // THREADS):
            # The server may close what it likes, as long as it lives.
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port), timeout=10.0) as plain,
            ):
                made[thread] += 1
                if garbage and number % 2:
                    plain.sendall(os.urandom(GARBAGE_BYTES))
                else:
                    with context.wrap_socket(plain, do_handshake_on_connect=False) as tls:
                        tls.do_handshake()

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60.0)
    return sum(made)


if __name__ == "__main__":
    print(connect_many(int(sys.argv[1]), int(sys.argv[2]), garbage=sys.argv[3] == "1"))
