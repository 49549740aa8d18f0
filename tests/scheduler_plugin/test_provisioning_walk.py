"""Whatever autoscaler, restarts and failing calls do: one request a demand, and nobody is stuck."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from scheduler_plugin.app.under_way_reader import PROVISIONING_REQUESTS
from scheduler_plugin.promises.provisioning import HOUR_SECONDS
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, gang_pod, pod_object
from wattpack.kube.fault_injection import FaultRates, FaultyKube
from wattpack.kube.port import NODES, PODS, AlreadyExistsError, JsonObject, KubeApi, Resource
from wattpack.times import rfc3339
from wattpack.units import NS_PER_SECOND

REQUESTS = PROVISIONING_REQUESTS[0]
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
PER_HOUR, TIMEOUT_SECONDS = 4, 300.0
STAGES = ("Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked")


class Audited:
    """Counts requests as they are made, and sees that none is made beside a living one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.count = 0
        self.made_seconds: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster.api, name)

    def create(self, resource: Resource, body: JsonObject, namespace: str | None = None) -> Any:
        stored = self._cluster.api.create(resource, body, namespace)
        if resource in PROVISIONING_REQUESTS:
            self.count += 1
            now_seconds = self._cluster.clock.wall_time_ns() / NS_PER_SECOND
            self.made_seconds[body["metadata"]["name"]] = now_seconds
            owners = {owner["uid"] for owner in body["metadata"]["ownerReferences"]}
            for other in self._cluster.api.list(REQUESTS).items:
                if other["metadata"]["name"] != body["metadata"]["name"]:
                    theirs = {owner["uid"] for owner in other["metadata"]["ownerReferences"]}
                    assert owners.isdisjoint(theirs), "two requests for the same pods"
        return stored

    def delete(self, resource: Resource, name: str, *told: Any, **more: Any) -> None:
        self._cluster.api.delete(resource, name, *told, **more)
        if resource in PROVISIONING_REQUESTS:
            # A planner that begins later cannot know of it, and it brought nothing.
            del self.made_seconds[name]


class Walk:
    """Pods, a capricious autoscaler and a planner that is replaced now and then."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        limits = {"per_hour": PER_HOUR, "timeout_seconds": TIMEOUT_SECONDS}
        self.cluster = Cluster(provisioning={"enabled": True} | limits)
        self.cluster.add_nodes("n1", "n2")
        self.audit = Audited(self.cluster)
        self.faulty = FaultyKube(cast(KubeApi, self.audit), FaultRates(), seed=seed)
        self.serial = 0
        self.restart()

    def restart(self) -> None:
        self.serial += 1
        self.cluster.loop = self.cluster.new_loop(self.faulty, epoch=self.serial)

    def add(self) -> None:
        self.serial += 1
        if self.random.random() < 0.5:
            self.cluster.add(pod_object(f"p{self.serial}", self.random.choice([4, 16])))
            return
        size = self.random.randint(2, 4)
        for i in range(size):
            body = gang_pod(f"g{self.serial}-{i}", size, self.random.choice([8, 16]))
            body["metadata"]["labels"]["wattpack.io/gang"] = f"g{self.serial}"
            self.cluster.add(body)

    def delete(self) -> None:
        pods = self.cluster.api.list(PODS).items
        if pods:
            name = self.random.choice(pods)["metadata"]["name"]
            self.cluster.api.delete(PODS, name, SPACE)

    def answer(self) -> None:
        """Some request reaches another stage."""
        requests = self.cluster.api.list(REQUESTS).items
        if not requests:
            return
        body = self.random.choice(requests)
        now = rfc3339(self.cluster.clock.wall_time_ns())
        told = {"type": self.random.choice(STAGES), "status": "True", "lastTransitionTime": now}
        said = (body.get("status") or {}).get("conditions", [])
        if all(each["type"] != told["type"] for each in said):
            answered = {**body, "status": {"conditions": [*said, told]}}
            self.cluster.api.replace(REQUESTS, answered, SPACE)

    def bring(self) -> None:
        self.serial += 1
        try:
            self.cluster.add_nodes(f"b{self.serial}", gpus=16)
        except AlreadyExistsError:
            return

    def take(self) -> None:
        nodes = [n for n in self.cluster.api.list(NODES).items if n["metadata"]["name"][0] == "b"]
        if nodes:
            self.cluster.api.delete(NODES, self.random.choice(nodes)["metadata"]["name"])

    def go(self) -> None:
        acts = {self.add: 6, self.delete: 4, self.answer: 5, self.bring: 1, self.take: 2}
        acts |= {self.cluster.bind: 4, self.restart: 1}
        rates = (FaultRates(), FaultRates(conflict=0.2, server_error=0.1, lost_answer=0.2))
        self.faulty.rates = self.random.choice(rates)
        (act,) = self.random.choices(list(acts), list(acts.values()))
        act()
        self.cluster.clock.advance_seconds(self.random.choice([1.0, 5.0, 20.0, 70.0]))
        self.cluster.loop.step()

    def settle(self) -> None:
        """The autoscaler says nothing any more; all limits and time-outs pass."""
        self.faulty.rates = FaultRates()
        for _ in range(120):
            self.cluster.clock.advance_seconds(HOUR_SECONDS / 10)
            self.cluster.loop.step()
            self.cluster.bind()


@pytest.mark.parametrize("seed", range(4))
def test_one_request_a_demand_within_the_limit_and_nobody_is_stuck(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(120):
        walk.go()
    walk.settle()
    made = walk.audit.made_seconds.values()
    assert walk.audit.count > PER_HOUR, "nothing was tried"
    for at in made:
        assert sum(at - HOUR_SECONDS < other <= at for other in made) <= PER_HOUR
    result = walk.cluster.loop.step()
    reasons = {reason for reason, _ in result.pending.values()}
    assert not reasons & {"NodeUnderWay", "LargerThanAnyNode", "GangExceedsCluster"}
    for pod in walk.cluster.api.list(PODS).items:
        marks = pod["metadata"].get("annotations") or {}
        is_free = not pod["spec"].get("schedulingGates") and not pod["spec"].get("affinity")
        assert not (is_free and CONSUMES in marks), "no node would come for it"
