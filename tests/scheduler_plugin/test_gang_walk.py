"""Random steps against a faulty API: elastic gangs, replicas that keep apart, Kueue's Workloads."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from scheduler_plugin.app.kueue_checks import ADMISSION_CHECKS
from scheduler_plugin.kube_objects import pods as pod_facts
from tests.scheduler_plugin.placement_cluster import SPACE, Cluster, pod_object
from tests.scheduler_plugin.test_kueue_checks import WithStatus
from tests.scheduler_plugin.test_placement_random_walk import Unreliable
from wattpack.gang_sources import KUEUE_WORKLOADS
from wattpack.kube.port import PODS, JsonObject
from wattpack.quantities import pod_requests

NODES = ("n1", "n2", "n3", "n4")
GPUS_PER_NODE, GPUS_PER_MEMBER = 8, 4
LEAST, MOST = 2, 4
WORKLOADS, CHECKS = KUEUE_WORKLOADS[0], ADMISSION_CHECKS[0]


class Walk:
    """A cluster, a dice, and what must hold after every step."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        # Nobody's time is over: every partial gang that is seen is one that must not be.
        self.cluster = Cluster(
            deadline_seconds=0.0,
            kueue_admission_checks=True,
            gang_timeout_seconds=80_000.0,
            patience_seconds=30.0,
        )
        self.cluster.api = WithStatus(self.cluster.clock)
        self.cluster.add_nodes(*NODES, gpus=GPUS_PER_NODE)
        spec = {"controllerName": "wattpack.io/placement"}
        self.cluster.api.create(CHECKS, self._object(CHECKS.kind, "places", spec))
        self.serial = 0
        self.seen: Counter[str] = Counter()
        self.restart()

    def _object(self, kind: str, name: str, spec: JsonObject, **more: Any) -> JsonObject:
        return {"kind": kind, "metadata": {"name": name}, "spec": spec, **more}

    def restart(self) -> None:
        api = Unreliable(self.cluster, self.dice)
        self.cluster.loop = self.cluster.new_loop(api)  # type: ignore[arg-type]

    def pods(self) -> list[JsonObject]:
        return list(self.cluster.api.list(PODS).items)

    def step(self) -> None:
        arrivals = (self.elastic, self.replicas, self.workload, self.start_workload)
        choice = self.dice.random()
        if choice < 0.4:
            self.dice.choice(arrivals)()
        elif choice < 0.6:
            self.leave()
        elif choice < 0.75:
            self.cluster.bind()
        elif choice < 0.8:
            self.restart()
        self.cluster.clock.advance_seconds(self.dice.choice([0.2, 1, 5, 12]))
        self.cluster.loop.step()

    def elastic(self) -> None:
        self.serial += 1
        for i in range(self.dice.randint(LEAST, MOST + 1)):
            marks = {"wattpack.io/gang-size": f"{LEAST}-{MOST}"}
            labels = {"wattpack.io/gang": f"e{self.serial}", "walk": "elastic"}
            name = f"e{self.serial}-{i}"
            self.cluster.add(pod_object(name, GPUS_PER_MEMBER, labels=labels, annotations=marks))

    def replicas(self) -> None:
        self.serial += 1
        labels = {"app": f"r{self.serial}", "walk": "apart"}
        term = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": labels["app"]}},
        }
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        for i in range(self.dice.randint(2, 5)):
            affinity = {"podAntiAffinity": rule}
            self.cluster.add(pod_object(f"r{self.serial}-{i}", 1, labels=labels, affinity=affinity))

    def workload(self) -> None:
        self.serial += 1
        template = {"spec": pod_object("t", GPUS_PER_MEMBER)["spec"]}
        pod_sets = [{"name": "main", "count": self.dice.randint(1, 3), "template": template}]
        check = {"name": "places", "state": "Pending", "message": ""}
        status = {
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "admissionChecks": [check],
        }
        name, spec = f"w{self.serial}", {"podSets": pod_sets}
        body = self._object(WORKLOADS.kind, name, spec, status=status)
        self.cluster.api.create(WORKLOADS, body, SPACE)

    def start_workload(self) -> None:
        """Kueue lets one go that is ready: its pods come, and it asks no more."""
        for body in self.cluster.api.list(WORKLOADS).items:
            (check,) = body["status"]["admissionChecks"]
            if check["state"] != "Ready" or "started" in body["status"]:
                continue
            (update,) = check["podSetUpdates"]
            name = body["metadata"]["name"]
            for i in range(body["spec"]["podSets"][0]["count"]):
                marks = {"labels": update["labels"] | {"walk": "kueue"}}
                marks["annotations"] = update["annotations"]
                self.cluster.add(pod_object(f"{name}-{i}", GPUS_PER_MEMBER, **marks))
            status = body["status"] | {"started": True}
            self.cluster.api.replace(WORKLOADS, body | {"status": status}, SPACE, "status")
            self.seen["started"] += 1
            return

    def leave(self) -> None:
        """Everything of one arrival ends together."""
        names = sorted({p["metadata"]["name"].partition("-")[0] for p in self.pods()})
        if not names:
            return
        gone = self.dice.choice(names)
        for pod in self.pods():
            if pod["metadata"]["name"].partition("-")[0] == gone:
                self.cluster.api.delete(
                    PODS, pod["metadata"]["name"], SPACE, grace_period_seconds=0
                )
        if gone.startswith("w"):
            self.cluster.api.delete(WORKLOADS, gone, SPACE)

    def check(self) -> None:
        used: Counter[str] = Counter()
        where: dict[str, list[str]] = defaultdict(list)
        for pod in self.pods():
            node = pod_facts.node_name(pod) or pod_facts.pinned_node(pod)
            used[node] += pod_requests(pod)["nvidia.com/gpu"]
            if node:
                where[pod["metadata"]["name"].partition("-")[0]].append(node)
        assert all(used[node] <= GPUS_PER_NODE for node in NODES), used
        for name, nodes in where.items():
            kept = len(self.cluster.loop.ledger.gang_slots(f"{SPACE}/gang/{name}"))
            promised = sum(
                p.gang == f"{SPACE}/gang/{name}" and not pod_facts.pinned_node(self.of(p.uid))
                for p in self.cluster.loop.ledger.promises.values()
            )
            if name.startswith("e"):
                assert len(nodes) + kept + promised >= LEAST, f"{name}: {nodes}"
                assert len(nodes) <= MOST, f"{name}: {nodes}"
                self.seen["larger"] += len(nodes) > LEAST
            elif name.startswith("r"):
                assert len(nodes) == len(set(nodes)), f"{name}: {nodes}"
                self.seen["apart"] += len(nodes) > 1

    def of(self, uid: str) -> JsonObject:
        found = (pod for pod in self.pods() if pod_facts.uid(pod) == uid)
        return next(found, {"spec": {}})


