"""Cap to effect: which decisions start a clock, for which cap it runs, what it counts as."""

from __future__ import annotations

import numpy as np
import pytest

from simulation.cap_effects import CAUSES, URGENT, CapEffects, DecidedCaps, FallCause
from wattpack.units import seconds_to_ns


class Boards:
    """Boards whose limits, sensed power and decisions a test sets second by second."""

    def __init__(self, limit: float = 700.0, sensed: float = 600.0, n: int = 1) -> None:
        self.effects = CapEffects(n)
        self.limit, self.sensed = np.full(n, limit), np.full(n, sensed)
        self.look(0.0)

    def decide(
        self, second: float, watts: float, cause: FallCause = FallCause.BAND, gpu: int = 0
    ) -> None:
        caps = np.full(len(self.limit), np.nan)
        caps[gpu] = watts
        causes = np.full(len(caps), CAUSES.index(cause), dtype=np.int64)
        self.effects.decided(seconds_to_ns(second), DecidedCaps(caps, causes), self.sensed)

    def look(self, second: float, limit: float | None = None, sensed: float | None = None) -> None:
        if limit is not None:
            self.limit = np.full_like(self.limit, limit)
        if sensed is not None:
            self.sensed = np.full_like(self.sensed, sensed)
        self.effects.observe(seconds_to_ns(second), self.limit, self.sensed)

    def seconds(self, *causes: FallCause) -> tuple[int, float | None]:
        figures = self.effects.figures(causes or CAUSES)
        return figures.n, figures.max_seconds


def test_the_clock_runs_from_the_decision_to_the_sensed_drop() -> None:
    boards = Boards()
    boards.decide(1.0, 400.0)
    boards.look(2.0, limit=400.0, sensed=550.0)
    boards.look(3.0, sensed=440.0)
    assert boards.seconds() == (1, 2.0)


def test_a_cap_is_not_held_to_a_lower_one_of_long_ago() -> None:
    boards = Boards(sensed=100.0)
    boards.look(1.0, limit=410.0)
    boards.look(2.0, limit=600.0)
    boards.look(9.0, sensed=600.0)
    boards.decide(10.0, 467.0)
    boards.look(11.0, limit=467.0, sensed=530.0)
    assert boards.seconds() == (1, 1.0)


def test_each_step_of_a_staircase_of_caps_has_its_own_clock() -> None:
    boards = Boards(sensed=690.0)
    for step in range(1, 9):
        boards.decide(float(step), 600.0 - 40.0 * step)
        boards.look(step + 0.5, limit=600.0 - 40.0 * step, sensed=690.0 - 40.0 * step)
    boards.look(10.0, sensed=290.0)
    count, longest = boards.seconds()
    assert count == 8
    assert longest == 3.0


def test_a_cap_that_is_decided_again_starts_no_second_clock() -> None:
    boards = Boards()
    for second in (1.0, 2.0, 3.0):
        boards.decide(second, 400.0)
    boards.look(3.5, limit=400.0, sensed=410.0)
    assert boards.seconds() == (1, 2.5)


def test_a_cap_above_the_draw_needs_no_effect() -> None:
    boards = Boards(sensed=200.0)
    boards.decide(1.0, 400.0)
    boards.look(2.0, limit=400.0)
    assert boards.seconds() == (0, None)


def test_a_raise_that_leaves_nothing_to_do_withdraws_the_cap() -> None:
    boards = Boards()
    boards.decide(1.0, 400.0)
    boards.decide(2.0, 590.0)
    boards.look(3.0, sensed=300.0)
    figures = boards.effects.figures()
    assert (figures.n, figures.withdrawn, figures.without_effect) == (0, 1, 0)


def test_a_little_raise_does_not_start_the_clock_anew() -> None:
    boards = Boards()
    boards.decide(1.0, 400.0)
    boards.decide(4.0, 410.0)
    boards.look(6.0, limit=410.0, sensed=420.0)
    assert boards.seconds() == (1, 5.0)


def test_a_board_that_lost_its_limit_before_the_effect_keeps_its_clock() -> None:
    boards = Boards()
    boards.decide(1.0, 400.0)
    boards.look(1.5, limit=400.0, sensed=590.0)
    boards.look(2.0, limit=700.0, sensed=600.0)
    boards.look(8.0, limit=400.0, sensed=410.0)
    assert boards.seconds(FallCause.BAND) == (1, 7.0)


def test_a_limit_that_falls_without_a_decision_counts_from_its_write_for_the_node() -> None:
    boards = Boards()
    boards.look(1.0, limit=300.0)
    boards.look(2.0, sensed=310.0)
    assert boards.seconds(FallCause.NODE) == (1, 1.0)
    assert boards.seconds(*URGENT) == (0, None)


def test_a_cap_that_never_works_is_counted_apart() -> None:
    boards = Boards()
    boards.decide(0.0, 300.0)
    for second in range(1, 40):
        boards.look(float(second))
    figures = boards.effects.figures()
    assert (figures.n, figures.p99_seconds, figures.without_effect) == (0, None, 1)


def test_the_limits_that_a_run_begins_with_have_not_fallen() -> None:
    boards = Boards(limit=300.0, sensed=600.0)
    boards.look(1.0, sensed=310.0)
    assert boards.effects.by_cause() == {}


@pytest.mark.parametrize("cause", [c for c in CAUSES if c is not FallCause.NODE])
def test_falls_are_told_apart_by_cause(cause: FallCause) -> None:
    boards = Boards(n=2)
    boards.decide(1.0, 400.0, cause)
    boards.look(2.5, limit=400.0, sensed=400.0)
    assert list(boards.effects.by_cause()) == [str(cause)]
    assert boards.seconds(cause) == (1, 1.5)
    assert boards.seconds(*URGENT)[0] == (cause in URGENT)


@pytest.mark.parametrize(
    ("cause", "seconds", "late"),
    [
        (FallCause.BAND, 5.0, 0),
        (FallCause.BAND, 5.25, 1),
        (FallCause.BRAKE, 29.0, 1),
        (FallCause.BRAKE, 31.0, 1),
        (FallCause.JUMP, 31.0, 0),
    ],
)
def test_an_urgent_cap_is_late_after_five_seconds_or_without_effect(
    cause: FallCause, seconds: float, late: int
) -> None:
    boards = Boards()
    boards.decide(1.0, 400.0, cause)
    boards.look(1.0 + seconds, limit=400.0, sensed=600.0 if seconds > 30 else 410.0)
    assert boards.effects.urgent_late() == late
