"""What is said in a row, compiled and in numpy: the same runs to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.tick_values import PowerSettings
from simulation.row_control import compiled_post
from simulation.row_control.accounts import RowResult
from simulation.row_control.actuator_post import ActuatorPost
from simulation.row_control.agents import AgentSettings
from simulation.row_control.fault_draws import CAUSES, FaultDraw, RowCounts, draw_faults
from simulation.row_control.faults import RowFaults
from simulation.row_control.random_row import RandomRow
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.run import START_NS, RowRun, RowSetup
from simulation.row_control.start_states import draw_start
from simulation.row_control.wattpack_policy import WattpackPolicy
from simulation.scenario import Scenario
from tests.simulation.row_control.rows import SERVERS, small_row, topology_of
from wattpack.compiled import AVAILABLE

COUNTS = RowCounts(SERVERS, SERVERS * 8, 3)
SECONDS = 40.0
SHORTER = 8.0
"""Faults of a quarter of an hour, in so short a run."""

SEEDS = (1, 3, 8, 11, 17, 30)
LATE_SEED = 2

needs_numba = pytest.mark.skipif(not AVAILABLE, reason="numba is not there: one form only")


def drawn(seed: int) -> FaultDraw:
    return draw_faults(seed, COUNTS)


def shortened(faults: RowFaults) -> RowFaults:
    def short(seconds: float) -> float:
        return seconds / SHORTER

    return RowFaults(
        [
            replace(f, begin_seconds=short(f.begin_seconds), end_seconds=short(f.end_seconds))
            for f in faults.faults
        ]
    )


def scenario_of(seed: int, draw: FaultDraw) -> Scenario:
    scenario = small_row(seed=seed)
    row = scenario.row.model_copy(update={"redundancy": draw.redundancy})
    return scenario.model_copy(update={"row": row})


def run_of(seed: int, agents: AgentSettings | None = None) -> RowRun:
    """A run of the product's controller on a row that somebody left, with faults of a seed."""
    draw = drawn(seed)
    scenario = scenario_of(seed, draw)
    plant, topology = RowPlant(scenario, START_NS), topology_of(scenario)
    lease_seconds = PowerSettings().lease_ttl_ms / 1000.0
    start = draw_start(seed, plant, topology.guaranteed_watts, lease_seconds)
    faults, told = shortened(draw.faults), agents or draw.agents
    setup = RowSetup(scenario, faults, told, meters=draw.meters, start=start)
    work = RandomRow(plant, seed).work()
    return RowRun(setup, work, lambda epoch: WattpackPolicy(topology, PowerSettings(), epoch))


def all_told(run: RowRun, result: RowResult) -> dict[str, Any]:
    """Everything that a run tells, arrays as bytes: NaN is NaN, and 0 is not -0."""
    actuators, agents = run.actuators, run.agents
    told: dict[str, Any] = {name: getattr(result, name) for name in RowResult.__match_args__}
    told |= {name: value for name, value in vars(actuators).items() if not name.startswith("_")}
    told |= {"sent": agents.sent, "lost": agents.lost, "ticks": run.ticks}
    told |= {"I": (run.monitor.counts, run.monitor.details)}
    told |= {"I7": (run.trust.counts, run.trust.details, run.trust.hidden_share)}
    told["next number"] = actuators.draws.random(1)
    del told["draws"], told["times"]
    return {
        name: value.tobytes() if isinstance(value, np.ndarray) else value
        for name, value in told.items()
    }


def in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_post, "AVAILABLE", False)


def test_the_seeds_have_every_cause_and_a_network_that_loses() -> None:
    draws = [drawn(seed) for seed in SEEDS]
    assert set(CAUSES) <= {cause for draw in draws for cause in draw.causes}
    assert any(draw.agents.loss > 0.0 for draw in draws)
    assert any(not draw.meters for draw in draws)


@needs_numba
@pytest.mark.parametrize("seed", SEEDS)
def test_both_forms_tell_the_same_of_a_run_with_faults(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = run_of(seed)
    of_compiled = all_told(compiled, compiled.run(SECONDS))
    in_numpy(monkeypatch)
    in_arrays = run_of(seed)
    assert of_compiled == all_told(in_arrays, in_arrays.run(SECONDS))


@needs_numba
def test_both_forms_are_the_same_where_messages_overtake_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two reports of one server at once, answered together; more on the way than room at first."""
    slow = AgentSettings(delay_seconds=(0.1, 2.5), loss=0.02)
    compiled = run_of(LATE_SEED, slow)
    of_compiled = all_told(compiled, compiled.run(SECONDS))
    assert compiled.actuators.refused > 0
    in_numpy(monkeypatch)
    in_arrays = run_of(LATE_SEED, slow)
    assert of_compiled == all_told(in_arrays, in_arrays.run(SECONDS))


def test_without_a_compiler_actuators_run_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    in_numpy(monkeypatch)
    assert type(compiled_post.fastest_post(run_of(0).actuators)) is ActuatorPost
