"""``wattpack console``: the dashboard process. It reads and never writes."""

from __future__ import annotations

import argparse
import logging
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from console.app.capacity_plan_source import CapacityPlanSource
from console.app.console_http import Sources, create_app
from console.app.gpu_types_source import GpuTypesSource
from console.app.live_source import LiveSource, ReplicaReader
from console.app.placement_source import PlacementSource
from console.app.service_forecast_source import ServiceForecastSource
from wattpack import flags
from wattpack.clock import Clock, SystemClock
from wattpack.ending import end_noted, until_told_to_end
from wattpack.errors import InputError
from wattpack.hosts import bare, socket_family
from wattpack.http_access import HttpAccess
from wattpack.kube.port import KubeApi

log = logging.getLogger(__name__)
SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(frozen=True, slots=True)
class Upstreams:
    """Where the console reads.

    Attributes:
        controller_urls: Live view of each controller replica.
        api: For pods, placement plans, CapacityPlans and DemandForecasts.
        token_file: What we show to the controllers; None for nothing.
    """

    controller_urls: Sequence[str]
    api: KubeApi
    token_file: Path | None = None


class ConsoleServer:
    """The console as threads: one reads each controller, some follow the API, one serves HTTP.

    Args:
        upstreams: Where the figures come from.
        access: Who may see them.
        clock: Paces the reading; real time, also beside a simulated fleet.
        host: Address to listen on.
        port: 0 lets the system choose.
    """

    def __init__(
        self, upstreams: Upstreams, access: HttpAccess, clock: Clock, *, host: str, port: int
    ) -> None:
        self.live = LiveSource(upstreams.controller_urls, clock, upstreams.token_file)
        self.placement = PlacementSource(upstreams.api, clock)
        self.capacity = CapacityPlanSource(upstreams.api, clock)
        self.forecasts = ServiceForecastSource(upstreams.api, clock)
        self.gpu_types = GpuTypesSource(upstreams.api, clock)
        self._readers = [ReplicaReader(self.live, url, clock) for url in self.live.urls]
        self._socket = _listen(host, port)
        self.port = int(self._socket.getsockname()[1])
        sources = Sources(
            self.live, self.placement, self.gpu_types, self.capacity, self.forecasts, access
        )
        self._server = _uvicorn(create_app(sources, static_folder()))
        self._thread = threading.Thread(target=self._serve, name="console-http", daemon=True)

    def start(self) -> None:
        """Read and serve."""
        for reader in self._readers:
            reader.start()
        self.placement.start()
        self.gpu_types.start()
        self.capacity.start()
        self.forecasts.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and reading."""
        self._server.should_exit = True
        self._server.force_exit = True
        self.placement.stop()
        self.gpu_types.stop()
        self.capacity.stop()
        self.forecasts.stop()
        for reader in self._readers:
            reader.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


def static_folder() -> Path:
    """Where the built front end lies: ``console/web/static`` in the package data.

    Raises:
        InputError: when it has not been built.
    """
    folder = Path(str(files("console"))) / "web" / "static"
    if not (folder / "index.html").is_file():
        raise InputError("console", "a built front end (run `make dashboard`)", str(folder))
    return folder


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket_family(host), socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((bare(host), port))
    except (OSError, UnicodeError) as error:
        listener.close()
        raise InputError("port", "a free port (see --port)", f"{host}:{port}") from error
    return listener


def _uvicorn(app: FastAPI) -> uvicorn.Server:
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    # Signals belong to the process that hosts us.
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    return server


def main(argv: list[str] | None = None) -> int:
    """Serve the dashboard until interrupted."""
    parser = argparse.ArgumentParser(prog="wattpack console", description=__doc__)
    parser.add_argument(
        "--controller",
        action="append",
        required=True,
        metavar="URL",
        type=flags.http_url,
        help="live view of a controller replica, for example http://controller-0:8081/v1/live",
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=flags.port, default=8080)
    add("--kubeconfig", type=Path, help="default: the pod's service account")
    add(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="name under which browsers reach this console; addresses and localhost always may",
    )
    add("--token-file", type=Path, help="shown to controllers (default: the service account's)")
    add("--insecure", action="store_true", help="ask nobody who they are; for one's own machine")
    arguments = parser.parse_args(argv)
    from wattpack.kube.client import connect

    clock = SystemClock()
    api = connect(arguments.kubeconfig)
    access = HttpAccess(arguments.host_name, None if arguments.insecure else api, clock)
    token = arguments.token_file
    if token is None and SERVICE_ACCOUNT_TOKEN.is_file():
        token = SERVICE_ACCOUNT_TOKEN
    server = ConsoleServer(
        Upstreams(arguments.controller, api, token),
        access,
        clock,
        host=arguments.host,
        port=arguments.port,
    )
    with end_noted(clock) as end:
        try:
            server.start()
            print(f"dashboard on http://{arguments.host}:{server.port}", flush=True)
            until_told_to_end(end, clock)
        finally:
            server.stop()
    return 0
