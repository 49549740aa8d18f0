"""Overdue work has room held for it: who leaves it alone, for how long, and that gangs start."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.documents.plan_document import Pending, PendingReason, Placement, Plan
from scheduler_plugin.documents.snapshot import Gang, Hold, Pod, PodState, Snapshot, parse_snapshot
from scheduler_plugin.hold_book import HoldBook
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.overdue_rooms import OverdueRooms, WaitingWork
from scheduler_plugin.packing.held_rooms import with_holds
from scheduler_plugin.packing.problem import compile_problem
from scheduler_plugin.solve import plan
from tests.examples import examples
from tests.scheduler_plugin.placement_builders import bound, domain, gang, node, pod, snapshot
from wattpack.errors import InputError

PATIENCE = 100.0


def applied(book: HoldBook, of: Snapshot, now: float, since: float = 0.0) -> Snapshot:
    """With everybody waiting since the same moment."""
    waits = {p.uid: since for p in of.pods if p.state is PodState.PENDING}
    return book.applied(of, waits, now)


def overdue(of: Snapshot) -> Snapshot:
    return applied(HoldBook(PATIENCE), of, PATIENCE)


def half_full(**of_gang: Any) -> Snapshot:
    """Two nodes with two GPUs free each; a gang wants both nodes, small pods the rest."""
    return snapshot(
        node("a"),
        node("b"),
        *(bound(f"r{i}", "ab"[i % 2], 6) for i in range(2)),
        gang("g", 2, **of_gang),
        *(pod(f"s{i}", 2) for i in range(2)),
    )


def placed(made: Plan) -> dict[str, str]:
    return {one.uid: one.node for one in made.placements}


def reasons(made: Plan) -> dict[str, str]:
    return {one.uid: one.reason.value for one in made.pending}


def test_nothing_is_held_before_work_is_overdue_nor_without_patience() -> None:
    of = half_full()
    assert applied(HoldBook(PATIENCE), of, PATIENCE - 1) is of
    assert applied(HoldBook(0), of, 10**9) is of
    assert placed(plan(of)).keys() == {"s0", "s1"}


def test_equals_leave_alone_what_is_held_and_are_told_so() -> None:
    of = overdue(half_full())
    (hold,) = of.holds
    assert (hold.work, hold.nodes) == ("g", ("a", "b"))
    made = plan(of)
    assert not made.refusals
    assert placed(made) == {}
    told = {one.uid: one for one in made.pending}
    assert reasons(made)["s0"] == reasons(made)["s1"] == "HeldFor"
    assert "a, b are held for g since 1970-01-01T00:01:40Z, at most until" in told["s0"].message
    assert told["s0"].changes == ()
    assert reasons(made)["g-0"] == "GangDoesNotFit"
    assert told["g-0"].message.endswith("lacks 12 GPUs")


def test_the_gang_takes_what_is_held_as_soon_as_it_is_free() -> None:
    of = snapshot(node("a"), node("b"), gang("g", 2), *(pod(f"s{i}", 2) for i in range(8)))
    made = plan(overdue(of))
    assert {uid for uid in placed(made) if uid.startswith("g")} == {"g-0", "g-1"}
    assert set(reasons(made).values()) == {"InsufficientGpus"}


def test_who_is_more_important_never_waits_for_a_hold() -> None:
    of = half_full()
    more = snapshot(*of.nodes, *of.pods, *of.gangs, pod("vip", 2, priority=1))
    with_hold, without = plan(overdue(more)), plan(more)
    assert placed(with_hold).keys() == {"vip"}
    assert "vip" in placed(without)


def test_room_elsewhere_stays_everybodys() -> None:
    of = half_full()
    more = snapshot(*of.nodes, node("c", 2), *of.pods, *of.gangs)
    assert placed(plan(overdue(more))) in ({"s0": "c"}, {"s1": "c"})


def test_watts_that_the_gang_lacks_are_held_and_the_rest_is_not() -> None:
    """Of 12,000 W a gang needs 11,200 W and 6 boards run: two more boards would starve it."""
    tree = (domain("row", 12_000, used=4_200), domain("other", 700))
    racks = (node("a", domain="row"), node("b", domain="row"), node("c", domain="row"))
    work = (gang("g", 2), bound("r", "c", 6), *(pod(f"s{i}") for i in range(3)))
    of = overdue(snapshot(*tree, *racks, node("d", 1, domain="other"), *work))
    assert of.holds[0].watts == {"row": 11_200}
    assert of.holds[0].nodes == ("a", "b")
    made = plan(of)
    assert not made.refusals
    assert list(placed(made).values()) == ["d"]
    assert sorted(reasons(made).values()) == ["GangDoesNotFit"] * 2 + ["HeldFor"] * 2
    assert "lacks 3,400 W of row" in next(p for p in made.pending if p.uid == "g-0").message
    wide = of.model_copy(update={"domains": (tree[1], domain("row", 16_200, used=4_200))})
    assert {"g-0", "g-1", "s0"} < placed(plan(wide)).keys()


def test_work_that_never_fits_holds_nothing() -> None:
    too_large = snapshot(node("a"), node("b"), gang("g", 3), pod("s"))
    no_power = snapshot(
        domain("row", 11_000), node("a", domain="row"), node("b", domain="row"), gang("g", 2)
    )
    kept_out = snapshot(node("a"), node("b"), bound("vip", "a", priority=1), gang("g", 2))
    for of in (too_large, no_power, kept_out):
        assert overdue(of) is of


def test_who_could_start_now_is_not_kept_out_by_the_next_in_line() -> None:
    """Both have boards; there are watts for one: were both held, each would keep out the other."""
    nodes = [node(name, domain="row") for name in "abcd"]
    of = snapshot(domain("row", 12_000), *nodes, gang("g", 2), gang("h", 2))
    assert placed(plan(overdue(of))).keys() == {"g-0", "g-1"}


def test_of_identical_pods_one_has_the_hold() -> None:
    of = overdue(snapshot(node("a", 2), bound("r", "a", 1), pod("p", 2), pod("q", 2), pod("s")))
    assert of.holds[0].work == "p"
    free = of.model_copy(update={"pods": tuple(p for p in of.pods if p.uid != "r")})
    assert placed(plan(free)) == {"p": "a"}


@pytest.mark.parametrize("watts", [0, 11_900])
def test_the_checker_refuses_whoever_takes_what_is_held(watts: int) -> None:
    """Said of nodes and of watts apart, for equals and not for others."""
    hold = Hold(work="g", nodes=() if watts else ("a",), watts={"row": watts} if watts else {})
    row, held = domain("row", 12_000), node("a", domain="row")
    of = snapshot(row, held, bound("g", "a"), pod("s"), pod("vip", priority=1))
    of = of.model_copy(update={"holds": (hold,)})

    def judged(uid: str) -> tuple[str, ...]:
        other = "vip" if uid == "s" else "s"
        made = Plan(
            snapshot_digest=of.digest(),
            method="greedy",
            placements=(Placement(uid=uid, node="a", watts=700),),
            pending=(Pending(uid=other, reason=PendingReason.FRAGMENTED),),
        )
        return complaints(of, made)

    assert len(judged("s")) == 1
    assert "held for g" in judged("s")[0]
    assert judged("vip") == ()


def test_held_watts_are_of_those_whom_the_domain_counts() -> None:
    """A row at a stricter risk counts important pods alone: others take nothing of it."""
    strict = domain("row", 12_000, parent="row@0.1").model_copy(update={"least_priority": 5})
    wide = domain("row@0.1", 20_000).model_copy(update={"at_risk_of": "row"})
    pods = bound("g", "a"), pod("s"), pod("t", priority=5)
    of = snapshot(strict, wide, node("a", domain="row"), *pods)
    hold = Hold(work="g", priority=5, watts={"row": 11_900})
    made = plan(of.model_copy(update={"holds": (hold,)}))
    assert not made.refusals
    assert placed(made) == {"s": "a"}
    assert reasons(made) == {"t": "HeldFor"}


def test_a_hold_is_read_back_and_a_wrong_one_names_its_field() -> None:
    of = overdue(half_full())
    assert parse_snapshot(of.model_dump_json()) == of
    assert parse_snapshot(of.model_dump_json()).digest() == of.digest() != half_full().digest()
    with pytest.raises(InputError, match=r"holds\.0\.until_unix_seconds"):
        parse_snapshot('{"holds": [{"work": "g", "until_unix_seconds": -1}]}')
    with pytest.raises(InputError, match=r"holds\.work"):
        parse_snapshot('{"holds": [{"work": "g"}, {"work": "g"}]}')


def test_names_that_are_not_there_hold_nothing() -> None:
    of = snapshot(node("a"), pod("s"))
    held = of.model_copy(update={"holds": (Hold(work="s", nodes=("x",), watts={"row": 5}),)})
    assert placed(plan(held)) == {"s": "a"}


def test_a_hold_for_work_that_is_not_there_holds_nothing() -> None:
    """Neither a gang that is declared without members, nor a member's own uid, is work here."""
    row, held = domain("row", 12_000), node("a", domain="row")
    member = bound("m-0", "a", gang="m")
    of = snapshot(row, held, Gang(id="empty", size=1), Gang(id="m", size=1), member, pod("s"))
    for work, kept in {"gone": False, "empty": False, "m-0": False, "m": True}.items():
        hold = Hold(work=work, nodes=("a",), watts={"row": 12_000})
        of = of.model_copy(update={"holds": (hold,)})
        made = plan(of)
        assert not made.refusals
        assert placed(made) == ({} if kept else {"s": "a"})
        taken = Plan(
            snapshot_digest=of.digest(),
            method="greedy",
            placements=(Placement(uid="s", node="a", watts=700),),
        )
        assert len(complaints(of, taken)) == (2 if kept else 0)


