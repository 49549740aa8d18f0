"""The oracle on a small row: fills it, never goes over, and is not beaten by a policy."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.row_control.faults import RowFault, RowFaultKind, RowFaults
from simulation.row_control.random_row import RandomRow
from simulation.row_control.random_work import RandomWorkSettings
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.row_policy import StaticCaps, Uncapped
from simulation.row_control.run import START_NS, RowRun, RowSetup
from simulation.row_control.work import HIGH, LOW
from tests.simulation.row_control.rows import small_row

BUSY = RandomWorkSettings(serving_level_lowest=0.95, serving_level_highest=0.95)
FANS = 0.0005
"""What fans gain in one step, over the row's rating: the oracle counts what they drew before."""


def test_a_busy_row_is_filled_to_its_limit_and_low_priority_pays() -> None:
    plant = RowPlant(small_row(), START_NS)
    everything = BUSY.model_copy(update={"everything_steps_at_seconds": 0.0, "idle_share": 0.0})
    row = RandomRow(plant, 1, everything)
    result = row.oracle(np.full(plant.n_gpus, 350.0)).run(60.0, 0.25)
    assert result.load_ratio[8:, 0].max() < 1.0 + FANS
    assert result.load_ratio[8:, 0].mean() > 0.98
    work = row.work()
    share = result.work_between(0.0, 60.0) / (60.0 * np.bincount(work.priority, minlength=2))
    # Every board wants 1.05 of its limit, which nobody gets.
    assert 0.95 < share[HIGH] < 1.0
    assert 0.6 < share[LOW] < share[HIGH] - 0.03


def test_nobody_who_stays_within_the_rating_gets_more_done() -> None:
    plant = RowPlant(small_row(), START_NS)
    for seed in (1, 2):
        row = RandomRow(plant, seed, BUSY)
        bound = row.oracle(np.full(plant.n_gpus, 200.0)).run(90.0, 0.25).work_between(0.0, 90.0)
        for watts in (450.0, 500.0, 550.0):
            caps = StaticCaps(np.full(plant.n_gpus, watts))
            result = RowRun(RowSetup(small_row()), row.work(), lambda _, caps=caps: caps).run(90.0)
            if result.above_seconds.max() == 0.0:
                assert result.done[-1].sum() < bound.sum()


def test_where_all_have_room_the_oracle_is_the_uncapped_row() -> None:
    plant = RowPlant(small_row(), START_NS)
    quiet = RandomWorkSettings(serving_level_lowest=0.3, serving_level_highest=0.3)
    row = RandomRow(plant, 3, quiet)
    bound = row.oracle(np.full(plant.n_gpus, 410.0)).run(30.0, 0.25)
    policy = Uncapped(plant.bank.default_limit_watts)
    result = RowRun(RowSetup(small_row()), row.work(), lambda _: policy).run(30.0)
    assert result.done[-1] == pytest.approx(bound.done[-1], rel=0.005)
    assert result.load_ratio[:, 0].mean() == pytest.approx(bound.load_ratio[:, 0].mean(), abs=0.01)


def test_the_declared_worst_of_servers_leaves_less_for_work() -> None:
    plant = RowPlant(small_row(), START_NS)
    row = RandomRow(plant, 1, BUSY)
    floors = np.full(plant.n_gpus, 200.0)
    worst = row.oracle(floors, declared_worst=True).run(30.0, 0.25)
    assert worst.load_ratio.max() < 0.95
    assert worst.done[-1].sum() < row.oracle(floors).run(30.0, 0.25).done[-1].sum()


def test_an_oracle_that_keeps_its_reserve_does_what_the_required_feeds_allow() -> None:
    one = small_row()
    two = one.model_copy(update={"row": one.row.model_copy(update={"redundancy": "2N"})})
    row, pair = (RandomRow(RowPlant(scenario, START_NS), 1, BUSY) for scenario in (one, two))
    floors = np.full(RowPlant(one, START_NS).n_gpus, 200.0)
    single = row.oracle(floors).run(30.0, 0.25)
    kept = pair.oracle(floors, keeps_reserve=True).run(30.0, 0.25)
    np.testing.assert_array_equal(kept.done, single.done)
    np.testing.assert_allclose(kept.load_ratio, single.load_ratio)
    assert pair.oracle(floors).run(30.0, 0.25).done[-1].sum() > kept.done[-1].sum()


def test_dark_servers_draw_and_do_nothing_and_a_step_of_everything_is_borne() -> None:
    plant = RowPlant(small_row(), START_NS)
    row = RandomRow(plant, 1, BUSY)
    first = np.arange(plant.n_nodes) == 0
    everyone = np.ones(plant.n_gpus, dtype=np.bool_)
    faults = RowFaults(
        [
            RowFault(RowFaultKind.NODE_REBOOT, 10.0, 20.0, first),
            RowFault(RowFaultKind.ALL_TO_FULL, 30.0, 40.0, everyone),
        ]
    )
    floors = np.full(plant.n_gpus, 200.0)
    result = row.oracle(floors, faults).run(40.0, 0.25)
    calm = row.oracle(floors).run(40.0, 0.25)
    lost = calm.work_between(10.0, 20.0).sum() - result.work_between(10.0, 20.0).sum()
    assert lost > 0.0
    assert result.load_ratio[8:, 0].max() < 1.0 + FANS
    assert result.load_ratio[-20:, 0].min() > 0.98
