"""What the agents have said, kept as small arrays a node, turned into observations at a tick.

A report is checked as a whole before anything of it is kept; what is refused leaves the last good
state, which then ages (and so counts at the most the node could be drawing).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from controller.app.agent_reports import (
    NodeSample,
    describe,
    read_report,
)
from controller.app.node_record import NodeRecord, devices_of
from controller.tick_values import Observations, Topology
from wattpack.errors import InputError
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.energy_trust import energy_mean_watts
from wattpack.units import NS_PER_SECOND
from wattpack.wire.v1 import power_pb2

# Servers that rose together (some may have fallen) by this share of the largest rating since the
# last tick wake it at once: under half of the margin that a cap band keeps for rises.
LARGE_RISE_SHARE = 0.02
# A node whose object was deleted is counted until it has been silent for so long.
FORGET_AFTER_NS = 60 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Arrival:
    """A report that was accepted.

    Attributes:
        rebooted: The node has another boot id than at the last tick.
        calls_for_tick: The fleet has risen so much since the last tick that one is due now.
    """

    sample: NodeSample
    rebooted: bool
    calls_for_tick: bool


class Fleet:
    """All nodes that have said hello. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeRecord] = {}
        self._version = 0
        self._hellos = 0
        self._risen_watts = 0.0
        self.large_rise_watts = math.inf

    @property
    def version(self) -> int:
        """Rises whenever a node appears, reboots, or its devices or pods change."""
        return self._version

    def hello(self, hello: power_pb2.Hello) -> None:
        """Take a node in, or take it in anew after a reboot; its reports count from the beginning.

        Boards that a running node no longer names (lost from the bus, or left out) go on drawing
        power: they stay, without readings, until it boots again.

        Raises:
            InputError: naming the field; what was known of the node stays.
        """
        named = describe(hello)
        with self._lock:
            known = self._nodes.get(hello.node)
            rebooted = known is not None and known.boot_id != hello.boot_id
            devices = devices_of(hello, named, known)
            if known is not None and known.devices == devices and not rebooted:
                known.newest_sequence = -1
                if known.instance != hello.instance:
                    # Another process samples at other moments: a counter's difference between the
                    # two would be a mean over a time that nobody knows.
                    known.energy_history.clear()
                    known.instance = hello.instance
                if known.host_unit != hello.host_unit:
                    known.host_unit = hello.host_unit
                    self._version += 1
                return
            self._hellos += 1
            self._nodes[hello.node] = NodeRecord(
                hello.node,
                hello.boot_id,
                hello.host_unit,
                devices,
                hello.instance,
                joined=self._hellos if known is None else known.joined,
                # No tick has seen that boot yet: another hello of it does not make it an old one.
                rebooted=rebooted or (known is not None and known.rebooted),
            )
            self._version += 1

    def check(self, hello: power_pb2.Hello) -> None:
        """Change nothing; whether ``hello`` could be taken now.

        Raises:
            InputError: naming the field.
        """
        named = describe(hello)
        with self._lock:
            devices_of(hello, named, self._nodes.get(hello.node))

    def report(self, report: power_pb2.NodeReport, received_ns: int) -> Arrival:
        """Keep a report; what its answer depends on.

        Raises:
            InputError: naming the field; the last good report stays.
        """
        with self._lock:
            record = self._nodes.get(report.node)
        if record is None:
            raise InputError("report.node", "a node that has said hello", report.node)
        sample = read_report(report, record.devices, received_ns)
        with self._lock:
            previous = previous_of_boot = record.sample
            if report.boot_id != record.boot_id:
                record.rebooted, record.boot_id = True, report.boot_id
                record.energy_history.clear()
                previous_of_boot = None
            elif report.sequence <= record.newest_sequence:
                raise InputError("report.sequence", f"> {record.newest_sequence}", report.sequence)
            record.take_highest(previous_of_boot, sample)
            record.sample, record.newest_sequence = sample, report.sequence
            record.energy_history.append((sample.clock_ns, sample.energy_joules.tolist()))
            record.energy_mean_watts = _energy_means(record.energy_history)
            if previous is None or previous.pods != sample.pods:
                self._version += 1
            if previous is not None:
                self._risen_watts += _known_watts(sample.draw_watts) - _known_watts(
                    previous.draw_watts
                )
            return Arrival(sample, record.rebooted, self._risen_watts > self.large_rise_watts)

    def begin_tick(self, largest_rating_watts: float) -> None:
        """A tick takes everything into account that has risen until now."""
        with self._lock:
            self._risen_watts = 0.0
            self.large_rise_watts = LARGE_RISE_SHARE * largest_rating_watts

    def records(self) -> list[NodeRecord]:
        """The nodes by name."""
        with self._lock:
            return [self._nodes[name] for name in sorted(self._nodes)]

    def knows(self, node: str) -> bool:
        """Whether a node has said hello and was not forgotten since."""
        with self._lock:
            return node in self._nodes

    def forget(self, node: str) -> None:
        """Drop a node that is no longer part of the cluster."""
        with self._lock:
            if self._nodes.pop(node, None) is not None:
                self._version += 1

    def forget_silent(self, nodes: Collection[str], now_ns: int) -> list[str]:
        """Drop those of the nodes, which the cluster no longer has, that are silent; their names.

        A machine that still reports draws power and is counted, whatever the API says.
        """
        with self._lock:
            known = (name for name in nodes if name in self._nodes)
            gone = [name for name in known if self._is_silent(name, now_ns)]
        for name in gone:
            self.forget(name)
        return gone

    def _is_silent(self, node: str, now_ns: int) -> bool:
        sample = self._nodes[node].sample
        return sample is None or now_ns - sample.received_ns > FORGET_AFTER_NS

    def temperatures_celsius(self, topology: Topology) -> FloatArray:
        """As the boards said last, NaN if unknown, (n_gpus,)."""
        with self._lock:
            known = {
                device.uuid: celsius
                for record in self._nodes.values()
                if record.sample is not None
                for device, celsius in zip(
                    record.devices, record.sample.temperature_celsius.tolist(), strict=False
                )
            }
        return np.array([known.get(uuid, np.nan) for uuid in topology.gpu_uuids])

    def signals(self, topology: Topology) -> FloatArray:
        """As ``NodeSample.signals`` in the topology's order, NaN if unknown, (3, n_gpus)."""
        return self._columns(topology, 3, lambda sample: sample.signals)

    def units(self, topology: Topology) -> FloatArray:
        """The same of ``NodeSample.units``, (4, n_gpus)."""
        return self._columns(topology, 4, lambda sample: sample.units)

    def _columns(
        self, topology: Topology, n: int, of: Callable[[NodeSample], FloatArray]
    ) -> FloatArray:
        found = np.full((n, topology.n_gpus), np.nan)
        with self._lock:
            samples = {name: record.sample for name, record in self._nodes.items()}
        begin, counts = 0, np.bincount(topology.node_of_gpu, minlength=topology.n_nodes).tolist()
        for name, count in zip(topology.node_names, counts, strict=True):
            sample = samples.get(name)
            if sample is not None and of(sample).shape[1] == count:
                found[:, begin : begin + count] = of(sample)
            begin += count
        return found

    def observe(
        self,
        topology: Topology,
        leadership: Leadership,
        domains: DomainInputs,
        override_cap_watts: FloatArray,
    ) -> Observations:
        """The newest samples as arrays in the topology's order; silence keeps its old stamps."""
        offsets = np.concatenate(
            [[0], np.cumsum(np.bincount(topology.node_of_gpu, minlength=topology.n_nodes))]
        )
        arrays = _Arrays.empty(topology.n_gpus, topology.n_nodes)
        with self._lock:
            for index, name in enumerate(topology.node_names):
                record = self._nodes.get(name)
                if record is None:
                    continue
                arrays.rebooted[index], record.rebooted = record.rebooted, False
                if record.sample is not None:
                    gpus = slice(offsets[index], offsets[index + 1])
                    arrays.fill(index, gpus, record, leadership.epoch)
                    record.highest_watts = None
        return Observations(
            node_received_ns=arrays.received_ns,
            node_nonce=arrays.nonce,
            node_rebooted=arrays.rebooted,
            host_watts=np.full(topology.n_nodes, np.nan),
            gpu_draw_watts=arrays.draw_watts,
            gpu_energy_mean_watts=arrays.energy_mean_watts,
            gpu_limit_watts=arrays.limit_watts,
            gpu_guaranteed_watts=arrays.guaranteed_watts,
            gpu_confirmed_sequence=arrays.confirmed_sequence,
            gpu_leased=arrays.leased,
            gpu_controlled=arrays.controlled,
            meter_watts=domains.meter_watts,
            meter_time_ns=domains.meter_time_ns,
            forecast_p99_watts=domains.forecast_p99_watts,
            budget_watts=domains.budget_watts,
            override_cap_watts=override_cap_watts,
            epoch=leadership.epoch,
            leading=leadership.leading,
            may_raise=leadership.may_raise,
            node_epoch=arrays.highest_epoch,
            feed_share=domains.feed_share,
            feed_time_ns=domains.feed_time_ns,
            gpu_gap_watts=arrays.highest_watts,
            node_unanswered_ns=arrays.unanswered_ns,
        )


