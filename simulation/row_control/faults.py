"""What goes wrong in a run of the row, when, and whom it strikes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

import numpy as np

from simulation.fault_plan import FaultSchedule
from simulation.row_control.work import Bools, Floats
from simulation.scenario import FaultKind
from wattpack.errors import InputError
from wattpack.units import NS_PER_SECOND

_NOBODY: Bools = np.zeros(0, dtype=np.bool_)


@cache
def _none_of(n: int) -> Bools:
    """Nobody struck, not to be written to, (n,)."""
    found = np.zeros(n, dtype=np.bool_)
    found.flags.writeable = False
    return found


@cache
def _same_for(n: int, amount: float) -> Floats:
    """The same amount for everybody, not to be written to, (n,)."""
    found = np.full(n, amount)
    found.flags.writeable = False
    return found


class RowFaultKind(StrEnum):
    """Faults of plant, network and controller."""

    MESSAGE_LOSS = "message_loss"  # nodes; amount: chance of each message, both ways
    READINGS_FROZEN = "readings_frozen"  # gpus; power stands still, the energy counter goes on
    COUNTERS_FROZEN = "counters_frozen"  # gpus; the energy counter stands still
    METER_SILENT = "meter_silent"  # domains
    BMC_SILENT = "bmc_silent"  # nodes; what their BMCs said last grows old
    BMC_FROZEN = "bmc_frozen"  # nodes; their BMCs say one number, scraped anew
    METER_CLOCK = "meter_clock"  # domains; amount: seconds that its stamps are ahead
    CONTROLLER_DOWN = "controller_down"  # both replicas; the next one begins with nothing
    API_DOWN = "api_down"  # the leader may extend and lower, never raise
    WRITES_FAIL = "writes_fail"  # gpus; amount: chance that a write changes nothing, silently
    IGNORES_CAP = "ignores_cap"  # gpus
    SENSOR_GAIN = (
        "sensor_gain"  # gpus; amount: multiplies what the sensor says, within its tolerance
    )
    NODE_REBOOT = "node_reboot"  # nodes; dark until the end, then default limits until capped
    DRIVER_RELOAD = "driver_reload"  # nodes; default limits until the actuator looks
    FEED_LOST = "feed_lost"  # domains
    ALL_TO_FULL = "all_to_full"  # gpus; at least the default limit is wanted


EVENTS = (RowFaultKind.NODE_REBOOT, RowFaultKind.DRIVER_RELOAD)


@dataclass(frozen=True, slots=True)
class RowFault:
    """One fault.

    Attributes:
        begin_seconds: Since the run began.
        end_seconds: First instant after it; of a reboot: when the server is up again.
        struck: Which nodes, GPUs or domains, by kind; empty for what strikes the controller.
        amount: See the kind.
    """

    kind: RowFaultKind
    begin_seconds: float
    end_seconds: float
    struck: Bools = field(default_factory=lambda: _NOBODY)
    amount: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.begin_seconds <= self.end_seconds:
            times = (self.begin_seconds, self.end_seconds)
            raise InputError(f"{self.kind}.begin_seconds", "0 <= begin <= end in seconds", times)

    def lasts_at(self, seconds: float) -> bool:
        """Whether it is there at a time."""
        return self.begin_seconds <= seconds < self.end_seconds


class RowFaults:
    """All faults of a run.

    Args:
        faults: In any order.
    """

    def __init__(self, faults: Sequence[RowFault] = ()) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.begin_seconds))
        self._by_kind = {
            kind: tuple(f for f in self.faults if f.kind is kind) for kind in RowFaultKind
        }

    @property
    def onset_seconds(self) -> float:
        """When the first begins, infinite without any."""
        return self.faults[0].begin_seconds if self.faults else float("inf")

    @property
    def end_seconds(self) -> float:
        """When the last ends, minus infinity without any."""
        return max((f.end_seconds for f in self.faults), default=float("-inf"))

    def active(self, kind: RowFaultKind, seconds: float) -> tuple[RowFault, ...]:
        """Faults of a kind that last at a time."""
        faults = self._by_kind[kind]
        return tuple(f for f in faults if f.lasts_at(seconds)) if faults else ()

    def any_active(self, kind: RowFaultKind, seconds: float) -> bool:
        """Whether one of a kind lasts at a time."""
        return bool(self._by_kind[kind]) and bool(self.active(kind, seconds))

    def struck(self, kind: RowFaultKind, seconds: float, n: int) -> Bools:
        """Who is struck at a time; not to be written to, (n,)."""
        active = self.active(kind, seconds)
        if not active:
            return _none_of(n)
        found = np.zeros(n, dtype=np.bool_)
        for fault in active:
            found |= fault.struck
        return found

    def chance(self, kind: RowFaultKind, seconds: float, n: int) -> Floats:
        """The highest amount of the active faults that strike each, 0 for none, (n,)."""
        highest = _same_for(n, 0.0)
        for fault in self.active(kind, seconds):
            highest = np.where(fault.struck, np.maximum(highest, fault.amount), highest)
        return highest

    def factor(self, kind: RowFaultKind, seconds: float, n: int) -> Floats:
        """The product of the amounts that strike each, (n,)."""
        product = _same_for(n, 1.0)
        for fault in self.active(kind, seconds):
            product = np.where(fault.struck, product * fault.amount, product)
        return product

    def shift(self, kind: RowFaultKind, seconds: float, n: int) -> Floats:
        """The sum of the amounts that strike each, (n,)."""
        total = _same_for(n, 0.0)
        for fault in self.active(kind, seconds):
            total = np.where(fault.struck, total + fault.amount, total)
        return total

    def beginning(self, begin_seconds: float, end_seconds: float) -> tuple[RowFault, ...]:
        """Events whose instant lies in [begin, end)."""
        return tuple(
            f
            for kind in EVENTS
            for f in self._by_kind[kind]
            if begin_seconds <= f.begin_seconds < end_seconds
        )


_SAME = {
    FaultKind.TELEMETRY_LOSS: RowFaultKind.MESSAGE_LOSS,
    FaultKind.NODE_REBOOT: RowFaultKind.NODE_REBOOT,
    FaultKind.DRIVER_RELOAD: RowFaultKind.DRIVER_RELOAD,
    FaultKind.SILENT_WRITE_FAILURE: RowFaultKind.WRITES_FAIL,
    FaultKind.IGNORE_CAP: RowFaultKind.IGNORES_CAP,
    FaultKind.SENSOR_GAIN: RowFaultKind.SENSOR_GAIN,
    FaultKind.CONTROLLER_CRASH: RowFaultKind.CONTROLLER_DOWN,
    FaultKind.API_DOWN: RowFaultKind.API_DOWN,
    FaultKind.METER_GAP: RowFaultKind.METER_SILENT,
    FaultKind.FEED_LOSS: RowFaultKind.FEED_LOST,
    FaultKind.DEMAND_STEP: RowFaultKind.ALL_TO_FULL,
}


def faults_of(schedule: FaultSchedule) -> RowFaults:
    """A scenario's faults as this driver knows them; planner and forecaster are not there to fail.

    Raises:
        InputError: for a fault that only the twin can carry out.
    """
    left_out = {FaultKind.PLANNER_DOWN, FaultKind.FORECASTER_DOWN}
    found = []
    for fault in schedule.faults:
        if fault.kind in left_out:
            continue
        if fault.kind not in _SAME:
            raise InputError("faults.kind", f"one of {sorted(_SAME)}", fault.kind)
        begin, end = fault.begin_ns / NS_PER_SECOND, fault.end_ns / NS_PER_SECOND
        found.append(RowFault(_SAME[fault.kind], begin, end, fault.struck, fault.ratio))
    return RowFaults(found)
