"""The judge of order, floors and gangs sees what is wrong: right caps, then one wrong thing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from benchmarks._order_judge import Due, Limits, Violation, judged, judged_between, unfair_pairs
from benchmarks._power_house import Board, Domain, House, Server, Trip

BOARDS = 6


def make_house() -> House:
    """A root over two racks of three boards, no losses; nearly all of a cap counts."""
    racks = [
        Domain(
            1 + rack,
            feed_watts=5000.0,
            servers=[Server(rack, [Board(3 * rack + i, 700.0, 100.0, "X") for i in range(3)], 0.0)],
        )
        for rack in range(2)
    ]
    return House([Domain(0, feed_watts=9000.0, children=racks)])


def make_due(**changes: object) -> Due:
    """Boards 0 and 3 are important; everybody's floor is 300 W and request 600 W."""
    values: dict[str, object] = {
        "active": [True] * BOARDS,
        "guaranteed": [200.0] * BOARDS,
        "floor": [300.0] * BOARDS,
        "request": [600.0] * BOARDS,
        "most": [700.0] * BOARDS,
        "priority": [10, 0, 0, 10, 0, 0],
        "gangs": [],
    }
    return Due(**{**values, **changes})  # type: ignore[arg-type]


def limits_at(house: House, caps: Sequence[float], *full: int, kind: str = "jump") -> Limits:
    """The named domains are full at these caps by one kind of limit, the others have room."""
    room = [
        domain.boards_worst(caps) + (0.0 if domain.number in full else 1e6)
        for domain in house.domains
    ]
    free = [math.inf for _ in house.domains]
    jump, load = (room, free) if kind == "jump" else (free, room)
    rest = [0.0 for _ in house.domains]
    return Limits(jump, load, rest, [700.0] * BOARDS, [700.0] * BOARDS, [700.0] * BOARDS)


def kinds(caps: Sequence[float], *full: int, limit: str = "jump", **due: object) -> set[str]:
    house = make_house()
    found = judged(house, make_due(**due), limits_at(house, caps, *full, kind=limit), caps)
    return {violation.kind for violation in found}


@pytest.mark.parametrize("limit", ["jump", "load"])
def test_right_caps_are_right(limit: str) -> None:
    assert not kinds([600.0] * BOARDS, limit=limit)
    assert not kinds([450.0, 300.0, 300.0, 600.0, 600.0, 600.0], 1, limit=limit)
    assert not kinds([600.0, 450.0, 450.0, 600.0, 450.0, 450.0], 0, limit=limit)
    assert not kinds([250.0] * 3 + [700.0] * 3, 1, limit=limit)


@pytest.mark.parametrize(
    ("caps", "full", "kind"),
    [
        ([450.0, 301.0, 302.0, 600.0, 600.0, 600.0], 1, "order"),
        ([450.0, 300.0, 300.0, 600.0, 300.0, 302.0], 0, "order"),
        ([600.0, 250.0, 302.0, 600.0, 600.0, 600.0], 1, "floor"),
        ([250.0, 150.0, 250.0, 600.0, 600.0, 600.0], 1, "guaranteed"),
        ([600.0, 500.0, 620.0, 600.0, 600.0, 600.0], 1, "slack"),
        ([600.0, 500.0, 600.0, 600.0, 600.0, 600.0], 2, "idle_room"),
        ([600.0, 99.0, 300.0, 600.0, 600.0, 600.0], 1, "range"),
        ([600.0, 300.0, 701.0, 600.0, 600.0, 600.0], 1, "range"),
    ],
)
@pytest.mark.parametrize("limit", ["jump", "load"])
def test_one_wrong_thing_is_seen(caps: list[float], full: int, kind: str, limit: str) -> None:
    assert kind in kinds(caps, full, limit=limit)


