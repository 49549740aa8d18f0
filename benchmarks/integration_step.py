"""The plant in steps of 1 s and 0.25 s against steps of 0.1 s: the same row, work, caps and faults.

The same servers, boards and breakers see the same demand, made every 0.1 s, as means over longer
steps; every second a tenth of the boards gets another limit. In the faulted half everything wants
what the hottest work draws for a fifth of the time, 2 % of the boards hold no limit, sensors jump,
a driver is loaded anew and a server is dark for a while. Nobody reacts: what is compared is the
integration, not a controller. Boards divide steps themselves, so what coarse steps lose is the work
within a step, the moment at which a fault begins, and what servers follow.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.runner import Options, Result, Target
from simulation.plant_constants import frozen_plant
from simulation.plant_hash import plant_sha256
from simulation.row_control.random_row import RandomRow
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.work import Held
from simulation.scenario import load_scenario
from wattpack.units import NodeName, seconds_to_ns

NAME = "integration_step"
SUMMARY = "row power in steps of 1 s and 0.25 s against 0.1 s, calm and faulted"

Floats = NDArray[np.float64]

FINE_SECONDS: Final = 0.1
COARSE: Final = {"1s": 1.0, "250ms": 0.25}
GRID_SECONDS: Final = 0.05
"""Common divisor of all steps."""

MEAN_ERROR_LINE: Final = 0.03
HIGHEST_ERROR_LINE: Final = 0.02
HIGH: Final = 0.999

IGNORING, JUMPING = 0.02, 0.2
"""Shares of boards that hold no limit, and whose sensors jump by 5 %, in faulted runs."""


class Played(NamedTuple):
    """One run in one step.

    Attributes:
        means: Row power over its rating, means of 1 s, (seconds,).
        peak: Of the highest step.
        heat: Highest breaker heat of the row.
        cpu_seconds: It took.
    """

    means: Floats
    peak: float
    heat: float
    cpu_seconds: float


def run(options: Options) -> Result:
    """``--quick``: two runs of 100 s a half, else six of 600 s; each has its own seed."""
    count, seconds = (2, 100) if options.quick else (6, 600)
    figures: dict[str, float | str] = {
        "runs": 2 * count,
        "seconds_a_run": seconds,
        "plant_sha256": plant_sha256(frozen_plant()),
    }
    targets = {}
    for half in ("calm", "faulted"):
        pairs: dict[str, list[tuple[Played, Played]]] = {name: [] for name in COARSE}
        for number in range(count):
            options.progress(f"{half} {number + 1} of {count}")
            case = Case(1000 * options.seed + number, seconds, faulted=half == "faulted")
            fine = case.play(FINE_SECONDS)
            for name, step in COARSE.items():
                pairs[name].append((case.play(step), fine))
        for name, played in pairs.items():
            figures |= _figures(f"{half}_{name}", played)
            targets[f"{half}_{name}_mean_error_worst"] = Target(at_most=MEAN_ERROR_LINE)
            targets[f"{half}_{name}_p999_error_worst"] = Target(at_most=HIGHEST_ERROR_LINE)
        fines = [fine for _, fine in pairs["1s"]]
        figures[f"{half}_peak_100ms_ratio"] = max(fine.peak for fine in fines)
        figures[f"{half}_highest_1s_mean_ratio"] = max(float(f.means.max()) for f in fines)
        figures[f"{half}_peak_100ms_over_p999_of_1s"] = max(
            fine.peak / float(np.quantile(fine.means, HIGH)) for fine in fines
        )
    return Result(figures, targets)


def _figures(name: str, played: list[tuple[Played, Played]]) -> dict[str, float]:
    mean = [float(np.mean(np.abs(made.means / fine.means - 1))) for made, fine in played]
    high = [
        abs(float(np.quantile(made.means, HIGH) / np.quantile(fine.means, HIGH) - 1))
        for made, fine in played
    ]
    simulated = sum(len(made.means) for made, _ in played)
    return {
        f"{name}_mean_error": float(np.mean(mean)),
        f"{name}_mean_error_worst": max(mean),
        f"{name}_p999_error_worst": max(high),
        f"{name}_peak_ratio": max(made.peak for made, _ in played),
        f"{name}_heat_off_worst": max(abs(made.heat - fine.heat) for made, fine in played),
        f"{name}_cpu_milliseconds_a_second": 1e3
        * sum(made.cpu_seconds for made, _ in played)
        / simulated,
    }


class Case:
    """Demand, limits and faults of one run, the same in every step.

    Args:
        seed: Of the row, the work and the script.
        seconds: Length.
        faulted: Whether anything goes wrong.
    """

    def __init__(self, seed: int, seconds: int, *, faulted: bool) -> None:
        self._scenario = load_scenario(seed=seed)
        self._seconds, self._faulted = seconds, faulted
        plant = RowPlant(self._scenario, 0)
        work, n = RandomRow(plant, seed).work(), plant.n_gpus
        free = Held(np.ones(n), np.ones(n), np.ones(n, dtype=np.bool_))
        ticks = round(seconds / FINE_SECONDS)
        wanted = np.array([work.step(i * FINE_SECONDS, FINE_SECONDS, free) for i in range(ticks)])
        generator = np.random.default_rng((seed, 0x57E9))
        self._limits = generator.uniform(450.0, 700.0, (seconds, n))
        self._written = generator.random((seconds, n)) < 0.1
        self._ignores = generator.random(n) < IGNORING
        self._gain = np.where(generator.random(n) < JUMPING, generator.choice([0.95, 1.05], n), 1.0)
        # Onsets lie within steps: that is what a coarse step can lose.
        self._onsets = np.round(seconds * np.array([0.2, 0.4, 0.45, 0.6]), 0) + np.array(
            [0.3, 0.3, 0.6, 0.6]
        )
        if faulted:
            begin, end = (self._onsets[:2] / FINE_SECONDS).astype(int)
            full = self._scenario.plant.full_demand_ratio * plant.bank.default_limit_watts
            wanted[begin:end] = np.maximum(wanted[begin:end], full)
            dark, light = (self._onsets[2:] / FINE_SECONDS).astype(int)
            wanted[dark:light, plant.node_of_gpu == 5] = 0.0
        self._wanted = np.repeat(wanted, round(FINE_SECONDS / GRID_SECONDS), axis=0)

    def play(self, step_seconds: float) -> Played:
        """The run in steps of a length that divides a second."""
        plant = RowPlant(self._scenario, 0)
        each = round(step_seconds / GRID_SECONDS)
        demands = self._wanted.reshape(-1, each, plant.n_gpus).mean(axis=1)
        watts = np.empty(len(demands))
        gain = plant.bank.sensor_gain.copy()
        began = time.process_time()
        for i, wanted in enumerate(demands):
            at = i * step_seconds
            self._write(plant, at)
            if self._faulted:
                self._strike(plant, gain, at, step_seconds)
            watts[i] = _advance(plant, wanted, step_seconds)
        cpu = time.process_time() - began
        ratio = watts / self._scenario.row_rating_watts
        means = ratio.reshape(self._seconds, -1).mean(axis=1)
        return Played(means, float(ratio.max()), float(plant.breakers.max_heat[0]), cpu)

    def _write(self, plant: RowPlant, at: float) -> None:
        """New limits at whole seconds."""
        second = round(at)
        if abs(at - second) < 1e-6:
            plant.bank.set_limits(self._limits[second], self._written[second])

    def _strike(self, plant: RowPlant, gain: Floats, at: float, step_seconds: float) -> None:
        """Faults of boards begin with the step that their onset lies in."""
        begin, end, _, loaded = self._onsets
        bank = plant.bank
        bank.ignores_cap = self._ignores & (at + step_seconds > begin)
        jumps = at + step_seconds > end
        bank.sensor_gain = gain * self._gain if jumps else gain
        if at <= loaded < at + step_seconds:
            bank.reload_driver(NodeName(plant.node_names[3]))


def _advance(plant: RowPlant, wanted: Floats, seconds: float) -> float:
    """One step of boards, servers, breakers and meters; breakers count and do not open."""
    begin_ns = plant.now_ns
    plant.now_ns = begin_ns + seconds_to_ns(seconds)
    drawn = plant.bank.advance(wanted, plant.now_ns)
    watts = plant.servers.advance(drawn, seconds)
    plant.breakers.advance(watts, seconds)
    plant.meters.advance(watts, begin_ns, plant.now_ns)
    return float(watts[0])
