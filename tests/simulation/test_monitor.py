"""The twin's judge sees each invariant broken, and is quiet where it holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from simulation.monitor import InvariantMonitor, Told
from simulation.world import World
from tests.simulation.twin_builders import small_scenario

SECOND = 10**9


@dataclass
class Board:
    cap_watts: float = 300.0
    guaranteed_watts: float = 300.0
    lease_deadline_ns: int | None = None


@dataclass
class Book:
    """A node's lease table as its judge sees it."""

    boards: dict[str, Board]
    boot_id: str = "boot"
    highest_epoch: int = 1
    highest_sequence: int = 1

    def entries(self) -> dict[str, Board]:
        return self.boards


@dataclass
class Court:
    """A row at rest, all boards at their guaranteed caps, and its judge."""

    world: World = field(default_factory=lambda: World(small_scenario()))

    def __post_init__(self) -> None:
        world = self.world
        self.books = {name: Book({}) for name in world.node_names}
        for i, uuid in enumerate(world.gpu_uuids):
            self.books[world.node_names[world.node_of_gpu[i]]].boards[str(uuid)] = Board()
        world.bank.set_limits(np.full(len(world.bank), 300.0))
        self.judge = InvariantMonitor(world, self.books)

    def boards(self) -> list[Board]:
        return [board for book in self.books.values() for board in book.boards.values()]

    def told(self) -> Told:
        n = len(self.world.gpu_uuids)
        return Told(
            gpu_uuids=tuple(self.world.gpu_uuids),
            silent_nodes=frozenset(),
            decided_watts=(300.0,) * n,
            request_watts=(300.0,) * n,
            floor_watts=(300.0,) * n,
            priority=(0,) * n,
            reason=("NOT_CAPPED",) * n,
            held_by=("",) * n,
            controlled=(True,) * n,
            trusted=(True,) * n,
        )

    def names(self) -> set[str]:
        return {text.split(" ")[0] for text in self.judge.details}


@pytest.fixture
def court() -> Court:
    return Court()


def test_a_row_at_its_guaranteed_caps_breaks_nothing(court: Court) -> None:
    for second in range(20):
        court.judge.check(second * SECOND)
        court.judge.decided(court.told(), second * SECOND)
    assert court.judge.details == []


def behind(rated_servers: float, **scenario: object) -> Court:
    """Four servers behind a breaker for fewer."""
    row = small_scenario().row.model_dump() | {"rated_servers": rated_servers}
    return Court(World(small_scenario(row=row, **scenario)))


@pytest.mark.parametrize(("rated_servers", "broken"), [(3.2, False), (2.2, True)])
@pytest.mark.parametrize("silent", [(), ("node-000", "node-001", "node-002")])
def test_i2_caps_that_a_breaker_would_not_bear_for_a_lease(
    rated_servers: float, silent: tuple[str, ...], broken: bool
) -> None:
    court = behind(rated_servers)
    told = replace(court.told(), silent_nodes=frozenset(silent))
    for second in range(6):
        for name in set(court.books) - set(silent):
            for board in court.books[name].boards.values():
                board.cap_watts, board.lease_deadline_ns = 700.0, (second + 2) * SECOND
        court.judge.check(second * SECOND)
        court.judge.decided(told, second * SECOND)
    assert ("I2" in court.names()) is broken


def test_i2_electricity_that_is_there_is_no_violation_once_nothing_is_left_to_lower() -> None:
    court = behind(2.2)
    told = replace(court.told(), silent_nodes=frozenset(court.books))
    for second in range(6):
        court.judge.check(second * SECOND)
        court.judge.decided(told, second * SECOND)
    assert "I2" not in court.names()


@pytest.mark.parametrize(("hung_share", "broken"), [(1.0, False), (0.5, True)])
def test_i2_boards_that_no_call_reaches_cannot_be_lowered(hung_share: float, broken: bool) -> None:
    hung = {"kind": "gpu_hung", "at_seconds": 0.0, "duration_seconds": 60.0, "share": hung_share}
    court = behind(2.2, faults=[hung])
    court.world.bank.set_limits(np.full(len(court.world.bank), 700.0))
    for second in range(6):
        for board in court.boards():
            board.cap_watts, board.lease_deadline_ns = 700.0, (second + 2) * SECOND
        court.judge.check(second * SECOND)
        court.judge.decided(court.told(), second * SECOND)
    assert ("I2" in court.names()) is broken


def test_i3_a_lease_longer_than_any_that_is_given(court: Court) -> None:
    court.boards()[0].lease_deadline_ns = 4 * SECOND
    court.judge.check(0)
    assert court.judge.details == []
    court.boards()[0].lease_deadline_ns = 4 * SECOND + 1
    court.judge.check(0)
    assert court.names() == {"I3"}


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 9), (1, 0)])
def test_i4_an_older_leader_is_obeyed(court: Court, epoch: int, sequence: int) -> None:
    court.judge.check(0)
    book = court.books["node-001"]
    book.highest_epoch, book.highest_sequence = epoch, sequence
    court.judge.check(SECOND)
    assert court.names() == {"I4"}


@pytest.mark.parametrize(
    ("favoured_watts", "controlled", "broken"),
    [(400.0, True, {"I5"}), (300.0, True, set()), (400.0, False, set())],
)
def test_i5_the_less_important_is_above_its_floor_while_the_more_important_lacks(
    court: Court, favoured_watts: float, controlled: bool, broken: set[str]
) -> None:
    told, rest = court.told(), len(court.world.gpu_uuids) - 2
    told = replace(
        told,
        priority=(10, 0, *([0] * rest)),
        request_watts=(500.0, 500.0, *([300.0] * rest)),
        decided_watts=(400.0, favoured_watts, *([300.0] * rest)),
        reason=("DOMAIN_BAND", "DOMAIN_BAND", *(["NOT_CAPPED"] * rest)),
        held_by=("row", "row", *([""] * rest)),
        controlled=(True, controlled, *([True] * rest)),
    )
    court.judge.decided(told, 0)
    assert court.names() == broken


@pytest.mark.parametrize(("trusted", "broken"), [(True, {"I7"}), (False, set())])
def test_i7_a_board_that_draws_above_its_cap_is_trusted_for_long(
    court: Court, trusted: bool, broken: set[str]
) -> None:
    n = len(court.world.gpu_uuids)
    told = replace(court.told(), trusted=(trusted, *([True] * (n - 1))))
    for second in range(20):
        court.world.bank.counted_joules[0] += 340.0
        court.judge.decided(told, second * SECOND)
    assert court.names() == broken


@pytest.mark.parametrize("watts", [10.0, 5000.0, float("nan")])
def test_i8_a_cap_that_no_board_takes(court: Court, watts: float) -> None:
    court.boards()[0].guaranteed_watts = watts
    court.judge.check(0)
    assert "I8" in court.names()
