"""Boards whose sensors look for 25 ms of each 100: what they show, and what nobody sees."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.simulated import BoardBank
from gpu.simulated.board_spec import PowerSensor
from tests.gpu.test_simulated_boards import MS, spec

LOW, HIGH = 200.0, 600.0


def sampled(n: int = 1, sensor: PowerSensor = PowerSensor.SAMPLED) -> BoardBank:
    boards = BoardBank([spec(i, sensor=sensor) for i in range(n)])
    boards.sensor_gain = np.ones(n)
    return boards


def advance(boards: BoardBank, demand: float, ms: int) -> None:
    boards.advance(np.full(len(boards), demand), boards.now_ns + ms * MS)


def test_a_reading_is_the_last_quarter_of_a_tenth_of_a_second_and_stands_until_the_next() -> None:
    boards = sampled()  # the first board's samples end at whole tenths
    shown = []
    for ms in range(0, 400, 5):
        # 600 W in the 25 ms that end at 100, 200, 300 ms; else 200.
        advance(boards, HIGH if ms % 100 >= 75 else LOW, 5)
        shown.append(float(boards.sensed_draw_watts()[0]))
    at = np.arange(5, 405, 5)
    assert np.array(shown)[at >= 100] == pytest.approx(HIGH)
    assert boards.counter_joules() == pytest.approx(0.4 * (0.75 * LOW + 0.25 * HIGH))


def test_a_burst_between_two_samples_is_in_the_counter_alone() -> None:
    boards = sampled()
    for ms in range(0, 1000, 5):
        advance(boards, HIGH if 410 <= ms < 460 else LOW, 5)
        if ms >= 100:
            assert boards.sensed_draw_watts() == pytest.approx(LOW)
    assert boards.counter_joules() == pytest.approx(LOW + 0.05 * (HIGH - LOW))


def beat_readings(period_ms: int, count: int) -> tuple[np.ndarray, float]:
    """Readings of four boards under one beat of a second, taken so often; the beat's true mean."""
    boards = sampled(4)
    readings, now = [], 0
    for ms in range(0, count * period_ms + 1000, 10):
        advance(boards, HIGH if ms % 1000 < 300 else LOW, 10)
        now += 10
        if now >= 1000 and now % period_ms == 0:
            readings.append(boards.sensed_draw_watts().copy())
    return np.array(readings), LOW + 0.3 * (HIGH - LOW)


def test_a_beat_of_a_second_read_once_a_second_is_seen_at_one_phase() -> None:
    readings, mean = beat_readings(1000, 20)
    # Neighbours in phase with one another are wrong together, and for good.
    assert np.ptp(readings, axis=0) == pytest.approx(0.0, abs=1e-6)
    assert (np.abs(readings.mean(axis=0) - mean) > 100.0).all()


def test_read_out_of_step_the_mean_is_right_over_long_times() -> None:
    readings, mean = beat_readings(370, 300)
    assert readings.mean(axis=0) == pytest.approx(mean, rel=0.02)
    assert np.ptp(readings) > 300.0


def test_the_mean_of_all_samples_is_unbiased_under_work_of_its_own_rhythm() -> None:
    boards, rng = sampled(8), np.random.default_rng(5)
    readings = []
    for _ in range(6000):  # ten minutes, each tenth of a second in parts of any length
        parts = np.diff(np.concatenate([[0], np.sort(rng.integers(1, 100, 3)), [100]]))
        for part in parts[parts > 0]:
            advance(boards, float(rng.choice([LOW, HIGH])), int(part))
        readings.append(boards.sensed_draw_watts())
    true = boards.energy_joules / 600.0
    # A sample is 100 to 200 W off, so the mean of 6,000 of a board some 2 W.
    assert np.mean(readings, axis=0) == pytest.approx(true, rel=0.025)
    assert np.mean(readings) == pytest.approx(true.mean(), rel=0.01)


def test_which_field_is_sampled_is_the_board_s_and_moves_no_watt() -> None:
    plain, both, alone = (sampled(3, sensor) for sensor in PowerSensor)
    for ms in range(0, 3000, 60):
        demand = 900.0 if ms % 1000 < 400 else LOW
        for boards in (plain, both, alone):
            advance(boards, demand, 60)
        np.testing.assert_array_equal(plain.drawn_watts, alone.drawn_watts)
        np.testing.assert_array_equal(plain.counted_joules, both.counted_joules)
        np.testing.assert_array_equal(plain.sensed_draw_watts(), both.sensed_draw_watts())
        np.testing.assert_array_equal(alone.sensed_draw_watts(), alone.sensed_instant_draw_watts())
        np.testing.assert_array_equal(
            both.sensed_instant_draw_watts(), alone.sensed_instant_draw_watts()
        )
    reading = alone.device(1).read(alone.now_ns)
    assert reading.draw_watts == reading.instant_draw_watts == alone.sensed_draw_watts()[1]
    # The mean of the last tick is what boards that do not sample go on showing.
    assert plain.sensed_instant_draw_watts() == pytest.approx(plain.drawn_watts)
    assert (alone.sensed_draw_watts() != plain.sensed_draw_watts()).any()
