"""Who draws power below the breakers: servers that said hello, and those that have not.

hellos, Node objects, profiles ──> Members ──> topology

One odd server never stops the others: what cannot be right about it is told, and it is counted at
the limits that it names, without a host unit, so that nothing is promised for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from capacity.gpu_profile import GpuProfile
from capacity.profile_book import ProfileBook
from capacity.profile_errors import UnknownGpuModel
from controller.app.agent_reports import DeviceDescription
from controller.app.desired_state import Refusal
from controller.app.node_record import NodeRecord
from controller.membership import GpuSpec, NodeSpec, require_per_gpu_watts
from controller.seen_work import SeenWork
from wattpack.errors import InputError
from wattpack.gpu_resources import MAX_BOARDS, board_count
from wattpack.kube.port import JsonObject
from wattpack.object_names import GPU_MODEL_LABELS

__all__ = ["Members", "find_members", "stand_in"]

_UNHEARD = "unheard"
_NOBODY: Mapping[str, Mapping[str, str]] = MappingProxyType({})


@dataclass(slots=True)
class Members:
    """Servers as the topology takes them.

    Attributes:
        heard: Those that said hello, in the order and with the devices of their reports.
        unheard: Those with GPUs that no agent speaks for, each GPU at the most it may draw.
        profiles: Of every GPU above, by its model.
        refusals: What is odd about which server.
    """

    heard: list[NodeSpec] = field(default_factory=list)
    unheard: list[NodeSpec] = field(default_factory=list)
    profiles: dict[str, GpuProfile] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)


def find_members(
    records: Sequence[NodeRecord],
    objects: Mapping[str, JsonObject],
    book: ProfileBook,
    seen: Mapping[str, SeenWork] | None = None,
    gone: Mapping[str, Mapping[str, str]] = _NOBODY,
) -> Members:
    """All servers with GPUs.

    Args:
        records: What the agents said.
        objects: Node objects by name.
        book: GPU types.
        seen: What the units of boards tell of their work, by UUID.
        gone: Labels of Node objects that were deleted, by name: what still reports hangs there.
    """
    members, owner = Members(), _owners(records)
    for record in records:
        devices = [_with_limits(device, record, members, book) for device in record.devices]
        models = [_model(device, record, members, book) for device in devices]
        stolen = [d.uuid for d in record.devices if owner[d.uuid] != record.name]
        if stolen:
            message = (
                f"{stolen[0]} is a GPU that node {owner[stolen[0]]} named first: counted as one "
                "more board, at its default limit, and leased to this node's own stream only"
            )
            members.refusals.append(_refusal(record, "ClaimedTwice", message))
        gpus = tuple(
            GpuSpec(
                d.uuid if owner[d.uuid] == record.name else f"{record.name}/{d.uuid}",
                model,
                d.min_limit_watts,
                d.default_limit_watts,
                d.max_limit_watts,
                d.max_clock_mhz,
                (seen or {}).get(d.uuid) if owner[d.uuid] == record.name else None,
            )
            for d, model in zip(devices, models, strict=True)
        )
        plain = not stolen and all(
            model == device.model for model, device in zip(models, devices, strict=True)
        )
        known = plain and not any(
            r.name == record.name and r.reason == "UnknownGpuModel" for r in members.refusals
        )
        body = objects.get(record.name)
        labels = gone.get(record.name, {}) if body is None else _labels(body)
        members.heard.append(NodeSpec(record.name, gpus, labels, record.host_unit and known))
    heard = {record.name for record in records}
    for name, body in objects.items():
        count = 0 if name in heard else min(board_count(body), MAX_BOARDS)
        if count:
            members.unheard.append(_unheard(name, body, count, members.profiles, book))
    return members


def _owners(records: Sequence[NodeRecord]) -> dict[str, str]:
    """Which node each UUID belongs to: whoever named it first."""
    owner: dict[str, str] = {}
    for record in sorted(records, key=lambda record: record.joined):
        for device in record.devices:
            owner.setdefault(device.uuid, record.name)
    return owner


def _with_limits(
    device: DeviceDescription, record: NodeRecord, members: Members, book: ProfileBook
) -> DeviceDescription:
    """The device; one that hangs, with the limits of its type, at the most that this may draw."""
    if device.has_told_limits:
        return device
    model, until = device.model, "it answers"
    if device.is_identified:
        profile = _type_or_largest(model, book)
        least, most = profile.min_limit_watts, profile.max_limit_watts
    else:
        # Nobody ever lowered it: not the host unit, not the actuator (I1).
        largest = max(record.devices, key=lambda known: _most_watts(known, book))
        model, until = largest.model, "an agent that starts finds it"
        least = most = _most_watts(largest, book)
    message = f"{device.uuid} has not told its limits: counted at {most:g} W until {until}"
    members.refusals.append(_refusal(record, "LimitsUnknown", message))
    return replace(
        device,
        model=model,
        min_limit_watts=least,
        default_limit_watts=most,
        max_limit_watts=most,
    )


def _most_watts(device: DeviceDescription, book: ProfileBook) -> float:
    """The most that a board may draw, as it told or else as its type says; 0 without a name."""
    if device.has_told_limits or not device.is_identified:
        return device.max_limit_watts
    return _type_or_largest(device.model, book).max_limit_watts


def _type_or_largest(model: str, book: ProfileBook) -> GpuProfile:
    """Of the type with this name; of the one that may draw most where there is none."""
    try:
        return book.find(model)
    except UnknownGpuModel:
        return max(book.profiles(), key=lambda profile: profile.max_limit_watts)


def _model(
    device: DeviceDescription, record: NodeRecord, members: Members, book: ProfileBook
) -> str:
    """The name under which the device's profile lies; its own one if its limits cannot be right."""
    try:
        profile = book.find(device.model)
    except UnknownGpuModel as error:
        if device.model not in members.profiles:
            members.profiles[device.model] = stand_in(book, device)
        members.refusals.append(_refusal(record, "UnknownGpuModel", str(error)))
        profile = members.profiles[device.model]
    try:
        for name in ("min_limit_watts", "default_limit_watts", "max_limit_watts"):
            require_per_gpu_watts(name, getattr(device, name), profile.max_limit_watts)
    except InputError as error:
        members.refusals.append(_refusal(record, "SuspiciousLimits", f"{device.uuid}: {error}"))
        own = f"{device.model} of {record.name} as {device.uuid}"
        members.profiles[own] = stand_in(book, device)
        return own
    members.profiles.setdefault(device.model, profile)
    return device.model