@pytest.mark.parametrize(
    ("nodes", "watts", "words"),
    [
        ("a", {}, "a is held for prod/big since"),
        ("ab", {}, "a, b are held for prod/big since"),
        ("", {"row@0.5": 12_000}, "12,000 W of row (at the risk of 50 %) are held for prod/big"),
        ("a", {"row": 700}, "a and 700 W of row are held for prod/big since"),
    ],
)
def test_who_waits_is_told_for_whom_in_plain_words(
    nodes: str, watts: dict[str, int], words: str
) -> None:
    strict = domain("row", 12_000, parent="row@0.5")
    wide = domain("row@0.5", 12_000).model_copy(update={"at_risk_of": "row"})
    big = pod("d129d067", 9, namespace="prod", name="big")
    at = {"domain": "row"}
    of = snapshot(strict, wide, node("a", **at), node("b", **at), bound("r", "b", 8), big, pod("s"))
    hold = Hold(work="d129d067", nodes=tuple(nodes), watts=watts)
    told = plan(of.model_copy(update={"holds": (hold,)})).pending
    assert next(one for one in told if one.uid == "s").message.startswith(words)


def test_one_gpu_is_one() -> None:
    of = snapshot(node("a", 8), bound("r", "a", 7), pod("p", 2))
    of = of.model_copy(update={"holds": (Hold(work="p", nodes=("a",)),)})
    (told,) = plan(of).pending
    assert "at most 1 GPU free; a is held for it" in told.message
    assert told.message.endswith("lacks 1 GPU")


