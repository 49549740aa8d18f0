"""Node agents for ``reconnect_storm``: the product's links and back-off, an actuator in numbers.

Each agent has its own connection and its own token, says hello with eight boards, reports once a
second at its own moment, and holds a cap for as long as the lease of an answered report runs (I3).
"""

from __future__ import annotations

import logging
import math
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import grpc

from telemetry.report_messages import VERSIONS
from telemetry.stream.grpc_link import CHANNEL_OPTIONS, Endpoint, GrpcLink, GrpcLoop
from wattpack.clock import Clock
from wattpack.units import NS_PER_MS, NS_PER_SECOND
from wattpack.wire.v1 import power_pb2

GPUS = 8
DRAW_WATTS = 500.0
GUARANTEED_WATTS = 300.0
REPORT_NS = NS_PER_SECOND
#: How often agents are visited: a report, or an attempt to connect, is late by at most this.
VISIT_NS = 25 * NS_PER_MS
_KEPT_NONCES = 8
_BELOW_CAP_WATTS = 5.0


class OwnConnections(GrpcLoop):
    """Gives each token file a connection of its own, as agents on different nodes have."""

    def channel(self, endpoint: Endpoint) -> Any:  # noqa: ANN401 - grpc is untyped here
        """The agent's channel."""
        shared = (endpoint, b"")
        if shared not in self._channels:
            assert endpoint.ca_file is not None
            credentials = grpc.ssl_channel_credentials(endpoint.ca_file.read_bytes())
            options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
            self._channels[shared] = grpc.aio.secure_channel(endpoint.target, credentials, options)
        return self._channels[shared]

    def leave(self, endpoint: Endpoint) -> None:
        """The agent's next stream gets a new connection; all others keep theirs."""
        self._channels.pop((endpoint, b""), None)


