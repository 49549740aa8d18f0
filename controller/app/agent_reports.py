"""What agents say, checked as a whole: hellos as devices, reports as small arrays.

A value that no board can give refuses the whole message; a field that is missing is never zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from controller.gap_heat import believable_highest
from controller.seen_work import UNITS
from wattpack.errors import InputError, read_from
from wattpack.fencing import MAX_SEQUENCE
from wattpack.gpu_resources import MAX_BOARDS
from wattpack.power.board_ceilings import HIGHEST_BOARD_JOULES, HIGHEST_BOARD_WATTS
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND, require_number
from wattpack.wire.v1 import power_pb2

__all__ = [
    "UNIDENTIFIED",
    "DeviceDescription",
    "NodeSample",
    "PodUse",
    "describe",
    "highest_since",
    "read_report",
]

MAX_PODS = 1000


UNIDENTIFIED = "unidentified/"
"""Begins the names of boards that the driver lists and that do not tell theirs (node_record)."""
# No slash: names with one are those that we give to boards that nobody names (known_servers).
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,95}")
_UUID_EXPECTED = "1 to 96 letters, digits, dots, colons, dashes"
_COLUMNS = ("draw_watts", "energy_joules", "limit_watts", "guaranteed_watts")
_CEILINGS = (HIGHEST_BOARD_WATTS, HIGHEST_BOARD_JOULES, HIGHEST_BOARD_WATTS, HIGHEST_BOARD_WATTS)
_CEILING_ROWS = np.array(_CEILINGS).reshape(-1, 1)


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """One GPU as its agent describes it; its limits are 0 while it has not told them.

    A board that hangs when its agent starts has a name and nothing else.
    """

    uuid: str
    model: str
    index: int
    default_limit_watts: float
    min_limit_watts: float
    max_limit_watts: float
    max_clock_mhz: int

    @property
    def has_told_limits(self) -> bool:
        """Whether its limits were ever read."""
        return self.default_limit_watts > 0.0

    @property
    def is_identified(self) -> bool:
        """Whether it is more than a place in the driver's list."""
        return not self.uuid.startswith(UNIDENTIFIED)


@dataclass(frozen=True, slots=True)
class PodUse:
    """A pod and the GPUs it uses; work outside Kubernetes has an empty name."""

    namespace: str
    name: str
    uid: str
    device_uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeSample:
    """One accepted report; arrays in the order of the node's devices, (n_devices,)."""

    received_ns: int
    sequence: int
    nonce: int
    clock_ns: int
    highest_epoch: int
    draw_watts: FloatArray
    energy_joules: FloatArray
    limit_watts: FloatArray
    guaranteed_watts: FloatArray
    confirmed_sequence: IntArray
    controlled: BoolArray
    leased: BoolArray
    pods: tuple[PodUse, ...]
    temperature_celsius: FloatArray
    signals: FloatArray
    """Utilisation, memory utilisation and SM clock over the highest, (3, n_devices)."""
    units: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    """Activity of engine, SMs, tensor pipe and DRAM as the board tells it, (4, n_devices)."""
    highest_watts: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Highest readings since ``highest_since_ns`` of the node's clock, NaN untold, (n_devices,)."""
    highest_since_ns: int = 0


def describe(hello: power_pb2.Hello) -> tuple[DeviceDescription, ...]:
    """The devices of a hello, ordered by index.

    Raises:
        InputError: for a limit that is no positive number, or not in order, or a repeated UUID.
    """
    listed = len(hello.devices) + hello.unidentified_devices
    if listed > MAX_BOARDS:
        raise InputError("hello.devices", f"at most {MAX_BOARDS} devices", listed)
    devices = []
    for position, device in enumerate(hello.devices):
        with read_from(hello.node):
            low, default, high = _limits(f"hello.devices[{position}]", device)
        devices.append(
            DeviceDescription(
                device.uuid, device.model, device.index, default, low, high, device.max_clock_mhz
            )
        )
    uuids = [device.uuid for device in devices]
    for position, uuid in enumerate(uuids):
        if not _UUID.fullmatch(uuid):
            raise InputError(f"hello.devices[{position}].uuid", _UUID_EXPECTED, uuid, hello.node)
    if not uuids or len(set(uuids)) != len(uuids) or not all(uuids):
        raise InputError("hello.devices", "at least one device, each with its own UUID", uuids)
    return tuple(sorted(devices, key=lambda device: device.index))


