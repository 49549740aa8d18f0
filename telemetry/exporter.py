"""Prometheus metrics of one node's GPUs, in base units, made from the latest state on each scrape.

Device metrics carry ``gpu``, ``uuid`` and ``model``; who uses a GPU stands in
``wattpack_gpu_pod_info``, joined in PromQL by ``uuid``: pod names on every series would make a new
series of each metric with each pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from telemetry.node_state import THROTTLE_REASONS, NodeState
from telemetry.sampler import DeviceSample

LABELS = ("gpu", "uuid", "model")


@dataclass(frozen=True, slots=True)
class _Gauge:
    name: str
    help: str
    value: Callable[[DeviceSample], float | int | None]


def _reading(name: str, scale: float = 1.0) -> Callable[[DeviceSample], float | None]:
    def value(sample: DeviceSample) -> float | None:
        raw = getattr(sample.reading, name, None)
        return None if raw is None else raw * scale

    return value


def _limit(name: str) -> Callable[[DeviceSample], float | None]:
    return lambda sample: getattr(sample.limits, name, None)


_HERTZ_PER_MHZ = 1e6

GAUGES = (
    _Gauge("power_watts", "Board power, the board's own 1 s average.", _reading("draw_watts")),
    _Gauge("power_instant_watts", "Board power, latest window.", _reading("instant_draw_watts")),
    _Gauge(
        "power_energy_mean_watts",
        "Mean power of the last 3 s by the energy counter.",
        lambda sample: sample.energy_mean_watts,
    ),
    _Gauge(
        "power_max_rise_watts",
        "Largest rise within 2 s during the last 10 s.",
        lambda sample: sample.max_rise_watts,
    ),
    _Gauge("power_limit_watts", "Power limit as read back.", _limit("limit_watts")),
    _Gauge(
        "power_limit_enforced_watts",
        "Power limit that the board enforces, all limiters counted.",
        _limit("enforced_limit_watts"),
    ),
    _Gauge("power_limit_default_watts", "Limit after a driver load.", _limit("default_watts")),
    _Gauge("power_limit_min_watts", "Lowest limit that can be set.", _limit("min_watts")),
    _Gauge("power_limit_max_watts", "Highest limit that can be set.", _limit("max_watts")),
    _Gauge("utilisation_ratio", "Time share with a kernel running.", _reading("utilisation")),
    _Gauge(
        "memory_utilisation_ratio",
        "Time share with memory read or written.",
        _reading("memory_utilisation"),
    ),
    _Gauge(
        "engine_activity_ratio",
        "Time share with the compute engine at work (NVML GPM).",
        _reading("engine_activity"),
    ),
    _Gauge(
        "sm_activity_ratio",
        "Time share with warps on a multiprocessor, mean of all (NVML GPM).",
        _reading("sm_activity"),
    ),
    _Gauge(
        "tensor_activity_ratio",
        "Time share with the tensor pipe at work (NVML GPM).",
        _reading("tensor_activity"),
    ),
    _Gauge(
        "dram_activity_ratio",
        "Share of the memory's bandwidth in use (NVML GPM).",
        _reading("dram_activity"),
    ),
    _Gauge("memory_used_bytes", "Memory in use.", _reading("memory_used_bytes")),
    _Gauge("sm_clock_hertz", "SM clock.", _reading("sm_clock_mhz", _HERTZ_PER_MHZ)),
    _Gauge("memory_clock_hertz", "Memory clock.", _reading("memory_clock_mhz", _HERTZ_PER_MHZ)),
    _Gauge("temperature_celsius", "GPU temperature.", _reading("temperature_celsius")),
    _Gauge(
        "memory_temperature_celsius",
        "Memory temperature.",
        _reading("memory_temperature_celsius"),
    ),
    _Gauge(
        "readable",
        "1 while the latest round gave a reading within the deadline.",
        lambda sample: int(sample.fresh),
    ),
)


class NodeCollector(Collector):
    """Serves the state that ``state`` returns; None before the first round."""

    def __init__(self, state: Callable[[], NodeState | None]) -> None:
        self._state = state

    def describe(self) -> list[Metric]:
        """Nothing: the names are known without a first state."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics of the latest state."""
        state = self._state()
        if state is None:
            return
        for gauge in GAUGES:
            yield _gauge(state, gauge)
        yield _ages(state)
        yield _energy(state)
        yield _throttle(state)
        yield _ecc(state)
        yield _xids(state)
        yield from _holders(state)
        yield from _node(state)
        if state.actuator is not None:
            yield from _actuator(state)
            yield _implausible_epochs(state)


def _labels(sample: DeviceSample) -> list[str]:
    identity = sample.identity
    return [str(identity.index), identity.uuid, identity.model]


def _gauge(state: NodeState, gauge: _Gauge) -> Metric:
    metric = GaugeMetricFamily(f"wattpack_gpu_{gauge.name}", gauge.help, labels=LABELS)
    for sample in state.samples:
        value = gauge.value(sample)
        if value is not None:
            metric.add_metric(_labels(sample), value)
    return metric


