"""No decision line is repeated more than three times a minute, and none is lost without a count."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from controller.paced_lines import MOST_IN_A_MINUTE, PacedLines, paced
from controller.tick_values import Transition
from tests.controller.builders import seconds


def change(kind: str, subject: str = "band", domain: str = "row") -> Transition:
    return Transition(domain, subject, kind, f"now {kind}")


class Feed:
    """Lines with the second at which each was told."""

    def __init__(self) -> None:
        self.memory = PacedLines()
        self.lines: list[tuple[int, Transition]] = []

    def second(self, at: int, *changes: Transition) -> None:
        self.memory, told = paced(self.memory, changes, seconds(at))
        self.lines += [(at, line) for line in told]

    def kinds(self) -> list[tuple[int, str]]:
        return [(at, line.kind) for at, line in self.lines]

    def most_in_a_minute(self) -> int:
        return max(
            max(
                Counter(
                    (line.domain, line.subject, line.kind)
                    for second, line in self.lines
                    if begin <= second < begin + 60
                ).values()
            )
            for begin, _ in self.lines
        )


@pytest.mark.parametrize("period", [1, 2, 5, 12, 25])
def test_a_domain_that_brakes_and_lets_go_again_and_again_is_told_three_times_a_minute(
    period: int,
) -> None:
    feed = Feed()
    happened = 0
    for at in range(600):
        changes = [change("Brake" if at // period % 2 else "Capping")] if at % period == 0 else []
        happened += len(changes)
        feed.second(at, *changes)
    for at in range(600, 700):
        feed.second(at)
    assert feed.most_in_a_minute() <= MOST_IN_A_MINUTE
    assert feed.lines[-1][1].kind == ("Brake" if 599 // period % 2 else "Capping")
    counts = [line.message.partition(" (")[2].partition(" change")[0] for _, line in feed.lines]
    assert sum(int(count or 1) for count in counts) == happened


def test_the_first_changes_are_told_at_once() -> None:
    feed = Feed()
    feed.second(0, change("Capping"))
    feed.second(3, change("Brake"))
    feed.second(9, change("Capping"))
    assert feed.kinds() == [(0, "Capping"), (3, "Brake"), (9, "Capping")]
    assert all("told in one line" not in line.message for _, line in feed.lines)


def test_what_was_held_back_is_told_when_the_minute_has_room_with_a_count() -> None:
    feed = Feed()
    for at in range(10):
        feed.second(at, change("Brake" if at % 2 else "Capping"))
    assert len(feed.lines) == 6
    for at in range(10, 70):
        feed.second(at)
    at, line = feed.lines[-1]
    assert (at, line.kind) == (61, "Brake")
    assert line.message == "now Brake (4 changes in 55 s, told in one line)"
    assert len(feed.lines) == 7


def test_a_new_kind_of_line_is_never_held_back_by_others() -> None:
    feed = Feed()
    for at in range(10):
        feed.second(at, change("Releasing" if at % 2 else "Capping"))
    feed.second(11, change("Brake"))
    at, line = feed.lines[-1]
    assert (at, line.kind) == (11, "Brake")
    assert "5 changes in 5 s" in line.message


def test_subjects_and_domains_do_not_count_for_each_other() -> None:
    feed = Feed()
    boards = [change("DeviceUntrusted", f"GPU-{i}") for i in range(20)]
    feed.second(0, *boards)
    feed.second(1, *(replace(change("Brake"), domain=f"rack-{i}") for i in range(20)))
    assert len(feed.lines) == 40


def test_memory_does_not_grow() -> None:
    feed, generator = Feed(), np.random.default_rng(3)
    for at in range(1000):
        feed.second(at, change(str(generator.integers(4)), f"GPU-{at}"))
    assert len(feed.memory.told_ns) <= 60
    assert not feed.memory.held
