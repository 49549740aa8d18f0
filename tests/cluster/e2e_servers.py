"""GPU servers of the end-to-end test: simulated boards below real actuators and agents.

    pods that run ──> load ──> boards <── actuators (Unix sockets) <── agents ──> streams

The boards are simulated; lease tables, sockets, agents, streams and tokens are the product's.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from actuator.app.config_file import ActuatorConfig
from actuator.app.hosted_actuators import HostedActuators, socket_path
from actuator.unix_socket.client import ActuatorClient
from gpu.device_reader import InlineReader
from gpu.simulated import BoardBank, BoardSpec
from telemetry.app.hosted_agents import AgentHost
from telemetry.app.node_agent import NodeAgent, NodeFacts, Senses
from telemetry.attribution.attribute import Attribution, PodOnGpu
from telemetry.sampler import Sampler
from telemetry.stream.grpc_link import Endpoint, GrpcLink, GrpcLoop
from wattpack.clock import SystemClock
from wattpack.units import NS_PER_SECOND, GpuUuid, NodeName

GPUS = 8
MODEL = "NVIDIA H200"
IDLE_WATTS, BUSY_WATTS = 75.0, 690.0
HOST_WATTS = 1000.0
GUARANTEED_WATTS = 300.0
SUPPLY_EFFICIENCY = 0.94
ROUND_NS = NS_PER_SECOND // 2


@dataclass(frozen=True, slots=True)
class Pace:
    """How often boards are read and reported, and what a busy one draws."""

    round_ns: int = ROUND_NS
    busy_watts: float = BUSY_WATTS


@dataclass(frozen=True, slots=True)
class Running:
    """A pod that runs, and how many boards it holds."""

    namespace: str
    name: str
    uid: str
    node: str
    gpus: int


def running_pods(items: Sequence[dict[str, Any]]) -> list[Running]:
    """The pods with GPUs that run."""
    found = []
    for item in items:
        limits = item["spec"]["containers"][0].get("resources", {}).get("limits", {})
        gpus = int(limits.get("nvidia.com/gpu", 0))
        if gpus and item.get("status", {}).get("phase") == "Running":
            meta = item["metadata"]
            found.append(
                Running(
                    meta["namespace"], meta["name"], meta["uid"], item["spec"]["nodeName"], gpus
                )
            )
    return sorted(found, key=lambda pod: (pod.node, pod.name))


class Servers:
    """Boards, actuators and agents of some nodes, on real time.

    Args:
        nodes: Their names.
        replicas: Addresses of the controllers.
        server_name: In the controllers' certificate.
        ca_file: Of the authority that agents trust; may come later.
        tokens: Token file of each node.
        pods: What runs now.
        pace: Of reports and load.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        replicas: Sequence[str],
        server_name: str,
        ca_file: Path,
        tokens: Mapping[str, Path],
        pods: Callable[[], list[Running]],
        pace: Pace = Pace(),
    ) -> None:
        self._clock, self._pace = SystemClock(), pace
        self._pods = pods
        self._present: list[Running] = []
        self._sockets = Path(tempfile.mkdtemp(prefix="wattpack-"))
        self.bank = BoardBank(
            [_board(node, index) for node in nodes for index in range(GPUS)],
            seed=1,
            start_ns=self._clock.monotonic_ns(),
        )
        self.nodes = tuple(nodes)
        devices = {node: self.bank.driver(NodeName(node)).devices() for node in nodes}
        config = ActuatorConfig({MODEL: GUARANTEED_WATTS}, frozenset({os.getuid()}))
        self.actuators = HostedActuators(devices, config, self._sockets, self._clock, seed=1)
        self._loop, wake = GrpcLoop(), self._clock.new_wake()
        self._clients: list[ActuatorClient] = []
        agents = []
        for node in nodes:
            links = [
                GrpcLink(
                    self._loop,
                    Endpoint(replica, ca_file, tokens[node], server_name),
                    self._clock,
                    wake,
                    random.Random(f"{node}/{replica}"),
                )
                for replica in replicas
            ]
            agents.append(
                NodeAgent(
                    NodeFacts(node, boot_id=f"boot-1-{node}", host_unit=True),
                    Senses(
                        Sampler(InlineReader(devices[node])),
                        partial(self._attribution, node),
                    ),
                    links,
                    self._actuator_client(node),
                    self._clock,
                )
            )
        self._host = AgentHost(
            agents, self._clock, wake, period_ns=pace.round_ns, before_round=self._advance
        )
        self._stopping = threading.Event()
        self._look = self._clock.new_wake()
        self._threads = [
            threading.Thread(target=run, daemon=True)
            for run in (self.actuators.run_ticks, self._host.run, self._watch)
        ]

    def start(self) -> None:
        """Guaranteed caps on all boards first, then report."""
        self.actuators.open()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End streams and leave guaranteed caps."""
        self._stopping.set()
        self._look.set()
        self._host.stop()
        self._host.close()
        self._loop.close()
        self.actuators.close()
        for thread in self._threads:
            thread.join(timeout=10)
        for client in self._clients:
            client.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _actuator_client(self, node: str) -> ActuatorClient:
        self._clients.append(ActuatorClient(socket_path(self._sockets, node), self._clock))
        return self._clients[-1]

    def breaker_watts(self) -> float:
        """AC watts that the servers really draw."""
        total = float(self.bank.drawn_watts.sum()) + HOST_WATTS * len(self.nodes)
        return total / SUPPLY_EFFICIENCY

    def limits_watts(self) -> list[float]:
        """The limit on every board."""
        return [float(watts) for watts in self.bank.limit_watts]

    def epochs(self) -> list[int]:
        """The fencing epoch that every actuator obeys."""
        return [actuator.status().highest_epoch for actuator in self.actuators.actuators.values()]

    def _watch(self) -> None:
        while not self._stopping.is_set():
            self._present = self._pods()
            self._clock.wait_until(self._clock.monotonic_ns() + ROUND_NS, self._look)

    def _advance(self, now_ns: int) -> None:
        demand = np.full(len(self.bank), IDLE_WATTS)
        for node in self.nodes:
            for use in self._uses(node):
                demand[[self._index[uuid] for uuid in use.device_uuids]] = self._pace.busy_watts
        if now_ns > self.bank.now_ns:
            self.bank.advance(demand, now_ns)

    @property
    def _index(self) -> dict[str, int]:
        return {str(spec.uuid): i for i, spec in enumerate(self.bank.specs)}

    def _uses(self, node: str) -> list[PodOnGpu]:
        """Who holds which boards, as the kubelet would say it."""
        free = [GpuUuid(f"GPU-{node}-{i}") for i in range(GPUS)]
        uses = []
        for pod in self._present:
            if pod.node == node:
                held, free = tuple(free[: pod.gpus]), free[pod.gpus :]
                uses.append(PodOnGpu(pod.namespace, pod.name, pod.uid, (), held))
        return uses

    def _attribution(self, node: str) -> Attribution:
        return Attribution(tuple(self._uses(node)), source="kubelet")


def _board(node: str, index: int) -> BoardSpec:
    """An H200 SXM: limits as NVML gives them; idle power assumed."""
    uuid = GpuUuid(f"GPU-{node}-{index}")
    return BoardSpec(uuid, MODEL, NodeName(node), index, IDLE_WATTS, 700.0, 200.0, 700.0, 1980)
