"""I7: a meter that speaks in large steps is judged by the sum of its boards, not by repetition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from controller.tick_values import Observations
from tests.controller.builders import SWITCHBOARD_THERMAL, make_topology
from tests.controller.metered_row import MeteredRow

STEP_WATTS = 250.0


class CoarseRow(MeteredRow):
    """Its meter rounds to whole steps, and stands still from a second on."""

    step_watts: float = STEP_WATTS
    stuck_from: int = 1_000_000

    def observe(self, second: int) -> Observations:
        rounded: list[tuple[int, list[float]]] = []
        for at, watts in self.readings:
            if at >= self.stuck_from and rounded:
                rounded.append((at, rounded[-1][1]))
            else:
                steps = [round(w / self.step_watts) * self.step_watts for w in watts]
                rounded.append((at, steps))
        self.readings = rounded
        return super().observe(second)


def coarse_row(level: Callable[[int], float]) -> CoarseRow:
    topology = make_topology(
        parents=(-1,),
        nodes=(0,) * 6,
        priority=[0, 0, 10, 10] * 6,
        oversubscription=1.25,
        floor_watts=250.0,
        curve=SWITCHBOARD_THERMAL,
    )
    rng = np.random.default_rng(5)
    noise = rng.uniform(-4.0, 4.0, (600, topology.n_gpus))
    plant = CoarseRow(
        topology,
        lambda second: level(second) + noise[second],
        rng,
        metered=(0,),
        meter_noise=0.0,
    )
    rating = float(topology.tree.rating_watts[0])
    assert 0.001 < STEP_WATTS / rating < 0.05
    return plant


def taught(second: int) -> float:
    """A minute of moves shows the step; then the load stands still."""
    return 300.0 + 8.0 * (second % 10) if second < 60 else 340.0


def test_a_steady_load_keeps_a_coarse_meter_and_it_counts_at_its_upper_edge() -> None:
    plant = coarse_row(taught)
    rating = plant.topology.tree.rating_watts[0]
    steady = [
        (d.draw_watts[0] - plant.true_watts()[0]) / rating for t, d in plant.run(160) if t > 90
    ]
    edge = STEP_WATTS / rating
    # Servers tell nothing of their own: by nodes alone they count at what was learned, plus 5 %.
    assert min(steady) > -0.1 * edge
    assert max(steady) < 2.0 * edge


def test_a_coarse_meter_that_is_stuck_is_seen_when_its_boards_have_left_the_step() -> None:
    plant = coarse_row(lambda second: taught(second) if second < 120 else 520.0)
    plant.stuck_from = 100
    rating = plant.topology.tree.rating_watts[0]
    low = [(d.draw_watts[0] - plant.true_watts()[0]) / rating for t, d in plant.run(150) if t > 130]
    assert min(low) > -0.01


@pytest.mark.parametrize("step_watts", [5.0, 4000.0])
def test_a_fine_meter_that_repeats_itself_is_stuck_and_so_is_one_of_huge_steps(
    step_watts: float,
) -> None:
    plant = coarse_row(taught)
    plant.step_watts, plant.stuck_from = step_watts, 100
    last = None
    for second, decisions in plant.run(140):
        if second > 120:
            last = decisions
    assert last is not None
    # Without its meter a row counts 5 % more than its nodes.
    assert last.draw_watts[0] > 1.03 * plant.true_watts()[0]
