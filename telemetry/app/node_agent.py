"""One node's agent: samples, reports to every controller replica, passes leases to the actuator.

       boards ──► Sampler ──► NodeState ──► NodeReport ──► link to each replica
    actuator ──► status (nonce) ──┘                              │
        ▲──────────── LeaseCommand ◄── LeaseBatch ◄──────────────┘

The agent decides nothing but the emergency cut of its own node: the actuator judges every batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from actuator.lease_messages import (
    ActuatorPort,
    ActuatorStatus,
    DeviceCommand,
    LeaseCommand,
    Operation,
)
from actuator.unix_socket.client import ActuatorError
from telemetry.attribution.attribute import Attribution
from telemetry.highest_readings import HighestReadings, HighestTold
from telemetry.large_rise import LastReport, calls_for_report, told
from telemetry.node_limit import Cut, GuardedDevice, emergency_cuts
from telemetry.node_state import NodeState
from telemetry.report_messages import build_hello, build_report, to_command
from telemetry.sampler import DeviceSample, Sampler
from telemetry.stream.controller_link import Link
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND
from wattpack.wire.v1 import power_pb2

log = logging.getLogger(__name__)

REPORT_PERIOD_NS = NS_PER_SECOND
"""The controller's tick; its Welcome may ask for another period."""

GUARD_TTL_MS = 2_000
"""How long an emergency cut is held before the GPUs fall to their guaranteed caps."""

GUARD_REST_NS = NS_PER_SECOND
"""Between two emergency cuts: time for a cut to take effect and for the controller to answer."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What does not change while the agent runs.

    Attributes:
        host_unit: The host sets guaranteed caps before the kubelet starts (I10).
        limit_watts: The node's own limit, None for none.
        other_watts: Worst power of the node without its GPUs.
        instance: Other at every start of the process, so that controllers know it from the agent
            that it follows.
    """

    node: str
    boot_id: str = ""
    agent_version: str = ""
    host_unit: bool = False
    limit_watts: float | None = None
    other_watts: float = 0.0
    unidentified: int = 0
    instance: str = ""


def no_attribution() -> Attribution:
    """Nobody is known to use anything."""
    return Attribution()


@dataclass(frozen=True, slots=True)
class Senses:
    """Where the agent learns what its node does now.

    Attributes:
        sampler: Of its boards.
        attribution: The latest word on who uses the boards.
    """

    sampler: Sampler
    attribution: Callable[[], Attribution] = no_attribution


