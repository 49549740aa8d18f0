"""A meter that is silent, stuck or far too low is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.tick_values import Decisions
from tests.controller.metered_row import MeteredRow
from tests.controller.test_metered_estimate import row

BROKEN, REPAIRED, END = 60, 200, 300


def stuck(plant: MeteredRow, second: int) -> None:
    before = [watts for at, watts in plant.readings if at < BROKEN]
    plant.readings = [(at, watts if at < BROKEN else before[-1]) for at, watts in plant.readings]


def far_too_low(plant: MeteredRow, second: int) -> None:
    plant.meter_error = -0.7


def run(plant: MeteredRow, spoil: Callable[[MeteredRow, int], None]) -> list[Decisions]:
    """Decisions of every second; the meter is spoilt for a while."""
    told, sound = [], plant.meter_error
    for second, decisions in plant.run(END):
        told.append(decisions)
        plant.meter_error = sound
        if BROKEN <= second < REPAIRED:
            spoil(plant, second)
    return told


def kinds(told: list[Decisions]) -> list[tuple[int, str]]:
    return [
        (second, change.kind)
        for second, decisions in enumerate(told)
        for change in decisions.transitions
        if change.kind.startswith("MeterU")
    ]


@pytest.mark.parametrize("spoil", [stuck, far_too_low])
def test_a_meter_that_is_not_used_for_a_minute_is_told_once_and_its_return_too(
    spoil: Callable[[MeteredRow, int], None],
) -> None:
    told = run(row(), spoil)
    unused = [float(decisions.meter_unused_seconds[0]) for decisions in told]
    assert max(unused[10:BROKEN]) == 0.0
    assert unused[REPAIRED - 1] > REPAIRED - BROKEN - 20
    assert unused[-1] == 0.0
    (began, first), (ended, second) = kinds(told)
    assert (first, second) == ("MeterUnused", "MeterUsed")
    assert BROKEN + 60 < began < BROKEN + 80
    assert REPAIRED < ended < REPAIRED + 60


def test_a_meter_that_falls_silent_is_told() -> None:
    class Quiet(MeteredRow):
        def advance(self, second: int) -> None:
            super().advance(second)
            if second == BROKEN:
                self.readings.clear()
                self.meter_period = END

    plant = row()
    plant.__class__ = Quiet
    told = [decisions for _, decisions in plant.run(END)]
    assert [kind for _, kind in kinds(told)] == ["MeterUnused"]
    assert told[-1].meter_unused_seconds[0] == pytest.approx(END - BROKEN, abs=5)


def test_a_reading_that_is_lost_now_and_then_is_no_news() -> None:
    assert kinds([decisions for _, decisions in row(meter_period=4).run(120)]) == []


def test_a_row_without_a_meter_is_not_told_of_one() -> None:
    assert kinds([decisions for _, decisions in row(metered=()).run(120)]) == []