@dataclass(frozen=True, slots=True)
class Leadership:
    """What the elector says at a tick."""

    epoch: int
    leading: bool
    may_raise: bool


@dataclass(frozen=True, slots=True)
class DomainInputs:
    """Meters, forecasts and budgets at a tick, (n_domains,) each; see ``Observations``."""

    meter_watts: FloatArray
    meter_time_ns: IntArray
    forecast_p99_watts: FloatArray
    budget_watts: FloatArray
    feed_share: FloatArray = field(default_factory=lambda: np.zeros(0))
    feed_time_ns: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(slots=True)
class _Arrays:
    """Observation arrays while they are being filled."""

    received_ns: IntArray
    nonce: np.ndarray[tuple[int], np.dtype[np.uint64]]
    rebooted: BoolArray
    highest_epoch: IntArray
    unanswered_ns: IntArray
    draw_watts: FloatArray
    energy_mean_watts: FloatArray
    highest_watts: FloatArray
    limit_watts: FloatArray
    guaranteed_watts: FloatArray
    confirmed_sequence: IntArray
    controlled: BoolArray
    leased: BoolArray

    @classmethod
    def empty(cls, n_gpus: int, n_nodes: int) -> _Arrays:
        """Nothing known."""
        unknown = [np.full(n_gpus, np.nan) for _ in range(5)]
        return cls(
            np.full(n_nodes, -1, dtype=np.int64),
            np.zeros(n_nodes, dtype=np.uint64),
            np.zeros(n_nodes, dtype=np.bool_),
            np.zeros(n_nodes, dtype=np.int64),
            np.zeros(n_nodes, dtype=np.int64),
            unknown[0],
            unknown[1],
            unknown[2],
            unknown[3],
            unknown[4],
            np.zeros(n_gpus, dtype=np.int64),
            np.zeros(n_gpus, dtype=np.bool_),
            np.zeros(n_gpus, dtype=np.bool_),
        )

    def fill(self, node: int, gpus: slice, record: NodeRecord, epoch: int) -> None:
        """One node's sample; a device set that has just changed waits for the new topology."""
        sample = record.sample
        if sample is None or len(sample.draw_watts) != gpus.stop - gpus.start:
            return
        self.received_ns[node] = sample.received_ns
        self.nonce[node] = sample.nonce
        self.highest_epoch[node] = sample.highest_epoch
        if sample.highest_since_ns > 0:
            self.unanswered_ns[node] = max(0, sample.clock_ns - sample.highest_since_ns)
        self.draw_watts[gpus] = sample.draw_watts
        self.energy_mean_watts[gpus] = record.energy_mean_watts
        if record.highest_watts is not None:
            self.highest_watts[gpus] = record.highest_watts
        self.limit_watts[gpus] = sample.limit_watts
        self.guaranteed_watts[gpus] = sample.guaranteed_watts
        # Sequences begin anew with each epoch: a confirmation counts only in the one it is of.
        if sample.highest_epoch == epoch:
            self.confirmed_sequence[gpus] = sample.confirmed_sequence
        self.controlled[gpus] = sample.controlled
        self.leased[gpus] = sample.leased


def _energy_means(history: Sequence[tuple[int, list[float]]]) -> FloatArray:
    """Each board's mean by its counter, NaN where there is none, (n_devices,)."""
    devices = len(history[-1][1])
    same = [entry for entry in reversed(history) if len(entry[1]) == devices]
    means = [
        energy_mean_watts((at_ns, joules[i] if joules[i] > 0.0 else None) for at_ns, joules in same)
        for i in range(devices)
    ]
    return np.array([math.nan if mean is None else mean for mean in means])


def _known_watts(watts: FloatArray) -> float:
    """The sum without what is not known: over the few boards of one node, faster than nansum."""
    return math.fsum(w for w in watts.tolist() if not math.isnan(w))
