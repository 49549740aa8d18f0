"""Gangs whose members do not all come: their places end in time, and others get them.

The walk of ``test_gang_walk`` never meets the time-out; here members come late or never. What
happens then stands in docs/placement.md: the places are given up, the members that are there are
told and stay, and late ones are placed together.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from scheduler_plugin.kube_objects import pods as pod_facts
from tests.examples import LONG
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from tests.scheduler_plugin.test_placement_random_walk import Unreliable
from wattpack.kube.port import EVENTS, PODS, JsonObject

NODES, GPUS_PER_NODE, GPUS_PER_MEMBER = ("n1", "n2", "n3"), 8, 4
TIMEOUT_SECONDS = 60.0
#: After the time-out: a patch without an answer, a pause after a refusal and two cycles.
MARGIN_SECONDS = 60.0
STEPS = 400 if LONG else 120


class Walk:
    """A cluster, a dice, and what must hold after every step."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = Cluster(deadline_seconds=0.0, gang_timeout_seconds=TIMEOUT_SECONDS)
        self.cluster.add_nodes(*NODES, gpus=GPUS_PER_NODE)
        self.missing: dict[str, int] = {}
        self.size: dict[str, int] = {}
        self.partial_since: dict[tuple[str, int], float] = {}
        self.seen: Counter[str] = Counter()
        self.serial = 0
        self.restart()

    def restart(self) -> None:
        api = Unreliable(self.cluster, self.dice)
        self.cluster.loop = self.cluster.new_loop(api)  # type: ignore[arg-type]

    def now(self) -> float:
        return self.cluster.clock.monotonic_ns() / 1e9

    def members(self) -> dict[str, list[JsonObject]]:
        found: dict[str, list[JsonObject]] = defaultdict(list)
        for pod in self.cluster.api.list(PODS).items:
            found[pod["metadata"]["name"].partition("-")[0]].append(pod)
        return found

    def step(self) -> None:
        roll = self.dice.random()
        if roll < 0.15:
            self.gang_comes()
        elif roll < 0.25:
            self.late_member_comes()
        elif roll < 0.35:
            self.single_comes()
        elif roll < 0.5:
            self.somebody_ends()
        elif roll < 0.75:
            self.cluster.bind()
        elif roll < 0.78:
            self.restart()
        self.cluster.clock.advance_seconds(self.dice.choice([1, 5, 12, 20]))
        self.cluster.loop.step()

    def gang_comes(self) -> None:
        self.serial += 1
        name, size = f"g{self.serial}", self.dice.randint(2, 4)
        self.size[name], self.missing[name] = size, size
        for _ in range(self.dice.choice([1, size - 1, size])):
            self.member(name)

    def member(self, name: str) -> None:
        marks = {
            "labels": {"wattpack.io/gang": name},
            "annotations": {"wattpack.io/gang-size": str(self.size[name])},
        }
        self.missing[name] -= 1
        self.cluster.add(pod_object(f"{name}-{self.missing[name]}", GPUS_PER_MEMBER, **marks))

    def late_member_comes(self) -> None:
        waited = [g for g in self.members() if self.missing.get(g, 0) > 0]
        if waited:
            self.member(self.dice.choice(sorted(waited)))

    def single_comes(self) -> None:
        self.serial += 1
        self.cluster.add(pod_object(f"s{self.serial}", GPUS_PER_MEMBER))

    def somebody_ends(self) -> None:
        """All of a gang ends together."""
        found = self.members()
        for pod in found[self.dice.choice(sorted(found))] if found else ():
            name = pod["metadata"]["name"]
            self.cluster.api.delete(PODS, name, SPACE, grace_period_seconds=0)

    def check(self) -> None:
        used: Counter[str] = Counter()
        found = self.members()
        # A late member that is placed has its missing siblings' places kept anew.
        partial: set[tuple[str, int]] = set()
        for gang, pods in found.items():
            nodes = [pod_facts.node_name(p) or pod_facts.pinned_node(p) for p in pods]
            used.update({n: GPUS_PER_MEMBER * c for n, c in Counter(nodes).items() if n})
            placed = sum(map(bool, nodes))
            if gang in self.size and 0 < placed < self.size[gang]:
                partial.add((gang, placed))
        assert all(used[node] <= GPUS_PER_NODE for node in NODES), used
        self.partial_since = {g: self.partial_since.get(g, self.now()) for g in partial}
        kept = Counter(p.gang for p in self.cluster.loop.ledger.reservations.values())
        for place in self.cluster.loop.ledger.reservations.values():
            left = (place.until_ns - self.cluster.clock.monotonic_ns()) / 1e9
            assert left <= TIMEOUT_SECONDS
        for gang, placed in sorted(partial):
            late = self.now() - self.partial_since[gang, placed] - TIMEOUT_SECONDS
            if late > MARGIN_SECONDS and not self.waits(found[gang]):
                self.seen["given up"] += 1
                assert kept[f"{SPACE}/gang/{gang}"] == 0, f"{gang} keeps places, {late} s late"

    def waits(self, pods: list[JsonObject]) -> bool:
        """Late members that came are placed anew, with a time of their own."""
        return any(map(pod_facts.is_gated, pods))

    def told(self) -> set[str]:
        events = self.cluster.api.list(EVENTS).items
        return {
            e["regarding"]["name"].partition("-")[0]
            for e in events
            if e["reason"] == "GangTimedOut"
        }


def test_places_of_members_that_never_come_end_in_time() -> None:
    given_up, told = 0, 0
    for seed in range(4):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.step()
            walk.check()
        given_up += walk.seen["given up"]
        told += len(walk.told())
    assert given_up > 0
    assert told > 0


@pytest.mark.parametrize("seed", range(3))
def test_after_the_time_out_others_get_the_places_and_members_stay(seed: int) -> None:
    """In the end, once nothing more comes: who is there runs, and late ones go together."""
    walk = Walk(seed + 20)
    for _ in range(40):
        walk.step()
    for pods in walk.members().values():
        for pod in pods:
            name = pod["metadata"]["name"]
            walk.cluster.api.delete(PODS, name, SPACE, grace_period_seconds=0)
    walk.cluster.loop = walk.cluster.new_loop()
    walk.cluster.loop.step()
    walk.size["last"], walk.missing["last"] = 4, 4
    walk.member("last")
    walk.cluster.loop.step()
    walk.cluster.bind()
    for i in range(5):
        walk.cluster.add(pod_object(f"other{i}", GPUS_PER_MEMBER))
    walk.cluster.loop.step()
    # Six places: one is taken and three are kept.
    assert running(walk, "other") == 2
    for _ in range(8):
        walk.cluster.clock.advance_seconds(TIMEOUT_SECONDS / 4)
        walk.cluster.loop.step()
        walk.cluster.bind()
    assert running(walk, "other") == 5
    assert running(walk, "last") == 1
    assert "last" in walk.told()
    for _ in range(3):
        walk.member("last")
    walk.cluster.loop.step()
    assert running(walk, "last") == 1
    for i in range(3):
        walk.cluster.api.delete(PODS, f"other{i}", SPACE, grace_period_seconds=0)
        walk.cluster.clock.advance_seconds(5)
        walk.cluster.loop.step()
        # None of the late ones goes before all of them can.
        assert running(walk, "last") == (4 if i == 2 else 1)


def running(walk: Walk, prefix: str) -> int:
    """Pods of that name with a place."""
    return sum(
        bool(pod_facts.pinned_node(pod))
        for name, pods in walk.members().items()
        if name.startswith(prefix)
        for pod in pods
    )
