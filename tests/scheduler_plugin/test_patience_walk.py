"""Random work on a cluster that loses nodes and leaders: what holds may do, and what they must."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Gang, Node, Pod, PodState, Snapshot
from scheduler_plugin.hold_book import LONGEST_TURN, HoldBook
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import plan
from scheduler_plugin.solver.search import SearchSettings
from tests.scheduler_plugin.placement_builders import domain, gang, node, pod, snapshot

PATIENCE = 10.0
LONGEST_RUN = 8
LONGER_THAN_PATIENCE = 25
STEPS = 300
WATTS = 700
GPUS = 4
ROWS = {"row-a": ("a0", "a1", "a2"), "row-b": ("b0", "b1", "b2")}
VIP = 5


class Walk:
    """A cluster, a dice, and what must hold after every step of one second."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        #: Every second cluster has power for two servers and a half of three in each row.
        self.limit = (2 * GPUS + 2 if seed % 2 else 3 * GPUS) * WATTS
        self.nodes = {name: node(name, GPUS, domain=row) for row in ROWS for name in ROWS[row]}
        self.gone: dict[str, Node] = {}
        self.running: dict[str, tuple[Pod, str, int]] = {}
        self.waiting: dict[str, tuple[Pod, float]] = {}
        self.gangs: dict[str, Gang] = {}
        self.now = 0
        self.serial = 0
        self.is_calm = False
        self.seen: Counter[str] = Counter()
        self.book = HoldBook(PATIENCE)

    # What happens.

    def step(self) -> None:
        self.now += 1
        self.running = {u: one for u, one in self.running.items() if one[2] > self.now}
        self.small_pods()
        if not self.is_calm:
            for chance, event in (
                (0.1, self.a_gang_comes),
                (0.04, self.a_vip_comes),
                (0.03, self.work_is_withdrawn),
                (0.02, self.a_node_goes),
                (0.20, self.a_node_comes_back),
                (0.01, self.another_leads),
            ):
                if self.dice.random() < chance:
                    event()
        of = self.applied()
        made = plan(of, deadline_seconds=0.0)
        self.check(of, made)
        self.carry_out(made)

    def come(self, *pods: Pod) -> None:
        self.waiting |= {one.uid: (one, float(self.now)) for one in pods}

    def small_pods(self) -> None:
        """There is always more than fits."""
        while sum(not one.gang for one, _ in self.waiting.values()) < 4:
            self.serial += 1
            self.come(pod(f"s{self.serial:05}", self.dice.choice([1, 1, 2])))

    def a_gang_comes(self) -> None:
        self.serial += 1
        priority = self.dice.choice([0, 0, 1])
        size, gpus = self.dice.choice([(2, GPUS), (3, GPUS), (3, 2)])
        described, members = gang(f"g{self.serial:05}", size, gpus, priority=priority)
        self.gangs[described.id] = described
        self.come(*members)

    def a_vip_comes(self) -> None:
        self.serial += 1
        self.come(pod(f"v{self.serial:05}", self.dice.choice([1, GPUS]), priority=VIP))

    def work_is_withdrawn(self) -> None:
        one, _ = self.dice.choice(list(self.waiting.values()))
        self.waiting = {
            u: (p, t)
            for u, (p, t) in self.waiting.items()
            if (p.gang or p.uid) != (one.gang or one.uid)
        }

    def a_node_goes(self) -> None:
        if len(self.nodes) > 4:
            name = self.dice.choice(sorted(self.nodes))
            self.gone[name] = self.nodes.pop(name)
            lost = {u for u, (_, on, _) in self.running.items() if on == name}
            # A gang ends as a whole.
            gangs = {self.running[u][0].gang for u in lost} - {""}
            self.running = {
                u: one
                for u, one in self.running.items()
                if u not in lost and one[0].gang not in gangs
            }

    def a_node_comes_back(self) -> None:
        if self.gone:
            name = self.dice.choice(sorted(self.gone))
            self.nodes[name] = self.gone.pop(name)

    def another_leads(self) -> None:
        self.book = HoldBook(PATIENCE)

    # What a planner sees, and what becomes of its plans.

    def snapshot(self) -> Snapshot:
        runs = [
            one.model_copy(update={"state": PodState.BOUND, "node": on})
            for one, on, _ in self.running.values()
        ]
        waits = [one for one, _ in self.waiting.values()]
        row_of = {name: row for row in ROWS for name in ROWS[row]}
        drawn = Counter[str]()
        for one in runs:
            drawn[row_of[one.node]] += one.gpu_milli // 1000 * WATTS
        there = {one.gang for one in (*runs, *waits)}
        return snapshot(
            *(domain(row, self.limit, drawn[row]) for row in ROWS),
            *self.nodes.values(),
            *runs,
            *waits,
            *(one for name, one in self.gangs.items() if name in there),
        )

    def applied(self) -> Snapshot:
        since = {uid: began for uid, (_, began) in self.waiting.items()}
        return self.book.applied(self.snapshot(), since, float(self.now))

    def carry_out(self, made: Plan) -> None:
        for one in made.placements:
            started, began = self.waiting.pop(one.uid)
            runs = LONGEST_RUN if started.gang else self.dice.randint(1, LONGEST_RUN)
            if not self.is_calm and self.dice.random() < 0.05:
                runs = LONGER_THAN_PATIENCE
            self.running[one.uid] = (started, one.node, self.now + runs)
            self.seen["overdue gangs started"] += bool(
                started.gang and self.now - began >= PATIENCE
            )

    # What must hold.

    def check(self, of: Snapshot, made: Plan) -> None:
        assert made.refusals == ()
        assert complaints(of, made) == ()
        works = {one.gang or uid for uid, (one, _) in self.waiting.items()}
        for hold in of.holds:
            assert hold.work in works
            assert set(hold.nodes) <= self.nodes.keys()
            assert self.now < hold.until_unix_seconds
            turn = hold.until_unix_seconds - hold.since_unix_seconds
            assert turn <= LONGEST_TURN * PATIENCE + 1
            self.seen["holds"] += 1
            self.seen["watts held"] += bool(hold.watts)
        self.check_that_more_important_work_is_not_kept_out(of, made)
        if self.seen["holds"] and not self.now % 10:
            moving = SearchSettings(moves=True)
            assert plan(of, deadline_seconds=0.05, settings=moving).refusals == ()

    def check_that_more_important_work_is_not_kept_out(self, of: Snapshot, made: Plan) -> None:
        if not of.holds:
            return
        free = plan(of.model_copy(update={"holds": ()}), deadline_seconds=0.0)
        least = max(hold.priority for hold in of.holds)
        above = {pod.uid: pod.gpu_milli for pod in of.pods if pod.priority > least}
        with_holds, without = (
            sum(above.get(placed.uid, 0) for placed in one.placements) for one in (made, free)
        )
        assert with_holds >= without
        self.seen["more important beside holds"] += bool(with_holds)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_comes_and_goes_holds_are_kept_and_end(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    assert walk.seen["holds"] > STEPS // 4
    assert walk.seen["watts held"]
    assert walk.seen["more important beside holds"]
    assert walk.seen["overdue gangs started"]
    gangs = {one.gang for one, _ in walk.waiting.values()} - {""}
    older = len(walk.waiting)
    walk.is_calm = True
    for _ in range(int(PATIENCE) + LONGER_THAN_PATIENCE + older * LONGEST_RUN):
        walk.step()
    left = {one.gang for one, _ in walk.waiting.values()} & gangs
    assert [name for name in left if fits(walk, name)] == []


def fits(walk: Walk, name: str) -> bool:
    """Whether an empty cluster would take a gang: placed by hand, whole servers or halves."""
    members = [one for one, _ in walk.waiting.values() if one.gang == name]
    if not members:
        return True
    gpus = members[0].gpu_milli // 1000
    room = 0
    for row in ROWS:
        servers = sum(n in walk.nodes for n in ROWS[row])
        fed = walk.limit // (gpus * WATTS)
        room += min(servers * (GPUS // gpus), fed)
    return room >= len(members)
