"""One random fault run of the row: the product's controller, a published policy and the oracle.

All three see the same work, servers, breakers and faults of one seed. Work is compared outside of
the faults: from ``SETTLED_SECONDS``, when the row has come up from its guaranteed caps, to the
first fault's onset, and from ``AFTER_SECONDS`` after the last fault's end. A run without any meter
is also held against an oracle that, as its controller must, counts the declared worst of servers
and keeps to what the required feeds carry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np

from controller.controller_state import State
from controller.tick_values import PowerSettings, Topology
from simulation.row_control.accounts import RowResult
from simulation.row_control.controller_memory import FIRST_EPOCH, draw_memory
from simulation.row_control.fault_draws import FaultDraw, RowCounts, draw_faults
from simulation.row_control.oracle_run import OracleResult
from simulation.row_control.product_topology import product_topology
from simulation.row_control.published_row_policy import PublishedRowPolicy
from simulation.row_control.random_row import RandomRow
from simulation.row_control.random_work import RandomWorkSettings
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.run import START_NS, RowRun, RowSetup
from simulation.row_control.scenario_faults import given_faults
from simulation.row_control.start_states import RowStart, draw_start
from simulation.row_control.told_status import ToldStatus
from simulation.row_control.wattpack_policy import WattpackPolicy
from simulation.row_control.work import HIGH, LOW, Floats
from simulation.scenario import Scenario

RUN_SECONDS: Final = 900.0
SETTLED_SECONDS: Final = 45.0
AFTER_SECONDS: Final = 60.0
COOL_HEAT: Final = 0.1
BACK_SHARE: Final = 0.95
BACK_WINDOW_SECONDS: Final = 10.0
SEEDS_APART: Final = 100_000


class Timed(Protocol):
    """A finished run that tells the work of a span."""

    def work_between(self, begin_seconds: float, end_seconds: float) -> Floats:
        """Of ``LOW`` and ``HIGH``, (2,)."""
        ...


@dataclass(frozen=True, slots=True)
class FaultRun:
    """A run before it is run.

    Attributes:
        scenario: With the run's own seed, and several feeds where one may be lost.
        draw: Its faults.
        seconds: Its length.
        work: How much of which work, None for the row's own.
    """

    scenario: Scenario
    draw: FaultDraw
    seconds: float
    work: RandomWorkSettings | None = None

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        seed: int,
        number: int,
        seconds: float,
        work: RandomWorkSettings | None = None,
    ) -> FaultRun:
        """Run ``number`` of a seed: with the scenario's faults, or drawn ones where it has none.

        Raises:
            InputError: for a fault of the scenario that strikes nobody on such a row.
        """
        seeded = scenario.model_copy(update={"seed": seed * SEEDS_APART + number})
        if seeded.faults:
            return cls(seeded, given_faults(seeded), seconds, work)
        row = seeded.row
        counts = RowCounts(row.servers, row.servers * row.gpus_per_server, row.racks + 1)
        draw = draw_faults(seeded.seed, counts)
        if draw.redundancy != "None" and row.redundancy == "None":
            row = row.model_copy(update={"redundancy": draw.redundancy})
        return cls(seeded.model_copy(update={"row": row}), draw, seconds, work)

    def spans(self) -> list[tuple[float, float]]:
        """Where work is compared."""
        spans = [
            (SETTLED_SECONDS, min(self.draw.onset_seconds, self.seconds)),
            (self.draw.end_seconds + AFTER_SECONDS, self.seconds),
        ]
        return [(begin, end) for begin, end in spans if end > begin]


def one_run(
    scenario: Scenario,
    seed: int,
    number: int,
    seconds: float,
    work_settings: RandomWorkSettings | None = None,
) -> dict[str, Any]:
    """A row of figures that JSON can hold."""
    run = FaultRun.of(scenario, seed, number, seconds, work_settings)
    plant = RowPlant(run.scenario, START_NS)
    row = RandomRow(plant, run.scenario.seed, run.work)
    work = row.work()
    priority = work.priority
    topology = product_topology(plant, priority, work.gang)
    settings = PowerSettings(lease_ttl_ms=run.scenario.control.lease_ttl_ms)
    start, memory, state = _begun(run, plant, topology, settings)
    setup = _setup(run, start)
    driven = RowRun(setup, work, _leaders(topology, settings, state))
    ours = driven.run(seconds)
    published = RowRun(setup, row.work(), lambda _: PublishedRowPolicy("polca", plant, priority))
    theirs = published.run(seconds)
    # Nobody can lift a board that only an actuator out of band reaches.
    late = start.out_of_band[plant.node_of_gpu]
    most = np.where(late, topology.guaranteed_watts, plant.bank.default_limit_watts)
    best = _oracle(run, row, topology, most)
    metered = run.draw.meters or run.draw.bmcs
    # Nothing tells a controller without any meter what servers draw beside their GPUs.
    declared = None if metered else _oracle(run, row, topology, most, declared=True)
    return {
        "number": number,
        "causes": list(run.draw.causes),
        "began": memory,
        "began_heat": float(start.heat.max()),
        "metered": metered,
        "out_of_band_servers": int(start.out_of_band.sum()),
        "onset_seconds": round(run.draw.onset_seconds, 2),
        "end_seconds": round(run.draw.end_seconds, 2),
        **_safety(ours),
        "monitor": (driven.monitor.details + driven.trust.details)[:5],
        "hidden_share": driven.trust.hidden_share,
        "hidden_heat": driven.trust.hidden_heat,
        "work": _works(run, ours),
        "oracle_work": _works(run, best),
        "polca_work": _works(run, theirs),
        **_back(run, ours, best),
        **_declared(run, ours, declared),
        "polca_trips": theirs.trips,
        "polca_brakes": theirs.brakes,
        "polca_above_seconds": float(theirs.above_seconds[0]),
    }


def _setup(run: FaultRun, start: RowStart) -> RowSetup:
    """The row as it begins, with what goes wrong."""
    return RowSetup(
        run.scenario,
        run.draw.faults,
        run.draw.agents,
        meters=run.draw.meters,
        bmcs=run.draw.bmcs,
        start=start,
    )


def _leaders(
    topology: Topology, settings: PowerSettings, state: State
) -> Callable[[int], WattpackPolicy]:
    """The first knows what was drawn, one after a crash what the status of the domains tells."""
    status = ToldStatus(topology, settings)

    def leader(epoch: int) -> WattpackPolicy:
        return status.controller(epoch, state if epoch == FIRST_EPOCH else None)

    return leader


def _oracle(
    run: FaultRun, row: RandomRow, topology: Topology, most_watts: Floats, *, declared: bool = False
) -> OracleResult:
    """The best on the same arrivals; ``declared``: that knows what is declared, and no more."""
    oracle = row.oracle(
        topology.floor_watts,
        run.draw.faults,
        declared_worst=declared,
        keeps_reserve=declared,
        most_watts=most_watts,
    )
    return oracle.run(run.seconds, run.scenario.step_seconds)


def _begun(
    run: FaultRun, plant: RowPlant, topology: Topology, settings: PowerSettings
) -> tuple[RowStart, str, State]:
    """How the row stands, and the kind and the state of the memory of its first controller."""
    seed, lease_seconds = run.scenario.seed, settings.lease_ttl_ms / 1000.0
    start = draw_start(seed, plant, topology.guaranteed_watts, lease_seconds)
    memory, state = draw_memory(seed, topology, settings, start, plant)
    if memory == "new":
        # Nothing keeps heat for a controller that lost its memory: it takes the row for cool.
        start = replace(start, heat=np.zeros(len(start.heat)))
    return start, memory, state


def _safety(ours: RowResult) -> dict[str, Any]:
    return {
        "trips": ours.trips,
        "heat": float(ours.max_heat.max()),
        "row_heat": float(ours.max_heat[0]),
        "peak_ratio": float(ours.peak_ratio.max()),
        "above_seconds": float(ours.above_seconds.max()),
        "brakes": ours.brakes,
        "expired": ours.expired,
        "cap_changes": ours.cap_changes,
        "gpu_hours": ours.gpu_hours,
        "violations": ours.violations,
    }


def _works(run: FaultRun, result: Timed) -> list[float]:
    """Work of ``LOW`` and ``HIGH`` outside of the faults."""
    total = np.zeros(2)
    for begin, end in run.spans():
        total += result.work_between(begin, end)
    return [float(total[LOW]), float(total[HIGH])]


def _declared(run: FaultRun, ours: RowResult, declared: OracleResult | None) -> dict[str, Any]:
    """Beside an oracle that knows no more of servers and feeds than what is declared."""
    if declared is None:
        return {"declared_oracle_work": None, "declared_back_seconds": None}
    back = _back(run, ours, declared)["back_seconds"]
    return {"declared_oracle_work": _works(run, declared), "declared_back_seconds": back}


def _back(run: FaultRun, ours: RowResult, best: Timed) -> dict[str, Any]:
    """From the end of faults and H < 0.1 until a window holds 95 % of the oracle's work.

    A run that ends too soon after that tells nothing; one that never cools or comes back is told
    as None.
    """
    after = (ours.seconds >= run.draw.end_seconds) & (ours.heat.max(axis=1) < COOL_HEAT)
    cool = float(ours.seconds[after.argmax()]) if after.any() else run.seconds
    if run.draw.end_seconds + AFTER_SECONDS > run.seconds:
        return {"back_told": False, "back_seconds": None}
    for begin in np.arange(cool, run.seconds - BACK_WINDOW_SECONDS, 1.0).tolist():
        end = begin + BACK_WINDOW_SECONDS
        done, could = ours.work_between(begin, end), best.work_between(begin, end)
        if done.sum() >= BACK_SHARE * could.sum():
            return {"back_told": True, "back_seconds": float(begin - cool)}
    return {"back_told": True, "back_seconds": None}
