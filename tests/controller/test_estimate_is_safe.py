"""I7: neither the draw nor the heat is ever taken for less than readings within their errors allow.

Random rows of two racks that nobody steers (DryRun): draws jump, servers fall silent, meters are
there or not, late, coarse in time and wrong by up to their class. Half of the rows draw more than
their servers declare, which only meters can show. Truth is added up by the oracle.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.controller.builders import DEFAULT_WATTS, make_topology
from tests.controller.metered_row import MeteredRow, bursts
from tests.examples import examples

SECONDS = 20
METER_CLASS = 0.01
SENSOR_CLASS = 0.05
# Meters by their class and some noise; sums of eight or more boards whose sensors err by up to 5 %
# each; a second of averaging on top, which the window of truths below takes in.
LEAST = 1.0 - METER_CLASS - 0.02
LEAST_BY_SENSORS = 1.0 - SENSOR_CLASS


def random_row(rng: np.random.Generator) -> MeteredRow:
    topology = make_topology(
        parents=(-1, 0, 0),
        nodes=(1, 1, 2, 2),
        oversubscription=float(rng.uniform(1.3, 1.6)),
        guaranteed_watts=250.0,
        enforce=False,
    )
    metered = tuple(d for d in range(3) if rng.random() < 0.6)
    quiet = rng.random(4) < 0.4
    begin, end = sorted(rng.integers(4, SECONDS, 2).tolist())
    plant = MeteredRow(
        topology,
        bursts(topology.n_gpus, rng, float(rng.choice([150.0, 550.0])), 690.0, SECONDS),
        rng,
        metered=metered,
        silent=lambda t: quiet & (begin <= t < end),
        meter_delay=int(rng.integers(1, 4)),
        meter_period=int(rng.integers(1, 4)),
        meter_error=METER_CLASS * float(rng.uniform(-1, 1)),
        sensor_error=SENSOR_CLASS,
        host_base=float(rng.uniform(300, 1200)),
        undeclared_watts=float(rng.choice([0.0, 500.0])),
        obeys=False,
    )
    plant.caps[:] = DEFAULT_WATTS
    return plant


def least_of(domain: int, plant: MeteredRow) -> float:
    """The least share of the truth that readings allow; 0 where nobody can know of a load."""
    if domain in plant.metered:
        return LEAST
    return LEAST_BY_SENSORS if plant.undeclared_watts == 0.0 else 0.0


@pytest.mark.timeout(400)  # two minutes of CPU, and longer beside other work
@examples(120, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1))
def test_neither_draw_nor_heat_is_taken_for_less_than_it_may_be(seed: int) -> None:
    plant = random_row(np.random.default_rng(seed))
    house = plant.house
    lag = plant.meter_delay + plant.meter_period + 2
    past: deque[list[float]] = deque(maxlen=lag)
    # Heat of the truth less the errors of what measures it, as it stood when it could be known.
    least_heat = [0.0] * 3
    known_heat: deque[list[float]] = deque([[0.0] * 3] * lag, maxlen=lag)
    for second, decisions in plant.run(SECONDS):
        true = plant.true_watts()
        past.append(true)
        # What servers do not declare is known from the first reading of a meter on.
        if plant.undeclared_watts > 0.0 and second <= lag:
            continue
        for domain in house.domains():
            least = least_of(domain, plant)
            lowest = min(watts[domain] for watts in past)
            assert decisions.draw_watts[domain] >= least * lowest
            if second > lag:
                assert decisions.heat[domain] >= known_heat[0][domain] - 1e-9
            felt = min(least, LEAST_BY_SENSORS) * true[domain]
            least_heat[domain] = house.heated(domain, least_heat[domain], felt)
        known_heat.append(list(least_heat))
