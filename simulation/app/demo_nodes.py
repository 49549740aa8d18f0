"""The node side of the demo: real agents and actuators for every simulated server.

boards <── actuators (one lease table and Unix socket a node) <── agents ──gRPC──> controllers
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from actuator.app.config_file import ActuatorConfig
from actuator.app.hosted_actuators import HostedActuators, socket_path
from actuator.lease_table import LeaseTable
from actuator.unix_socket.client import ActuatorClient
from gpu.device_reader import InlineReader
from simulation.faces import attribution, guaranteed_watts
from simulation.world import World
from telemetry.app.hosted_agents import AgentHost
from telemetry.app.node_agent import NodeAgent, NodeFacts, Senses
from telemetry.sampler import Sampler
from telemetry.stream.grpc_link import Endpoint, GrpcLink, GrpcLoop
from wattpack.clock import Clock, Wake
from wattpack.units import seconds_to_ns


@dataclass(frozen=True, slots=True)
class Replica:
    """Where a controller replica listens for agents."""

    target: str
    server_name: str


class DemoNodes:
    """Agents and actuators of all servers.

    Args:
        world: The servers.
        clock: Shared by everybody.
        directory: For sockets; keep it short.
        replicas: Controllers that every agent streams to.
        ca_file: Of the controllers' authority.
        tokens: Folder with one token file a node, named after it.
    """

    def __init__(
        self,
        world: World,
        clock: Clock,
        directory: Path,
        replicas: Sequence[Replica],
        ca_file: Path,
        tokens: Path,
    ) -> None:
        self._world, self._clock, self._directory = world, clock, directory
        drivers = {name: world.driver(name) for name in world.node_names}
        devices = {name: driver.devices() for name, driver in drivers.items()}
        config = ActuatorConfig(guaranteed_watts(world), allowed_uids=frozenset({os.getuid()}))
        self.actuators = HostedActuators(devices, config, directory, clock, world.scenario.seed)
        self._loop = GrpcLoop()
        self._clients = {
            name: ActuatorClient(socket_path(directory, name), clock) for name in world.node_names
        }
        wake = clock.new_wake()
        agents = [
            self._agent(name, Sampler(InlineReader(devices[name])), replicas, ca_file, tokens, wake)
            for name in world.node_names
        ]
        self.host = AgentHost(
            agents,
            clock,
            wake,
            period_ns=seconds_to_ns(world.scenario.control.report_seconds),
            before_round=self._ask_actuators,
            together=self._loop.together,
        )
        self._threads = [
            threading.Thread(target=self.actuators.run_ticks, name="actuators", daemon=True),
            threading.Thread(target=self.host.run, name="agents", daemon=True),
        ]

    @property
    def tables(self) -> Mapping[str, LeaseTable]:
        """The lease tables by node, for whoever watches; follows restarts."""
        return self.actuators.tables

    def start(self) -> None:
        """Guaranteed caps on all boards first, then report."""
        self.actuators.open()
        for thread in self._threads:
            thread.start()

    def reboot(self, node: str) -> None:
        """The node's actuator starts anew with an empty lease table."""
        self.actuators.restart(node, self._world.boot_id(node))

    def stop(self) -> None:
        """End streams and leave guaranteed caps."""
        self.host.stop()
        if self._threads[1].is_alive():
            self._threads[1].join(timeout=5.0)
        self.host.close()
        self._loop.close()
        for client in self._clients.values():
            client.close()
        self.actuators.close()

    def _agent(
        self,
        name: str,
        sampler: Sampler,
        replicas: Sequence[Replica],
        ca_file: Path,
        tokens: Path,
        wake: Wake,
    ) -> NodeAgent:
        seed = self._world.scenario.seed
        links = [
            GrpcLink(
                self._loop,
                Endpoint(replica.target, ca_file, tokens / name, replica.server_name),
                self._clock,
                wake,
                random.Random(f"{seed}/{name}/{replica.target}"),
            )
            for replica in replicas
        ]
        return NodeAgent(
            NodeFacts(name, boot_id=self._world.boot_id(name), host_unit=True),
            Senses(
                sampler,
                partial(attribution, self._world, name),
            ),
            links,
            self._clients[name],
            self._clock,
        )

    def _ask_actuators(self, now_ns: int) -> None:
        """All actuators answer while the boards are read: two threads change places less often."""
        for client in self._clients.values():
            client.ask_status()
