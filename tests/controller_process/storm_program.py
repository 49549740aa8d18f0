"""``python -m tests.controller_process.storm_program SECONDS``: the agents' server by itself.

Prints its port and its authority's file, renews its certificate every so many seconds (0: never),
and ends when standard input does. A process of its own, because what is tested is whether it dies.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from controller.app.agent_gateway import AgentGateway, TickSide
from controller.app.agent_identity import NodeAuthenticator
from controller.app.fleet import Fleet
from controller.app.stream_server import StreamServer
from simulation.kube import EmbeddedKube
from wattpack.clock import SystemClock
from wattpack.kube.port import TokenIdentity
from wattpack.wire.certificates import Identity, ServingIdentity, new_authority, new_server

NODE_CLAIM = "authentication.kubernetes.io/node-name"


def serving(authority: Identity, clock: SystemClock) -> ServingIdentity:
    server = new_server(authority, ["localhost", "127.0.0.1"], clock.wall_time_ns())
    return ServingIdentity(authority.certificate_pem, b"", server.certificate_pem, server.key_pem)


def main() -> None:
    period_seconds = float(sys.argv[1])
    clock = SystemClock()
    kube = EmbeddedKube(clock)
    kube.register_token(
        "token", TokenIdentity("agent", (), {NODE_CLAIM: ["node-1"]}), ["wattpack-controller"]
    )
    gateway = AgentGateway(
        Fleet(),
        NodeAuthenticator(kube, clock, "agent"),
        clock,
        name="storm",
        report_period_ms=200,
        tick=TickSide(lambda: None),
    )
    authority = new_authority("storm", clock.wall_time_ns())
    server = StreamServer(gateway, "127.0.0.1:0", serving(authority, clock).server, 1.0)
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        ca_file = Path(folder) / "ca.crt"
        ca_file.write_bytes(authority.certificate_pem)
        print(server.port, ca_file, flush=True)
        ended = threading.Event()

        def renew() -> None:
            while period_seconds and not ended.wait(period_seconds):
                server.use(serving(authority, clock))

        threading.Thread(target=renew, daemon=True).start()
        sys.stdin.read()
        ended.set()
        print(server.renewals, flush=True)
    server.stop()


if __name__ == "__main__":
    main()
