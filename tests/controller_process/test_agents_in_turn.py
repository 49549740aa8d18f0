"""One agent after another, as processes: no board falls, however the one before goes.

    run() ×2 (threads) <── gRPC over TLS ──> wattpack agent ──> Unix socket ──> wattpack actuator

Only the API and the boards are not real: recorded ones are read, limits of others in a file are
written. The limits are read off the actuator. A second node is silent: it counts at its most.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actuator.lease_messages import DeviceStatus
from actuator.unix_socket.client import ActuatorClient, ActuatorError
from controller.app.controller_command import run
from controller.app.controller_settings import ControllerSettings
from simulation.kube import EmbeddedKube
from tests.actuator.actuator_boards import write_board
from tests.controller_process.object_builders import DOMAINS, make_domain, make_node
from wattpack.clock import SystemClock
from wattpack.kube.port import CONFIG_MAPS, LEASES, NODES, NotFoundError, TokenIdentity
from wattpack.units import NS_PER_SECOND

SYSTEM, CA = "wattpack-system", "wattpack-controller-ca"
NODE_CLAIM = "authentication.kubernetes.io/node-name"
GUARANTEED_WATTS, HIGHEST_WATTS = 400.0, 700.0
PATIENCE_SECONDS = 60.0
ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests/telemetry/fixtures/h200/idle.jsonl.gz"
RECORDED = "GPU-82c032b2-034d-adf9-2c31-6a013cec07cb"
BOARDS = (RECORDED, *(f"{RECORDED}-copy{number}" for number in range(1, 8)))
ACTUATOR = ROOT / "tests/actuator/actuator_program.py"
#: All boards at 700 W and 0.9 kW a server are 15 kW. With one server at 700 W and the other at its
#: guaranteed caps (I1) there is room for about 450 W.
RATING_WATTS = 12_500.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Cluster:
    """A node with an actuator, two controllers that lead in turn, agents that come and go."""

    def __init__(self, directory: Path) -> None:
        self.clock = SystemClock()
        self._directory, self._socket = directory, directory / "a.sock"
        self.lowest_watts = HIGHEST_WATTS
        self.api = EmbeddedKube(self.clock)
        self._install()
        self._ports = [free_port() for _ in range(2)]
        self._stops = [self.clock.new_wake() for _ in range(2)]
        self._replicas = [
            threading.Thread(target=self._lead, args=(number,), daemon=True) for number in range(2)
        ]
        for replica in self._replicas:
            replica.start()
        config = directory / "actuator.json"
        config.write_text(
            json.dumps({"devices": {"*": GUARANTEED_WATTS}, "allowed_uids": [os.getuid()]})
        )
        self._processes: list[subprocess.Popen[bytes]] = []
        boards = directory / "boards.json"
        for uuid in BOARDS:
            write_board(boards, uuid, HIGHEST_WATTS)
        self._start(
            *(ACTUATOR, boards, "--config", config, "--socket", self._socket),
            *("--state", directory / "state.json", "--audit", directory / "audit.jsonl"),
        )
        self.client = ActuatorClient(self._socket, self.clock)

    def _install(self) -> None:
        metadata = {"name": CA, "namespace": SYSTEM}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self.api.create(CONFIG_MAPS, body, SYSTEM)
        members = {"nodeNames": ["n0", "n1"]}
        self.api.create(DOMAINS, make_domain(members=members, ratingWatts=RATING_WATTS))
        for name in ("n0", "n1"):
            labels = {"nvidia.com/gpu.product": "NVIDIA-H200"}
            self.api.create(NODES, make_node(name, gpus=8, **labels))
        agent = TokenIdentity("agent", (), {NODE_CLAIM: ["n0"]})
        self.api.register_token("token", agent, ["wattpack-controller"])
        (self._directory / "token").write_text("token")

    def _lead(self, number: int) -> None:
        settings = ControllerSettings(
            replica=f"controller-{number}",
            stream_address=f"127.0.0.1:{self._ports[number]}",
            http_host="127.0.0.1",
            http_port=0,
            agent_username="agent",
        )
        run(settings, self.api, self.clock, self._stops[number])

    def _start(self, *arguments: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        line = [sys.executable, *map(str, arguments)]
        process = subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL)
        self._processes.append(process)
        return process

    def start_agent(self) -> Agent:
        """An agent beside whoever is there."""
        port = free_port()
        ca_file = self._directory / "ca.crt"
        ca_file.write_text(self.api.get(CONFIG_MAPS, CA, SYSTEM)["data"]["ca.crt"])
        controllers = [f"--controller=127.0.0.1:{port}" for port in self._ports]
        process = self._start(
            *("-m", "wattpack.cli", "agent", "--replay", RECORDING, "--devices", len(BOARDS)),
            *("--node", "n0", "--host-unit", "--port", port, "--actuator", self._socket),
            *("--ca", ca_file, "--token", self._directory / "token"),
            *("--server-name", "localhost", *controllers),
        )
        return Agent(process, port)

    def leader(self) -> int:
        """Number of the replica that holds the Lease, -1 for none."""
        try:
            holder = self.api.get(LEASES, "wattpack-controller", SYSTEM)["spec"]["holderIdentity"]
        except NotFoundError:
            return -1
        return int(holder.split("-")[1]) if holder else -1

    def stop_leader(self) -> None:
        """As on SIGTERM."""
        self._stops[self.leader()].set()

    def boards(self) -> list[DeviceStatus]:
        """As the actuator reads them back."""
        try:
            return list(self.client.status().devices.values())
        except ActuatorError:
            return []

    def limits_watts(self) -> list[float]:
        """Of all boards."""
        return [board.limit_watts or 0.0 for board in self.boards()] or [0.0]

    def eventually(self, what: str, holds: Callable[[], object]) -> None:
        """Wait for it, with an eye on the limits."""
        deadline_ns = self.clock.monotonic_ns() + round(PATIENCE_SECONDS * NS_PER_SECOND)
        while not holds():
            assert self.clock.monotonic_ns() < deadline_ns, what
            self._look()

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass, with an eye on the limits."""
        end_ns = self.clock.monotonic_ns() + round(seconds * NS_PER_SECOND)
        while self.clock.monotonic_ns() < end_ns:
            self._look()

    def _look(self) -> None:
        self.clock.wait_until(self.clock.monotonic_ns() + NS_PER_SECOND // 20)
        self.lowest_watts = min(self.lowest_watts, *self.limits_watts())

    def close(self) -> None:
        """End everything."""
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(30)
        for stop in self._stops:
            stop.set()
        for replica in self._replicas:
            replica.join(30)
        self.client.close()


class Agent:
    """One agent process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process, self._port = process, port

    def ready(self) -> bool:
        """What the kubelet asks."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def end(self, number: signal.Signals) -> None:
        """Send it a signal, and wait for its end if it is one."""
        self._process.send_signal(number)
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_no_board_falls_while_agents_and_leaders_follow_one_another(cluster: Cluster) -> None:
    def start() -> Agent:
        agent = cluster.start_agent()
        cluster.eventually("a new agent is ready", agent.ready)
        return agent

    cluster.eventually("somebody leads", lambda: cluster.leader() >= 0)
    first = start()
    raised = lambda: min(cluster.limits_watts()) >= HIGHEST_WATTS  # noqa: E731
    cluster.eventually("all boards are raised", raised)
    # Otherwise nothing could fall.
    assert max(board.guaranteed_watts for board in cluster.boards()) < 500.0
    cluster.lowest_watts = HIGHEST_WATTS

    second = start()
    first.end(signal.SIGTERM)
    cluster.pass_seconds(5.0)
    assert cluster.lowest_watts == HIGHEST_WATTS, "an update costs no cap"

    third = start()
    second.end(signal.SIGKILL)
    cluster.pass_seconds(5.0)
    assert cluster.lowest_watts == HIGHEST_WATTS, "nor does a kill while another waits"

    fourth = start()
    third.end(signal.SIGSTOP)
    cluster.pass_seconds(6.0)
    assert cluster.lowest_watts == HIGHEST_WATTS, "nor does an agent that hangs"
    third.end(signal.SIGKILL)

    led = cluster.leader()
    cluster.stop_leader()
    cluster.eventually("the other one leads", lambda: cluster.leader() == 1 - led)
    cluster.pass_seconds(6.0)
    assert cluster.lowest_watts == HIGHEST_WATTS, "nor does the end of a leader"

    fourth.end(signal.SIGKILL)
    cluster.eventually("leases end with it", lambda: max(cluster.limits_watts()) < 500.0)
