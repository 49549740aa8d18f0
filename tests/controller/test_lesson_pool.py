"""A meter teaches while boards swing, too: by the mean of half a minute."""

from __future__ import annotations

import numpy as np
import pytest

from controller.lesson_pool import LessonPool, no_readings_yet, pooled
from tests.controller.builders import make_topology
from tests.controller.metered_row import MeteredRow


def pool_of(values: list[float], steady: list[bool], seconds: float = 1.0) -> tuple[float, int]:
    """The first mean that teaches, NaN without, and its weight."""
    pool: LessonPool = no_readings_yet(1)
    for watts, still in zip(values, steady, strict=True):
        pool, mean, weight = pooled(
            pool, np.array([True]), np.array([still]), np.array([watts]), seconds
        )
        if weight[0]:
            return float(mean[0]), int(weight[0])
    return float("nan"), 0


def test_what_one_reading_saw_too_early_another_saw_too_late() -> None:
    mean, weight = pool_of([500.0 + 300.0 * (-1.0) ** i for i in range(40)], [False] * 40)
    assert mean == pytest.approx(500.0, abs=15.0)
    assert 25 <= weight <= 35


def test_readings_of_a_row_that_mostly_stands_teach_one_by_one() -> None:
    """A few that moved are perhaps all of rises, and their mean is wrong."""
    assert pool_of([500.0] * 100, [i % 3 > 0 for i in range(100)])[1] == 0


def test_few_readings_are_no_mean() -> None:
    assert pool_of([500.0] * 40, [False] * 40, seconds=5.0)[1] == 0


def test_a_training_row_is_known_when_its_meter_is_lost() -> None:
    """Its servers were known as at rest, ten minutes long: 0.4 of its draw was missing."""
    topology = make_topology(
        parents=(-1,), nodes=(0,) * 8, gpus_per_node=4, ratings=[60_000.0], node_worst_watts=2000.0
    )

    def swing(second: int) -> np.ndarray:
        return np.full(32, 150.0 if second < 60 else 690.0 if second % 4 < 2 else 350.0)

    row = MeteredRow(
        topology,
        swing,
        np.random.default_rng(3),
        metered=(0,),
        meters_until=400,
        hosts_at=lambda second, boards: np.full(8, 400.0 if second < 60 else 1900.0),
    )
    shares = [float(d.draw_watts[0]) / row.true_watts()[0] for _, d in row.run(500)]
    assert row.state.meters.host_share[0] == pytest.approx(0.95, abs=0.02)
    assert min(shares[412:]) > 1.0
    assert max(shares[412:]) < 1.09
