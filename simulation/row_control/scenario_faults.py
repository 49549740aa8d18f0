"""A scenario's faults in runs of a row alone, which begin at any time of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulation.fault_plan import FaultSchedule
from simulation.row_control.agents import AgentSettings
from simulation.row_control.fault_draws import FaultDraw
from simulation.row_control.faults import EVENTS, RowFault, RowFaults, faults_of
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.run import START_NS
from simulation.scenario import Scenario
from wattpack.errors import InputError

__all__ = ["at_fault", "faults_within", "given_faults"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def faults_within(scenario: Scenario, zero_seconds: float = 0.0) -> RowFaults:
    """What goes wrong in a run, none where the scenario names nothing.

    A fault under way when the run begins lasts from its begin on; an event of before is over,
    unless it is a reboot that the server is not back from.

    Args:
        scenario: With faults at seconds of its own.
        zero_seconds: When in the run the scenario's time begins; negative for a run that begins
            later.

    Raises:
        InputError: for a target that is not there, and for a fault that only the twin carries out.
    """
    if not scenario.faults:
        return RowFaults()
    plant = RowPlant(scenario, START_NS)
    schedule = FaultSchedule(
        scenario.faults,
        plant.boards.uuids,
        plant.node_names,
        plant.domain_names,
        plant.node_of_gpu,
        scenario.seed,
    )
    return RowFaults(list(_shifted(faults_of(schedule), zero_seconds)))


def given_faults(scenario: Scenario) -> FaultDraw:
    """What a scenario says goes wrong, in place of a draw; whom it strikes is by its seed.

    Raises:
        InputError: as ``faults_within``, and if nothing of it strikes a row.
    """
    row, kinds = scenario.row, dict.fromkeys(fault.kind.value for fault in scenario.faults)
    faults = faults_within(scenario)
    if not faults.faults:
        raise InputError("faults", "one at least that strikes a row or its controller", list(kinds))
    return FaultDraw(
        tuple(kinds),
        faults,
        AgentSettings(),
        bmcs=row.bmc == "simulated",
        meters=True,
        redundancy=row.redundancy,
    )


def _shifted(faults: RowFaults, zero_seconds: float) -> Iterator[RowFault]:
    for fault in faults.faults:
        begin, end = (at + zero_seconds for at in (fault.begin_seconds, fault.end_seconds))
        is_event = fault.kind in EVENTS and begin == end
        if end > 0.0 or (is_event and begin >= 0.0):
            yield replace(fault, begin_seconds=max(0.0, begin), end_seconds=end)


def at_fault(scenario: Scenario, begin_seconds: float, seconds: int) -> Bools:
    """Whether something is wrong in each second of a span of the scenario's time, (seconds,)."""
    found = np.zeros(seconds, dtype=np.bool_)
    for fault in scenario.faults:
        first = fault.at_seconds - begin_seconds
        last = first + max(1.0, fault.duration_seconds)
        found[max(0, int(first)) : max(0, int(np.ceil(last)))] = True
    return found
