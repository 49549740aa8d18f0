"""``wattpack console``: the dashboard process. It reads and never writes."""

from __future__ import annotations

import argparse
import logging
import socket
import threading
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from console.app.console_http import create_app
from console.app.view_sources import HttpLiveSource, PlacementSource
from wattpack import flags
from wattpack.clock import Clock, SystemClock
from wattpack.errors import InputError
from wattpack.kube.port import KubeApi
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)


class ConsoleServer:
    """The console as threads: one polls the sources, one serves HTTP.

    Args:
        controller_urls: Live view of each controller replica.
        api: For pods and placement plans.
        clock: Paces the polling; real time, also beside a simulated fleet.
    """

    def __init__(
        self,
        controller_urls: Sequence[str],
        api: KubeApi,
        clock: Clock,
        *,
        host: str,
        port: int,
    ) -> None:
        self.live = HttpLiveSource(controller_urls, clock)
        self.placement = PlacementSource(api, clock)
        self._clock = clock
        self._stop_wake = clock.new_wake()
        self._stopping = False
        self._socket = _listen(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._server = _uvicorn(create_app(self.live, self.placement, static_folder()))
        self._threads = [
            threading.Thread(target=self._poll, name="console-poll", daemon=True),
            threading.Thread(target=self._serve, name="console-http", daemon=True),
        ]

    def start(self) -> None:
        """Poll and serve."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop both threads."""
        self._stopping = True
        self._server.should_exit = True
        self._server.force_exit = True
        self._stop_wake.set()
        for thread in self._threads:
            thread.join(timeout=5.0)

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def _poll(self) -> None:
        while not self._stopping:
            self.live.poll()
            self.placement.poll()
            self._clock.wait_until(self._clock.monotonic_ns() + NS_PER_SECOND, self._stop_wake)


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
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
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
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=flags.port, default=8080)
    parser.add_argument("--kubeconfig", type=Path, help="default: the pod's service account")
    arguments = parser.parse_args(argv)
    from wattpack.kube.client import connect

    clock = SystemClock()
    server = ConsoleServer(
        arguments.controller,
        connect(arguments.kubeconfig),
        clock,
        host=arguments.host,
        port=arguments.port,
    )
    server.start()
    print(f"dashboard on http://{arguments.host}:{server.port}")
    threading.Event().wait()
    return 0