def _limits(where: str, device: power_pb2.DeviceDescription) -> tuple[float, float, float]:
    """Lowest, default and highest limit; all 0 where none of them was ever read."""
    names = ("min_limit_watts", "default_limit_watts", "max_limit_watts")
    told = [getattr(device, name) for name in names]
    if told == [0.0, 0.0, 0.0]:
        return 0.0, 0.0, 0.0
    low, default, high = (
        require_number(
            f"{where}.{name}",
            watts,
            exclusive_minimum=0.0,
            maximum=HIGHEST_BOARD_WATTS,
            unit="W",
        )
        for name, watts in zip(names, told, strict=True)
    )
    if not low <= default <= high:
        raise InputError(f"{where}.default_limit_watts", f"{low:g} to {high:g} W", default)
    return low, default, high


def _columns(
    readings: Sequence[power_pb2.DeviceReading | None], report: power_pb2.NodeReport
) -> FloatArray:
    """The fields of ``_COLUMNS`` of all devices, (4, n_devices); NaN where a device is missing.

    Raises:
        InputError: naming the first device whose value no board can give.
    """
    rows = [
        (0.0, 0.0, 0.0, 0.0)
        if r is None
        else (r.draw_watts, r.energy_joules, r.limit_watts, r.guaranteed_watts)
        for r in readings
    ]
    columns = np.array(rows, dtype=np.float64).reshape(-1, len(_COLUMNS)).T.copy()
    # One look at all devices; only a refusal needs to know which. A NaN fails both comparisons.
    if not ((columns >= 0.0) & (columns <= _CEILING_ROWS)).all():
        for name, ceiling, column in zip(_COLUMNS, _CEILINGS, columns.tolist(), strict=True):
            with read_from(report.node):
                for i, value in enumerate(column):
                    require_number(
                        f"report.devices[{i}].{name}", value, minimum=0.0, maximum=ceiling
                    )
    if None in readings:
        columns[:, [reading is None for reading in readings]] = np.nan
    return columns


# Boards shut down near 100 degrees.
_HOTTEST_CELSIUS = 150.0
_READ = {power_pb2.DEVICE_STATE_OK, power_pb2.DEVICE_STATE_UNCONTROLLED}
_CONTROLLED = {power_pb2.DEVICE_STATE_OK, power_pb2.DEVICE_STATE_UNREADABLE}


def _require_bounded(report: power_pb2.NodeReport) -> None:
    """Whole numbers that the tick's arrays can hold; which epochs count is the tick's to say.

    Raises:
        InputError: naming the field.
    """
    bounds = [
        ("report.sequence", report.sequence, MAX_SEQUENCE),
        ("report.pods", len(report.pods), MAX_PODS),
    ]
    bounds += [
        (f"report.devices[{i}].confirmed_sequence", device.confirmed_sequence, MAX_SEQUENCE)
        for i, device in enumerate(report.devices)
    ]
    for field_name, value, most in bounds:
        if value > most:
            raise InputError(field_name, f"at most {most}", value, report.node)


