"""POLCA's table and its baselines, row by row."""

from __future__ import annotations

import pytest

from simulation.inference_row.published_policies import (
    BRAKE_MHZ,
    Clocks,
    ThresholdPolicy,
)
from wattpack.errors import InputError

FREE, BASE, DEEP = Clocks(0, 0), Clocks(1275, 0), Clocks(1110, 0)
BOTH = Clocks(1110, 1305)


def after(policy: ThresholdPolicy, *readings: float, every_seconds: float = 2.0) -> Clocks:
    for i, ratio in enumerate(readings):
        policy.decide(every_seconds * i, ratio)
    return policy.clocks


@pytest.mark.parametrize(
    ("readings", "clocks"),
    [
        ((0.79,), FREE),
        ((0.81,), BASE),
        ((0.81, 0.76), BASE),
        ((0.81, 0.74), FREE),
        ((0.90,), DEEP),
        ((0.90, 0.85), DEEP),
        ((0.90, 0.83), BASE),
        ((0.90, 0.74), FREE),
        ((0.90, *[0.90] * 20), DEEP),
        ((0.90, *[0.90] * 21), BOTH),
        ((0.90, *[0.90] * 21, 0.85), BOTH),
        ((0.90, *[0.90] * 21, 0.83), BASE),
        ((0.90, *[0.88] * 40), DEEP),
    ],
)
def test_two_thresholds(readings: tuple[float, ...], clocks: Clocks) -> None:
    assert after(ThresholdPolicy("polca"), *readings) == clocks


def test_commands_take_forty_seconds_and_the_brake_five() -> None:
    policy = ThresholdPolicy("polca")
    first = policy.decide(0.0, 0.85)
    assert first is not None
    assert (first.clocks, first.delay_seconds, first.brake) == (BASE, 40.0, False)
    brake = policy.decide(2.0, 1.01)
    assert brake is not None
    assert (brake.clocks, brake.delay_seconds) == (Clocks(BRAKE_MHZ, BRAKE_MHZ), 5.0)
    assert policy.decide(4.0, 1.02) is None
    assert policy.brakes == 1


def test_the_brake_is_let_go_below_the_second_threshold() -> None:
    policy = ThresholdPolicy("polca")
    policy.decide(0.0, 1.01)
    assert policy.decide(10.0, 0.86) is None
    released = policy.decide(12.0, 0.70)
    assert released is not None
    assert not released.brake
    policy.decide(14.0, 1.01)
    assert policy.brakes == 2


def braked_and_released(policy: ThresholdPolicy, at_seconds: float) -> Clocks:
    """Pulls the brake and says what its release brings, 20 s later."""
    brake = policy.decide(at_seconds, 1.01)
    assert brake is not None
    assert brake.brake
    for later in range(2, 20, 2):
        released = policy.decide(at_seconds + later, 0.5)
        if released is not None:
            assert not released.brake
            assert released.delay_seconds == 5.0
            return released.clocks
    raise AssertionError("the brake is never let go")


def test_the_level_before_a_brake_stands_after_it() -> None:
    policy = ThresholdPolicy("polca")
    after(policy, *[0.90] * 30)
    assert policy.clocks == BOTH
    assert braked_and_released(policy, 60.0) == BOTH


def test_a_brake_takes_the_row_above_both_thresholds() -> None:
    assert braked_and_released(ThresholdPolicy("polca"), 0.0) == DEEP
    waited = ThresholdPolicy("polca")
    after(waited, *[0.90] * 20)
    assert braked_and_released(waited, 42.0) == BOTH
    assert braked_and_released(ThresholdPolicy("no_cap"), 0.0) == FREE
    assert braked_and_released(ThresholdPolicy("one_threshold_low"), 0.0) == DEEP


def test_a_brake_is_held_until_it_shows_in_readings() -> None:
    policy = ThresholdPolicy("polca")
    policy.decide(0.0, 1.01)
    assert policy.decide(4.0, 0.70) is None
    assert policy.decide(8.0, 0.70) is None
    assert policy.braked
    assert policy.decide(9.0, 0.70) is not None


def test_braked_readings_do_not_lower_the_level_while_the_release_is_on_its_way() -> None:
    policy = ThresholdPolicy("polca")
    policy.decide(0.0, 1.01)
    assert policy.decide(9.0, 0.5) is not None
    assert policy.decide(12.0, 0.5) is None
    assert policy.decide(17.0, 0.5) is None
    assert policy.clocks == DEEP
    lowered = policy.decide(18.0, 0.83)
    assert lowered is not None
    assert (lowered.clocks, lowered.delay_seconds) == (BASE, 40.0)


def test_still_above_after_a_release_is_the_third_step() -> None:
    policy = ThresholdPolicy("polca")
    policy.decide(0.0, 1.01)
    policy.decide(9.0, 0.5)
    assert policy.decide(16.0, 0.95) is None
    third = policy.decide(18.0, 0.95)
    assert third is not None
    assert third.clocks == BOTH
    assert policy.decide(20.0, 1.01) is not None
    assert policy.brakes == 2


@pytest.mark.parametrize(
    ("name", "locked"), [("one_threshold_low", DEEP), ("one_threshold_all", Clocks(1110, 1110))]
)
def test_one_threshold(name: str, locked: Clocks) -> None:
    policy = ThresholdPolicy(name)  # type: ignore[arg-type]
    assert after(policy, 0.88) == FREE
    assert after(policy, 0.90) == locked
    assert after(policy, 0.85) == locked
    assert after(policy, 0.83) == FREE


def test_a_policy_nobody_published_is_refused() -> None:
    with pytest.raises(InputError, match="polca"):
        ThresholdPolicy("three")  # type: ignore[arg-type]