class NodeAgent:
    """The agent of one node, driven by its owner's loop; no method blocks on the network.

    Args:
        facts: About the node.
        senses: What it measures.
        links: One a controller replica.
        actuator: None if this node only reports.
        clock: For message book-keeping; times come in as arguments.
    """

    def __init__(
        self,
        facts: NodeFacts,
        senses: Senses,
        links: Sequence[Link],
        actuator: ActuatorPort | None,
        clock: Clock,
    ) -> None:
        self.facts = facts
        self._sampler = senses.sampler
        self._links = tuple(links)
        self._actuator = actuator
        self._clock = clock
        self._attribution = senses.attribution
        self._sequence = 0
        self._told = LastReport()
        # Readings and reports have threads of their own.
        self._highest, self._highest_lock = HighestReadings(), threading.Lock()
        self._reported_to: frozenset[int] = frozenset()
        self._actuator_failing = False
        self._described: frozenset[str] | None = None
        self._cut_ns: int | None = None
        self._actuator_status: ActuatorStatus | None = None
        self.refused_batches = 0
        self.emergency_cuts = 0
        self.state = self._new_state(0)

    @property
    def node(self) -> str:
        """The node's name."""
        return self.facts.node

    def read(self, now_ns: int) -> None:
        """Read every board once; the state follows with the next exchange."""
        samples = self._sampler.sample(now_ns)
        with self._highest_lock:
            self._highest.saw(samples)

    def sample(self, now_ns: int) -> NodeState:
        """Read every board once, and the state after it."""
        self.read(now_ns)
        self.state = state = self._new_state(now_ns)
        return state

    def exchange(self, now_ns: int) -> power_pb2.NodeReport:
        """Ask the actuator, and report to every replica; the report."""
        self._actuator_status = self._status()
        # Not read back from ``self.state``: the sampling thread replaces that at any moment.
        self.state = state = self._new_state(now_ns)
        self._sequence += 1
        self._told = told(state.samples, now_ns)
        report = build_report(state, self._sequence, self._highest_told())
        self._reported_to = self._welcomed()
        described = _described(state.samples)
        if self._described is not None and not described <= self._described:
            # A board that hung at the hello answers now: until the next hello it counts at the
            # most that its type may draw.
            self._described = None
            for link in self._links:
                link.reopen()
        for link in self._links:
            link.keep_open(now_ns, self._hello)
            link.send(report)
        return report

    def handle(self) -> int:
        """Hand every batch that came to the actuator; how many."""
        handled = 0
        for link in self._links:
            for batch in link.take():
                with self._highest_lock:
                    self._highest.answered(batch.nonce)
                self._apply(batch, link.target)
                self._clock.message_handled()
                handled += 1
        return handled

    def over_limit(self) -> bool:
        """Whether the last sample exceeds the node's own limit."""
        limit = self.facts.limit_watts
        if limit is None:
            return False
        total = sum(_worst_watts(sample) for sample in self._sampler.samples())
        return total + self.facts.other_watts > limit

    def has_risen(self, now_ns: int) -> bool:
        """Whether the last sample is so far above the last report that another is due now."""
        return calls_for_report(self._told, self._sampler.samples(), now_ns)

    def is_awaited(self) -> bool:
        """Whether a controller has welcomed this agent and was sent no report since."""
        return not self._welcomed() <= self._reported_to

    def has_actuator(self) -> bool:
        """Whether the actuator answered at the last exchange, or none was given."""
        return self._actuator is None or self._actuator_status is not None

    def welcomes(self) -> tuple[int, int]:
        """How many replicas have welcomed this agent, and how many there are."""
        return len(self._welcomed()), len(self._links)

    def guard(self, now_ns: int) -> tuple[Cut, ...]:
        """Cut the node below its own limit at once, if it exceeds it; what was cut."""
        limit = self.facts.limit_watts
        resting = self._cut_ns is not None and now_ns - self._cut_ns < GUARD_REST_NS
        if limit is None or self._actuator is None or resting or not self.over_limit():
            return ()
        status = self._status()
        if status is None or status.highest_epoch == 0:
            return ()  # no lease was ever given, so every GPU is at its guaranteed cap
        devices = _guarded(self._sampler.samples(), status)
        cuts = emergency_cuts(devices, limit, self.facts.other_watts)
        if cuts:
            self._cut_ns = now_ns
            self.emergency_cuts += 1
            log.warning(
                "%s exceeds its limit of %.0f W: cutting %d GPUs", self.node, limit, len(cuts)
            )
            self._give(_cut_command(cuts, status), "the node's own limit")
        return cuts

    def report_period_ns(self) -> int:
        """The shortest period that a replica asked for."""
        asked = [period for link in self._links if (period := link.report_period_ns)]
        return min(asked, default=REPORT_PERIOD_NS)

    def close(self) -> None:
        """End the streams; caps stay as they are, leases run out in the actuator."""
        for link in self._links:
            link.close()

    # -- inside ----------------------------------------------------------------------------------

    def _welcomed(self) -> frozenset[int]:
        return frozenset(i for i, link in enumerate(self._links) if link.connected)

    def _highest_told(self) -> HighestTold | None:
        status = self._actuator_status
        if status is None:
            return None
        with self._highest_lock:
            return self._highest.reported(status.nonce, status.clock_ns)

    def _new_state(self, now_ns: int) -> NodeState:
        return NodeState(
            self.facts.node,
            self.facts.boot_id,
            now_ns,
            self._sampler.samples(),
            self._attribution(),
            self._actuator_status,
            self.facts.unidentified,
            self.emergency_cuts,
            self.refused_batches,
        )

    def _hello(self) -> power_pb2.Hello:
        facts = self.facts
        known = _described(self.state.samples)
        # What the replica that knows least was told.
        self._described = known if self._described is None else self._described & known
        return build_hello(
            self.state, facts.agent_version, host_unit=facts.host_unit, instance=facts.instance
        )

    def _status(self) -> ActuatorStatus | None:
        if self._actuator is None:
            return None
        try:
            status = self._actuator.status()
        except ActuatorError as error:
            if not self._actuator_failing:
                log.error("%s: no actuator: %s", self.node, error)
            self._actuator_failing = True
            return None
        self._actuator_failing = False
        return status

    def _apply(self, batch: power_pb2.LeaseBatch, source: str) -> None:
        try:
            command = self._for_known_boards(to_command(batch))
        except InputError as error:
            self.refused_batches += 1
            log.warning("%s: batch of %s refused: %s", self.node, source, error)
            return
        self._give(command, source)

    def _for_known_boards(self, command: LeaseCommand) -> LeaseCommand:
        """The command without boards that the actuator does not hold.

        One that hung when the actuator started has no entry there; naming it would refuse the
        leases of all others.
        """
        status = self._actuator_status
        if status is None:
            return command
        held = tuple(device for device in command.devices if device.uuid in status.devices)
        # One that names none of its boards is for the actuator to refuse.
        return replace(command, devices=held) if held else command

    def _give(self, command: LeaseCommand, source: str) -> None:
        if self._actuator is None:
            return
        try:
            result = self._actuator.apply(command)
        except ActuatorError as error:
            log.warning("%s: batch of %s not applied: %s", self.node, source, error)
            return
        if not result.accepted:
            self.refused_batches += 1
            log.warning(
                "%s: the actuator refused a batch of %s: %s: expected %s, got %s",
                self.node,
                source,
                result.field,
                result.expected,
                result.got,
            )