def read_report(
    report: power_pb2.NodeReport, devices: Sequence[DeviceDescription], received_ns: int
) -> NodeSample:
    """A report as arrays in the node's device order.

    Raises:
        InputError: naming the field, for unknown devices and for numbers that no board can give.
    """
    by_uuid: Mapping[str, power_pb2.DeviceReading] = {d.uuid: d for d in report.devices}
    unknown = set(by_uuid) - {d.uuid for d in devices}
    if unknown or len(by_uuid) != len(report.devices):
        raise InputError("report.devices", "the devices of the hello, once each", sorted(unknown))
    _require_bounded(report)
    n = len(devices)
    readings = [by_uuid.get(device.uuid) for device in devices]
    draw_watts, energy_joules, limit_watts, guaranteed_watts = _columns(readings, report)
    confirmed, controlled = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    for i, reading in enumerate(readings):
        if reading is None:
            continue
        # No board that answers draws 0 W: the field is missing, and missing is never zero (I7).
        if reading.state not in _READ or reading.draw_watts == 0.0:
            draw_watts[i] = np.nan
        confirmed[i] = reading.confirmed_sequence
        controlled[i] = (
            report.nonce != 0 and reading.state in _CONTROLLED and reading.guaranteed_watts > 0
        )
    for column in (limit_watts, guaranteed_watts):
        column[column == 0.0] = np.nan
    return NodeSample(
        received_ns=received_ns,
        sequence=report.sequence,
        nonce=report.nonce,
        clock_ns=report.clock_ns,
        # The arrays hold 64 bits with a sign; so high an epoch is believed by nobody anyway.
        highest_epoch=min(report.highest_epoch, MAX_SEQUENCE),
        draw_watts=draw_watts,
        energy_joules=energy_joules,
        limit_watts=limit_watts,
        guaranteed_watts=guaranteed_watts,
        confirmed_sequence=confirmed,
        controlled=controlled,
        leased=np.array([r is not None and r.lease_active for r in readings], dtype=np.bool_),
        pods=tuple(PodUse(p.namespace, p.name, p.uid, tuple(p.device_uuids)) for p in report.pods),
        temperature_celsius=_temperatures(readings),
        signals=_signals(readings, devices),
        units=_units(readings),
        highest_watts=_highest(readings),
        highest_since_ns=report.highest_since_clock_ns,
    )


def _temperatures(readings: Sequence[power_pb2.DeviceReading | None]) -> FloatArray:
    """Only shown, so a value that no board can have is unknown and no reason to refuse, (n,)."""
    celsius = np.array([0.0 if r is None else r.temperature_celsius for r in readings])
    return np.where((celsius > 0.0) & (celsius <= _HOTTEST_CELSIUS), celsius, np.nan)


def _signals(
    readings: Sequence[power_pb2.DeviceReading | None], devices: Sequence[DeviceDescription]
) -> FloatArray:
    """What tells one kind of work from another; only shown, so nonsense is unknown, (3, n)."""
    unknown = (math.nan, math.nan, math.nan)
    rows = [
        unknown
        if reading is None
        else (
            reading.utilisation,
            reading.memory_utilisation if reading.HasField("memory_utilisation") else math.nan,
            reading.sm_clock_mhz / device.max_clock_mhz
            if reading.sm_clock_mhz and device.max_clock_mhz
            else math.nan,
        )
        for reading, device in zip(readings, devices, strict=True)
    ]
    shares = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return np.where((shares >= 0.0) & (shares <= 1.0), shares, np.nan)


def _told(reading: power_pb2.DeviceReading, unit: str) -> float:
    field_name = f"{unit}_activity"
    told = reading.HasField(field_name)  # type: ignore[arg-type]
    return float(getattr(reading, field_name)) if told else math.nan


def _units(readings: Sequence[power_pb2.DeviceReading | None]) -> FloatArray:
    """NaN for a board that does not tell them all, or one that cannot be, (4, n)."""
    rows = [
        [math.nan if reading is None else _told(reading, unit) for unit in UNITS]
        for reading in readings
    ]
    shares = np.array(rows, dtype=np.float64).reshape(-1, len(UNITS)).T
    return np.where(((shares >= 0.0) & (shares <= 1.0)).all(axis=0), shares, np.nan)


def _highest(readings: Sequence[power_pb2.DeviceReading | None]) -> FloatArray:
    """NaN where it is untold or below the reading that comes with it, (n,)."""
    told = [
        reading.highest_draw_watts
        if reading is not None and reading.HasField("highest_draw_watts")
        else math.nan
        for reading in readings
    ]
    watts, now = np.array(told), [0.0 if r is None else r.draw_watts for r in readings]
    return np.where((watts >= now) & (watts <= HIGHEST_BOARD_WATTS), watts, np.nan)


def highest_since(previous: NodeSample, sample: NodeSample) -> FloatArray:
    """Highest readings between two reports of one boot, NaN where they are not known, (n,)."""
    n = len(sample.highest_watts)
    told = 0 < sample.highest_since_ns <= previous.clock_ns
    if not told or len(previous.energy_joules) != n:
        return np.full(n, np.nan)
    before, now = (
        np.where(s.energy_joules > 0.0, s.energy_joules, np.nan) for s in (previous, sample)
    )
    seconds = np.full(n, (sample.clock_ns - previous.clock_ns) / NS_PER_SECOND)
    return believable_highest(sample.highest_watts, (before, now), seconds)
