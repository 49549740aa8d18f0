"""A real controller replica in a process of its own, for ``reconnect_storm``: is it alive after?

Commands on standard input, one a line: ``cut`` shows a new certificate and ends every stream at
once, ``renew`` shows a new one and lets streams move over, ``count`` tells the figures.
Token reviews go over HTTP to ``_storm_reviews``; every other object lies in the embedded API.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks._storm_reviews import AGENTS
from capacity.profile_library import shipped_library
from controller.app.controller_process import ControllerProcess, Surroundings
from controller.app.controller_settings import ControllerSettings
from controller.app.stream_server import StreamServer
from controller.app.tick_loop import NoMeters
from simulation.kube import EmbeddedKube
from wattpack.api import PowerDomain
from wattpack.clock import Clock, SystemClock
from wattpack.kube.client import from_kubeconfig
from wattpack.kube.port import NODES, AccessReviews, TokenIdentity
from wattpack.wire.certificates import Identity, ServingIdentity, new_authority, new_server

# Far above the load, so that the raise limit (2 % of it a second) does not hold the caps back.
WATTS_PER_NODE = 100_000.0


class ReviewingKube(EmbeddedKube):
    """The embedded API, but tokens are reviewed over HTTP, as on a cluster."""

    def __init__(self, clock: Clock, reviews: AccessReviews) -> None:
        super().__init__(clock)
        self._reviews_over_http = reviews

    def review_token(self, token: str, audiences: Sequence[str]) -> TokenIdentity:
        """Asks the other server."""
        return self._reviews_over_http.review_token(token, audiences)


def fill(kube: EmbeddedKube, agents: int) -> None:
    """One domain, all nodes."""
    resource = PowerDomain.meta.resource
    spec = {
        "ratingWatts": agents * WATTS_PER_NODE,
        "members": {"nodeSelector": {"row": "row"}},
        "nonGpuPerNode": {"worstWatts": 900.0, "idleWatts": 400.0},
        "loadDeclaredComplete": True,
        "enforcement": "Enforce",
    }
    domain = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
    kube.create(resource, {**domain, "metadata": {"name": "row"}})
    for index in range(agents):
        metadata = {"name": f"node-{index}", "labels": {"row": "row"}}
        kube.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})


def serving(authority: Identity, clock: Clock) -> ServingIdentity:
    """One more certificate of the authority."""
    server = new_server(authority, ["localhost", "127.0.0.1"], clock.wall_time_ns())
    return ServingIdentity(authority.certificate_pem, b"", server.certificate_pem, server.key_pem)


def main() -> None:
    """Serve until standard input ends."""
    agents, kubeconfig, ca_file = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    clock = SystemClock()
    kube = ReviewingKube(clock, from_kubeconfig(kubeconfig))
    fill(kube, agents)
    authority = new_authority("reconnect storm", clock.wall_time_ns())
    ca_file.write_bytes(authority.certificate_pem)
    settings = ControllerSettings(
        stream_address="127.0.0.1:0",
        http_host="127.0.0.1",
        http_port=0,
        agent_username=AGENTS,
    )
    process = ControllerProcess(
        settings,
        Surroundings(
            api=kube,
            clock=clock,
            identity=serving(authority, clock).server,
            meters=NoMeters(),
            profiles=shipped_library(),
            election=settings.election(),
        ),
    )
    process.start()
    print(json.dumps({"port": process.streams.port}), flush=True)
    for line in sys.stdin:
        command = line.strip()
        if command in {"cut", "renew"}:
            # A certificate that is replaced lets its streams move over slowly; a cut does not.
            process.streams.use(serving(authority, clock), at_once=command == "cut")
        print(json.dumps(figures(process, process.streams)), flush=True)
    process.stop()


def figures(process: ControllerProcess, streams: StreamServer) -> dict[str, int]:
    """What the replica counts."""
    failed = process.metrics.registry.get_sample_value("wattpack_failed_ticks_total")
    return {
        "streams": process.gateway.connected(),
        "renewals": streams.renewals,
        "failed_renewals": streams.failed_renewals,
        "failed_ticks": int(failed or 0),
        "refused_streams": process.gateway.refused_streams.total(),
    }


if __name__ == "__main__":
    main()
