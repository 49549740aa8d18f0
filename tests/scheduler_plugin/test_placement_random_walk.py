"""Random steps against a faulty API: nothing is promised twice, nobody is forgotten."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from scheduler_plugin.app.release import release_all
from scheduler_plugin.kube_objects import pods as pod_facts
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from wattpack.kube.port import (
    PODS,
    ConflictError,
    JsonObject,
    Resource,
    ThrottledError,
    UnavailableError,
)
from wattpack.quantities import pod_requests

NODES = ("n1", "n2", "n3", "n4")
GPUS_PER_NODE = 8
STEPS = 100


class Unreliable:
    """Fails some writes, some of them after they were made."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self._api = cluster.api
        self._dice = dice

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def _maybe(self, call: Callable[[], JsonObject]) -> JsonObject:
        roll = self._dice.random()
        if roll < 0.06:
            raise self._dice.choice([ConflictError, ThrottledError, UnavailableError])("before")
        result = call()
        if roll > 0.96:
            raise UnavailableError("after")
        return result

    def patch_json(self, resource: Resource, *rest: Any, **options: Any) -> JsonObject:
        return self._maybe(lambda: self._api.patch_json(resource, *rest, **options))

    def create(self, resource: Resource, *rest: Any) -> JsonObject:
        return self._maybe(lambda: self._api.create(resource, *rest))


class Walk:
    """A cluster, a dice, and what must hold after every step."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = Cluster(deadline_seconds=0.0, patience_seconds=30.0)
        self.cluster.add_nodes(*NODES, gpus=GPUS_PER_NODE)
        self.serial = 0
        self.outcome = ""
        self.restart()

    def restart(self) -> None:
        api = Unreliable(self.cluster, self.dice)
        self.cluster.loop = self.cluster.new_loop(api)  # type: ignore[arg-type]

    def pods(self) -> list[JsonObject]:
        return list(self.cluster.api.list(PODS).items)

    def step(self) -> None:
        choice = self.dice.random()
        if choice < 0.30:
            self.arrive()
        elif choice < 0.38:
            self.arrive_gang()
        elif choice < 0.50:
            self.leave()
        elif choice < 0.60:
            self.cluster.bind()
        elif choice < 0.63:
            self.restart()
        self.cluster.clock.advance_seconds(self.dice.choice([0.2, 1, 5, 12]))
        self.outcome = self.cluster.loop.step().outcome

    def arrive(self) -> None:
        self.serial += 1
        gpus = self.dice.choice([1, 1, 2, 4, 8])
        self.cluster.add(pod_object(f"p{self.serial}", gpus, owned=self.dice.random() < 0.9))

    def arrive_gang(self) -> None:
        self.serial += 1
        size = self.dice.randint(2, 3)
        for member in range(self.dice.choice([1, size])):
            self.cluster.add(
                pod_object(
                    f"g{self.serial}-{member}",
                    4,
                    labels={"wattpack.io/gang": f"g{self.serial}"},
                    annotations={"wattpack.io/gang-size": str(size)},
                )
            )

    def leave(self) -> None:
        pods = self.pods()
        if pods:
            name = self.dice.choice(pods)["metadata"]["name"]
            self.cluster.api.delete(PODS, name, SPACE, grace_period_seconds=0)

    def check(self) -> None:
        used: Counter[str] = Counter()
        for pod in self.pods():
            node = pod_facts.node_name(pod) or pod_facts.pinned_node(pod)
            used[node] += pod_requests(pod)["nvidia.com/gpu"]
        if self.outcome == "planned":
            for place in self.cluster.loop.ledger.reservations.values():
                used[place.node] += 4
        for node in NODES:
            assert used[node] <= GPUS_PER_NODE, f"{node} was promised {used[node]} GPUs"


@pytest.mark.parametrize("seed", range(4))
def test_no_place_is_promised_twice_whatever_fails(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
        walk.check()


@pytest.mark.parametrize("seed", range(2))
def test_once_the_api_is_well_again_every_pod_that_fits_gets_its_place(seed: int) -> None:
    walk = Walk(seed + 100)
    for _ in range(60):
        walk.step()
    for pod in walk.pods():
        walk.cluster.api.delete(PODS, pod["metadata"]["name"], SPACE, grace_period_seconds=0)
    for i in range(8):
        walk.cluster.add(pod_object(f"last{i}", 4))
    walk.cluster.clock.advance_seconds(1000)
    for _ in range(30):
        walk.cluster.loop.step()
        walk.cluster.bind()
        walk.cluster.clock.advance_seconds(6)
    assert all(pod_facts.node_name(pod) for pod in walk.pods())
    assert len(walk.pods()) == 8


def test_after_an_uninstall_in_the_middle_of_trouble_no_pod_is_held() -> None:
    walk = Walk(7)
    for _ in range(40):
        walk.step()
    api = Unreliable(walk.cluster, walk.dice)
    assert release_all(api, passes=20).left == 0  # type: ignore[arg-type]
    assert not any(pod_facts.is_gated(pod) for pod in walk.pods())
