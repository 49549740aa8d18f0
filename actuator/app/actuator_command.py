"""``wattpack actuator``: the privileged process of a node, and the parent that guards it."""

from __future__ import annotations

import argparse
import os
import random
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from actuator.app.assembly import apply_guaranteed, build_table, read_all_bounds, start_actuator
from actuator.app.board_writes import WorkerHands
from actuator.app.config_file import ActuatorConfig, load_config
from actuator.app.host_unit import render_host_unit
from actuator.app.node_actuator import Actuator
from actuator.app.parent import EXIT_CONFIG, TAKE_BACK, Parent
from actuator.app.persisted_state import DEFAULT_STATE_FILE, FileStore, read_boot_id
from actuator.app.pod_resources_door import DoorKeeper
from actuator.app.probe import check
from actuator.audit_log import AuditLog
from actuator.unix_socket.listener import SocketServer
from actuator.unix_socket.peers import Admission
from actuator.unix_socket.pod_resources import PodResourcesDoor
from gpu.device import GpuDriver
from wattpack.clock import SystemClock
from wattpack.ending import EndNotice, end_noted
from wattpack.errors import InputError, WattpackError
from wattpack.units import NS_PER_SECOND, NodeName

DEFAULT_SOCKET = Path("/run/wattpack/actuator.sock")
EXIT_BLIND = 3
"""No board answers: the driver was unloaded under us; a new process opens the new one."""

_BLIND_NS = 5 * NS_PER_SECOND

OpenDriver = Callable[[str], GpuDriver]


def open_driver(kind: str) -> GpuDriver:
    """The node's GPUs; adapters are loaded only when asked for."""
    if kind == "simulated":
        return _simulated_node()
    from gpu.nvml import open_nvml

    return open_nvml()


def _simulated_node() -> GpuDriver:
    """Eight idle boards; the agent of this node simulates the same ones."""
    from gpu.simulated import BoardBank, node_boards

    node = NodeName(os.environ.get("NODE_NAME") or socket.gethostname())
    return BoardBank(node_boards(node, 8, "NVIDIA H200")).driver(node)


def main(
    argv: list[str],
    open_driver: OpenDriver = open_driver,
    program: Sequence[str] = (sys.executable, "-m", "actuator"),
) -> int:
    """Run one role of the actuator: 0 fine, 1 failed, 2 refused configuration."""
    options = _parser().parse_args(argv)
    try:
        return _run(options, argv, open_driver, program)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except WattpackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wattpack actuator",
        description="Write GPU power limits and clock locks under leases. Needs root and "
        "CAP_SYS_ADMIN; accepts commands on a Unix socket only.",
    )
    parser.add_argument("--config", type=Path, help="JSON: guaranteed caps, peers (required)")
    parser.add_argument("--socket", type=Path, default=DEFAULT_SOCKET)
    parser.add_argument("--state", type=Path, default=DEFAULT_STATE_FILE, help="on tmpfs")
    parser.add_argument("--audit", type=Path, help="audit file; default is standard output")
    parser.add_argument("--device", choices=("nvml", "simulated"), default="nvml")
    parser.add_argument(
        "--pod-resources",
        type=Path,
        metavar="SOCKET",
        help="the kubelet's pod-resources socket: open connections to it for allowed peers",
    )
    parser.add_argument(TAKE_BACK, action="store_true", help=argparse.SUPPRESS)
    role = parser.add_mutually_exclusive_group()
    role.add_argument(
        "--apply-guaranteed-and-exit",
        action="store_true",
        help="lower every GPU to its guaranteed cap, raise none, exit 0 if all were read back",
    )
    role.add_argument("--heartbeat-fd", type=int, help=argparse.SUPPRESS)
    role.add_argument(
        "--pod-resources-only",
        action="store_true",
        help="open connections to the kubelet and do nothing else: no board, no capability",
    )
    role.add_argument(
        "--check",
        action="store_true",
        help="ask the actuator on --socket for its status; exit 0 if it and a GPU answer",
    )
    role.add_argument(
        "--print-host-unit", action="store_true", help="print the systemd unit for the host"
    )
    return parser


def _run(
    options: argparse.Namespace, argv: list[str], open_driver: OpenDriver, program: Sequence[str]
) -> int:
    if options.check:
        print(check(options.socket, SystemClock()))
        return 0
    if options.config is None:
        raise InputError("--config", "the actuator's configuration file", None)
    if options.print_host_unit:
        print(render_host_unit(options.config, options.state), end="")
        return 0
    config = load_config(options.config, boards=not options.pod_resources_only)
    clock = SystemClock()
    stream: IO[str] = sys.stdout
    if options.audit is not None:
        stream = _open_audit(options.audit)
    audit = AuditLog(stream, clock)
    if options.pod_resources_only:
        return _keep_door(options, config, clock, audit)
    if options.heartbeat_fd is None and not options.apply_guaranteed_and_exit:
        serve = [*program, *argv]
        return Parent(serve, [*serve, "--apply-guaranteed-and-exit"], clock, audit).run()
    driver = open_driver(options.device)
    if options.apply_guaranteed_and_exit:
        return _cap(options, driver, clock, audit)
    return Child(options, driver, clock, audit).run()


