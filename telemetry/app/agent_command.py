"""``wattpack agent``: read this node's GPUs, report them, and pass leases on to the actuator."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from actuator.unix_socket.pod_resources import borrow_connection
from telemetry.app.attributor import Attributor
from telemetry.app.device_sources import Source, nvml_source, replay_source, simulated_source
from telemetry.app.local_view import (
    LocalAgent,
    live_table,
    print_json,
    print_table,
)
from telemetry.app.metrics_access import metrics_access, node_registry
from telemetry.attribution.claimed_devices import boards_by_minor
from telemetry.attribution.device_grants import KUBELET_SOCKET
from telemetry.attribution.kubelet_relay import KubeletRelay
from wattpack import flags
from wattpack.clock import Clock, SystemClock
from wattpack.ending import end_noted
from wattpack.errors import InputError
from wattpack.gpu_resources import MAX_BOARDS
from wattpack.hosts import is_loopback
from wattpack.logs import add_log_level, log_json, log_plain
from wattpack.metrics_port import metrics_port
from wattpack.units import NS_PER_SECOND, NodeName, require_number

log = logging.getLogger(__name__)

EXAMPLES = """examples:
  wattpack agent --local                     live table and http://127.0.0.1:9400/metrics
  wattpack agent --local --once --json       one reading for a script
  wattpack agent --local --simulated 8       the same without a GPU
  wattpack agent --controller wattpack-controller-0.wattpack-controller.wattpack-system.svc:8443 \\
      --controller wattpack-controller-1.wattpack:8443 --ca ca.crt --token token
