"""What a simulated row costs: CPU of a tick, of the rest of a run, and of a fault run's other arms.

The row of ``no_trip``: product's controller, published policy and oracle on the same random work,
without a fault; 52 servers on a row rated for 40, or another row by ``--scenario``. Thread CPU time
of one core. Machines and their neighbours differ, so each cost is also told in *array calls*: over
the CPU time of one ``numpy.maximum`` of as many numbers as the row has boards, in the same run.
Results of simulations never depend on any of these times.

Of a scenario file: row, meters, plant, lease and tick, lowest and highest class; no work and no
faults.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from benchmarks._breaker_curves import row_marks
from benchmarks._given_scenario import USAGE as GIVEN_USAGE
from benchmarks._given_scenario import given_scenario
from benchmarks._row_reads import ROW_READS
from benchmarks.runner import Options, Result, Target
from controller.tick_values import PowerSettings, Topology
from simulation.row_control.messages import Orders
from simulation.row_control.product_topology import product_topology
from simulation.row_control.published_row_policy import PublishedRowPolicy
from simulation.row_control.random_row import RandomRow
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.row_policy import Known
from simulation.row_control.run import START_NS, RowRun, RowSetup
from simulation.row_control.wattpack_policy import WattpackPolicy
from simulation.scenario import load_scenario

NAME = "row_costs"
SUMMARY = "CPU of a tick and of a simulated second of a row, with its oracle and POLCA's arm"
TAKES_ARGUMENTS = True
USAGE: Final = GIVEN_USAGE

TARGETS: Final = {
    "tick_cpu_milliseconds": Target(at_most=1.5),
    "fault_run_cpu_seconds": Target(at_most=5.0),
}
LEAD_SECONDS: Final = 60.0
"""Rows come up from their guaranteed caps first; that is not counted."""

PIECE_SECONDS: Final = 10.0
FAULT_RUN_SECONDS: Final = 900.0
CALLS_A_PIECE: Final = 2000


class TimedPolicy(WattpackPolicy):
    """The product's controller with the CPU time of its ticks.

    Attributes:
        tick_seconds: CPU time of each tick.
    """

    def __init__(self, topology: Topology, settings: PowerSettings, epoch: int) -> None:
        super().__init__(topology, settings, epoch)
        self.tick_seconds: list[float] = []

    def tick(self, known: Known) -> Orders:
        """One step of the product's controller, timed."""
        began = time.thread_time()
        orders = super().tick(known)
        self.tick_seconds.append(time.thread_time() - began)
        return orders


def run(options: Options) -> Result:
    """The three arms by turns, so that a busy neighbour meets all of them."""
    seconds = 60.0 if options.quick else 600.0
    given = given_scenario(NAME, options, ROW_READS, only_ends=True)
    scenario = load_scenario(seed=options.seed) if given is None else given.scenario
    plant = RowPlant(scenario, START_NS)
    row = RandomRow(plant, scenario.seed)
    work = row.work()
    topology = product_topology(plant, work.priority, work.gang)
    settings = PowerSettings(lease_ttl_ms=scenario.control.lease_ttl_ms)
    policy = TimedPolicy(topology, settings, 1)
    setup = RowSetup(scenario)
    ours = RowRun(setup, work, lambda _: policy)
    theirs = RowRun(setup, row.work(), lambda _: PublishedRowPolicy("polca", plant, work.priority))
    oracle = row.oracle(topology.floor_watts)
    arms: dict[str, Callable[[float], object]] = {
        "wattpack": ours.run,
        "polca": theirs.run,
        "oracle": lambda span: oracle.run(span, scenario.step_seconds),
    }
    for arm in arms.values():
        arm(LEAD_SECONDS)
    policy.tick_seconds.clear()
    spent: dict[str, list[float]] = {name: [] for name in arms}
    calls: list[float] = []
    for piece in range(round(seconds / PIECE_SECONDS)):
        for name, arm in arms.items():
            spent[name].append(_cpu_seconds(partial(arm, PIECE_SECONDS)) / PIECE_SECONDS)
        calls.append(_array_call_seconds(plant.n_gpus))
        options.progress(f"{(piece + 1) * PIECE_SECONDS:.0f} of {seconds:.0f} s")
    figures = _figures(plant.n_gpus, policy.tick_seconds, spent, calls)
    told = {} if given is None else given.figures()
    return Result({**figures, **row_marks(scenario), **told}, TARGETS)


def _cpu_seconds(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


def _array_call_seconds(n: int) -> float:
    """CPU time of one ``numpy.maximum`` of n numbers, its result thrown away."""
    numbers = np.linspace(0.0, 1.0, n)

    def many() -> None:
        for _ in range(CALLS_A_PIECE):
            np.maximum(numbers, 0.5)

    return _cpu_seconds(many) / CALLS_A_PIECE


def _figures(
    n_gpus: int, ticks: list[float], spent: dict[str, list[float]], calls: list[float]
) -> dict[str, float | int | str]:
    """Medians of the pieces, so that moments of a busy neighbour count little."""
    call, tick = float(np.median(calls)), float(np.median(ticks))
    by_arm = {name: float(np.median(pieces)) for name, pieces in spent.items()}
    total = sum(by_arm.values())
    return {
        "gpus": n_gpus,
        "array_call_cpu_microseconds": 1e6 * call,
        "tick_cpu_milliseconds": 1e3 * tick,
        "tick_cpu_milliseconds_p99": 1e3 * float(np.quantile(ticks, 0.99)),
        "tick_array_calls": tick / call,
        **{f"{name}_cpu_milliseconds_a_second": 1e3 * cost for name, cost in by_arm.items()},
        "row_array_calls_a_second": total / call,
        "fault_run_cpu_seconds": total * FAULT_RUN_SECONDS,
    }
