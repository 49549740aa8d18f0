"""The agents' server under connections that are no agents: it must not die, nor lose the others."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from benchmarks._connection_storm import connect_many
from tests.controller_process.messages import make_hello
from wattpack.wire.v1 import power_pb2, power_pb2_grpc


@dataclass
class Storm:
    process: subprocess.Popen[str]
    port: int
    authority: bytes

    def welcomed(self) -> bool:
        """Whether a real agent is served now."""
        credentials = grpc.ssl_channel_credentials(self.authority)
        with grpc.secure_channel(f"localhost:{self.port}", credentials) as channel:
            call = power_pb2_grpc.PowerControlStub(channel).Stream(
                iter([power_pb2.AgentMessage(hello=make_hello())]),
                metadata=(("authorization", "Bearer token"),),
                timeout=20,
                wait_for_ready=True,
            )
            return next(call).WhichOneof("body") == "welcome"

    def end(self) -> int:
        """Stop it; how often it renewed its certificate."""
        out, _ = self.process.communicate(timeout=20)
        assert self.process.returncode == 0
        return int(out.split()[-1])


@contextlib.contextmanager
def storm_server(renew_seconds: float) -> Iterator[Storm]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.controller_process.storm_program", str(renew_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GRPC_VERBOSITY": "NONE"},
    )
    try:
        assert process.stdout is not None
        port, ca_file = process.stdout.readline().split()
        yield Storm(process, int(port), Path(ca_file).read_bytes())
    finally:
        process.kill()
        process.communicate()


# The interpreter leaves the storm's own socket open when a peer goes while it is being wrapped.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize(
    ("connections", "garbage", "renew_seconds"),
    [(500, True, 0.0), (1600, False, 0.0), (1600, True, 0.05)],
    ids=["garbage below TLS", "valid handshakes", "both while certificates are renewed"],
)
def test_a_storm_of_connections_does_not_kill_the_server(
    connections: int, garbage: bool, renew_seconds: float
) -> None:
    with storm_server(renew_seconds) as storm:
        made = connect_many(storm.port, connections, garbage=garbage)
        assert made > connections // 2
        assert storm.process.poll() is None
        assert storm.welcomed()
        renewals = storm.end()
        assert renewals >= 5 if renew_seconds else renewals == 0
