"""POLCA on a row: locks come late, the brake sooner, and earlier commands do not lift it."""

from __future__ import annotations

import numpy as np

from simulation.row_control.published_row_policy import PublishedRowPolicy
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.row_policy import Known
from simulation.row_control.run import START_NS, RowRun, RowSetup
from simulation.row_control.work import HIGH, LevelWork
from tests.simulation.row_control.rows import halves, small_row
from wattpack.units import NS_PER_SECOND


def policy_and_plant() -> tuple[PublishedRowPolicy, RowPlant]:
    plant = RowPlant(small_row(), START_NS)
    return PublishedRowPolicy("polca", plant, halves(plant.n_gpus)), plant


def known(plant: RowPlant, seconds: float, ratio: float) -> Known:
    watts = plant.breakers.rating_watts * ratio
    at_ns = START_NS + round(seconds * NS_PER_SECOND)
    return Known(at_ns, watts, np.full(len(watts), at_ns))


def test_low_priority_is_locked_forty_seconds_after_the_first_threshold() -> None:
    policy, plant = policy_and_plant()
    locked = {}
    for second in range(60):
        writes = policy.tick(known(plant, second, 0.85)).writes
        if writes is not None:
            locked[second] = writes.lock_mhz
    assert list(locked) == [40]
    high = halves(plant.n_gpus) == HIGH
    assert (locked[40][high] == 0).all()
    assert (locked[40][~high] == round(1275 / 1410 * 1980)).all()


def test_the_brake_comes_after_five_seconds_and_an_earlier_lock_does_not_lift_it() -> None:
    policy, plant = policy_and_plant()
    seen = {}
    for second in range(80):
        ratio = 0.85 if second < 30 else 1.05
        writes = policy.tick(known(plant, second, ratio)).writes
        if writes is not None:
            seen[second] = int(writes.lock_mhz.max())
    assert policy.brakes == 1
    assert seen == {35: round(288 / 1410 * 1980)}


def test_a_reading_that_does_not_come_changes_nothing() -> None:
    policy, _ = policy_and_plant()
    silent = Known(START_NS, np.full(3, np.nan), np.full(3, -1))
    assert policy.tick(silent).writes is None


def test_a_row_under_polca_brakes_when_everything_steps_up() -> None:
    scenario = small_row()
    plant = RowPlant(scenario, START_NS)
    work = LevelWork(halves(plant.n_gpus), [(0.0, 300.0), (30.0, 690.0)])
    run = RowRun(
        RowSetup(scenario),
        work,
        lambda _: PublishedRowPolicy("polca", plant, halves(plant.n_gpus)),
    )
    result = run.run(41.0)
    assert result.brakes == 1
    assert result.trips == 0
    assert result.load_ratio[-1, 0] < 0.8
