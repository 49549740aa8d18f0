"""What is known of one node at one moment: the value that report, exporter, table and JSON show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from actuator.lease_messages import ActuatorStatus
from telemetry.attribution.attribute import Attribution
from telemetry.sampler import DeviceSample
from wattpack.units import NS_PER_SECOND, GpuUuid

# Names of NVML's clocks event reason bits (nvml.h), as wattpack exports them.
THROTTLE_REASONS: dict[int, str] = {
    0x1: "gpu_idle",
    0x2: "clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


def throttle_reason_names(mask: int | None) -> tuple[str, ...]:
    """The reasons in a mask, unknown bits as ``bit_n``."""
    names = []
    for bit in range((mask or 0).bit_length()):
        if (mask or 0) >> bit & 1:
            names.append(THROTTLE_REASONS.get(1 << bit, f"bit_{bit}"))
    return tuple(names)


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node after one round.

    Attributes:
        now_ns: Of the agent's monotonic clock.
        actuator: None while the actuator does not answer.
        unidentified: How many devices the driver lists that do not answer at all.
        emergency_cuts: How often the agent cut the node below its own limit since it began.
        refused_batches: How many batches of leases it or the actuator refused since then.
    """

    node: str
    boot_id: str
    now_ns: int
    samples: tuple[DeviceSample, ...]
    attribution: Attribution = field(default_factory=Attribution)
    actuator: ActuatorStatus | None = None
    unidentified: int = 0
    emergency_cuts: int = 0
    refused_batches: int = 0

    def missing_share(self) -> float:
        """Share of the node's devices without a fresh reading, 0 to 1."""
        total = len(self.samples) + self.unidentified
        missing = sum(not sample.fresh for sample in self.samples) + self.unidentified
        return missing / total if total else 0.0

    def draw_watts(self) -> float:
        """Sum of the last known power of every device."""
        return sum(sample.draw_watts() or 0.0 for sample in self.samples)

    def age_seconds(self, sample: DeviceSample) -> float | None:
        """How old a device's reading is."""
        if sample.reading is None:
            return None
        return (self.now_ns - sample.reading.monotonic_ns) / NS_PER_SECOND

    def holders(self, uuid: GpuUuid) -> tuple[str, ...]:
        """Who is on a device: ``namespace/pod``, or ``pid command`` outside Kubernetes."""
        pods = [
            f"{pod.namespace}/{pod.name}" if pod.name else f"pod {pod.uid}"
            for pod in self.attribution.pods
            if uuid in pod.device_uuids
        ]
        outside = [
            f"{process.pid} {process.command}".strip()
            for process in self.attribution.outside
            if process.device_uuid == uuid
        ]
        return tuple(pods + outside)


def to_json(state: NodeState) -> dict[str, Any]:
    """The state as ``wattpack agent --local --json`` prints it; null where nothing is known."""
    return {
        "node": state.node,
        "draw_watts": round(state.draw_watts(), 3),
        "missing_share": state.missing_share(),
        "attribution_source": state.attribution.source,
        "devices": [_device_json(state, sample) for sample in state.samples],
    }


def _device_json(state: NodeState, sample: DeviceSample) -> dict[str, Any]:
    reading, limits, identity = sample.reading, sample.limits, sample.identity
    out: dict[str, Any] = {
        "uuid": identity.uuid,
        "model": identity.model,
        "index": identity.index,
        "pci_bus_id": identity.pci_bus_id,
        "mig_enabled": identity.mig_enabled,
        "error": str(sample.error) if sample.error else None,
        "age_seconds": state.age_seconds(sample),
        "energy_mean_watts": sample.energy_mean_watts,
        "max_rise_watts": sample.max_rise_watts,
        "holders": list(state.holders(identity.uuid)),
        "xid_events": {str(xid): count for xid, count in sorted(sample.xid_counts.items())},
    }
    if limits:
        out["limits"] = {name: getattr(limits, name) for name in limits.__dataclass_fields__}
    if reading:
        skipped = {"monotonic_ns", "xid_events", "throttle_reasons"}
        names = [name for name in reading.__dataclass_fields__ if name not in skipped]
        out["reading"] = {name: getattr(reading, name) for name in names}
        out["throttle_reasons"] = list(throttle_reason_names(reading.throttle_reasons))
    return out
