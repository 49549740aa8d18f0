"""Simulated boards behind the device port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu.device import (
    GpuIdentity,
    GpuLost,
    GpuNoPermission,
    GpuProcess,
    GpuReading,
    GpuTimeout,
    PowerLimits,
)
from wattpack.errors import InputError
from wattpack.units import NodeName, require_number

if TYPE_CHECKING:
    from gpu.simulated.board_arrays import BoardBank

# NVML clocks event reason bits (nvml.h, nvmlClocksEventReason*).
REASON_GPU_IDLE = 0x1
REASON_CLOCKS_SETTING = 0x2
REASON_SW_POWER_CAP = 0x4


class SimulatedDevice:
    """A view of one board of a bank; holds nothing that the bank does not."""

    def __init__(self, bank: BoardBank, i: int, *, writable: bool = True) -> None:
        spec = bank.specs[i]
        self._bank = bank
        self._i = i
        self._writable = writable
        self._limits: PowerLimits | None = None
        self._identity = GpuIdentity(
            uuid=spec.uuid,
            model=spec.model,
            index=spec.index,
            pci_bus_id=f"00000000:{(spec.index + 1) & 0xFF:02X}:00.0",
            minor=spec.index,
        )

    @property
    def identity(self) -> GpuIdentity:
        """What does not change while the driver is loaded."""
        return self._identity

    def _check(self) -> None:
        if self._bank.lost[self._i]:
            raise GpuLost(f"{self._identity.uuid}: fallen off the bus")
        if self._bank.hung[self._i]:
            raise GpuTimeout(f"{self._identity.uuid}: the driver call does not return")

    def _check_write(self) -> None:
        if not self._writable:
            raise GpuNoPermission(f"{self._identity.uuid}: opened read-only")
        self._check()

    def read(self, now_ns: int) -> GpuReading:
        """One sample from the bank's sensors."""
        self._check()
        bank, i = self._bank, self._i
        sensed = bank.sensed(i)
        idle = sensed.idle_watts
        idles = sensed.demand_watts <= idle * 1.02
        reasons = REASON_GPU_IDLE if idles else 0
        reasons |= REASON_CLOCKS_SETTING if bank.lock_max_mhz[i] else 0
        reasons |= REASON_SW_POWER_CAP if sensed.shed_watts > 1.0 else 0
        return GpuReading(
            monotonic_ns=now_ns,
            draw_watts=sensed.draw_watts,
            instant_draw_watts=sensed.instant_draw_watts,
            energy_joules=sensed.energy_joules,
            counter_joules=sensed.energy_joules,
            utilisation=0.0 if idles else 1.0,
            sm_clock_mhz=int(bank.sm_clock_mhz()[i]),
            throttle_reasons=reasons,
            # 30 degrees at idle, 0.06 K a watt above: assumed, for display only.
            temperature_celsius=30.0 + 0.06 * max(0.0, sensed.drawn_watts - idle),
            ecc_corrected=0,
            ecc_uncorrected=0,
        )

    def limits(self) -> PowerLimits:
        """The limits as the board holds them now."""
        self._check()
        bank, i = self._bank, self._i
        current = float(bank.limit_watts[i])
        if self._limits is None or self._limits.limit_watts != current:
            self._limits = PowerLimits(
                min_watts=float(bank.min_limit_watts[i]),
                max_watts=float(bank.max_limit_watts[i]),
                default_watts=float(bank.default_limit_watts[i]),
                limit_watts=current,
                enforced_limit_watts=current,
            )
        return self._limits

    def max_clock_mhz(self) -> int:
        """The highest SM clock that can be locked."""
        self._check()
        return int(self._bank.max_clock_mhz[self._i])

    def processes(self) -> tuple[GpuProcess, ...]:
        """None: who works on a board is told by the twin's pods."""
        self._check()
        return ()

    def set_power_limit(self, watts: float) -> None:
        """Ask the board for a new limit; a silent fault answers OK and changes nothing."""
        self._check_write()
        require_number("watts", watts, exclusive_minimum=0.0, unit="W")
        self._bank.set_limit(self._i, watts)

    def lock_clocks(self, max_mhz: int) -> None:
        """Bound the SM clock by (lowest, max_mhz)."""
        self._check_write()
        require_number("max_mhz", max_mhz, exclusive_minimum=0.0, unit="MHz")
        self._bank.set_lock(self._i, int(max_mhz))

    def reset_clocks(self) -> None:
        """Remove the clock lock."""
        self._check_write()
        self._bank.set_lock(self._i, 0)


class SimulatedDriver:
    """One node's boards, ordered by index."""

    def __init__(self, bank: BoardBank, node: NodeName, *, writable: bool = True) -> None:
        boards = [i for i, spec in enumerate(bank.specs) if spec.node == node]
        if not boards:
            raise InputError("node", "a node with boards", node)
        boards.sort(key=lambda i: bank.specs[i].index)
        self._devices = tuple(SimulatedDevice(bank, i, writable=writable) for i in boards)

    def devices(self) -> tuple[SimulatedDevice, ...]:
        """All GPUs of the node, ordered by index."""
        return self._devices

    def close(self) -> None:
        """Nothing is held."""
