"""Carries out the plant's own faults: on boards, meters, feeds and whole nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.simulated.board_arrays import BoardBank
from simulation.fault_plan import Fault, FaultSchedule
from simulation.plant_breakers import Breakers, Meters
from simulation.scenario import FaultKind
from wattpack.units import NodeName

Floats = NDArray[np.float64]


class StruckPlant:
    """Lets faults begin, last and end.

    Args:
        faults: Of the run; their times count from the run's start.
        bank: Boards.
        breakers: For lost feeds.
        meters: For silent ones.
        node_names: (n_nodes,).
        start_ns: The run's start.
    """

    def __init__(
        self,
        faults: FaultSchedule,
        bank: BoardBank,
        breakers: Breakers,
        meters: Meters,
        node_names: tuple[str, ...],
        start_ns: int,
    ) -> None:
        self._faults, self._bank = faults, bank
        self._breakers, self._meters = breakers, meters
        self._node_names, self._start_ns = node_names, start_ns
        self._gain = bank.sensor_gain.copy()
        self._reboots: list[str] = []
        self.down_until_ns = np.zeros(len(node_names), dtype=np.int64)

    def step(self, begin_ns: int, end_ns: int) -> None:
        """Before a step: begin what begins in it, hold what lasts at its begin."""
        if not self._faults.faults:
            return
        since_ns = begin_ns - self._start_ns
        for fault in self._faults.beginning(since_ns, end_ns - self._start_ns):
            self._begin(fault, end_ns)
        self._hold(since_ns)

    def _begin(self, fault: Fault, now_ns: int) -> None:
        if fault.kind not in (FaultKind.NODE_REBOOT, FaultKind.DRIVER_RELOAD):
            return
        for node in np.flatnonzero(fault.struck):
            name = self._node_names[int(node)]
            if fault.kind is FaultKind.DRIVER_RELOAD:
                self._bank.reload_driver(NodeName(name))
                continue
            self._bank.reboot(NodeName(name))
            self._reboots.append(name)
            self.down_until_ns[node] = now_ns + (fault.end_ns - fault.begin_ns)

    def _hold(self, since_ns: int) -> None:
        n, faults, bank = len(self._bank), self._faults, self._bank
        bank.silent_writes = faults.struck(FaultKind.SILENT_WRITE_FAILURE, since_ns, n)
        bank.ignores_cap = faults.struck(FaultKind.IGNORE_CAP, since_ns, n)
        bank.hung = faults.struck(FaultKind.GPU_HUNG, since_ns, n)
        gain = np.ones(n)
        for fault in faults.active(FaultKind.SENSOR_GAIN, since_ns):
            gain[fault.struck] *= fault.ratio
        bank.sensor_gain = self._gain * gain
        domains = len(self._breakers.rating_watts)
        self._meters.silent = faults.struck(FaultKind.METER_GAP, since_ns, domains)
        lost = np.zeros(domains, dtype=np.int64)
        for fault in faults.active(FaultKind.FEED_LOSS, since_ns):
            lost += fault.struck
        self._breakers.lost_feeds = lost

    def demand(self, wanted_watts: Floats, full_watts: Floats, now_ns: int) -> Floats:
        """What the boards are asked for, after a step of everything to full power, (n_gpus,).

        Args:
            wanted_watts: By their work, (n_gpus,).
            full_watts: By the hottest work, (n_gpus,).
            now_ns: The step's begin.
        """
        if not self._faults.faults:
            return wanted_watts
        stepped = self._faults.struck(
            FaultKind.DEMAND_STEP, now_ns - self._start_ns, len(self._bank)
        )
        return np.where(stepped, np.maximum(wanted_watts, full_watts), wanted_watts)

    def take_reboots(self) -> list[str]:
        """Nodes that rebooted since the last call."""
        reboots, self._reboots = self._reboots, []
        return reboots
