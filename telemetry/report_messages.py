"""The agent's messages from what it knows, and the controller's batches as commands. Pure."""

from __future__ import annotations

from actuator.lease_messages import (
    ActuatorStatus,
    DeviceCommand,
    DeviceStatus,
    LeaseCommand,
    Operation,
)
from actuator.lease_messages import DeviceState as ActuatorDeviceState
from telemetry.attribution.attribute import Attribution
from telemetry.highest_readings import HighestTold
from telemetry.node_state import NodeState
from telemetry.sampler import DeviceSample
from wattpack.errors import InputError
from wattpack.units import GpuUuid, require_number
from wattpack.wire.v1 import power_pb2

VERSIONS = (1,)
ACTIVITIES = ("engine_activity", "sm_activity", "tensor_activity", "dram_activity")
"""Fields of a reading and of its message."""


def build_hello(
    state: NodeState, agent_version: str, *, host_unit: bool, instance: str = ""
) -> power_pb2.Hello:
    """The first message of a stream.

    A device whose limits were never read is described by its name only: the controller has to
    budget it at its maximum. Boards that did not tell even that are counted.
    """
    return power_pb2.Hello(
        versions=VERSIONS,
        node=state.node,
        boot_id=boot_id(state),
        agent_version=agent_version,
        host_unit=host_unit,
        instance=instance,
        devices=[_description(sample) for sample in state.samples],
        unidentified_devices=state.unidentified,
    )


def _description(sample: DeviceSample) -> power_pb2.DeviceDescription:
    identity, limits = sample.identity, sample.limits
    description = power_pb2.DeviceDescription(
        uuid=identity.uuid,
        model=identity.model,
        index=identity.index,
        max_clock_mhz=sample.max_clock_mhz or 0,
    )
    if limits is not None:
        description.default_limit_watts = limits.default_watts
        description.min_limit_watts = limits.min_watts
        description.max_limit_watts = limits.max_watts
    return description


def build_report(
    state: NodeState,
    sequence: int,
    highest: HighestTold | None = None,
) -> power_pb2.NodeReport:
    """One report; without an actuator its nonce is 0 and every device is uncontrolled (I10)."""
    actuator = state.actuator
    report = power_pb2.NodeReport(
        node=state.node,
        boot_id=boot_id(state),
        sequence=sequence,
        devices=[_reading(sample, actuator) for sample in state.samples],
        pods=pod_uses(state.attribution),
    )
    if actuator is not None:
        report.nonce = actuator.nonce
        report.clock_ns = actuator.clock_ns
        report.highest_epoch = actuator.highest_epoch
    if highest is not None:
        report.highest_since_clock_ns = highest.since_clock_ns
        for device in report.devices:
            if device.uuid in highest.watts:
                device.highest_draw_watts = highest.watts[GpuUuid(device.uuid)]
    return report


def boot_id(state: NodeState) -> str:
    """The actuator's word if it answers: leases die with the boot that it counts."""
    return state.actuator.boot_id if state.actuator is not None else state.boot_id


def device_state(sample: DeviceSample, status: DeviceStatus | None) -> int:
    """How far the controller may rely on a device.

    Uncontrolled comes first: it is budgeted at its maximum, an unreadable one at its cap.
    """
    if status is None or status.state is ActuatorDeviceState.UNCONTROLLED:
        return power_pb2.DEVICE_STATE_UNCONTROLLED
    if not sample.fresh or status.state is ActuatorDeviceState.UNREADABLE:
        return power_pb2.DEVICE_STATE_UNREADABLE
    return power_pb2.DEVICE_STATE_OK


def _reading(sample: DeviceSample, actuator: ActuatorStatus | None) -> power_pb2.DeviceReading:
    status = actuator.devices.get(sample.identity.uuid) if actuator is not None else None
    limits, reading = sample.limits, sample.reading
    message = power_pb2.DeviceReading(
        uuid=sample.identity.uuid,
        state=device_state(sample, status),  # type: ignore[arg-type]
        limit_watts=limits.limit_watts if limits else 0.0,
        enforced_limit_watts=limits.enforced_limit_watts if limits else 0.0,
    )
    if reading is not None:
        message.draw_watts = reading.draw_watts
        message.instant_draw_watts = reading.instant_draw_watts or 0.0
        message.energy_joules = reading.energy_joules or 0.0
        message.sm_clock_mhz = reading.sm_clock_mhz or 0
        message.utilisation = reading.utilisation or 0.0
        if reading.memory_utilisation is not None:
            message.memory_utilisation = reading.memory_utilisation
        for name in ACTIVITIES:
            share = getattr(reading, name)
            if share is not None:
                setattr(message, name, share)
        message.temperature_celsius = reading.temperature_celsius or 0.0
        message.throttle_reasons = reading.throttle_reasons or 0
    if status is not None:
        message.limit_watts = status.limit_watts or message.limit_watts
        message.enforced_limit_watts = status.enforced_limit_watts or message.enforced_limit_watts
        message.guaranteed_watts = status.guaranteed_watts
        message.lock_max_mhz = status.lock_max_mhz or 0
        message.lease_active = status.lease_active
        message.confirmed_sequence = status.confirmed_sequence
        message.failed_writes = status.failed_writes
    return message


def pod_uses(attribution: Attribution) -> list[power_pb2.PodUse]:
    """Pods with their devices; what is outside Kubernetes as one nameless entry."""
    uses = [
        power_pb2.PodUse(
            namespace=pod.namespace, name=pod.name, uid=pod.uid, device_uuids=pod.device_uuids
        )
        for pod in attribution.pods
    ]
    outside = sorted({process.device_uuid for process in attribution.outside})
    if outside:
        uses.append(power_pb2.PodUse(device_uuids=outside))
    return uses


def to_command(batch: power_pb2.LeaseBatch) -> LeaseCommand:
    """A controller's batch as the actuator takes it.

    Raises:
        InputError: naming the field, for anything that is no well-formed command.
    """
    return LeaseCommand(
        epoch=batch.epoch,
        sequence=batch.sequence,
        nonce=batch.nonce,
        ttl_ms=batch.ttl_ms,
        devices=tuple(
            _device_command(f"devices[{i}]", lease) for i, lease in enumerate(batch.devices)
        ),
    )


def _device_command(path: str, lease: power_pb2.DeviceLease) -> DeviceCommand:
    for name in ("cap_watts", "guaranteed_watts"):
        require_number(f"{path}.{name}", getattr(lease, name), minimum=0.0, unit="W")
    cap = lease.cap_watts or None
    guaranteed = lease.guaranteed_watts or None
    if not lease.uuid:
        raise InputError(f"{path}.uuid", "a GPU's UUID", lease.uuid)
    if lease.lock_max_mhz:
        return DeviceCommand(lease.uuid, Operation.LOCK_CLOCKS, cap, lease.lock_max_mhz, guaranteed)
    if cap is None:
        return DeviceCommand(lease.uuid, Operation.RESET, guaranteed_watts=guaranteed)
    return DeviceCommand(lease.uuid, Operation.SET_POWER_LIMIT, cap, None, guaranteed)
