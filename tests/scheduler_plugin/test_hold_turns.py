"""Turns of overdue work: whose they are, how long they last, and who comes next."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from scheduler_plugin.documents.snapshot import PodState, Snapshot
from scheduler_plugin.hold_book import LONGEST_TURN, HoldBook
from tests.scheduler_plugin.placement_builders import bound, domain, gang, node, pod, snapshot
from tests.scheduler_plugin.test_patience import PATIENCE, applied, overdue


def test_chosen_nodes_stay_while_others_come_and_go() -> None:
    book = HoldBook(PATIENCE)
    nodes = [node(name) for name in "abcd"]
    runs = [bound(f"r{name}", name, gpus) for name, gpus in zip("abcd", (5, 4, 4, 5), strict=True)]
    first = applied(book, snapshot(*nodes, *runs, gang("g", 2)), PATIENCE)
    assert first.holds[0].nodes == ("b", "c")
    easier = [
        bound(f"r{name}", name, gpus) for name, gpus in zip("abcd", (1, 4, 4, 1), strict=True)
    ]
    then = applied(book, snapshot(*nodes, *easier, gang("g", 2)), PATIENCE + 1)
    assert then.holds == first.holds
    free = applied(book, snapshot(*nodes, *runs[1:3], gang("g", 2)), PATIENCE + 2)
    assert free.holds[0].nodes == ("a", "d")


def test_a_turn_ends_and_the_next_in_line_has_its_own() -> None:
    book = HoldBook(PATIENCE)
    of = snapshot(node("a"), bound("r", "a", 8), gang("g", 1), gang("h", 1))
    waits = {"g-0": 0.0, "h-0": 1.0}

    def holder(now: float) -> str:
        holds = book.applied(of, waits, now).holds
        return holds[0].work if holds else ""

    assert [holder(now) for now in (99, 101, 200, 202, 303)] == ["", "g", "g", "h", "g"]
    turns = [
        of.until_unix_seconds - of.since_unix_seconds for of in book.applied(of, waits, 304).holds
    ]
    assert turns == [201]


def test_what_never_ends_leaves_half_of_the_time_to_others() -> None:
    book = HoldBook(PATIENCE)
    of = snapshot(node("a"), bound("r", "a", 8), gang("g", 1))
    held = [bool(applied(book, of, now).holds) for now in range(0, 100_000, 10)]
    assert 0.3 < sum(held) / len(held) <= 0.55
    runs = [len(list(some)) * 10 for is_held, some in itertools.groupby(held) if is_held]
    assert max(runs) == pytest.approx(LONGEST_TURN * PATIENCE, rel=0.02)


def test_who_had_a_turn_stands_behind_its_elders_and_before_newcomers() -> None:
    """Else gangs would never have a second turn where pods are overdue without end."""
    book = HoldBook(PATIENCE)
    of = snapshot(node("a"), bound("r", "a", 8), gang("g", 1), *(pod(f"s{i}") for i in range(4)))
    waits = {"g-0": 0.0, "s0": 1.0} | {f"s{i}": 150.0 for i in range(1, 4)}

    def holder(now: float) -> str:
        holds = book.applied(of, waits, now).holds
        return holds[0].work if holds else ""

    turns = [who for who, _ in itertools.groupby(holder(now) for now in range(0, 500, 2))]
    assert turns == ["", "g", "s0", "g"]


def test_the_time_of_a_turn_stands_still_while_nothing_is_held() -> None:
    """What was held for 60 s, and is in the way of nobody again, has 40 s left, not 100 s."""
    book = HoldBook(PATIENCE)
    full = snapshot(node("a"), bound("r", "a", 8), gang("g", 1))
    gone = snapshot(node("b", 4), gang("g", 1))
    waits = {"g-0": 0.0}
    assert book.applied(full, waits, 100).holds[0].until_unix_seconds == 201
    assert book.applied(full, waits, 160).holds
    assert not book.applied(gone, waits, 162).holds
    assert book.applied(full, waits, 300).holds[0].until_unix_seconds == 341
    assert not book.applied(full, waits, 341).holds


def test_less_of_one_thing_and_more_of_another_is_closer_once() -> None:
    book = HoldBook(PATIENCE)
    tree = snapshot(domain("row", 8_400), node("a", domain="row"), gang("g", 1))
    runs = {gpus: bound("r", "a", gpus) for gpus in (4, 8)}
    ends = []
    for i in range(6):
        # Boards and watts come and go in turn.
        of = tree.model_copy(
            update={
                "pods": (*tree.pods, runs[8 if i % 2 else 4]),
                "domains": (domain("row", 8_400, used=2_800 if i % 2 else 5_600),),
            }
        )
        ends.append(applied(book, of, 100 + 20 * i).holds[0].until_unix_seconds)
    assert ends == [201, *[221] * 5]


def test_many_that_fit_nowhere_do_not_keep_the_next_one_from_being_asked() -> None:
    book = HoldBook(PATIENCE)
    never = [gang(f"a{i:03}", 2) for i in range(200)]
    of = snapshot(node("a"), bound("r", "a", 8), *never, gang("g", 1))
    waits = {p.uid: 0.0 for p in of.pods if p.state is PodState.PENDING} | {"g-0": 1.0}
    held = {now: book.applied(of, waits, now).holds for now in range(110, 300, 10)}
    assert [hold.work for hold in held[240]] == ["g"]


def wide(*parts: Any) -> Snapshot:
    """Sixteen full servers below one row."""
    nodes = [node(f"n{i:02}", domain="row") for i in range(16)]
    return snapshot(
        domain("row", 100_000, used=89_600),
        *nodes,
        *(bound(f"r-{one.name}", one.name, 8) for one in nodes),
        *parts,
    )


def test_in_a_wide_row_others_have_nodes_held_beside_the_first_in_line() -> None:
    """An eighth of the servers: two gangs of one, or one of three."""
    of = overdue(wide(*(gang(name, 1) for name in "ghi")))
    assert [(hold.work, len(hold.nodes), bool(hold.watts)) for hold in of.holds] == [
        ("g", 1, True),
        ("h", 1, False),
    ]
    assert not set(of.holds[0].nodes) & set(of.holds[1].nodes)
    assert [hold.work for hold in overdue(wide(gang("g", 3), gang("h", 1))).holds] == ["g"]
    assert [hold.work for hold in overdue(wide(gang("g", 1), gang("h", 2))).holds] == ["g"]


def test_the_first_in_line_stays_so_when_elders_come_back() -> None:
    book = HoldBook(PATIENCE)
    of = wide(gang("g", 1), gang("h", 1), gang("i", 1))
    waits = {"g-0": 0.0, "h-0": 50.0, "i-0": 170.0}

    def holders(now: float) -> dict[str, bool]:
        return {hold.work: bool(hold.watts) for hold in book.applied(of, waits, now).holds}

    assert holders(149) == {"g": True}
    assert holders(202) == {"g": True, "h": False}
    assert holders(251) == {"h": True}
    assert holders(270) == {"h": True, "i": False}
    assert holders(304) == {"i": True}
    assert holders(353) == holders(360) == {"g": False, "i": True}


def test_work_that_a_plan_gave_up_has_its_place_held_next_time() -> None:
    """Other small pods might have come first, again and again."""
    book = HoldBook(PATIENCE)
    of = snapshot(node("a"), bound("r", "a", 6), pod("p"))
    assert applied(book, of, 100) is of
    assert [hold.work for hold in applied(book, of, 110).holds] == ["p"]


def test_one_work_a_root_and_the_more_important_first() -> None:
    roots = [domain("x", 20_000), domain("y", 20_000)]
    nodes = [node(f"{root}{i}", domain=root) for root in "xy" for i in range(2)]
    runs = [bound(f"r-{one.name}", one.name, 8) for one in nodes]
    works = [gang(name, 1, priority=prio) for name, prio in (("g", 0), ("h", 0), ("vip", 0))]
    of = overdue(snapshot(*roots, *nodes, *runs, *works))
    assert [hold.work for hold in of.holds] == ["g", "h"]
    assert {hold.nodes[0][0] for hold in of.holds} == {"x", "y"}
    vip = snapshot(*roots, *nodes, *runs, *works[:2], gang("vip", 1, priority=5))
    assert [hold.work for hold in overdue(vip).holds] == ["g", "vip"]


def test_work_that_went_and_came_again_begins_anew() -> None:
    book = HoldBook(PATIENCE)
    of = snapshot(node("a"), bound("r", "a", 8), gang("g", 1))
    assert applied(book, of, 100).holds
    assert not applied(book, of, 202).holds
    assert not applied(book, snapshot(node("a"), bound("r", "a", 8)), 203).holds
    (hold,) = applied(book, of, 204).holds
    assert hold.until_unix_seconds == 305
