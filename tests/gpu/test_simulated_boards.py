"""Simulated boards behave as real ones do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.device import GpuInvalidArgument, GpuLost, GpuNoPermission, GpuTimeout
from gpu.simulated import BoardBank, BoardSpec, WriteDelays
from gpu.simulated.late_limits import LateLimits
from tests.examples import examples
from wattpack.errors import InputError
from wattpack.units import GpuUuid, NodeName

MS = 1_000_000
NODE = NodeName("n0")


def spec(i: int = 0, node: str = "n0", **changes: object) -> BoardSpec:
    values: dict[str, object] = {
        "uuid": GpuUuid(f"GPU-{node}-{i}"),
        "model": "NVIDIA H200",
        "node": NodeName(node),
        "index": i,
        "idle_watts": 75.0,
        "default_limit_watts": 700.0,
        "min_limit_watts": 200.0,
        "max_limit_watts": 700.0,
        "max_clock_mhz": 1980,
    }
    return BoardSpec(**(values | changes))  # type: ignore[arg-type]


def bank(n: int = 4, **options: object) -> BoardBank:
    return BoardBank([spec(i) for i in range(n)], **options)  # type: ignore[arg-type]


def run(boards: BoardBank, demand: float, seconds: float, step_ms: int = 100) -> np.ndarray:
    """Advance under a constant demand; the mean watts of the last step."""
    drawn = boards.drawn_watts
    for _ in range(round(seconds * 1000 / step_ms)):
        drawn = boards.advance(np.full(len(boards), demand), boards.now_ns + step_ms * MS)
    return drawn


@examples(25)
@given(
    demands=st.lists(st.floats(0, 1500), min_size=2, max_size=25),
    step_ms=st.integers(10, 2000),
    limit=st.floats(200, 700),
    seed=st.integers(0, 1000),
)
def test_energy_is_the_integral_of_power(
    demands: list[float], step_ms: int, limit: float, seed: int
) -> None:
    boards = bank(3, seed=seed)
    boards.set_limits(np.full(3, limit))
    total = np.zeros(3)
    for demand in demands:
        drawn = boards.advance(np.full(3, demand), boards.now_ns + step_ms * MS)
        total += drawn * step_ms / 1000
        assert (drawn >= boards.idle_watts - 1e-9).all()
    assert boards.energy_joules == pytest.approx(total)
    assert boards.counter_joules() == pytest.approx(total * boards.sensor_gain)


@examples(25)
@given(limit=st.floats(200, 700), demand=st.floats(0, 1500), seed=st.integers(0, 1000))
def test_a_settled_board_draws_no_more_than_its_limit_with_overshoot(
    limit: float, demand: float, seed: int
) -> None:
    boards = bank(8, seed=seed)
    boards.set_limits(np.full(8, limit))
    drawn = run(boards, demand, 5.0)
    knee = boards.knee_watts[0]
    worst = 1.05 if limit >= knee else 1.10
    assert (drawn * boards.sensor_gain <= limit * worst + 1e-6).all()
    assert (drawn <= max(demand, 75.0) + 1e-6).all()


def test_a_new_limit_takes_effect_late() -> None:
    boards = bank()
    run(boards, 690.0, 2.0)
    boards.set_limits(np.full(4, 400.0))
    after_50_ms = run(boards, 690.0, 0.05, step_ms=50)
    after_settling = run(boards, 690.0, 0.6)
    assert (after_50_ms > 500).all()
    assert (after_settling * boards.sensor_gain < 425).all()


def test_a_sudden_load_shoots_over_the_limit_before_it_is_held() -> None:
    boards = bank()
    boards.set_limits(np.full(4, 400.0))
    run(boards, 75.0, 1.0)
    assert (run(boards, 690.0, 0.02, step_ms=20) > 500).all()


def test_limits_below_what_the_silicon_needs_are_not_held() -> None:
    boards = BoardBank([spec(hold_watts=260.0)])
    boards.set_limits(np.array([200.0]))
    assert run(boards, 690.0, 5.0)[0] == pytest.approx(260.0)


def test_a_clock_lock_bounds_power_without_a_limit() -> None:
    boards = bank(2)
    boards.device(0).lock_clocks(990)
    drawn = run(boards, 600.0, 1.0)
    assert drawn[0] < 250
    assert drawn[1] == pytest.approx(600.0)
    boards.device(0).reset_clocks()
    assert run(boards, 600.0, 1.0)[0] == pytest.approx(600.0)


def test_a_clock_model_can_be_passed_in() -> None:
    boards = bank(1, clock_model=lambda clock, top, demand, idle: np.full_like(demand, 123.0))
    boards.device(0).lock_clocks(990)
    assert run(boards, 600.0, 1.0)[0] == pytest.approx(123.0)


def test_the_sensor_averages_over_the_trailing_second_with_its_gain() -> None:
    boards = bank()
    run(boards, 75.0, 2.0)
    run(boards, 575.0, 0.5)
    expected = (75.0 + 575.0) / 2 * boards.sensor_gain
    assert boards.sensed_draw_watts() == pytest.approx(expected)
    assert boards.sensed_instant_draw_watts() == pytest.approx(575.0 * boards.sensor_gain)
    assert (np.abs(boards.sensor_gain - 1) <= 0.05).all()


def test_the_average_interpolates_when_steps_do_not_divide_the_second() -> None:
    boards = bank()
    run(boards, 75.0, 2.1, step_ms=700)
    run(boards, 575.0, 0.7, step_ms=700)
    expected = (0.3 * 75.0 + 0.7 * 575.0) * boards.sensor_gain
    assert boards.sensed_draw_watts() == pytest.approx(expected)


def test_boards_hold_what_they_read_and_so_draw_more_or_less_than_their_limit() -> None:
    boards = bank(8)
    boards.set_limits(np.full(8, 500.0))
    drawn = run(boards, 900.0, 3.0)
    assert (boards.sensed_draw_watts() >= 500.0 - 1e-6).all()
    assert (boards.sensed_draw_watts() <= 500.0 * 1.05 + 1e-6).all()
    assert drawn == pytest.approx(boards.sensed_draw_watts() / boards.sensor_gain)
    assert np.ptp(drawn) > 10.0


def settled_at(limit_watts: float, delays: WriteDelays, n: int = 4) -> BoardBank:
    boards = bank(n, delays=delays)
    boards.set_limits(np.full(n, limit_watts))
    run(boards, 690.0, 5.0)
    return boards


def test_a_lowered_limit_acts_after_its_boards_delay_and_a_raised_one_at_once() -> None:
    boards = settled_at(600.0, WriteDelays(np.array([0.0, 0.3, 1.0, 3.0])))
    before = boards.drawn_watts
    boards.set_limits(np.full(4, 300.0))
    assert (boards.device(2).limits().limit_watts, boards.limit_watts[2]) == (300.0, 300.0)
    acted = {}
    for tenth in range(1, 41):
        boards.advance(np.full(4, 690.0), boards.now_ns + 100 * MS)
        for i in np.flatnonzero(boards.drawn_watts < before - 20.0):
            acted.setdefault(int(i), tenth / 10)
    assert acted == {0: 0.1, 1: 0.4, 2: 1.1, 3: 3.1}
    boards.set_limits(np.full(4, 600.0))
    boards.advance(np.full(4, 690.0), boards.now_ns + 1000 * MS)
    assert (boards.drawn_watts > 400.0).all()


def test_a_limit_that_is_lowered_again_and_again_still_comes_to_act() -> None:
    boards = settled_at(600.0, WriteDelays(1.0))
    for k in range(12):
        boards.set_limits(np.full(4, 580.0 - 20.0 * k))
        run(boards, 690.0, 0.5)
    # What was written a second ago acts by now.
    assert boards.sensed_instant_draw_watts() == pytest.approx(400.0, rel=0.06)


def test_what_is_raised_before_it_acted_never_acts() -> None:
    boards = settled_at(600.0, WriteDelays(1.0))
    before = boards.drawn_watts
    boards.set_limits(np.full(4, 300.0))
    run(boards, 690.0, 0.5)
    boards.set_limits(np.full(4, 600.0))
    for _ in range(20):
        boards.advance(np.full(4, 690.0), boards.now_ns + 100 * MS)
        assert boards.drawn_watts == pytest.approx(before, rel=1e-3)


@examples(50)
@given(
    writes=st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from([300.0, 400.0, 500.0, 600.0])), max_size=12
    ),
    delay_tenths=st.integers(0, 12),
)
def test_the_acting_limit_is_the_highest_that_was_written_within_the_delay(
    writes: list[tuple[int, float]], delay_tenths: int
) -> None:
    limits = np.array([700.0])
    late = LateLimits(limits, np.array([delay_tenths / 10]))
    written = [700.0] * 100  # what stood after each tenth of a second, 50 of them before the first
    at = dict(writes)
    for tenth in range(50):
        now_ns = tenth * 100 * MS
        if tenth in at:
            limits = np.array([at[tenth]])
        written.append(float(limits[0]))
        late.take_in(limits, now_ns)
        late.come_due(now_ns)
        assert late.watts[0] == max(written[len(written) - delay_tenths - 1 :])


def test_a_clock_lock_acts_after_its_own_delay() -> None:
    boards = bank(1, delays=WriteDelays(0.0, 0.05))
    run(boards, 600.0, 1.0)
    boards.device(0).lock_clocks(990)
    assert boards.advance(np.array([600.0]), boards.now_ns + 40 * MS)[0] == pytest.approx(600.0)
    half = boards.advance(np.array([600.0]), boards.now_ns + 20 * MS)[0]
    locked = boards.advance(np.array([600.0]), boards.now_ns + 20 * MS)[0]
    assert locked < 250
    assert half == pytest.approx((600.0 + locked) / 2)


def test_a_lock_and_a_limit_hold_together_each_what_the_other_leaves() -> None:
    free = bank(1, seed=1)
    free.device(0).lock_clocks(1500)
    by_lock = run(free, 690.0, 2.0)[0]
    assert 300.0 < by_lock < 450.0
    for limit, expected in ((500.0, by_lock), (390.0, 390.0 / free.sensor_gain[0])):
        both = bank(1, seed=1)
        both.device(0).lock_clocks(1500)
        both.device(0).set_power_limit(limit)
        assert run(both, 690.0, 2.0)[0] == pytest.approx(expected)
        held = both.drawn_watts + both.shed_watts
        assert held[0] == pytest.approx(by_lock)  # what the work wants at its clock


def test_long_steps_are_divided_and_tell_what_short_ones_tell() -> None:
    generator = np.random.default_rng(1)
    demands = generator.uniform(100.0, 900.0, (30, 4))
    joules = []
    for step_ms in (100, 1000):
        boards = bank(delays=WriteDelays(0.55))
        for second in range(30):
            boards.set_limits(np.full(4, 700.0 - 15.0 * second))
            for _ in range(1000 // step_ms):
                boards.advance(demands[second], boards.now_ns + step_ms * MS)
        joules.append(boards.energy_joules)
    assert joules[0] == pytest.approx(joules[1], rel=1e-9)


@pytest.mark.parametrize("event", ["reload_driver", "reboot"])
def test_limits_locks_and_counters_are_lost_with_the_driver(event: str) -> None:
    boards = BoardBank([spec(0), spec(0, node="n1")])
    for i in (0, 1):
        boards.device(i).set_power_limit(300.0)
        boards.device(i).lock_clocks(1200)
    run(boards, 500.0, 1.0)
    boot = boards.boot_id(NODE)
    getattr(boards, event)(NODE)
    assert boards.limit_watts.tolist() == [700.0, 300.0]
    assert boards.lock_max_mhz.tolist() == [0.0, 1200.0]
    assert boards.counter_joules()[0] == 0.0
    assert boards.counter_joules()[1] > 0.0
    assert (boards.boot_id(NODE) != boot) is (event == "reboot")


def test_a_silent_write_failure_answers_ok_and_changes_nothing() -> None:
    boards = bank()
    boards.silent_writes[1] = True
    device = boards.device(1)
    device.set_power_limit(300.0)
    device.lock_clocks(1000)
    assert device.limits().limit_watts == 700.0
    assert boards.lock_max_mhz[1] == 0


def test_a_board_that_ignores_its_cap_reads_it_back_but_draws_its_demand() -> None:
    boards = bank()
    boards.ignores_cap[2] = True
    boards.set_limits(np.full(4, 300.0))
    drawn = run(boards, 650.0, 2.0)
    assert boards.device(2).limits().enforced_limit_watts == 300.0
    assert drawn[2] == pytest.approx(650.0)
    assert (np.delete(drawn, 2) < 340).all()


def test_hung_and_lost_boards_raise_their_own_errors() -> None:
    boards = bank()
    boards.hung[0] = True
    boards.lost[1] = True
    with pytest.raises(GpuTimeout):
        boards.device(0).read(0)
    with pytest.raises(GpuLost):
        boards.device(1).limits()
    boards.reboot(NODE)
    assert boards.device(0).read(0).draw_watts > 0


@pytest.mark.parametrize("watts", [199.9, 700.1, 300_000.0])
def test_a_limit_outside_the_range_is_refused_and_nothing_changes(watts: float) -> None:
    boards = bank()
    with pytest.raises(GpuInvalidArgument):
        boards.device(0).set_power_limit(watts)
    assert boards.limit_watts[0] == 700.0


@pytest.mark.parametrize("watts", [float("nan"), -1.0, 0.0, True, "300", float("inf")])
def test_a_limit_that_is_no_positive_number_is_refused(watts: object) -> None:
    with pytest.raises(InputError):
        bank().device(0).set_power_limit(watts)  # type: ignore[arg-type]


def test_a_read_only_view_refuses_every_write() -> None:
    device = bank().driver(NODE, writable=False).devices()[0]
    for write in (
        lambda: device.set_power_limit(300.0),
        lambda: device.lock_clocks(1000),
        device.reset_clocks,
    ):
        with pytest.raises(GpuNoPermission):
            write()


def test_the_same_seed_gives_the_same_bits() -> None:
    def trajectory(seed: int) -> bytes:
        boards = bank(16, seed=seed)
        boards.set_limits(np.full(16, 350.0))
        generator = np.random.default_rng(5)
        out = [boards.advance(generator.uniform(0, 900, 16), (k + 1) * 130 * MS) for k in range(50)]
        return b"".join(a.tobytes() for a in [*out, boards.sensed_draw_watts()])

    assert trajectory(3) == trajectory(3)
    assert trajectory(3) != trajectory(4)


@pytest.mark.parametrize(
    ("demand", "now_ns"),
    [
        (np.zeros(3), MS),
        (np.full(4, np.nan), MS),
        (np.full(4, -1.0), MS),
        (np.zeros(4), 0),
    ],
)
def test_a_bad_step_is_refused_and_the_state_kept(demand: np.ndarray, now_ns: int) -> None:
    boards = bank()
    with pytest.raises(InputError):
        boards.advance(demand, now_ns)
    assert boards.now_ns == 0
    assert boards.counter_joules().sum() == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"idle_watts": -1.0},
        {"idle_watts": float("nan")},
        {"min_limit_watts": 0.0},
        {"min_limit_watts": 800.0},
        {"default_limit_watts": 900.0},
        {"max_clock_mhz": 0},
    ],
)
def test_an_impossible_board_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(InputError):
        spec(**changes)


def test_uuids_are_unique_in_a_bank() -> None:
    with pytest.raises(InputError):
        BoardBank([spec(0), spec(0)])


def test_a_driver_lists_its_node_by_index_and_unknown_nodes_are_refused() -> None:
    boards = BoardBank([spec(1), spec(0), spec(0, node="n1")])
    assert [d.identity.index for d in boards.driver(NODE).devices()] == [0, 1]
    with pytest.raises(InputError):
        boards.driver(NodeName("elsewhere"))
