from __future__ import annotations

import pytest

from simulation.phase_plant import GAP_WATTS, Load, PlayedPhase, play
from wattpack.errors import InputError

HOT = Load(1e12, 1e9, 1000)
STREAM = Load(0, 4e9, 1000)


def phase(**changes: object) -> PlayedPhase:
    values: dict[str, object] = {
        "loads": [HOT], "repeats": 1, "cycles": 0.0, "outside_seconds": 0.0, "hidden": 0.0,
        "wait_seconds": 0.0,
    }  # fmt: skip
    return PlayedPhase(**(values | changes))  # type: ignore[arg-type]


def test_a_board_holds_its_limit_and_hot_work_takes_longer() -> None:
    free, held = play([phase()], 2000.0), play([phase()], 600.0)
    assert free.mean_watts > 800
    assert held.mean_watts == pytest.approx(600, rel=0.01)
    assert held.period_seconds > 1.1 * free.period_seconds


def test_bytes_do_not_wait_for_the_clock() -> None:
    free, held = (play([phase(loads=[STREAM])], watts) for watts in (700.0, 450.0))
    assert held.period_seconds == free.period_seconds


def test_a_wait_draws_what_stands_between_kernels() -> None:
    trace = play([phase(loads=[], wait_seconds=1.0)], 700.0)
    assert trace.mean_watts == pytest.approx(GAP_WATTS)
    assert trace.period_seconds == pytest.approx(1.0)


def test_hidden_traffic_takes_no_time_until_it_is_the_longer_part() -> None:
    alone = play([phase()], 2000.0).period_seconds
    for outside in (0.3 * alone, 0.9 * alone, 3 * alone):
        hidden = play([phase(outside_seconds=outside, hidden=1.0)], 2000.0).period_seconds
        shown = play([phase(outside_seconds=outside)], 2000.0).period_seconds
        assert hidden == pytest.approx(max(alone, outside), rel=0.02)
        assert shown == pytest.approx(alone + outside, rel=0.02)


def test_a_square_wave_is_seen_with_its_depth() -> None:
    trace = play([phase(loads=[STREAM]), phase(loads=[], wait_seconds=0.5)], 700.0)
    seen = trace.sensed()
    assert seen.max() - seen.min() == pytest.approx(seen.max() - GAP_WATTS, rel=0.01)


@pytest.mark.parametrize("limit_watts", [0.0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_refused(limit_watts: float) -> None:
    with pytest.raises(InputError, match="limit_watts"):
        play([phase()], limit_watts)


def test_nothing_to_play_is_refused() -> None:
    with pytest.raises(InputError, match="phases"):
        play([], 700.0)