def _refusal(record: NodeRecord, reason: str, message: str) -> Refusal:
    return Refusal("GpuNode", record.name, reason, message, 0)


def stand_in(book: ProfileBook, device: DeviceDescription) -> GpuProfile:
    """A profile for a board of which nothing is known: its floor is its default limit."""
    some = next(iter(book.profiles()))
    return replace(
        some,
        model=device.model,
        product_names=(device.model,),
        min_limit_watts=device.min_limit_watts,
        default_limit_watts=device.default_limit_watts,
        max_limit_watts=device.max_limit_watts,
        knee_watts=device.default_limit_watts,
        max_clock_mhz=float(device.max_clock_mhz),
        kernel_classes={},
    )


def _labels(body: JsonObject) -> dict[str, str]:
    return (body.get("metadata") or {}).get("labels") or {}


def _unheard(
    name: str,
    body: JsonObject,
    count: int,
    profiles: dict[str, GpuProfile],
    book: ProfileBook,
) -> NodeSpec:
    """A server at the most that its boards, or the largest known ones, may draw."""
    labels = _labels(body)
    product = next((labels[key] for key in GPU_MODEL_LABELS if labels.get(key)), "")
    profile = _type_or_largest(product, book)
    profiles.setdefault(profile.model, profile)
    gpus = tuple(
        GpuSpec(
            f"{_UNHEARD}/{name}/{i}",
            profile.model,
            profile.min_limit_watts,
            profile.max_limit_watts,
            profile.max_limit_watts,
        )
        for i in range(count)
    )
    return NodeSpec(name, gpus, labels, host_unit=False)