def _described(samples: Sequence[DeviceSample]) -> frozenset[str]:
    """Boards whose limits were read."""
    return frozenset(str(s.identity.uuid) for s in samples if s.limits is not None)


def _worst_watts(sample: DeviceSample) -> float:
    """The most that a device draws by its last reading; its limit while it cannot be read."""
    reading, limits = sample.reading, sample.limits
    if not sample.fresh or reading is None:
        known = reading.draw_watts if reading else 0.0
        return max(known, limits.enforced_limit_watts if limits else 0.0)
    return max(reading.draw_watts, reading.instant_draw_watts or 0.0)


def _guarded(samples: Sequence[DeviceSample], status: ActuatorStatus) -> list[GuardedDevice]:
    devices = []
    for sample in samples:
        held = status.devices.get(sample.identity.uuid)
        if held is None:
            continue
        limit = held.limit_watts or held.guaranteed_watts
        clock = sample.reading.sm_clock_mhz if sample.fresh and sample.reading else None
        devices.append(
            GuardedDevice(
                sample.identity.uuid, _worst_watts(sample), limit, held.guaranteed_watts, clock or 0
            )
        )
    return devices


def _cut_command(cuts: Sequence[Cut], status: ActuatorStatus) -> LeaseCommand:
    """The cuts under the present leader's epoch: only its next batch can replace them."""
    return LeaseCommand(
        epoch=status.highest_epoch,
        # It answers a newer status, so it need not outrun the leader, who answers the next one.
        sequence=status.highest_sequence,
        nonce=status.nonce,
        ttl_ms=GUARD_TTL_MS,
        devices=tuple(
            DeviceCommand(
                cut.uuid,
                Operation.SET_POWER_LIMIT if cut.lock_max_mhz is None else Operation.LOCK_CLOCKS,
                cut.cap_watts,
                cut.lock_max_mhz,
            )
            for cut in cuts
        ),
    )
