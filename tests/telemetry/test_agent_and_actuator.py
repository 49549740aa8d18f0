"""The whole node: boards, agent, stream, actuator socket, and the limit on the board."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import numpy as np

from actuator.app.config_file import ActuatorConfig
from actuator.app.hosted_actuators import HostedActuators, socket_path
from actuator.unix_socket.client import ActuatorClient
from gpu.device_reader import InlineReader
from gpu.simulated import BoardBank, BoardSpec
from telemetry.app.hosted_agents import AgentHost
from telemetry.app.node_agent import NodeAgent, NodeFacts, Senses
from telemetry.sampler import Sampler
from telemetry.stream.grpc_link import Endpoint, GrpcLink, GrpcLoop
from tests.telemetry.stub_controller import StubController
from tests.telemetry.telemetry_builders import SECOND
from wattpack.clock import SystemClock
from wattpack.units import GpuUuid, NodeName
from wattpack.wire.v1 import power_pb2

NODES = ("n0", "n1")


def spec(node: str, index: int) -> BoardSpec:
    return BoardSpec(
        uuid=GpuUuid(f"GPU-{node}-{index}"),
        model="NVIDIA H200",
        node=NodeName(node),
        index=index,
        idle_watts=75.0,
        default_limit_watts=700.0,
        min_limit_watts=200.0,
        max_limit_watts=700.0,
        max_clock_mhz=1980,
    )


def lease(report: power_pb2.NodeReport) -> power_pb2.LeaseBatch:
    """Half a kilowatt for every board of the report."""
    return power_pb2.LeaseBatch(
        epoch=1,
        sequence=report.sequence,
        nonce=report.nonce,
        ttl_ms=5000,
        devices=[
            power_pb2.DeviceLease(uuid=device.uuid, cap_watts=500.0) for device in report.devices
        ],
    )


def test_a_lease_reaches_the_boards_and_the_next_report_confirms_it(tmp_path: Path) -> None:
    clock = SystemClock()
    bank = BoardBank(
        [spec(node, i) for node in NODES for i in range(2)], start_ns=clock.monotonic_ns()
    )
    boards = {node: bank.driver(NodeName(node)).devices() for node in NODES}
    config = ActuatorConfig({"*": 300.0}, allowed_uids=frozenset({os.getuid()}))
    actuators = HostedActuators(boards, config, tmp_path, clock, seed=1)
    actuators.open()
    assert (bank.limit_watts == 300.0).all()

    stub = StubController(answer=lease)
    stub.start()
    loop = GrpcLoop()
    clients = {node: ActuatorClient(socket_path(tmp_path, node), clock) for node in NODES}
    wake = clock.new_wake()
    agents = [
        NodeAgent(
            NodeFacts(NodeName(node)),
            Senses(Sampler(InlineReader(boards[node]))),
            [GrpcLink(loop, Endpoint(stub.target), clock, wake, random.Random(node))],
            clients[node],
            clock,
        )
        for node in NODES
    ]
    host = AgentHost(
        agents,
        clock,
        wake,
        period_ns=SECOND // 20,
        before_round=lambda now_ns: void(bank.advance(np.full(4, 600.0), now_ns)),
        together=loop.together,
    )
    thread = threading.Thread(target=host.run, daemon=True)
    thread.start()
    try:
        confirmed = set()
        while len(confirmed) < len(NODES):
            report = stub.reports.get(timeout=60)
            if all(d.confirmed_sequence and d.limit_watts == 500.0 for d in report.devices):
                confirmed.add(report.node)
                assert all(d.lease_active and d.guaranteed_watts == 300.0 for d in report.devices)
                assert all(d.state == power_pb2.DEVICE_STATE_OK for d in report.devices)
        assert (bank.limit_watts == 500.0).all()
    finally:
        host.stop()
        thread.join(timeout=30)
        host.close()
        loop.close()
        for client in clients.values():
            client.close()
        stub.stop()
        actuators.close()
    assert (bank.limit_watts == 300.0).all()


def void(value: object) -> None:
    """Drop a value."""
