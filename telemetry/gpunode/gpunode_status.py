"""What a GpuNode says of its node, as plain JSON. Pure.

The agent does not load the models of ``wattpack.api`` (memory); tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from actuator.lease_messages import DeviceStatus
from telemetry.node_state import NodeState
from telemetry.report_messages import boot_id, device_state
from telemetry.sampler import DeviceSample
from wattpack.gpu_resources import MAX_BOARDS
from wattpack.kube.port import JsonObject, Resource
from wattpack.times import rfc3339
from wattpack.wire.v1 import power_pb2

GPU_NODES = Resource("wattpack.io", "v1alpha1", "gpunodes", "GpuNode", False)

#: From the best to the worst; ``status.health`` is the worst of a node's devices.
OK, UNKNOWN, UNREADABLE, UNCONTROLLED = STATES = ("Ok", "Unknown", "Unreadable", "Uncontrolled")
_NAMES: Mapping[int, str] = {
    power_pb2.DEVICE_STATE_OK: OK,
    power_pb2.DEVICE_STATE_UNREADABLE: UNREADABLE,
    power_pb2.DEVICE_STATE_UNCONTROLLED: UNCONTROLLED,
}
# Bounds of the GpuNode schema.
MAX_TEXT, MAX_BOOT_ID = 128, 64
# A board rounds limits to whole watts; less than this below the default is no cap.
CAP_TOLERANCE_WATTS = 1.0


def gpunode_status(
    state: NodeState,
    untrusted: Collection[str] = (),
    *,
    has_actuator: bool,
    wall_time_ns: int,
    before: JsonObject | None = None,
    generation: int = 0,
) -> JsonObject:
    """The status as server-side apply takes it.

    Args:
        state: The node now.
        untrusted: UUIDs whose energy counter contradicts their cap (I7).
        has_actuator: Whether this agent was given an actuator; without one it only reports.
        wall_time_ns: Calendar time, for the condition.
        before: The last status, which keeps the condition's transition time; None for none.
        generation: Of the spec that this agent wrote.
    """
    devices = [_device(state, sample, untrusted) for sample in state.samples[:MAX_BOARDS]]
    health = worst_state(state, devices)
    status: JsonObject = {
        "observedGeneration": generation,
        "gpuCount": len(state.samples) + state.unidentified,
        "cappedGpus": sum(_is_capped(state, sample) for sample in state.samples),
        "health": health,
        "devices": devices,
        "conditions": [_ready(state, health, has_actuator, wall_time_ns, before, generation)],
    }
    if state.samples:
        status["model"] = state.samples[0].identity.model[:MAX_TEXT]
    if boot := boot_id(state):
        status["bootId"] = boot[:MAX_BOOT_ID]
    return status


def judgement(status: JsonObject) -> tuple[object, ...]:
    """What of a status is worth a write at once; watts are not."""
    return (
        status["health"],
        status["gpuCount"],
        status.get("bootId"),
        tuple((d["uuid"], d["state"], d["trusted"]) for d in status["devices"]),
        tuple((c["type"], c["status"], c["reason"]) for c in status["conditions"]),
    )


def worst_state(state: NodeState, devices: Sequence[JsonObject]) -> str:
    """The worst device state; a device that the driver lists and nobody can name is unreadable."""
    states = [str(device["state"]) for device in devices]
    if state.unidentified:
        states.append(UNREADABLE)
    return max(states, key=STATES.index, default=UNKNOWN)


def _held(state: NodeState, sample: DeviceSample) -> DeviceStatus | None:
    actuator = state.actuator
    return actuator.devices.get(sample.identity.uuid) if actuator is not None else None


def _device(state: NodeState, sample: DeviceSample, untrusted: Collection[str]) -> JsonObject:
    identity, limits, held = sample.identity, sample.limits, _held(state, sample)
    device: dict[str, Any] = {
        "uuid": identity.uuid,
        "model": identity.model[:MAX_TEXT],
        "index": identity.index,
        "state": _state(sample, held),
        "trusted": identity.uuid not in untrusted,
    }
    watts = {
        "limitWatts": limit_watts(state, sample),
        "guaranteedWatts": held.guaranteed_watts if held is not None else None,
        "defaultLimitWatts": limits.default_watts if limits is not None else None,
    }
    device.update({name: round(value, 1) for name, value in watts.items() if value is not None})
    return device


def _state(sample: DeviceSample, held: DeviceStatus | None) -> str:
    name = _NAMES[device_state(sample, held)]
    never_tried = sample.reading is None and sample.error is None
    return UNKNOWN if name == UNREADABLE and never_tried else name


def limit_watts(state: NodeState, sample: DeviceSample) -> float | None:
    """The power limit as read back, by the actuator or by ourselves; None if nobody could."""
    held = _held(state, sample)
    if held is not None and held.limit_watts is not None:
        return held.limit_watts
    return sample.limits.limit_watts if sample.limits is not None else None


def _is_capped(state: NodeState, sample: DeviceSample) -> bool:
    """Held below the default limit, the most that work requests; or its clock is locked."""
    held, limit = _held(state, sample), limit_watts(state, sample)
    if held is not None and held.lock_max_mhz:
        return True
    if limit is None or sample.limits is None:
        return False
    return limit < sample.limits.default_watts - CAP_TOLERANCE_WATTS


def _ready(
    state: NodeState,
    health: str,
    has_actuator: bool,
    wall_time_ns: int,
    before: JsonObject | None,
    generation: int,
) -> JsonObject:
    ready, reason, message = _verdict(state, health, has_actuator)
    value = "True" if ready else "False"
    old = before["conditions"][0] if before is not None else {}
    same = old.get("status") == value
    return {
        "type": "Ready",
        "status": value,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": old["lastTransitionTime"] if same else rfc3339(wall_time_ns),
    }


def _verdict(state: NodeState, health: str, has_actuator: bool) -> tuple[bool, str, str]:
    if not state.samples and not state.unidentified:
        return False, "NoDevices", "the driver lists no GPU"
    missing = sum(not sample.fresh for sample in state.samples) + state.unidentified
    if missing:
        total = len(state.samples) + state.unidentified
        return False, "DevicesUnreadable", f"{missing} of {total} GPUs cannot be read"
    if not has_actuator:
        return True, "ReportOnly", "no actuator: the node counts at its maximum"
    if state.actuator is None:
        return False, "NoActuator", "the actuator does not answer"
    if health == UNCONTROLLED:
        return False, "Uncontrolled", "a guaranteed cap was not read back"
    return True, "Controlled", ""