@pytest.mark.parametrize("limit", ["jump", "load"])
def test_a_passed_limit_is_seen_unless_everybody_is_at_the_minimum(limit: str) -> None:
    house = make_house()
    for watts, wrong in ((100.0, False), (102.0, True)):
        caps = [watts] * 3 + [600.0] * 3
        limits = limits_at(house, caps, kind=limit)
        (limits.jump if limit == "jump" else limits.load)[1] = 10.0
        found = {v.kind for v in judged(house, make_due(), limits, caps)}
        assert (limit in found) == wrong


def test_a_gang_waits_with_good_reason_if_one_of_its_members_does() -> None:
    gang = {"gangs": [[0, 3]]}
    # Rack 1 holds board 0; board 3 waits with it, and lesser boards of its rack may be higher.
    caps = [450.0, 300.0, 300.0, 450.0, 600.0, 600.0]
    assert not kinds(caps, 1, **gang)
    assert kinds(caps, 1) == {"idle_room"}
    assert "gang" in kinds([450.0, 300.0, 300.0, 452.0, 600.0, 600.0], 1, **gang)
    assert "order" in kinds([450.0, 320.0, 300.0, 450.0, 600.0, 600.0], 1, **gang)


def test_boards_that_take_no_part_are_neither_short_nor_favoured() -> None:
    caps = [450.0, 600.0, 300.0, 600.0, 600.0, 600.0]
    assert kinds(caps, 1) == {"order"}
    active = [True, False, True, True, True, True]
    house, due = make_house(), make_due(active=active)
    limits = limits_at(house, [450.0, 700.0, 300.0, 600.0, 600.0, 600.0], 1)
    assert not judged(house, due, limits, caps)


def test_only_a_full_breaker_between_two_boards_excuses_the_favour() -> None:
    house, caps = make_house(), [450.0, 302.0, 300.0, 600.0, 600.0, 600.0]
    in_rack, at_root, nowhere = [False, True, False], [True, False, False], [False] * 3
    assert judged_between(house, make_due(), caps, in_rack) == [Violation("order", 0, 1, 1)]
    assert not judged_between(house, make_due(), [600.0] * BOARDS, nowhere)
    assert unfair_pairs(house, make_due(), caps, in_rack) == [(0, 1)]
    caps[1] = 300.0
    assert not unfair_pairs(house, make_due(), caps, in_rack)
    assert unfair_pairs(house, make_due(), caps, at_root) == [(0, 4)]
    # Who is short below no full breaker is held back by nothing: anybody less important has it.
    assert {v.kind for v in judged_between(house, make_due(), caps, nowhere)} == {"idle_room"}
    assert unfair_pairs(house, make_due(), caps, nowhere) == [(0, 4), (0, 5)]


def test_a_curve_by_points_tells_nothing_beyond_its_last_point() -> None:
    trip = Trip(points=((1.1, 400.0), (1.5, 100.0)))
    seconds = [trip.seconds(r) for r in (1.0, 1.05, 1.1, 1.284523, 1.5, 1.51)]
    assert seconds == pytest.approx([math.inf, 400.0, 400.0, 200.0, 100.0, 0.0], rel=1e-3)
    assert Trip(points=trip.points, cold=True).seconds(1.5) == pytest.approx(25.0)


def test_feeds_losses_and_imbalance_of_a_domain_by_hand() -> None:
    upper, lower = make_house().roots[0], make_house().roots[0].children[0]
    upper.children, upper.own_efficiency, lower.own_efficiency = [lower], 0.95, 0.90
    upper.external_watts, lower.external_watts = 10.0, 90.0
    lower.redundancy, lower.feeds, lower.required_feeds, lower.imbalance = "KofN", 4, 2, 1.25
    assert lower.rating_watts == pytest.approx(2 * 5000.0 / 1.25)
    # Watts lost below are lost above, too: both count at 0.90.
    by_hand = 3 * 500.0 * 1.05 * (1 + 0.09 / 3**0.5) / 0.90 + 100.0
    assert upper.worst([500.0] * BOARDS) == pytest.approx(by_hand)
    # One of one server jumps to its default limits.
    assert lower.floor_case([200.0] * BOARDS) == pytest.approx(lower.worst([700.0] * BOARDS))
