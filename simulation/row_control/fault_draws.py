"""Random fault runs: what goes wrong in a run is a function of its seed.

A run has one to three causes whose first lies in minutes 1 to 3, and conditions that hold from its
begin: no BMCs, no domain meter, clocks apart, a network that loses. All ranges are those of
the ``no_trip`` benchmark (docs/benchmark.md); how often each is drawn is chosen, not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulation.row_control.agents import AgentSettings
from simulation.row_control.faults import RowFault, RowFaultKind, RowFaults
from simulation.row_control.work import Bools

__all__ = ["CAUSES", "FaultDraw", "RowCounts", "draw_faults"]

K = RowFaultKind
ONSET_SECONDS = (60.0, 180.0)
LASTS_SECONDS = (30.0, 120.0)
CRASH_SECONDS = (10.0, 600.0)
ALL_TO_FULL = "all_to_full"
BMC_CHANCE = 1.0 / 3.0
STEP_CHANCE = 0.6
"""How often everything steps to full power while something else is wrong."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How much there is to strike."""

    nodes: int
    gpus: int
    domains: int


@dataclass(frozen=True, slots=True)
class FaultDraw:
    """What a seed gives.

    Attributes:
        causes: Names of what was drawn, in order.
        faults: With times and targets.
        agents: How agents report and what the network does in this run.
        bmcs: Whether servers' BMCs are asked.
        meters: Whether domain meters reach the controller at all.
        redundancy: Of every domain: None, or what a lost feed lies within.
    """

    causes: tuple[str, ...]
    faults: RowFaults
    agents: AgentSettings
    bmcs: bool
    meters: bool
    redundancy: Literal["None", "2N", "KofN"]

    @property
    def onset_seconds(self) -> float:
        """When the first fault begins."""
        return self.faults.onset_seconds

    @property
    def end_seconds(self) -> float:
        """When the last one ends."""
        return self.faults.end_seconds


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A cause while it is drawn."""

    rng: np.random.Generator
    counts: RowCounts
    begin: float
    end: float

    def every(self, n: int) -> Bools:
        """All of them, (n,)."""
        return np.ones(n, dtype=np.bool_)

    def some(self, n: int, count: int) -> Bools:
        """So many, chosen by chance, (n,)."""
        chosen = np.zeros(n, dtype=np.bool_)
        chosen[self.rng.permutation(n)[:count]] = True
        return chosen

    def fault(
        self, kind: RowFaultKind, struck: Bools | None = None, amount: float = 1.0
    ) -> RowFault:
        """One of that kind over the cause's time."""
        nobody = np.zeros(0, dtype=np.bool_)
        return RowFault(kind, self.begin, self.end, nobody if struck is None else struck, amount)


Cause = Callable[[_Drawing], list[RowFault]]


def _telemetry_loss(d: _Drawing) -> list[RowFault]:
    n = d.counts.nodes
    chance = 1.0 if d.rng.random() < 0.2 else float(d.rng.uniform(0.0, 1.0))
    struck = d.every(n) if d.rng.random() < 0.6 else d.some(n, int(d.rng.integers(1, n + 1)))
    return [d.fault(K.MESSAGE_LOSS, struck, chance)]


def _frozen_readings(d: _Drawing) -> list[RowFault]:
    gpus = d.every(d.counts.gpus)
    found = [d.fault(K.READINGS_FROZEN, gpus)]
    if d.rng.random() < 1.0 / 3.0:
        found.append(d.fault(K.COUNTERS_FROZEN, gpus))
    return found


def _frozen_without_meter(d: _Drawing) -> list[RowFault]:
    return [*_frozen_readings(d), d.fault(K.METER_SILENT, d.every(d.counts.domains))]


def _silent_meters(d: _Drawing) -> list[RowFault]:
    return [d.fault(K.METER_SILENT, d.every(d.counts.domains))]


def _meter_clock(d: _Drawing) -> list[RowFault]:
    shift = float(d.rng.uniform(-5.0, 5.0))
    return [d.fault(K.METER_CLOCK, d.every(d.counts.domains), shift)]


def _controller_crash(d: _Drawing) -> list[RowFault]:
    lasts = float(np.exp(d.rng.uniform(*np.log(CRASH_SECONDS))))
    return [RowFault(K.CONTROLLER_DOWN, d.begin, d.begin + lasts)]


def _api_down(d: _Drawing) -> list[RowFault]:
    return [d.fault(K.API_DOWN)]


def _failing_writes(d: _Drawing) -> list[RowFault]:
    share = float(d.rng.uniform(0.01, 0.05))
    gpus = d.counts.gpus
    if d.rng.random() < 0.5:
        return [d.fault(K.WRITES_FAIL, d.every(gpus), share)]
    return [d.fault(K.WRITES_FAIL, d.some(gpus, max(1, round(share * gpus))))]


def _ignored_caps(d: _Drawing) -> list[RowFault]:
    gpus = d.counts.gpus
    return [d.fault(K.IGNORES_CAP, d.some(gpus, max(1, round(0.02 * gpus))))]


