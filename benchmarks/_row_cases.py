"""What ``headroom``, ``response`` and ``calm`` share: a row, random work, the product on it.

Rows come from a scenario file (``--scenario FILE``, docs/scenario.md), how much of which work from
another (``--work FILE``, the fields of ``RandomWorkSettings``); a benchmark's own row and load
stand in for what they do not say. What makes an arm is laid over either.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks._arguments import read_arguments
from benchmarks._given_scenario import read_given
from benchmarks._required_i1 import i1_told_of
from benchmarks._row_reads import ROW_READS
from benchmarks.runner import Options, sources_digest
from controller.tick_values import PowerSettings, Topology
from simulation.row_control.agents import AgentSettings
from simulation.row_control.faults import RowFaults
from simulation.row_control.oracle_run import NO_FAULTS, OracleResult
from simulation.row_control.product_topology import product_topology
from simulation.row_control.random_row import RandomRow
from simulation.row_control.random_work import RandomWorkSettings
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.run import START_NS, RowRun, RowSetup
from simulation.row_control.wattpack_policy import WattpackPolicy
from simulation.row_control.work import Held, RowWork
from simulation.scenario import Scenario, load_scenario
from telemetry.large_rise import RISE_SHARE
from wattpack.errors import InputError
from wattpack.settings import read_yaml_mapping, validate

Floats = NDArray[np.float64]

ROW: Final = 0
SOURCES: Final = ("benchmarks", "capacity", "controller", "gpu", "simulation", "wattpack")
USAGE: Final = "--scenario FILE, --work FILE, --runs N"

STEADY: Final = {
    "drift_ratio": 0.0,
    "swing_ratio": 0.0,
    "replica_ratio": 0.0,
    "training_share": 0.0,
    "batch_jump_seconds": 1e9,
    "board_noise_ratio": 0.01,
}
"""Work without change: each board keeps its level within noise of 1 %."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What the controller is told beside its boards.

    Attributes:
        domain_meter: Meters of row and racks.
        host_meter: What BMCs say of whole servers.
    """

    domain_meter: bool = True
    host_meter: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line gave.

    Attributes:
        scenario, work: Files of row and work, None for the benchmark's own.
        runs: How many seeds.
        told: What a result says of the file (``Given.figures``).
    """

    scenario: Path | None
    work: Path | None
    runs: int
    told: Mapping[str, float | int | str] = field(default_factory=dict)

    def row(
        self,
        own: Mapping[str, Any] | None = None,
        arm: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> Scenario:
        """The row that is run.

        Args:
            own: What the benchmark says where no file is given.
            arm: What is laid over the one or the other, key by key.
            seed: In place of the row's.
        """
        file = self.scenario
        base = read_yaml_mapping(file) if file is not None else dict(own or {})
        return load_scenario(file, **_laid_over(base, arm or {}), seed=seed)


def _laid_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with another's values in place of its own, key by key all the way down."""
    made = dict(base)
    for name, value in over.items():
        below = made.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            made[name] = _laid_over(below, value)
        else:
            made[name] = value
    return made


def asked_of(name: str, options: Options, runs: int, reads: Sequence[str] = ROW_READS) -> Asked:
    """The benchmark's own arguments; what of the file has no meaning is told.

    Args:
        name: The benchmark's.
        options: Of the run.
        runs: How many seeds where nobody says.
        reads: Keys of a scenario that it reads.

    Raises:
        InputError: for any other argument, and for a file that is no scenario.
    """
    parser = argparse.ArgumentParser(prog=name, add_help=False, exit_on_error=False)
    parser.add_argument("--scenario", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--runs", type=int, default=runs)
    given = read_arguments(parser, options.arguments, USAGE)
    if given.runs < 1:
        raise InputError("--runs", "an integer >= 1", given.runs)
    told: Mapping[str, float | int | str] = {}
    if given.scenario is not None:
        told = read_given(given.scenario, options, reads, only_ends=True).figures()
    return Asked(given.scenario, given.work, given.runs, told)


def work_of(file: Path | None, own: Mapping[str, Any] | None = None) -> RandomWorkSettings:
    """How much of which work: a file's fields over the benchmark's own.

    Raises:
        InputError: naming the field and the file.
    """
    told = read_yaml_mapping(file) if file is not None else {}
    source = str(file) if file is not None else ""
    return validate(RandomWorkSettings, {**(own or {}), **told}, source)


def shard_kind(name: str, asked: Asked, seconds: float) -> str:
    """Name of finished runs in the folder of ``--resume``: their row, work, length and sources."""
    made = hashlib.sha256(sources_digest(SOURCES).encode())
    for file in (asked.scenario, asked.work):
        made.update(file.read_bytes() if file is not None else b"own")
    return f"{name}-{seconds:g}-{made.hexdigest()[:12]}"


class RowCase:
    """One row with one seed's work.

    Args:
        asked: Files of row and work.
        seed: Of plant and work.
        work: What the benchmark loads the row with where the file does not say.
        own: Of the row, where no file is given.
        arm: Of the row, laid over a file as well.
    """

    def __init__(
        self,
        asked: Asked,
        seed: int,
        work: Mapping[str, Any],
        own: Mapping[str, Any] | None = None,
        arm: Mapping[str, Any] | None = None,
    ) -> None:
        self.scenario: Scenario = asked.row(own, arm, seed)
        self.settings = work_of(asked.work, work)
        self.plant = RowPlant(self.scenario, START_NS)
        self.row = RandomRow(self.plant, seed, self.settings)
        first = self.row.work()
        with i1_told_of(self.scenario, asked.scenario):
            self.topology: Topology = product_topology(self.plant, first.priority, first.gang)

    def wattpack(
        self, arm: Arm, faults: RowFaults = NO_FAULTS, work: RowWork | None = None
    ) -> RowRun:
        """The product's controller on this row, at its begin; its own work if no other is given."""
        setup = RowSetup(
            self.scenario,
            faults,
            AgentSettings(rise_ratio=RISE_SHARE),
            meters=arm.domain_meter,
            bmcs=arm.host_meter,
        )
        settings = PowerSettings(lease_ttl_ms=self.scenario.control.lease_ttl_ms)
        topology = self.topology
        return RowRun(
            setup, work or self.row.work(), lambda epoch: WattpackPolicy(topology, settings, epoch)
        )

    def oracle(self, seconds: float, *, declared_worst: bool = False) -> OracleResult:
        """The bound on the same arrivals."""
        run = self.row.oracle(self.topology.floor_watts, declared_worst=declared_worst)
        return run.run(seconds, self.scenario.step_seconds)


def level_for(
    asked: Asked,
    seed: int,
    load_ratio: float,
    own: Mapping[str, Any] | None = None,
    arm: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Serving level at which steady work holds the row at a share of its rating, uncapped.

    The row is that of a ``RowCase``.
    """
    low, high = 0.12, 1.0
    for _ in range(LEVEL_STEPS):
        level = 0.5 * (low + high)
        fields = {"serving_level_lowest": level, "serving_level_highest": level}
        case = RowCase(asked, seed, STEADY | fields, own, arm)
        low, high = (level, high) if _steady_load(case) < load_ratio else (low, level)
    return fields


LEVEL_STEPS: Final = 9


def _steady_load(case: RowCase) -> float:
    """Uncapped load over rating once fans have settled."""
    n = case.plant.n_gpus
    work = case.row.work()
    wanted = work.step(0.0, 1.0, Held(np.ones(n), np.ones(n), np.ones(n, dtype=np.bool_)))
    case.plant.servers.advance(wanted, FANS_SETTLED_SECONDS)
    watts = case.plant.servers.advance(wanted, 1.0)
    return float(watts[ROW] / case.scenario.row_rating_watts)


FANS_SETTLED_SECONDS: Final = 600.0


def second_means(load_ratio: Floats, step_seconds: float) -> Floats:
    """Means over whole seconds of a series by steps, (n_seconds,)."""
    steps = round(1.0 / step_seconds)
    whole = len(load_ratio) // steps * steps
    return np.asarray(load_ratio[:whole].reshape(-1, steps).mean(axis=1))


def minute_means(seconds: Floats) -> Floats:
    """Running means over 60 s of a series by seconds, (n_seconds - 59,)."""
    sums = np.concatenate([[0.0], np.cumsum(seconds)])
    return np.asarray((sums[60:] - sums[:-60]) / 60.0)
