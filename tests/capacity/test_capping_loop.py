"""Overshoot, dip and beat of boards that follow their limits."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capacity.fitting.board_steps import LABEL_DELAY_SECONDS, RECORDING, read_steps
from capacity.fitting.capping_loop_fit import fit_loop, work_watts
from capacity.model.capping_loop import RECORDED_LOOP, CappingLoop, capping_loop
from wattpack.errors import InputError
from wattpack.power.domain_tree import OVERSHOOT_RATIO

LIMIT = 700.0
watts = st.floats(60.0, 1100.0)


def one(value: float) -> np.ndarray:
    return np.array([value])


def played(demand: np.ndarray, tick_seconds: float, before: float = 120.0) -> np.ndarray:
    """One board's draws, shape (n_ticks,)."""
    state = RECORDED_LOOP.settled(one(before), LIMIT, tick_seconds)
    return RECORDED_LOOP.play(state, demand[:, np.newaxis], LIMIT)[1][:, 0]


def test_the_shipped_constants_are_what_the_recording_gives() -> None:
    fitted = fit_loop(read_steps())
    assert fitted.ceiling_share == pytest.approx(RECORDED_LOOP.ceiling_share, abs=0.002)
    assert fitted.threshold_share == pytest.approx(RECORDED_LOOP.threshold_share, abs=0.004)
    assert fitted.gain == pytest.approx(RECORDED_LOOP.gain, rel=0.1)
    assert fitted.window_seconds == pytest.approx(RECORDED_LOOP.window_seconds, abs=0.021)
    assert fitted.delay_seconds == pytest.approx(RECORDED_LOOP.delay_seconds, abs=0.021)
    assert fitted.reaction_seconds == pytest.approx(RECORDED_LOOP.reaction_seconds, abs=0.002)


def test_a_step_of_heavy_work_peaks_overshoots_dips_and_beats_once_a_window() -> None:
    draws = played(np.full(40, 940.0), 0.1) / LIMIT
    assert 1.1 < draws[0] < 1.3
    assert draws[2:8] == pytest.approx(np.full(6, 1.028), abs=0.005)
    assert 0.75 < draws[8:11].min() < 0.9
    first, second = 8 + draws[8:12].argmin(), 15 + draws[15:22].argmin()
    assert 8 <= second - first <= 10
    assert draws[first] < draws[second] < 1.0
    assert draws[-10:].mean() == pytest.approx(RECORDED_LOOP.held_share, abs=0.005)


@settings(max_examples=60, deadline=None)
@given(st.lists(watts, min_size=1, max_size=30), watts)
def test_no_board_draws_more_than_its_work_asks_for_or_less_than_nothing(
    demand: list[float], before: float
) -> None:
    draws = played(np.array(demand), 0.1, before)
    assert (draws > 0).all()
    assert (draws <= np.array(demand) + 1e-6).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(60.0, 680.0), min_size=1, max_size=20))
