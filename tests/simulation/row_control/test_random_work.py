"""Random work: what it wants, how it slows, and that it comes out the same whoever holds it."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.profile_library import shipped_library
from simulation.plant import ROW, ServerRow, rack_of_nodes
from simulation.row_boards import interleaved
from simulation.row_control.random_work import RandomWork, RandomWorkSettings
from simulation.row_control.share_curves import ShareCurves, share_grid
from simulation.row_control.work import Held
from simulation.row_control.work_layout import WorkKind, WorkShape
from simulation.scenario import load_scenario
from wattpack.compiled import AVAILABLE

STEP_SECONDS = 0.25
SCENARIO = load_scenario()
TYPES = sorted({group.gpu_model for group in SCENARIO.row.groups})
PROFILES = [shipped_library().find(name) for name in TYPES]
CURVES = ShareCurves.of(PROFILES)
NODE_OF_GPU = np.repeat(np.arange(SCENARIO.row.servers), SCENARIO.row.gpus_per_server)
SHAPE = WorkShape.of(
    PROFILES,
    interleaved([TYPES.index(g.gpu_model) for g in SCENARIO.row.groups for _ in range(g.count)]),
    rack_of_nodes(SCENARIO),
    NODE_OF_GPU,
    SCENARIO.plant.decode_clock_knee_ratio,
)
N = SHAPE.n_gpus


def held(share: float = 1.0, clock: float = 1.0) -> Held:
    return Held(np.full(N, share), np.full(N, clock), np.ones(N, dtype=np.bool_))


def played(work: RandomWork, how: Held, seconds: float) -> np.ndarray:
    steps = range(round(seconds / STEP_SECONDS))
    return np.array([work.step(i * STEP_SECONDS, STEP_SECONDS, how) for i in steps])


def test_a_row_of_52_on_40_exceeds_its_rating_uncapped_in_about_half_of_the_runs() -> None:
    highest = []
    for seed in range(16):
        work, row = RandomWork(SHAPE, CURVES, seed), None
        row = ServerRow(SCENARIO, NODE_OF_GPU, np.random.default_rng(seed))
        seconds = [row.advance(work.step(float(i), 1.0, held()), 1.0)[ROW] for i in range(600)][60:]
        highest.append(max(seconds) / SCENARIO.row_rating_watts)
    assert 0.35 <= np.mean(np.array(highest) > 1.0) <= 0.65
    assert min(highest) < 0.97
    assert max(highest) < 1.10


def test_the_same_seed_wants_the_same_however_boards_are_held() -> None:
    free, capped = (RandomWork(SHAPE, CURVES, 5) for _ in range(2))
    serving = free.layout.kind[free.layout.unit_of_gpu] != WorkKind.TRAINING
    wanted = played(free, held(), 80.0)[:, serving]
    assert (wanted == played(capped, held(0.7), 80.0)[:, serving]).all()
    assert (wanted != played(RandomWork(SHAPE, CURVES, 6), held(), 80.0)[:, : serving.sum()]).any()


def test_work_is_one_second_a_second_until_watts_are_taken_away() -> None:
    work = RandomWork(SHAPE, CURVES, 3)
    played(work, held(), 20.0)
    idle = work.layout.kind[work.layout.unit_of_gpu] == WorkKind.IDLE
    assert idle.any()
    assert work.done()[~idle] == pytest.approx(20.0)
    assert (work.done()[idle] == 0.0).all()
    capped = RandomWork(SHAPE, CURVES, 3)
    played(capped, held(0.8), 20.0)
    assert (capped.done()[~idle] < 19.9).all()
    assert (capped.done()[~idle] > 0.8 * 20.0).all()


def test_a_unit_moves_with_its_slowest_board_and_stands_with_a_dead_one() -> None:
    work = RandomWork(SHAPE, CURVES, 4)
    units = work.layout.unit_of_gpu
    trains = np.flatnonzero(work.layout.kind == WorkKind.TRAINING)
    slow, dead = (np.flatnonzero(units == unit) for unit in trains[:2])
    how = held()
    how.drawn_share[slow[0]] = 0.6
    how.alive[dead[0]] = False
    played(work, how, 10.0)
    done = work.done()
    assert (done[dead] == 0.0).all()
    assert len(set(done[slow])) == 1
    assert 4.0 < done[slow[0]] < 9.0


def test_gangs_lie_in_one_rack_on_one_type_and_dip_together() -> None:
    work = RandomWork(SHAPE, CURVES, 2)
    assert set(np.unique(work.gang)) == set(range(-1, work.gang.max() + 1))
    gang = np.flatnonzero(work.gang == 0)
    nodes = np.unique(NODE_OF_GPU[gang])
    assert len(set(SHAPE.rack_of_node[nodes])) == len(set(SHAPE.type_of_node[nodes])) == 1
    wanted = played(work, held(), 60.0)[:, gang]
    low = wanted.min() / wanted.max()
    assert 0.45 < low < 0.65
    dipped = (wanted < 0.8 * wanted.max(axis=0)).mean()
    assert dipped == pytest.approx(0.15, abs=0.05)
    assert np.corrcoef(wanted[:, 0], wanted[:, -1])[0, 1] > 0.95


def test_locked_clocks_slow_decode_less_than_training() -> None:
    settings = RandomWorkSettings(serving_level_lowest=0.2, serving_level_highest=0.2)
    work = RandomWork(SHAPE, CURVES, 1, settings)
    played(work, held(clock=0.6), 30.0)
    kind = work.layout.kind[work.layout.unit_of_gpu]
    assert work.done()[kind == WorkKind.TRAINING] == pytest.approx(18.0)
    assert (work.done()[kind == WorkKind.SERVING] > 27.0).all()


def test_a_step_of_everything_asks_more_than_every_limit() -> None:
    work = RandomWork(SHAPE, CURVES, 1, RandomWorkSettings(everything_steps_at_seconds=3.0))
    wanted = played(work, held(), 4.0)
    assert (wanted[-4:] > SHAPE.default_limit_watts).all()
    assert (wanted[:-5] <= SHAPE.default_limit_watts * 1.03).all()


def test_steady_work_stays_within_its_noise() -> None:
    calm = RandomWorkSettings(
        drift_ratio=0, swing_ratio=0, replica_ratio=0, training_share=0, batch_jump_seconds=1e9
    )
    wanted = played(RandomWork(SHAPE, CURVES, 1, calm), held(), 120.0)
    assert np.abs(wanted / wanted.mean(axis=0) - 1.0).max() < 0.035
    assert (wanted.std(axis=0) / wanted.mean(axis=0)).mean() < 0.0101


def test_curves_start_at_nothing_end_at_all_and_never_fall() -> None:
    assert (CURVES.speed[:, 0] == 0.0).all()
    assert CURVES.speed[:, -1] == pytest.approx(1.0)
    assert (np.diff(CURVES.speed) >= -1e-12).all()


def test_a_hull_is_concave_lies_above_and_close_where_caps_are() -> None:
    hull = CURVES.hulled().speed
    assert (np.diff(hull, 2) <= 1e-12).all()
    assert (hull >= CURVES.speed - 1e-12).all()
    assert (hull - CURVES.speed)[:, share_grid() >= 0.6].max() < 0.03


@pytest.mark.skipif(not AVAILABLE, reason="numba is not there")
@pytest.mark.parametrize("settings", [RandomWorkSettings(), RandomWorkSettings(dip_ratio=0.2)])
def test_a_compiled_step_is_the_step(settings: RandomWorkSettings) -> None:
    plain, compiled = (RandomWork(SHAPE, CURVES, 9, settings) for _ in range(2))
    generator, seconds, locked = np.random.default_rng(1), 0.0, 0
    for step in range(3000):
        some = generator.random(N) < generator.choice([0.0, 0.02, 0.5])
        how = Held(
            np.where(generator.random(N) < 0.7, generator.uniform(0.0, 1.0, N), 1.0),
            np.where(some, generator.uniform(0.3, 1.0, N), 1.0),
            generator.random(N) < (0.99 if step % 3 else 1.0),
        )
        length = float(generator.choice([0.25, 0.25, 1.0]))
        plain.step_in_numpy(seconds, length, how)
        wanted = compiled.step(seconds, length, how)
        np.testing.assert_array_equal(wanted, plain._wanted)
        np.testing.assert_array_equal(compiled.done(), plain.done())
        np.testing.assert_array_equal(compiled.worth().mix, plain.worth().mix)
        seconds, locked = seconds + length, locked + int(some.any())
    assert 0 < locked < 3000
