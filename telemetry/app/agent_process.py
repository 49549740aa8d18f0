"""The agent process of a real node: a sampling thread and an exchange loop.

The sampling thread reads boards every 100 to 200 ms and must not wait for anybody. The main
thread talks to the actuator (which may be slow) and to the controllers once a second, and at once
when a batch comes, the node exceeds its own limit or its draw has risen by a lot.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import random
import secrets
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from actuator.app.persisted_state import BOOT_ID_FILE, read_boot_id
from actuator.unix_socket.client import ActuatorClient
from telemetry.app.attributor import Attributor
from telemetry.app.device_sources import Source
from telemetry.app.metrics_access import api_server, metrics_access, node_registry
from telemetry.app.node_agent import NodeAgent, NodeFacts, Senses
from telemetry.app.readiness import Readiness
from telemetry.gpunode import GpuNodePublisher, GpuNodeThread
from telemetry.sampler import PROCESSES_PERIOD_NS, Sampler
from telemetry.stream.grpc_link import Endpoint, GrpcLink, GrpcLoop
from wattpack.clock import Clock, Wake
from wattpack.ending import EndNotice
from wattpack.errors import InputError
from wattpack.kube.light import LightKube
from wattpack.metrics_port import metrics_port
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)

BLIND_NS = 60 * NS_PER_SECOND
"""After a driver reload every handle is dead: without any reading for this long the process ends,
so that its supervisor starts it anew with a fresh driver. Leases have run out long before."""


class SamplingThread:
    """Samples one node's boards at a steady pace.

    Args:
        agent: Whose boards.
        source: Of the boards.
        attributor: Gets the list of processes now and then.
        clock: Real time.
        period_ns: Between rounds.
        wake: Set when the node exceeds its own limit or has risen by a lot.
    """

    def __init__(
        self,
        agent: NodeAgent,
        source: Source,
        attributor: Attributor,
        clock: Clock,
        period_ns: int,
        wake: Wake,
    ) -> None:
        self._agent = agent
        self._source = source
        self._attributor = attributor
        self._clock = clock
        self._period_ns = period_ns
        self._wake = wake
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present round."""
        self._stopping.set()
        self._thread.join(timeout=5.0)

    @property
    def alive(self) -> bool:
        """False after a defect ended the thread: the process must not go on without samples."""
        return self._thread.is_alive()

    def _run(self) -> None:
        next_ns = self._clock.monotonic_ns()
        submitted_ns = next_ns - PROCESSES_PERIOD_NS
        while not self._stopping.is_set():
            now_ns = self._clock.monotonic_ns()
            self._source.before_round(now_ns)
            state = self._agent.sample(now_ns)
            if self._agent.over_limit() or self._agent.has_risen(now_ns):
                self._wake.set()
            if now_ns - submitted_ns >= PROCESSES_PERIOD_NS:
                self._attributor.submit({s.identity.uuid: s.processes for s in state.samples})
                submitted_ns = now_ns
            next_ns = max(next_ns + self._period_ns, self._clock.monotonic_ns())
            self._clock.wait_until(next_ns)


def run_agent(
    options: argparse.Namespace,
    source: Source,
    attributor: Attributor,
    clock: Clock,
    end: EndNotice,
) -> int:
    """Run until told to end; the exit status.

    Raises:
        InputError: for an address or file that cannot be used.
    """
    with contextlib.ExitStack() as undo:
        loop = GrpcLoop()
        undo.callback(loop.close)
        stop, wake = threading.Event(), clock.new_wake()
        end.call(stop.set)
        end.call(wake.set)
        actuator = ActuatorClient(options.actuator, clock) if options.actuator else None
        if actuator is not None:
            undo.callback(actuator.close)
        agent = NodeAgent(
            _facts(options, source),
            Senses(Sampler(source.reader), lambda: attributor.latest),
            _links(options, loop, clock, wake),
            actuator,
            clock,
        )
        undo.callback(agent.close)
        gpunode = _gpunode(options, agent, clock)
        access = metrics_access(options, clock)
        registry = node_registry(lambda: agent.state)
        readiness = Readiness(clock.monotonic_ns())
        http = metrics_port(
            (options.address, options.port), registry, access, unready=lambda: readiness.missing
        )
        undo.callback(http.stop)
        http.start()
        log.info("%s reports to %s", options.node, ", ".join(options.controller))
        agent.sample(clock.monotonic_ns())
        sampling = SamplingThread(
            agent, source, attributor, clock, round(NS_PER_SECOND / options.hz), wake
        )
        # What was made until now lives as long as the process: the collector need not look through
        # it again and again (0.55 to 0.65 % of a core in place of 0.70, replayed boards).
        gc.collect()
        gc.freeze()
        sampling.start()
        undo.callback(sampling.stop)
        if gpunode is not None:
            gpunode.start()
            undo.callback(gpunode.stop)
        return exchange_until(agent, sampling, clock, wake, stop, readiness)


