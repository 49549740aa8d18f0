"""NVML boards behind the device port. Milliwatts and millijoules exist only here (I9)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gpu.device import (
    GpuDevice,
    GpuError,
    GpuIdentity,
    GpuInvalidArgument,
    GpuLost,
    GpuProcess,
    GpuReading,
    GpuTimeout,
    PowerLimits,
)
from gpu.nvml import checked_fields as fields
from gpu.nvml.calls import FIELD_VALUES, SYSTEM, XID_EVENTS, NvmlCalls
from gpu.nvml.checked_fields import CheckedFields
from gpu.nvml.energy_counter import EnergyEstimate
from gpu.nvml.gpm import BoardGpm
from gpu.nvml.return_codes import NvmlFailure, typed_error
from wattpack.power.energy_trust import STALE_AFTER_SAME
from wattpack.units import NS_PER_SECOND, GpuUuid

# Enumerations of nvml.h.
CLOCK_SM = 1
CLOCK_MEMORY = 2
TEMPERATURE_GPU = 0
ECC_CORRECTED = 0
ECC_UNCORRECTED = 1
ECC_AGGREGATE = 1

SLOW_PERIOD_NS = NS_PER_SECOND
"""How often a reading refreshes use, clock and throttle reasons: an NVML call costs CPU time."""

RARE_FACTOR = 5
"""Memory, temperatures, error counts and events are refreshed in every fifth slow round."""

CURRENT_LIMIT_EVERY = 30
"""Read the set limit with every 30th reading of the limits, or when the enforced one changed."""

PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)
_NOT_SUPPORTED = frozenset({3, 13, 25, 26})


class NvmlDevice:
    """One board by its NVML index.

    Args:
        calls: Access to NVML.
        index: NVML's device index.
        slow_period_ns: How old use, SM clock and throttle reasons in a reading may be; memory,
            temperatures, error counts and events may be five times older. Power is always fresh.
        told: What was logged of this node's boards; they share it.

    Raises:
        GpuError: if the board does not tell its identity.
    """

    def __init__(
        self,
        calls: NvmlCalls,
        index: int,
        *,
        slow_period_ns: int = SLOW_PERIOD_NS,
        told: set[str] | None = None,
    ) -> None:
        self._calls = calls
        self._index = index
        self._name = f"GPU {index}"
        self._slow_period_ns = slow_period_ns
        self._slow_ns: int | None = None
        self._slow_rounds = 0
        self._slow: dict[str, Any] = {}
        self._rare: dict[str, Any] = {}
        self._unsupported: set[tuple[str, tuple[int, ...]]] = set()
        self._range: tuple[float, float, float] | None = None
        self._limit_watts = 0.0
        self._enforced_limit_watts: float | None = None
        self._limit_reads = 0
        self._max_clock_mhz: int | None = None
        self._energy = EnergyEstimate()
        self._checked = CheckedFields()
        self._gpm = BoardGpm(calls, index, set() if told is None else told)
        self._limit_values: Mapping[int, float] = {}
        self._shown: tuple[float, float | None] = (0.0, None)
        self._same = 0
        self._counted_while_same = 0
        self._identity = self._read_identity()
        self._name = self._identity.uuid

    @property
    def identity(self) -> GpuIdentity:
        """What does not change while the driver is loaded."""
        return self._identity

    def read(self, now_ns: int) -> GpuReading:
        """One sample: power now, the rest as old as ``slow_period_ns`` allows."""
        slow = self._slow_ns is None or now_ns - self._slow_ns >= self._slow_period_ns
        rare = slow and self._slow_rounds % RARE_FACTOR == 0
        values = self._batch(slow=slow, rare=rare)
        average_mw = values.get(fields.POWER_AVERAGE)
        if average_mw is None:
            average_mw = self._call("nvmlDeviceGetPowerUsage")
        instant_mw = values.get(fields.POWER_INSTANT)
        # Only the limits of this very round: what was read earlier is no read-back.
        self._limit_values = values if slow else {}
        if slow:
            if rare:
                self._rare = self._read_rare(values)
            self._slow = self._read_slow(now_ns)
            self._slow_rounds += 1
            self._slow_ns = now_ns
        xids = self._rare.pop("xid_events", ())
        energy, counter = self._energy_joules(now_ns, average_mw, instant_mw)
        return GpuReading(
            monotonic_ns=now_ns,
            draw_watts=average_mw / 1000.0,
            instant_draw_watts=None if instant_mw is None else instant_mw / 1000.0,
            energy_joules=energy,
            xid_events=xids,
            counter_joules=counter,
            **self._slow,
            **self._rare,
        )

    def limits(self) -> PowerLimits:
        """The limits as the driver holds them now."""
        if self._range is None:
            low_mw, high_mw = self._call("nvmlDeviceGetPowerManagementLimitConstraints")
            default_mw = self._call("nvmlDeviceGetPowerManagementDefaultLimit")
            self._range = (low_mw / 1000.0, high_mw / 1000.0, default_mw / 1000.0)
        # The round that is under way has asked for them already; each answer is used once.
        values, self._limit_values = self._limit_values, {}
        if not values:
            values = self._fields(*self._checked.worth_asking(*fields.LIMITS))
        call = self._call
        enforced = (
            self._checked.value(
                fields.ENFORCED_LIMIT, values, lambda: call("nvmlDeviceGetEnforcedPowerLimit")
            )
            / 1000.0
        )
        # The set limit costs 0.5 ms to read, the enforced one 0.1 ms (measured on an H200), and a
        # new set limit shows in the enforced one unless another limiter is lower.
        moved = enforced != self._enforced_limit_watts
        if (
            moved
            or self._limit_reads % CURRENT_LIMIT_EVERY == 0
            or (fields.SET_LIMIT in values and self._checked.agrees(fields.SET_LIMIT))
        ):
            self._limit_watts = (
                self._checked.value(
                    fields.SET_LIMIT, values, lambda: call("nvmlDeviceGetPowerManagementLimit")
                )
                / 1000.0
            )
        self._limit_reads += 1
        self._enforced_limit_watts = enforced
        low, high, default = self._range
        return PowerLimits(
            min_watts=low,
            max_watts=high,
            default_watts=default,
            limit_watts=self._limit_watts,
            enforced_limit_watts=enforced,
        )

    def max_clock_mhz(self) -> int:
        """The highest SM clock that can be locked."""
        if self._max_clock_mhz is None:
            self._max_clock_mhz = int(self._call("nvmlDeviceGetMaxClockInfo", CLOCK_SM))
        return self._max_clock_mhz

    def processes(self) -> tuple[GpuProcess, ...]:
        """Compute, graphics and MPS client processes, once each, by pid."""
        memory: dict[int, int] = {}
        for name in PROCESS_LISTS:
            for entry in self._optional(name) or []:
                pid = int(entry["pid"])
                memory[pid] = max(memory.get(pid, 0), int(entry["usedGpuMemory"] or 0))
        return tuple(GpuProcess(pid=pid, memory_bytes=memory[pid]) for pid in sorted(memory))

    def set_power_limit(self, watts: float) -> None:
        """Ask the board for a new limit; the caller reads back."""
        self._call("nvmlDeviceSetPowerManagementLimit", round(watts * 1000.0))
        # The next read-back asks the board for both limits.
        self._enforced_limit_watts = None
        self._limit_values = {}
        self._checked.check_next(*fields.LIMITS)

    def lock_clocks(self, max_mhz: int) -> None:
        """Bound the SM clock by (lowest supported, max_mhz)."""
        memory_mhz = max(self._call("nvmlDeviceGetSupportedMemoryClocks"))
        lowest = min(self._call("nvmlDeviceGetSupportedGraphicsClocks", memory_mhz))
        if max_mhz <= lowest:
            raise GpuInvalidArgument(
                f"{self._name}: a lock needs a maximum above the lowest clock, {lowest} MHz"
            )
        self._call("nvmlDeviceSetGpuLockedClocks", lowest, max_mhz)

    def reset_clocks(self) -> None:
        """Remove the clock lock."""
        self._call("nvmlDeviceResetGpuLockedClocks")

    # -- inside ----------------------------------------------------------------------------------

    def _read_identity(self) -> GpuIdentity:
        mig = self._optional("nvmlDeviceGetMigMode")
        pci = self._optional("nvmlDeviceGetPciInfo")
        minor = self._optional("nvmlDeviceGetMinorNumber")
        return GpuIdentity(
            uuid=GpuUuid(str(self._call("nvmlDeviceGetUUID"))),
            model=str(self._call("nvmlDeviceGetName")),
            index=self._index,
            pci_bus_id=str(pci["busId"]) if pci else "",
            mig_enabled=bool(mig and mig[0] == 1),
            minor=None if minor is None else int(minor),
        )

    def _energy_joules(
        self, now_ns: int, average_mw: float, instant_mw: float | None
    ) -> tuple[float | None, float | None]:
        """Energy since driver load, and the counter itself if it was read in this round."""
        energy, draw_watts = self._energy, average_mw / 1000.0
        if (average_mw, instant_mw) == self._shown:
            self._same += 1
        else:
            self._shown, self._same, self._counted_while_same = (average_mw, instant_mw), 1, 0
        # Two readings of the counter say whether a power reading that stands still is true.
        doubtful = self._same >= STALE_AFTER_SAME and self._counted_while_same < 2
        limit = self._enforced_limit_watts
        if not energy.counter_due(now_ns, draw_watts, limit, doubtful=doubtful):
            return energy.carry(now_ns, draw_watts), None
        counter_mj = self._optional("nvmlDeviceGetTotalEnergyConsumption")
        if counter_mj is None:
            return energy.carry(now_ns, draw_watts), None
        self._counted_while_same += 1
        counter = counter_mj / 1000.0
        return energy.anchor(now_ns, draw_watts, counter), counter

    def _read_slow(self, now_ns: int) -> dict[str, Any]:
        utilisation = self._optional("nvmlDeviceGetUtilizationRates")
        busy = utilisation["gpu"] / 100.0 if utilisation else None
        return {
            **self._gpm.read(now_ns, busy),
            "utilisation": busy,
            "memory_utilisation": utilisation["memory"] / 100.0 if utilisation else None,
            "sm_clock_mhz": self._optional("nvmlDeviceGetClockInfo", CLOCK_SM),
            "throttle_reasons": self._optional("nvmlDeviceGetCurrentClocksEventReasons"),
        }

    def _read_rare(self, values: Mapping[int, float]) -> dict[str, Any]:
        memory = self._optional("nvmlDeviceGetMemoryInfo")
        ecc = partial(self._optional, "nvmlDeviceGetTotalEccErrors")
        corrected = partial(ecc, ECC_CORRECTED, ECC_AGGREGATE)
        uncorrected = partial(ecc, ECC_UNCORRECTED, ECC_AGGREGATE)
        return {
            "memory_used_bytes": memory["used"] if memory else None,
            "memory_clock_mhz": self._optional("nvmlDeviceGetClockInfo", CLOCK_MEMORY),
            "temperature_celsius": self._optional("nvmlDeviceGetTemperature", TEMPERATURE_GPU),
            "memory_temperature_celsius": values.get(fields.MEMORY_TEMPERATURE),
            "ecc_corrected": self._checked.value(fields.ECC_CORRECTED, values, corrected),
            "ecc_uncorrected": self._checked.value(fields.ECC_UNCORRECTED, values, uncorrected),
            "xid_events": tuple(self._optional(XID_EVENTS) or ()),
        }

    def _batch(self, *, slow: bool, rare: bool) -> dict[int, float]:
        """Every field that is due in this round, by one call."""
        more: tuple[int, ...] = ()
        if slow:
            due = (*fields.LIMITS, *(fields.RARE if rare else ()))
            more = self._checked.worth_asking(*due)
        values = self._fields(*fields.POWER, *more)
        if values or not more:
            return values
        return self._fields(*fields.POWER)  # a driver that refuses the whole call for one field

    def _fields(self, *ids: int) -> dict[int, float]:
        """Field values that the board offers, by id."""
        if not ids:
            return {}
        answers = self._optional(FIELD_VALUES, *ids) or []
        for field, code, _ in answers:
            self._checked.note(field, code)
        return {field: value for field, code, value in answers if code == 0}

    def _call(self, name: str, *args: int) -> Any:  # noqa: ANN401 - JSON-like answers
        try:
            return self._calls.call(name, self._index, *args)
        except NvmlFailure as failure:
            raise typed_error(failure, self._name) from failure

    def _optional(self, name: str, *args: int) -> Any:  # noqa: ANN401 - JSON-like answers
        """The answer, or None where the board has none; a lost or stuck board still raises."""
        if (name, args) in self._unsupported:
            return None
        try:
            return self._calls.call(name, self._index, *args)
        except NvmlFailure as failure:
            error = typed_error(failure, self._name)
            if isinstance(error, (GpuLost, GpuTimeout)):
                raise error from failure
            if failure.code in _NOT_SUPPORTED:
                self._unsupported.add((name, args))
            return None


class NvmlDriver:
    """All boards that NVML lists.

    Attributes:
        unidentified: Errors of boards that are listed but do not answer, by index.

    Raises:
        GpuError: if NVML does not answer at all.
    """

    def __init__(self, calls: NvmlCalls, *, slow_period_ns: int = SLOW_PERIOD_NS) -> None:
        self._calls = calls
        self.unidentified: dict[int, GpuError] = {}
        devices: list[NvmlDevice] = []
        told: set[str] = set()
        try:
            count = int(calls.call("nvmlDeviceGetCount", SYSTEM))
        except NvmlFailure as failure:
            raise typed_error(failure, "NVML") from failure
        for index in range(count):
            try:
                devices.append(NvmlDevice(calls, index, slow_period_ns=slow_period_ns, told=told))
            except GpuError as error:
                self.unidentified[index] = error
        self._devices = tuple(devices)

    def devices(self) -> tuple[GpuDevice, ...]:
        """Boards that told their identity, ordered by index."""
        return self._devices

    def driver_version(self) -> str:
        """The kernel driver's version."""
        try:
            return str(self._calls.call("nvmlSystemGetDriverVersion", SYSTEM))
        except NvmlFailure as failure:
            raise typed_error(failure, "NVML") from failure

    def close(self) -> None:
        """Let go of NVML."""
        self._calls.close()


def open_nvml(*, slow_period_ns: int = SLOW_PERIOD_NS) -> NvmlDriver:
    """The boards of this machine.

    Raises:
        GpuUnavailable: if there is no driver; the message says what to do.
    """
    from gpu.nvml.binding import LiveNvml  # the library is loaded only where it is used

    try:
        calls = LiveNvml()
    except NvmlFailure as failure:
        raise typed_error(failure, "NVML") from failure
    return NvmlDriver(calls, slow_period_ns=slow_period_ns)