# Small clusters over time, against a plain simulation.

ALWAYS_WAITING = 3


@dataclass
class Stream:
    """A cluster where small pods of one priority come and end at random, without end."""

    seed: int
    nodes: int
    gpus: int
    longest: int
    watts: int = 0
    patience: float = 0.0
    now: int = 0
    others_turns: int = 0
    running: dict[str, tuple[Pod, str, int]] = field(default_factory=dict)
    waiting: dict[str, tuple[Pod, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.book = HoldBook(self.patience)
        self.count = 0
        self.gang, self.members = gang("g", self.nodes - 1, self.gpus)

    def step(self, *, gang_waits: bool) -> set[str]:
        """One second: ends, newcomers, a plan; uids that start."""
        self.running = {u: r for u, r in self.running.items() if r[2] > self.now}
        while len(self.waiting) < ALWAYS_WAITING:
            self.count += 1
            one = pod(f"s{self.count:05}", self.chance.randint(1, max(1, self.gpus // 2)))
            self.waiting[one.uid] = (one, float(self.now))
        of = self.snapshot(gang_waits)
        since = {uid: began for uid, (_, began) in self.waiting.items()}
        since |= {p.uid: 0.0 for p in self.members if gang_waits}
        of = self.book.applied(of, since, float(self.now))
        made = plan(of, deadline_seconds=0.0)
        assert not made.refusals
        for one in made.placements:
            if one.uid in self.waiting:
                its, _ = self.waiting.pop(one.uid)
                end = self.now + self.chance.randint(self.longest // 2, self.longest)
                self.running[one.uid] = (its, one.node, end)
        holders = {hold.work for hold in of.holds} - {"g"}
        self.others_turns += bool(holders) and not any(h.work == "g" for h in of.holds)
        self.now += 1
        return {one.uid for one in made.placements}

    def snapshot(self, gang_waits: bool) -> Snapshot:
        rooms = [node(f"n{i}", self.gpus, domain="row") for i in range(self.nodes)]
        runs = [bound(u, on, p.gpu_milli // 1000) for u, (p, on, _) in self.running.items()]
        used = sum(p.gpu_milli // 1000 * 700 for p in runs)
        limit = self.watts or 10**6
        waits = [p for p, _ in self.waiting.values()]
        its = [(self.gang, self.members)] if gang_waits else []
        return snapshot(domain("row", limit, used), *rooms, *runs, *waits, *its)


def started_at(stream: Stream, seconds: int) -> int | None:
    """When the gang starts, that comes once the cluster is full."""
    while stream.now < stream.longest:
        stream.step(gang_waits=False)
    stream.book, stream.others_turns = HoldBook(stream.patience), 0
    began, stream.now = stream.now, 0
    stream.running = {u: (p, on, end - began) for u, (p, on, end) in stream.running.items()}
    stream.waiting = {u: (p, since - began) for u, (p, since) in stream.waiting.items()}
    while stream.now < seconds:
        if stream.step(gang_waits=True) & {p.uid for p in stream.members}:
            return stream.now - 1
    return None


@given(
    seed=st.integers(0, 2**16),
    nodes=st.integers(2, 4),
    gpus=st.sampled_from([2, 4]),
    is_short_of_watts=st.booleans(),
)
@examples(10)
def test_every_feasible_gang_starts_within_patience_and_the_longest_run(
    seed: int, nodes: int, gpus: int, is_short_of_watts: bool
) -> None:
    """Small pods that wait longer than it, and are overdue as well, have their turns before it."""
    longest = 8
    watts = (nodes - 1) * gpus * 700 + 350 if is_short_of_watts else 0
    stream = Stream(seed, nodes, gpus, longest, watts, patience=10.0)
    at = started_at(stream, seconds=100)
    assert at is not None
    assert at <= stream.patience + longest + stream.others_turns


def test_without_patience_small_pods_keep_the_gang_out() -> None:
    assert started_at(Stream(1, 4, 4, 8), seconds=60) is None
    at = started_at(Stream(1, 4, 4, 8, patience=10.0), seconds=60)
    assert at is not None
    assert at <= 10 + 8


def test_room_for_a_pod_is_where_it_lacks_least() -> None:
    of = snapshot(node("a", 4), node("b", 4), bound("r", "a", 4), bound("s", "b", 2), pod("p", 3))
    work = WaitingWork("p", 0, 0.0)
    room = OverdueRooms(of, [work]).room(work, frozenset("ab"))
    assert room is not None
    assert room.lack == (1000, 0)
    assert room.hold.nodes == ("b",)


def test_without_holds_nothing_is_different() -> None:
    problem = compile_problem(half_full())
    assert with_holds(problem) is problem
    assert b"holds" not in half_full().texts.rest