def _ages(state: NodeState) -> Metric:
    metric = GaugeMetricFamily(
        "wattpack_gpu_reading_age_seconds", "Age of the reading shown.", labels=LABELS
    )
    for sample in state.samples:
        age = state.age_seconds(sample)
        if age is not None:
            metric.add_metric(_labels(sample), age)
    return metric


def _energy(state: NodeState) -> Metric:
    metric = CounterMetricFamily(
        "wattpack_gpu_energy_joules", "Energy since the driver was loaded.", labels=LABELS
    )
    for sample in state.samples:
        if sample.reading and sample.reading.energy_joules is not None:
            metric.add_metric(_labels(sample), sample.reading.energy_joules)
    return metric


def _throttle(state: NodeState) -> Metric:
    metric = GaugeMetricFamily(
        "wattpack_gpu_throttle_active",
        "1 while the board lowers its clocks for this reason (NVML clocks event reasons).",
        labels=[*LABELS, "reason"],
    )
    for sample in state.samples:
        mask = sample.reading.throttle_reasons if sample.reading else None
        if mask is None:
            continue
        for bit, reason in THROTTLE_REASONS.items():
            metric.add_metric([*_labels(sample), reason], float(bool(mask & bit)))
    return metric


def _ecc(state: NodeState) -> Metric:
    metric = CounterMetricFamily(
        "wattpack_gpu_ecc_errors", "Aggregate ECC errors.", labels=[*LABELS, "kind"]
    )
    for sample in state.samples:
        for kind in ("corrected", "uncorrected"):
            count = getattr(sample.reading, f"ecc_{kind}", None)
            if count is not None:
                metric.add_metric([*_labels(sample), kind], count)
    return metric


def _xids(state: NodeState) -> Metric:
    metric = CounterMetricFamily(
        "wattpack_gpu_xid_events", "XID events since the agent's start.", labels=[*LABELS, "xid"]
    )
    for sample in state.samples:
        for xid, count in sorted(sample.xid_counts.items()):
            metric.add_metric([*_labels(sample), str(xid)], count)
    return metric


def _holders(state: NodeState) -> Iterator[Metric]:
    pods = GaugeMetricFamily(
        "wattpack_gpu_pod_info",
        "1 for each pod that holds the GPU.",
        labels=["uuid", "namespace", "pod", "pod_uid"],
    )
    for pod in state.attribution.pods:
        for uuid in pod.device_uuids:
            pods.add_metric([uuid, pod.namespace, pod.name, pod.uid], 1)
    yield pods
    outside = GaugeMetricFamily(
        "wattpack_gpu_processes_outside_kubernetes",
        "Processes on the GPU that belong to no pod.",
        labels=["uuid"],
    )
    for sample in state.samples:
        uuid = sample.identity.uuid
        count = sum(process.device_uuid == uuid for process in state.attribution.outside)
        outside.add_metric([uuid], count)
    yield outside


def _node(state: NodeState) -> Iterator[Metric]:
    for name, text, value in (
        (
            "telemetry_missing_ratio",
            "Share of GPUs without a fresh reading.",
            state.missing_share(),
        ),
        ("gpus", "GPUs that the driver lists.", len(state.samples) + state.unidentified),
        ("actuator_up", "1 while the actuator answers.", float(state.actuator is not None)),
    ):
        metric = GaugeMetricFamily(f"wattpack_node_{name}", text, labels=["node"])
        metric.add_metric([state.node], value)
        yield metric
    for name, text, count in (
        (
            "emergency_cuts",
            "Times that the agent cut its node because it drew more than the node's own limit.",
            state.emergency_cuts,
        ),
        (
            "refused_batches",
            "Batches of leases that the agent or the actuator refused.",
            state.refused_batches,
        ),
    ):
        counter = CounterMetricFamily(f"wattpack_node_{name}", text, labels=["node"])
        counter.add_metric([state.node], count)
        yield counter


def _implausible_epochs(state: NodeState) -> Metric:
    metric = CounterMetricFamily(
        "wattpack_node_implausible_epochs",
        "Commands that the actuator refused for an epoch or sequence that no leader can have.",
        labels=["node"],
    )
    if state.actuator is not None:
        metric.add_metric([state.node], state.actuator.implausible_epochs)
    return metric


def _actuator(state: NodeState) -> Iterator[Metric]:
    rows: tuple[tuple[str, str, type[Any], str], ...] = (
        (
            "guaranteed_watts",
            "Cap that lease expiry falls to.",
            GaugeMetricFamily,
            "guaranteed_watts",
        ),
        ("lease_active", "1 while a lease holds the cap.", GaugeMetricFamily, "lease_active"),
        ("clock_lock_mhz", "Clock lock.", GaugeMetricFamily, "lock_max_mhz"),
        ("failed_writes", "Writes without effect.", CounterMetricFamily, "failed_writes"),
    )
    for name, text, kind, attribute in rows:
        scale = _HERTZ_PER_MHZ if name.endswith("_mhz") else 1.0
        metric = kind(f"wattpack_gpu_{name.replace('_mhz', '_hertz')}", text, labels=LABELS)
        for sample in state.samples:
            status = state.actuator.devices.get(sample.identity.uuid) if state.actuator else None
            value = getattr(status, attribute, None)
            if value is not None:
                metric.add_metric(_labels(sample), float(value) * scale)
        yield metric