def test_work_below_the_threshold_draws_what_it_asks_for(demand: list[float]) -> None:
    asked = np.array(demand)
    assert played(asked, 0.05, before=100.0) == pytest.approx(asked, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(watts, watts, st.floats(200.0, 760.0), st.floats(0.005, 0.1))
def test_the_fast_loop_is_integrated_as_small_steps_would(
    demand: float, felt: float, allowed: float, seconds: float
) -> None:
    loop = CappingLoop(allowed / LIMIT, 9.0, 1.0, 1.0, 0.0, RECORDED_LOOP.reaction_seconds)
    state = loop.settled(one(felt), LIMIT, seconds)
    _, drawn = loop.step(state, one(demand), LIMIT)
    slow, spent, n = felt, 0.0, 4000
    for _ in range(n):
        slow += (demand - slow) * seconds / n / loop.reaction_seconds
        spent += demand * min(1.0, allowed / slow) / n
    assert float(drawn[0]) == pytest.approx(spent, rel=2e-3)


@pytest.mark.parametrize("tick", [0.01, 0.02, 0.05])
def test_ticks_of_any_length_tell_the_same_story(tick: float) -> None:
    asked = np.repeat([940.0, 120.0, 600.0, 940.0], 15)
    coarse = played(asked, 0.1)
    each = round(0.1 / tick)
    fine = played(np.repeat(asked, each), tick).reshape(-1, each).mean(axis=1)
    assert np.abs(fine - coarse).mean() < 0.01 * LIMIT
    assert fine.mean() == pytest.approx(coarse.mean(), rel=0.005)


@pytest.mark.parametrize("gpu_type", ["H200-SXM", "H100-SXM"])
def test_over_any_second_the_factor_that_domains_count_holds(gpu_type: str) -> None:
    """Square waves of all lengths at once, one board each, up to 1.4 times the limit."""
    loop, tick, grid = capping_loop(gpu_type), 0.02, np.arange(0.1, 1.6, 0.1)
    on, off, share = (axis.ravel() for axis in np.meshgrid(grid, grid, [1.1, 1.25, 1.4]))
    seconds = tick * np.arange(500)[:, np.newaxis]
    asked = np.where((seconds % (on + off)) < on, share * LIMIT, 0.17 * LIMIT)
    _, drawn = loop.play(loop.settled(asked[-1], LIMIT, tick), asked, LIMIT)
    spent = np.cumsum(drawn, axis=0) * tick
    over_a_second = spent[50:] - spent[:-50]
    assert over_a_second.max() > LIMIT, "the loads do reach the limit"
    assert over_a_second.max() <= OVERSHOOT_RATIO * LIMIT


def test_boards_that_step_together_beat_together_and_each_follows_its_own_constants() -> None:
    ceilings = np.array([1.02, 1.05, 1.10, 1.10])
    limits = np.array([700.0, 700.0, 700.0, 400.0])
    many = CappingLoop(ceilings, 0.978, 4.5, 0.86, 0.04, 0.035)
    demand = np.full((30, 4), 940.0)
    _, draws = many.play(many.settled(np.full(4, 120.0), limits), demand, limits)
    assert np.ptp(draws[8:12].argmin(axis=0)) <= 1  # a higher ceiling fills the window sooner
    assert (draws[:, 2] != draws[:, 3]).any()
    for board in range(4):
        alone = CappingLoop(float(ceilings[board]), 0.978, 4.5, 0.86, 0.04, 0.035)
        state = alone.settled(one(120.0), float(limits[board]))
        _, own = alone.play(state, demand[:, :1], float(limits[board]))
        assert own[:, 0] == pytest.approx(draws[:, board], rel=1e-12)


def test_steady_heavy_work_stays_where_it_settled_and_no_step_changes_the_state_before() -> None:
    state = RECORDED_LOOP.settled(one(940.0), LIMIT)
    before = state.recent_watts.copy()
    _, draws = RECORDED_LOOP.play(state, np.full((50, 1), 940.0), LIMIT)
    assert draws == pytest.approx(np.full((50, 1), RECORDED_LOOP.held_share * LIMIT), rel=1e-6)
    assert (state.recent_watts == before).all()


def test_boards_of_a_type_differ_by_seed_alone_and_read_within_five_percent() -> None:
    loop, gains = capping_loop("H100-SXM").boards(500, np.random.default_rng(3))
    again, same = capping_loop("H100-SXM").boards(500, np.random.default_rng(3))
    assert (gains == same).all()
    assert (loop.ceiling_share == again.ceiling_share).all()
    assert 0.95 <= gains.min() < 0.97 < 1.03 < gains.max() <= 1.05
    assert np.mean(loop.ceiling_share) == pytest.approx(1.10, abs=0.005)


def test_a_type_that_was_never_recorded_has_the_recorded_loop() -> None:
    assert capping_loop("B200-SXM") == RECORDED_LOOP
    assert capping_loop("H200-SXM") == RECORDED_LOOP


@pytest.mark.parametrize("tick", [0.0, -0.1, 0.2, float("nan")])
def test_a_tick_that_would_step_over_the_dip_is_refused(tick: float) -> None:
    with pytest.raises(InputError, match="tick_seconds"):
        RECORDED_LOOP.settled(one(940.0), LIMIT, tick)


def test_labels_come_before_the_draw_by_what_the_starts_just_before_a_tick_say() -> None:
    steps, watts_of = read_steps(), work_watts(read_steps())
    delays = []
    for (at, work), (_, was) in zip(steps.changes[1:], steps.changes, strict=False):
        tick = int(np.searchsorted(steps.ends, at))
        row = at - LABEL_DELAY_SECONDS
        left = steps.ends[tick] - row
        if work == "product" and left < 0.045 and at < 78.0:
            joules = (steps.draws[tick] - watts_of[was]) * 0.1
            delays.append(left - joules / (watts_of["product"] - watts_of[was]))
    assert len(delays) >= 8
    assert np.median(delays) == pytest.approx(LABEL_DELAY_SECONDS, abs=0.002)


def test_a_recording_whose_counter_missed_a_tick_is_refused(tmp_path: Path) -> None:
    lines = gzip.decompress(RECORDING.read_bytes()).decode().splitlines(keepends=True)
    kept = [lines[0], *(line for line in lines[1:] if not 5.0 < float(line.split(",")[0]) < 5.4)]
    file = tmp_path / "cut.csv"
    file.write_text("".join(kept), "utf-8")
    with pytest.raises(InputError, match="energy_mj"):
        read_steps(file)


@pytest.mark.parametrize(
    ("demand", "limit", "field"),
    [(-1.0, 700.0, "demand_watts"), (float("nan"), 700.0, "demand_watts"),
     (900.0, 0.0, "limit_watts"), (900.0, float("nan"), "limit_watts")],
)  # fmt: skip
def test_watts_that_cannot_be_are_refused(demand: float, limit: float, field: str) -> None:
    with pytest.raises(InputError, match=field):
        RECORDED_LOOP.settled(one(demand), limit)


def test_no_demand_draws_nothing_and_a_step_from_there_is_a_step() -> None:
    draws = played(np.array([0.0] * 20 + [940.0] * 5), 0.1, before=940.0)
    assert draws[1:20] == pytest.approx(np.zeros(19))
    assert draws[20] > 1.1 * LIMIT