def test_no_gang_is_partial_and_no_rule_is_broken_whatever_fails() -> None:
    seen: Counter[str] = Counter()
    for seed in range(4):
        walk = Walk(seed)
        for _ in range(120):
            walk.step()
            walk.check()
        seen += walk.seen
    assert min(seen[what] for what in ("started", "larger", "apart")) > 0, seen


@pytest.mark.parametrize("seed", range(2))
def test_once_all_is_quiet_nobody_waits_who_fits(seed: int) -> None:
    walk = Walk(seed + 50)
    for _ in range(60):
        walk.step()
    for pod in walk.pods():
        walk.cluster.api.delete(PODS, pod["metadata"]["name"], SPACE, grace_period_seconds=0)
    for body in walk.cluster.api.list(WORKLOADS).items:
        walk.cluster.api.delete(WORKLOADS, body["metadata"]["name"], SPACE)
    walk.elastic()
    walk.workload()
    for _ in range(30):
        walk.cluster.loop.step()
        walk.start_workload()
        walk.cluster.bind()
        walk.cluster.clock.advance_seconds(12)
    last = [p for p in walk.pods() if not pod_facts.node_name(p)]
    running = len(walk.pods()) - len(last)
    # Beyond its most members an elastic gang has one at most, which waits.
    assert len(last) <= 1
    assert running >= LEAST + 1
