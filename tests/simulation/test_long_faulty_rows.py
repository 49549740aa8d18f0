"""The long form: ten minutes of a tight row under faults drawn at random, judged from outside."""

from __future__ import annotations

import random

import pytest

from simulation.app.twin_run import run_twin
from tests.simulation.twin_builders import small_scenario

SECONDS = 600.0
#: What may fail together with anything else; feeds and reboots have their own directed tests.
KINDS = (
    "telemetry_loss",
    "silent_write_failure",
    "gpu_hung",
    "controller_crash",
    "planner_down",
    "forecaster_down",
    "api_down",
    "meter_gap",
    "demand_step",
)


def random_faults(seed: int) -> list[dict[str, object]]:
    generator = random.Random(seed)
    return [
        {
            "kind": generator.choice(KINDS),
            "at_seconds": round(generator.uniform(20.0, SECONDS - 60.0), 1),
            "duration_seconds": round(generator.uniform(5.0, 60.0), 1),
            "share": generator.choice((0.1, 0.5, 1.0)),
        }
        for _ in range(8)
    ]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(8))
def test_ten_minutes_of_random_faults_trip_nothing(seed: int) -> None:
    tight = small_scenario().row.model_dump() | {"rated_servers": 2.9, "rack_rated_servers": 1.6}
    result = run_twin(
        small_scenario(seed=seed, duration_seconds=SECONDS, row=tight, faults=random_faults(seed))
    )
    assert (result.trips, result.invariant_violations) == (0, 0), result.violations
