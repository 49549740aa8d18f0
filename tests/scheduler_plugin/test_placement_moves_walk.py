"""Random steps of a cluster in which pods move: nothing promised twice, nobody disturbed too much.

Nodes fail, go with their pods and come back as others of the same name; finalizers hold deletions.
The judge counts what the API shows; it knows nothing of plans, ledgers or open steps.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from scheduler_plugin.kube_objects import pods as pod_facts
from tests.examples import LONG
from tests.scheduler_plugin.moving_cluster import MovingCluster, restarted
from tests.scheduler_plugin.placement_cluster import SPACE, pod_object
from wattpack.kube.port import (
    PODS,
    ConflictError,
    JsonObject,
    Resource,
    ThrottledError,
    UnavailableError,
)
from wattpack.quantities import pod_requests

NODES = ("n1", "n2", "n3", "n4", "n5")
GPUS = 8
PER_HOUR, PER_OWNER = 30, 3
#: 10,000 steps in the long form.
SEEDS, STEPS = (20, 500) if LONG else (4, 150)
#: A gang may be in part at its gate for its time-out and two more cycles.
PARTIAL_SECONDS = 300 + 60
#: Within so long every patch was answered or sent again (assumed: three of the longest turns).
PATCH_SECONDS = 120


class Unreliable:
    """Fails some writes, some of them after they were made; pods are deleted by nobody."""

    def __init__(self, cluster: MovingCluster, dice: random.Random) -> None:
        self._api = cluster.kube
        self._dice = dice
        self.works = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def _maybe(self, call: Callable[[], Any]) -> Any:
        roll = 0.5 if self.works else self._dice.random()
        if roll < 0.06:
            raise self._dice.choice([ConflictError, ThrottledError, UnavailableError])("before")
        result = call()
        if roll > 0.96:
            raise UnavailableError("after")
        return result

    def patch_json(self, *rest: Any, **options: Any) -> JsonObject:
        return self._maybe(lambda: self._api.patch_json(*rest, **options))

    def create(self, *rest: Any) -> JsonObject:
        return self._maybe(lambda: self._api.create(*rest))

    def evict(self, *rest: Any, **options: Any) -> None:
        self._maybe(lambda: self._api.evict(*rest, **options))

    def delete(self, resource: Resource, *rest: Any, **options: Any) -> None:
        assert resource != PODS, "the planner deletes no pod"
        self._api.delete(resource, *rest, **options)


class Walk:
    """A cluster, a dice, and what must hold after every step."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = MovingCluster(
            per_hour=PER_HOUR,
            per_owner_per_hour=PER_OWNER,
            after_seconds=10.0,
            settings={"deadline_seconds": 0.02, "patience_seconds": 30.0},
        )
        self.cluster.add_nodes(*NODES, gpus=GPUS)
        self.api = Unreliable(self.cluster, self.dice)
        self.serial = 0
        self.split_since: dict[str, float] = {}
        self.seen_since: dict[str, float] = {}
        self.sizes: dict[str, int] = {}
        self.broken: set[str] = set()
        self.seen: Counter[str] = Counter()
        self.restart()

    # Steps

    def restart(self) -> None:
        restarted(self.cluster, self.api)  # type: ignore[arg-type]

    def step(self) -> None:
        events: list[tuple[float, Callable[[], None]]] = [
            (0.16, self.owner_comes),
            (0.06, self.gang_comes),
            (0.05, self.bare_pod_comes),
            (0.16, self.owner_changes),
            (0.06, self.gang_goes),
            (0.05, self.budget_comes),
            (0.05, self.pod_is_deleted),
            (0.06, self.pods_lag),
            (0.04, self.webhook_changes),
            (0.05, self.restart),
            (0.04, self.node_fails),
            (0.06, self.node_comes_back),
            (0.04, self.finalizers_come),
            (0.05, self.finalizers_go),
        ]
        roll = self.dice.random()
        for share, event in events:
            if roll < share:
                event()
                break
            roll -= share
        self.cluster.turn(self.dice.choice([1, 1, 2, 5, 15, 40]))

    def owner_comes(self) -> None:
        if len(self.cluster.owners) >= 14:
            return
        self.serial += 1
        changes: dict[str, Any] = {}
        if rank := self.dice.choice(["", "", "", "low", "high"]):
            changes["priorityClassName"] = rank
        if self.dice.random() < 0.15:
            changes["labels"] = {"wattpack.io/moves": "disabled"}
        if self.dice.random() < 0.1:
            changes["preemptionPolicy"] = "Never"
        gpus = self.dice.choice([1, 2, 3, 3, 4, 5, 8])
        self.cluster.own(f"o{self.serial}", gpus, self.dice.choice([1, 1, 2, 3]), **changes)

    def owner_changes(self) -> None:
        if self.cluster.owners:
            name = self.dice.choice(sorted(self.cluster.owners))
            self.cluster.scale(name, self.dice.choice([0, 0, 1, 2]))

    def gang_comes(self) -> None:
        self.serial += 1
        size = self.sizes[f"g{self.serial}"] = self.dice.randint(2, 3)
        marks = {
            "labels": {"wattpack.io/gang": f"g{self.serial}"},
            "annotations": {"wattpack.io/gang-size": str(size)},
        }
        for member in range(size):
            self.cluster.admit(pod_object(f"g{self.serial}-{member}", 4, **marks))

    def gang_goes(self) -> None:
        gangs = self.gangs()
        for pod in gangs[self.dice.choice(sorted(gangs))] if gangs else ():
            self.cluster.kube.delete(PODS, pod["metadata"]["name"], SPACE)

    def bare_pod_comes(self) -> None:
        self.serial += 1
        rank = self.dice.choice(["low", "high"])
        body = pod_object(f"b{self.serial}", self.dice.choice([2, 4]), owned=False)
        body["spec"]["priorityClassName"] = rank
        self.cluster.admit(body)

    def budget_comes(self) -> None:
        if self.cluster.owners:
            name = self.dice.choice(sorted(self.cluster.owners))
            self.cluster.drop_budget(name)
            self.cluster.keep_available(name, self.dice.choice([0, 1, 1]))

    def pod_is_deleted(self) -> None:
        pods = [p for p in self.cluster.all_pods() if not p["metadata"]["name"].startswith("g")]
        if pods:
            self.cluster.kube.delete(PODS, self.dice.choice(pods)["metadata"]["name"], SPACE)

    def pods_lag(self) -> None:
        names = [p["metadata"]["name"] for p in self.cluster.all_pods()]
        lags = bool(names) and not self.cluster.lagging
        self.cluster.lagging = set(self.dice.sample(names, len(names) // 2)) if lags else set()

    def webhook_changes(self) -> None:
        self.cluster.webhook_works = not self.cluster.webhook_works

    def node_fails(self) -> None:
        """Its kubelet is silent, it is cordoned, or it is gone with all that ran there."""
        node = self.dice.choice(sorted(self.cluster.nodes()) or [""])
        if len(self.cluster.nodes()) < len(NODES) - 1:
            return
        self.seen["node"] += 1
        fate = self.dice.choice(["silent", "cordoned", "gone", "replaced"])
        if fate == "silent":
            self.cluster.set_node(node, ready=False)
        elif fate == "cordoned":
            self.cluster.set_node(node, cordoned=True)
        else:
            self.cluster.lose_node(node)
            for gang, members in self.gangs().items():
                if len(members) < self.sizes[gang]:
                    self.broken.add(gang)
        if fate == "replaced":
            self.cluster.add_nodes(node, gpus=GPUS)

    def node_comes_back(self) -> None:
        for node in NODES:
            if node in self.cluster.nodes():
                self.cluster.set_node(node)
            else:
                self.cluster.add_nodes(node, gpus=GPUS)

    def finalizers_come(self) -> None:
        """Somebody wants to look at some pods after their end."""
        pods = self.cluster.all_pods()
        for pod in self.dice.sample(pods, min(4, len(pods))):
            self.cluster.hold(pod["metadata"]["name"])

    def finalizers_go(self) -> None:
        for pod in self.cluster.all_pods():
            self.seen["held"] += bool(pod["metadata"].get("deletionTimestamp"))
            self.cluster.let_go(pod["metadata"]["name"])

    # What must hold

    def gangs(self) -> dict[str, list[JsonObject]]:
        found: dict[str, list[JsonObject]] = defaultdict(list)
        for pod in self.cluster.all_pods():
            if gang := (pod["metadata"].get("labels") or {}).get("wattpack.io/gang"):
                found[gang].append(pod)
        return found

    def check(self) -> None:
        self.nothing_is_promised_twice()
        self.nobody_is_disturbed_too_much()
        self.no_gang_is_split_for_long()

    def nothing_is_promised_twice(self) -> None:
        """Where a pod was pinned just now, all pins and what stands beside them fit.

        A pod that passed the gate by may take a promised place at any moment: it counts once every
        patch that was under way then has been answered. Bare pods only prefer their nodes.
        """
        now = self.cluster.clock.monotonic_ns() / 1e9
        used: Counter[str] = Counter()
        fresh: set[str] = set()
        for pod in self.cluster.all_pods():
            pin = "" if pod_facts.is_bare(pod) else pod_facts.pinned_node(pod)
            node, uid = pod_facts.node_name(pod) or pin, pod_facts.uid(pod)
            if not node:
                continue
            if not pod_facts.node_name(pod) and pod["metadata"].get("deletionTimestamp"):
                continue  # Nobody binds it any more, however long it is held.
            if uid not in self.seen_since:
                self.seen_since[uid] = now
                fresh |= {node} if pin else set()
            if pin or now - self.seen_since[uid] >= PATCH_SECONDS:
                used[node] += pod_requests(pod)["nvidia.com/gpu"]
        # A patch without an answer is sent again, also to a node that is gone by now.
        for node in fresh & self.cluster.nodes().keys():
            assert used[node] <= GPUS, f"{node} was promised {used[node]} GPUs"

    def nobody_is_disturbed_too_much(self) -> None:
        ours = [e for e in self.cluster.kube.evictions if e.ran]
        assert all(e.allowed_before > 0 and e.opted_in for e in ours)
        times: dict[str, list[float]] = defaultdict(list)
        for one in ours:
            for key, limit in (("", PER_HOUR), (one.owner, PER_OWNER)):
                times[key].append(one.at_seconds)
                since = bisect_left(times[key], one.at_seconds - 3599.0)
                assert len(times[key]) - since <= limit, f"{key or 'the cluster'}: {times[key]}"

    def no_gang_is_split_for_long(self) -> None:
        now = self.cluster.clock.monotonic_ns() / 1e9
        split = {
            gang
            for gang, members in self.gangs().items()
            if gang not in self.broken and len({pod_facts.is_gated(pod) for pod in members}) > 1
        }
        self.split_since = {g: self.split_since.get(g, now) for g in split}
        for gang, since in self.split_since.items():
            assert now - since <= PARTIAL_SECONDS, f"{gang} is split since {now - since} s"

    def nobody_waits_for_ever(self) -> None:
        """Once all is well and there is room, everybody runs."""
        self.node_comes_back()
        self.finalizers_go()
        self.api.works = True
        self.cluster.webhook_works, self.cluster.lagging = True, set()
        for name in sorted(self.cluster.owners):
            self.cluster.scale(name, 0)
        for pod in self.cluster.all_pods():
            self.cluster.kube.delete(PODS, pod["metadata"]["name"], SPACE)
        self.cluster.own("last", 4, 2 * len(NODES))
        self.cluster.turns(60, 20)
        assert "" not in self.cluster.where("last")
        assert len(self.cluster.where("last")) == 2 * len(NODES)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.timeout(1800 if LONG else 600)  # 500 steps took 600 s on a host that was busy.
def test_whatever_happens_nothing_is_promised_twice_and_nobody_disturbed_too_much(
    seed: int,
) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
        walk.check()
    assert walk.seen["node"] > 0
    walk.nobody_waits_for_ever()