class Sampling(Protocol):
    """Something that samples beside the exchange loop."""

    @property
    def alive(self) -> bool:
        """False once it has ended."""
        ...


def exchange_until(
    agent: NodeAgent,
    sampling: Sampling,
    clock: Clock,
    wake: Wake,
    stop: threading.Event,
    readiness: Readiness | None = None,
) -> int:
    """Report once a period, on large rises and on a welcome, handle batches at once; exit status.

    1 means that the process should be started anew: no samples, or no board readable for a minute.
    """
    report_ns = seen_ns = clock.monotonic_ns()
    readiness = readiness or Readiness(report_ns)
    while not stop.is_set():
        now_ns = clock.monotonic_ns()
        if not sampling.alive:
            log.error("the sampling thread ended; leases run out in the actuator")
            return 1
        if agent.state.missing_share() < 1.0:
            seen_ns = now_ns
        elif now_ns - seen_ns >= BLIND_NS:
            log.error("no GPU was readable for %d s: starting over", BLIND_NS // NS_PER_SECOND)
            return 1
        agent.guard(now_ns)
        if now_ns >= report_ns:
            agent.exchange(now_ns)
            report_ns = max(report_ns + agent.report_period_ns(), now_ns)
        elif agent.has_risen(now_ns) or agent.is_awaited():
            # In between: the next regular report comes when it would have, so that servers which
            # rose or came back together do not report in step from now on.
            agent.exchange(now_ns)
        readiness.look(agent, now_ns)
        agent.handle()
        clock.wait_until(report_ns, wake)
    return 0


def _links(options: argparse.Namespace, loop: GrpcLoop, clock: Clock, wake: Wake) -> list[GrpcLink]:
    """One a controller replica."""
    if options.ca is None and not options.insecure:
        raise InputError("--ca", "the controllers' CA file, or --insecure on loopback", None)
    return [
        GrpcLink(
            loop,
            Endpoint(target, options.ca, options.token, options.server_name),
            clock,
            wake,
            random.Random(f"{options.seed}/{options.node}/{target}"),
        )
        for target in options.controller
    ]


def _facts(options: argparse.Namespace, source: Source) -> NodeFacts:
    return NodeFacts(
        options.node,
        read_boot_id() if BOOT_ID_FILE.exists() else "",
        _version(),
        options.host_unit,
        options.node_limit_watts,
        options.other_watts,
        source.unidentified,
        secrets.token_hex(8),
    )


def _gpunode(options: argparse.Namespace, agent: NodeAgent, clock: Clock) -> GpuNodeThread | None:
    """Keeps the node's object if that was asked for; nothing is sent yet."""
    if not options.gpunode:
        return None
    publisher = GpuNodePublisher(
        LightKube(api_server(options), clock),
        clock,
        options.node,
        host_unit=options.host_unit,
        has_actuator=options.actuator is not None,
        rng=random.Random(f"{options.seed}/{options.node}/gpunode"),
    )
    return GpuNodeThread(publisher, lambda: agent.state, clock)


def _version() -> str:
    try:
        return version("wattpack")
    except PackageNotFoundError:
        return "unknown"  # run from a source tree
