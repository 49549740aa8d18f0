"""``wattpack actuator --pod-resources-only``: hands out connections to the kubelet, nothing else.

Where nothing is enforced there is no actuator. This process takes its place for the one thing that
the agent cannot do without root: it holds no board and no lease, and needs no capability.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from actuator.app.assembly import nonces
from actuator.app.board_writes import InlineHands
from actuator.app.config_file import ActuatorConfig
from actuator.app.node_actuator import Actuator
from actuator.app.persisted_state import MemoryStore, read_boot_id
from actuator.audit_log import AuditSink
from actuator.lease_table import LeaseTable
from actuator.unix_socket.listener import SocketServer
from actuator.unix_socket.peers import Admission
from actuator.unix_socket.pod_resources import PodResourcesDoor
from wattpack.clock import Clock
from wattpack.ending import EndNotice


class DoorKeeper:
    """Serves until SIGTERM.

    Args:
        config: Who may connect; it names no board.
        socket: Where to listen.
        kubelet: The kubelet's socket.
    """

    def __init__(
        self, config: ActuatorConfig, socket: Path, kubelet: Path, clock: Clock, audit: AuditSink
    ) -> None:
        self._server = SocketServer(clock)
        table = LeaseTable({}, {}, read_boot_id(), nonces(random.SystemRandom()))
        no_boards = Actuator(table, InlineHands(()), MemoryStore(), clock, audit)
        admission = Admission(config.allowed_uids, config.allowed_gids, frozenset({os.geteuid()}))
        door = PodResourcesDoor(kubelet)
        self._server.add(socket, no_boards, admission, audit, config.socket_gid, door)

    def run(self, end: EndNotice) -> int:
        """Answer peers until told to end; the exit status."""
        end.call(self._server.wake)
        while not end.told():
            self._server.poll(None)
        self._server.close()
        return 0