"""


def build_parser() -> argparse.ArgumentParser:
    """The verb's command line."""
    parser = argparse.ArgumentParser(
        prog="wattpack agent",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--local", action="store_true", help="show this machine's GPUs; no controller")
    add("--once", action="store_true", help="with --local: show once and exit")
    add("--json", action="store_true", help="with --local: print JSON lines, not a table")
    add("--simulated", type=int, metavar="N", help="N simulated GPUs in place of this machine's")
    add("--replay", type=Path, metavar="FILE", help="the GPUs of a recording (gpu.replay.recorder)")
    add("--devices", type=int, metavar="N", help="with --replay: show N copies")
    # The energy counter steps about every 100 ms, the average sensor looks back 1 s.
    add("--hz", type=float, default=5.0, help="samples a second, 5 to 10 (default 5)")
    add("--address", default="127.0.0.1", help="of /metrics (default 127.0.0.1)")
    add("--port", type=int, default=9400, help="of /metrics (default 9400)")
    add(
        "--metrics-insecure",
        action="store_true",
        help="metrics for everybody who reaches --address; without it the API server says for whom",
    )
    add("--node", default=os.environ.get("NODE_NAME") or socket.gethostname(), help="node name")
    add("--kubelet-socket", type=Path, default=KUBELET_SOCKET, help="pod-resources socket")
    add(
        "--pod-resources-from",
        type=Path,
        metavar="SOCKET",
        help="the actuator that opens the kubelet's socket for us, which only root may reach",
    )
    add("--proc", type=Path, default=Path("/proc"), help="the host's /proc")
    add("--seed", type=int, default=0, help="of simulated boards and back-off")
    stream = parser.add_argument_group("reporting to controllers")
    stream.add_argument(
        "--controller",
        action="append",
        default=[],
        metavar="HOST:PORT",
        type=flags.host_port,
        help="a controller replica; repeat for each",
    )
    stream.add_argument("--ca", type=Path, help="PEM file of the controllers' authority")
    stream.add_argument("--token", type=Path, help="file with this node's bearer token")
    stream.add_argument("--server-name", default="", help="name in the controllers' certificate")
    stream.add_argument("--insecure", action="store_true", help="no TLS; loopback only")
    stream.add_argument(
        "--actuator",
        type=Path,
        metavar="SOCKET",
        help="the actuator's socket; without it the node only reports",
    )
    stream.add_argument("--node-limit-watts", type=float, help="the node's own power limit")
    stream.add_argument(
        "--other-watts",
        type=float,
        default=0.0,
        help="worst power of the node without its GPUs, counted in the limit",
    )
    stream.add_argument(
        "--host-unit",
        action="store_true",
        help="this host sets guaranteed caps before the kubelet starts",
    )
    stream.add_argument(
        "--gpunode",
        action="store_true",
        help="keep this node's GpuNode object, with the pod's service account",
    )
    stream.add_argument(
        "--kubeconfig",
        type=Path,
        help="outside a pod: a token's kubeconfig, for --gpunode and to ask who may read metrics",
    )
    add_log_level(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent; the exit status.

    Raises:
        WattpackError: with a message for the person; the command line prints it.
    """
    options = build_parser().parse_args(argv)
    _check(options)
    (log_plain if options.local else log_json)(options.log_level)
    clock = SystemClock()
    stop = threading.Event()
    with end_noted(clock) as end, contextlib.ExitStack() as undo:
        end.call(stop.set)
        source = _open_source(options, clock)
        undo.callback(source.close)
        attributor = _open_attributor(options, source, undo)
        undo.callback(attributor.close)
        if options.local:
            return _run_local(options, source, attributor, clock, stop)
        from telemetry.app.agent_process import run_agent

        return run_agent(options, source, attributor, clock, end)


def _check(options: argparse.Namespace) -> None:
    require_number("--hz", options.hz, minimum=1.0, maximum=10.0, unit="Hz")
    require_number("--port", options.port, minimum=0, maximum=65535)
    require_number("--other-watts", options.other_watts, minimum=0.0, unit="W")
    for name in ("simulated", "devices"):
        value = getattr(options, name)
        if value is not None:
            require_number(f"--{name}", value, minimum=1, maximum=MAX_BOARDS)
    if options.node_limit_watts is not None:
        require_number("--node-limit-watts", options.node_limit_watts, exclusive_minimum=0.0)
    if options.simulated is not None and options.replay is not None:
        raise InputError("--simulated", "not together with --replay", options.simulated)
    if options.devices is not None and options.replay is None:
        raise InputError("--devices", "only with --replay", options.devices)
    if (options.once or options.json) and not options.local:
        raise InputError("--once and --json", "only with --local", "no --local")
    if options.gpunode and options.local:
        raise InputError("--gpunode", "not together with --local", True)
    asks = options.gpunode or not is_loopback(options.address)
    if options.kubeconfig is not None and not asks:
        expected = "only with --gpunode, or metrics for other machines"
        raise InputError("--kubeconfig", expected, options.kubeconfig)
    if not options.local and not options.controller:
        raise InputError("--controller", "at least one HOST:PORT, or --local", "nothing")


def _open_source(options: argparse.Namespace, clock: Clock) -> Source:
    if options.simulated is not None:
        return simulated_source(options.simulated, clock, NodeName(options.node), options.seed)
    if options.replay is not None:
        return replay_source(options.replay, clock, options.devices)
    return nvml_source(clock)


def _open_attributor(
    options: argparse.Namespace, source: Source, undo: contextlib.ExitStack
) -> Attributor:
    kubelet = options.kubelet_socket
    if options.pod_resources_from is not None:
        borrow = partial(borrow_connection, options.pod_resources_from)
        relay = KubeletRelay(borrow)
        undo.callback(relay.close)
        kubelet = relay.path
    elif not _is_there(kubelet):
        return Attributor(None, options.proc)
    from telemetry.attribution.kubelet import PodResources

    pods = PodResources(kubelet)
    undo.callback(pods.close)
    minors = boards_by_minor(device.identity for device in source.reader.devices)
    return Attributor(pods.list, options.proc, minors)


def _is_there(socket: Path) -> bool:
    """Whether the file can be seen; in a folder that only root may enter it cannot."""
    try:
        return socket.exists()
    except PermissionError:
        log.warning("%s: no permission; see --pod-resources-from", socket)
        return False


def _run_local(
    options: argparse.Namespace,
    source: Source,
    attributor: Attributor,
    clock: Clock,
    stop: threading.Event,
) -> int:
    agent = LocalAgent(source, attributor, clock, round(NS_PER_SECOND / options.hz), options.node)
    if options.once:
        state = agent.run_once()
        if options.json:
            print_json(state)
        else:
            print_table(state, source.note)
        return 0 if state.missing_share() < 1.0 else 1
    access = metrics_access(options, clock)
    registry = node_registry(lambda: agent.state)
    http = metrics_port((options.address, options.port), registry, access)
    http.start()
    url = f"http://{options.address}:{http.port}/metrics"
    try:
        if options.json:
            print(f"metrics: {url}", file=sys.stderr)
            agent.run(print_json, stop, NS_PER_SECOND)
        else:
            live, show = live_table(f"{source.note}; metrics at {url}; Ctrl-C ends")
            with live:
                agent.run(show, stop, NS_PER_SECOND)
    finally:
        http.stop()
    return 0


if __name__ == "__main__":
    from wattpack.cli import main as cli

    raise SystemExit(cli(["agent", *sys.argv[1:]]))