class Agent:
    """One node.

    Attributes:
        cap_watts: Of its boards now.
        below_ns: How long it was below its cap of the moment of ``mark``.
        back_ns: When it was seen to stream again, after its stream of ``mark`` had ended.
    """

    def __init__(
        self, index: int, loop: GrpcLoop, endpoint: Endpoint, clock: Clock, rng: random.Random
    ) -> None:
        self.name, self._clock = f"node-{index}", clock
        generator = random.Random(rng.random())
        self.link = GrpcLink(loop, endpoint, clock, clock.new_wake(), generator)
        self.due_ns = clock.monotonic_ns() + round(rng.random() * REPORT_NS)
        self._nonces: OrderedDict[int, int] = OrderedDict()
        self._sequence = self._confirmed = 0
        self._epoch = self._until_ns = 0
        self.cap_watts = self._earlier_watts = GUARANTEED_WATTS
        self._below_since_ns: int | None = None
        self.below_ns, self._was_lost = 0, False
        self.back_ns: int | None = None
        self._energy_joules, self._read_ns = 1e6, clock.monotonic_ns()
        self._report = self._first_report()

    def visit(self, now_ns: int) -> None:
        """What an agent's exchange loop does, if it is its turn; batches at once."""
        if self._until_ns <= now_ns and self.cap_watts > GUARANTEED_WATTS:
            self._hold(GUARANTEED_WATTS, self._until_ns)
        for batch in self.link.take():
            self._apply(batch, now_ns)
        if not self.link.connected:
            self._was_lost = True
        elif self._was_lost and self.back_ns is None:
            self.back_ns = now_ns
        if now_ns < self.due_ns:
            return
        self.due_ns = max(self.due_ns + REPORT_NS, now_ns)
        self.link.keep_open(now_ns, self._hello)
        if self.link.connected:
            self.link.send(self._next_report(now_ns))

    def mark(self) -> None:
        """From now on count what is below the present cap, and look for the stream's return."""
        self.back_ns, self._was_lost = None, False
        self._earlier_watts, self.below_ns, self._below_since_ns = self.cap_watts, 0, None

    def finish(self, now_ns: int) -> None:
        """Count what is still below."""
        self._hold(self.cap_watts, now_ns)

    def _apply(self, batch: power_pb2.LeaseBatch, now_ns: int) -> None:
        issued_ns = self._nonces.get(batch.nonce)
        if issued_ns is None or batch.epoch < self._epoch or not batch.devices:
            return
        self._epoch, self._confirmed = batch.epoch, batch.sequence
        self._until_ns = issued_ns + batch.ttl_ms * NS_PER_MS
        if self._until_ns > now_ns:
            self._hold(batch.devices[0].cap_watts, now_ns)

    def _hold(self, cap_watts: float, now_ns: int) -> None:
        self.cap_watts = cap_watts
        # A watt is far below the step of a board's limit.
        below = cap_watts < self._earlier_watts - 1.0
        if self._below_since_ns is not None:
            self.below_ns += now_ns - self._below_since_ns
        self._below_since_ns = now_ns if below else None

    def _next_report(self, now_ns: int) -> power_pb2.NodeReport:
        self._sequence += 1
        self._nonces[self._sequence] = now_ns
        while len(self._nonces) > _KEPT_NONCES:
            self._nonces.popitem(last=False)
        report = power_pb2.NodeReport()
        report.CopyFrom(self._report)
        report.sequence = report.nonce = self._sequence
        report.clock_ns, report.highest_epoch = now_ns, self._epoch
        draw_watts = min(DRAW_WATTS, self.cap_watts - _BELOW_CAP_WATTS)
        self._energy_joules += draw_watts * (now_ns - self._read_ns) / NS_PER_SECOND
        self._read_ns = now_ns
        for index, device in enumerate(report.devices):
            # A board that repeats itself counts as frozen.
            device.draw_watts = draw_watts + math.sin(now_ns / NS_PER_SECOND + index)
            device.energy_joules = self._energy_joules
            device.limit_watts = device.enforced_limit_watts = self.cap_watts
            device.confirmed_sequence = self._confirmed
        return report

    def _first_report(self) -> power_pb2.NodeReport:
        readings = [
            power_pb2.DeviceReading(
                uuid=f"{self.name}-gpu-{i}",
                state=power_pb2.DEVICE_STATE_OK,
                guaranteed_watts=GUARANTEED_WATTS,
            )
            for i in range(GPUS)
        ]
        return power_pb2.NodeReport(node=self.name, boot_id="boot", devices=readings)

    def _hello(self) -> power_pb2.Hello:
        devices = [
            power_pb2.DeviceDescription(
                uuid=f"{self.name}-gpu-{i}",
                model="NVIDIA H200",
                index=i,
                default_limit_watts=700.0,
                min_limit_watts=200.0,
                max_limit_watts=700.0,
                max_clock_mhz=1980,
            )
            for i in range(GPUS)
        ]
        return power_pb2.Hello(
            versions=VERSIONS, node=self.name, boot_id="boot", host_unit=True, devices=devices
        )


class Fleet:
    """All agents, visited in turn by the caller's thread."""

    def __init__(self, agents: int, port: int, folder: Path, clock: Clock, seed: int) -> None:
        # Every lost stream is a line; here that is every stream.
        logging.getLogger("telemetry.stream").setLevel(logging.CRITICAL)
        self._clock, self._folder = clock, folder
        self._loop = OwnConnections()
        rng = random.Random(seed)
        self._tokens = [folder / f"token-{i}" for i in range(agents)]
        self.new_tokens(0)
        self.agents = [
            Agent(
                i, self._loop, Endpoint(f"localhost:{port}", folder / "ca.crt", token), clock, rng
            )
            for i, token in enumerate(self._tokens)
        ]

    def new_tokens(self, generation: int) -> None:
        """As the kubelet renews them: the next stream shows one that nobody has reviewed."""
        for index, file in enumerate(self._tokens):
            file.write_text(f"node-{index}/{generation}", encoding="ascii")

    def connected(self) -> int:
        """Agents whose stream is welcomed."""
        return sum(agent.link.connected for agent in self.agents)

    def visit_all(self) -> int:
        """One round; its time."""
        now_ns = self._clock.monotonic_ns()
        with self._loop.together():
            for agent in self.agents:
                agent.visit(now_ns)
        self._clock.wait_until(now_ns + VISIT_NS)
        return now_ns

    def close(self) -> None:
        """End all streams."""
        for agent in self.agents:
            agent.link.close()
        self._loop.close()
