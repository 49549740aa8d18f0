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


def written(policy: PublishedRowPolicy, plant: RowPlant, ratios: list[float]) -> dict[int, int]:
    """Highest lock that was written, by second, with one reading a second."""
    seen = {}
    for second, ratio in enumerate(ratios):
        writes = policy.tick(known(plant, second, ratio)).writes
        if writes is not None:
            low = halves(plant.n_gpus) != HIGH
            seen[second] = int(writes.lock_mhz[low].max())
    return seen


def test_a_lock_on_its_way_neither_lifts_a_brake_nor_undoes_its_release() -> None:
    policy, plant = policy_and_plant()
    deep, brake = (round(mhz / 1410 * 1980) for mhz in (1110, 288))
    ratios = [0.81] * 20 + [1.05] + [0.5] * 14 + [0.86] * 60
    assert written(policy, plant, ratios) == {25: brake, 34: deep}
    assert policy.brakes == 1


def test_an_older_lock_still_comes_before_a_newer_one() -> None:
    policy, plant = policy_and_plant()
    base, deep = (round(mhz / 1410 * 1980) for mhz in (1275, 1110))
    assert written(policy, plant, [0.81] * 10 + [0.90] + [0.86] * 45) == {40: base, 50: deep}


def test_one_reading_is_decided_on_once() -> None:
    policy, plant = policy_and_plant()
    first = known(plant, 0, 0.90)
    policy.tick(first)
    locks = []
    for second in range(1, 120):
        at_ns = START_NS + second * NS_PER_SECOND
        writes = policy.tick(Known(at_ns, first.meter_watts, first.meter_time_ns)).writes
        if writes is not None:
            locks.append((second, int(writes.lock_mhz[halves(plant.n_gpus) == HIGH].max())))
    assert locks == [(40, 0)]


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