def _keep_door(
    options: argparse.Namespace, config: ActuatorConfig, clock: SystemClock, audit: AuditLog
) -> int:
    if options.pod_resources is None:
        raise InputError("--pod-resources", "the kubelet's socket", None)
    # Before there is a socket that somebody has to take away.
    with end_noted(clock) as end:
        return DoorKeeper(config, options.socket, options.pod_resources, clock, audit).run(end)


def _open_audit(file: Path) -> IO[str]:
    """Opened for the process's life."""
    try:
        return open(file, "a", encoding="utf-8")
    except OSError as error:
        raise InputError("--audit", "a file that can be written", str(error)) from error


def _cap(
    options: argparse.Namespace, driver: GpuDriver, clock: SystemClock, audit: AuditLog
) -> int:
    devices = driver.devices()
    bounds, problems = read_all_bounds(devices, clock)
    for uuid, problem in problems.items():
        audit({"event": "unreadable", "uuid": uuid, "error": str(problem)})
    config = load_config(options.config)
    table = build_table(config, devices, bounds, read_boot_id(), random.SystemRandom())
    answering = [device for device in devices if str(device.identity.uuid) in bounds]
    hands = WorkerHands(answering, clock)
    store = FileStore(options.state)
    complete = apply_guaranteed(table, hands, store, audit, take_back=options.take_back)
    return 0 if complete and not problems else 1


class Child:
    """The process that listens, judges and writes.

    Args:
        options: Of the command line.
        driver: The node's boards.
        clock: Real time.
        audit: Takes one entry a decision.
    """

    def __init__(
        self, options: argparse.Namespace, driver: GpuDriver, clock: SystemClock, audit: AuditLog
    ) -> None:
        self._options = options
        self._clock = clock
        self._audit = audit
        self._driver = driver
        self._parent_pid = os.getppid()
        self._server = SocketServer(clock)

    def run(self) -> int:
        """Serve until SIGTERM, the parent's end or a lost driver; leaves guaranteed caps."""
        # Not cut short: its last act gives the boards their guaranteed caps.
        with end_noted(self._clock, can_be_cut_short=False) as end:
            end.call(self._server.wake)
            return self._serve(end)

    def _serve(self, end: EndNotice) -> int:
        actuator = self._open()
        blind_since_ns: int | None = None
        while not end.told() and self._beat():
            wait_ns = actuator.next_wake_ns() - self._clock.monotonic_ns()
            self._server.poll(max(0, min(wait_ns, NS_PER_SECOND)) / NS_PER_SECOND)
            actuator.tick()
            now_ns = self._clock.monotonic_ns()
            blind_since_ns = (blind_since_ns or now_ns) if actuator.blind else None
            if blind_since_ns is not None and now_ns - blind_since_ns > _BLIND_NS:
                self._server.close()
                return EXIT_BLIND
        self._server.close()
        actuator.release()
        return 0

    def _beat(self) -> bool:
        """Tell the parent that leases are being watched; False if it is gone."""
        try:
            os.write(self._options.heartbeat_fd, b".")
        except BrokenPipeError:
            return False
        return os.getppid() == self._parent_pid

    def _open(self) -> Actuator:
        options = self._options
        config = load_config(options.config)
        devices = self._driver.devices()
        bounds, problems = read_all_bounds(devices, self._clock)
        for uuid, problem in problems.items():
            self._audit({"event": "unreadable", "uuid": uuid, "error": str(problem)})
        table = build_table(config, devices, bounds, read_boot_id(), random.SystemRandom())
        answering = [device for device in devices if str(device.identity.uuid) in bounds]
        hands = WorkerHands(answering, self._clock)
        store = FileStore(options.state)
        actuator = start_actuator(table, hands, store, self._clock, self._audit)
        operators = frozenset({os.geteuid()})
        admission = Admission(config.allowed_uids, config.allowed_gids, operators)
        try:
            door = PodResourcesDoor(options.pod_resources) if options.pod_resources else None
            gid = config.socket_gid
            self._server.add(options.socket, actuator, admission, self._audit, gid, door)
        except OSError as error:
            expected = "a socket path that can be made"
            raise InputError("--socket", expected, str(error), str(options.socket)) from error
        return actuator
