"""The actuators of many nodes in one process, each behind its own real socket: the demo.

Nothing here decides: every node has the same lease table, state store and server as a real one.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from actuator.app.assembly import build_table, read_bounds, start_actuator
from actuator.app.board_writes import InlineHands
from actuator.app.config_file import ActuatorConfig
from actuator.app.node_actuator import READ_BACK_PERIOD_NS, Actuator
from actuator.app.persisted_state import MemoryStore
from actuator.audit_log import AuditTrail
from actuator.lease_table import LeaseTable
from actuator.unix_socket.listener import SocketServer
from actuator.unix_socket.peers import Admission
from gpu.device import GpuDevice
from wattpack.clock import Clock


def socket_path(directory: Path, node: str) -> Path:
    """Where the actuator of a node listens."""
    return directory / f"{node}.sock"


class HostedActuators:
    """Serves the actuators of many nodes with simulated boards.

    One thread answers the sockets; ``run_ticks`` (one more thread) ends leases and reads back
    limits on the shared clock, which may be virtual: it blocks only in ``wait_until``.

    Args:
        nodes: The boards of each node.
        config: Guaranteed caps and peers, the same for all nodes.
        directory: Where the sockets lie; keep it short, a socket path holds 107 bytes.
        clock: Shared with the agents.
        seed: Of the nonces.
    """

    def __init__(
        self,
        nodes: Mapping[str, Sequence[GpuDevice]],
        config: ActuatorConfig,
        directory: Path,
        clock: Clock,
        seed: int,
    ) -> None:
        self._nodes = dict(nodes)
        self._config = config
        self._directory = directory
        self._clock = clock
        self._generator = random.Random(seed)
        self._stores = {node: MemoryStore() for node in nodes}
        self.audits = {node: AuditTrail() for node in nodes}
        self.actuators: dict[str, Actuator] = {}
        self.tables: dict[str, LeaseTable] = {}
        self._server = SocketServer(clock)
        self._wake = clock.new_wake()
        self._stopping = False
        self._answering = threading.Thread(
            target=self._answer, name="actuator-sockets", daemon=True
        )

    def open(self) -> None:
        """Take over all boards and listen; raises no limit."""
        admission = Admission(self._config.allowed_uids, self._config.allowed_gids)
        for node in self._nodes:
            actuator = self._start(node, f"boot-1-{node}")
            path = socket_path(self._directory, node)
            self._server.add(path, actuator, admission, self.audits[node], self._config.socket_gid)
        self._answering.start()

    def _start(self, node: str, boot_id: str) -> Actuator:
        devices = self._nodes[node]
        bounds = {str(device.identity.uuid): read_bounds(device) for device in devices}
        table = build_table(self._config, devices, bounds, boot_id, self._generator)
        self.tables[node] = table
        hands = InlineHands(devices)
        self.actuators[node] = start_actuator(
            table, hands, self._stores[node], self._clock, self.audits[node]
        )
        return self.actuators[node]

    def restart(self, node: str, boot_id: str) -> None:
        """The node has rebooted, or only its actuator if the boot id is the same."""
        path = socket_path(self._directory, node)
        self._server.replace(path, self._start(node, boot_id))

    def tick(self) -> None:
        """End leases and read back limits on every node, where it is time."""
        for actuator in tuple(self.actuators.values()):
            actuator.tick()

    def run_ticks(self) -> None:
        """Tick on the clock until ``close``; call it in a thread of its own."""
        while not self._stopping:
            now_ns = self._clock.monotonic_ns()
            next_ns = now_ns - now_ns % READ_BACK_PERIOD_NS + READ_BACK_PERIOD_NS
            for actuator in tuple(self.actuators.values()):
                next_ns = min(next_ns, actuator.next_wake_ns())
            self._clock.wait_until(next_ns, self._wake)
            self.tick()

    def _answer(self) -> None:
        while not self._stopping:
            self._server.poll(None)

    def close(self) -> None:
        """Leave guaranteed caps and end both threads."""
        self._stopping = True
        self._wake.set()
        self._server.wake()
        if self._answering.is_alive():
            self._answering.join()
        self._server.close()
        for actuator in self.actuators.values():
            actuator.release()