def _sensor_gain(d: _Drawing) -> list[RowFault]:
    # Every board's sensor goes to one edge of its tolerance at once (the plant keeps it inside).
    return [d.fault(K.SENSOR_GAIN, d.every(d.counts.gpus), float(d.rng.choice([0.9, 1.1])))]


def _few_nodes(d: _Drawing) -> Bools:
    """As many as I1 has room for at their default limits: 5 %, at least one."""
    most = max(1, int(np.ceil(0.05 * d.counts.nodes)))
    return d.some(d.counts.nodes, int(d.rng.integers(1, most + 1)))


def _reboots(d: _Drawing) -> list[RowFault]:
    return [d.fault(K.NODE_REBOOT, _few_nodes(d))]


def _driver_reloads(d: _Drawing) -> list[RowFault]:
    return [RowFault(K.DRIVER_RELOAD, d.begin, d.begin, _few_nodes(d))]


def _feed_loss(d: _Drawing) -> list[RowFault]:
    return [d.fault(K.FEED_LOST, d.every(d.counts.domains))]


def _all_to_full(d: _Drawing) -> list[RowFault]:
    return [d.fault(K.ALL_TO_FULL, d.every(d.counts.gpus))]


CAUSES: dict[str, Cause] = {
    ALL_TO_FULL: _all_to_full,
    "telemetry_loss": _telemetry_loss,
    "frozen_readings": _frozen_readings,
    "frozen_readings_without_meter": _frozen_without_meter,
    "silent_meters": _silent_meters,
    "meter_clock": _meter_clock,
    "controller_crash": _controller_crash,
    "api_down": _api_down,
    "failing_writes": _failing_writes,
    "ignored_caps": _ignored_caps,
    "sensor_gain": _sensor_gain,
    "node_reboots": _reboots,
    "driver_reloads": _driver_reloads,
    "feed_loss": _feed_loss,
}


BMC_CAUSES = {"silent_bmcs": K.BMC_SILENT, "frozen_bmcs": K.BMC_FROZEN}
"""Drawn besides where BMCs are asked."""


def _faults_of_bmcs(seed: int, nodes: int, onset: float) -> dict[str, RowFault]:
    """At times some or all BMCs fall silent or stand still; a generator of their own."""
    rng = np.random.default_rng((seed, 0xB3C5))
    name, chance = str(rng.choice(sorted(BMC_CAUSES))), float(rng.random())
    if chance >= BMC_CHANCE:
        return {}
    begin = onset + float(rng.uniform(0.0, 30.0))
    d = _Drawing(rng, RowCounts(nodes, 0, 0), begin, begin + float(rng.uniform(*LASTS_SECONDS)))
    struck = d.every(nodes) if rng.random() < 0.6 else d.some(nodes, int(rng.integers(1, nodes)))
    return {name: d.fault(BMC_CAUSES[name], struck)}


def draw_faults(seed: int, counts: RowCounts) -> FaultDraw:
    """The faults and conditions of a run.

    Args:
        seed: Of the run; the same seed and counts give the same draw.
        counts: Of the row.
    """
    rng = np.random.default_rng((seed, 0xFA17))
    onset = float(rng.uniform(*ONSET_SECONDS))
    names = rng.choice(sorted(CAUSES), size=int(rng.choice([1, 2, 3])), replace=False).tolist()
    faults: list[RowFault] = []
    for position, name in enumerate(names):
        begin = onset if position == 0 else onset + float(rng.uniform(0.0, 30.0))
        end = begin + float(rng.uniform(*LASTS_SECONDS))
        faults += CAUSES[name](_Drawing(rng, counts, begin, end))
    if ALL_TO_FULL not in names and rng.random() < STEP_CHANCE:
        step = _Drawing(rng, counts, onset + float(rng.uniform(0.0, 40.0)), 0.0)
        lasts = float(rng.uniform(*LASTS_SECONDS))
        gpus = step.every(counts.gpus)
        faults.append(RowFault(K.ALL_TO_FULL, step.begin, step.begin + lasts, gpus))
        names = [*names, ALL_TO_FULL]
    agents = AgentSettings(
        loss=float(rng.uniform(0.0, 0.05)) if rng.random() < 1.0 / 3.0 else 0.0,
    )
    bmcs = bool(rng.random() < 0.5)
    if bmcs:
        of_bmcs = _faults_of_bmcs(seed, counts.nodes, onset)
        names, faults = [*names, *of_bmcs], [*faults, *of_bmcs.values()]
    meters = bool(rng.random() < 0.75)
    if not meters:
        names = [*names, "no_domain_meter"]
    redundancy: Literal["None", "2N", "KofN"] = "None"
    if "feed_loss" in names:
        redundancy = "2N" if rng.random() < 0.5 else "KofN"
    return FaultDraw(tuple(names), RowFaults(faults), agents, bmcs, meters, redundancy)
