"""Random snapshots in which pods wait, each for another kind of reason."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from scheduler_plugin.documents.node_rules import (
    NodeTerm,
    Requirement,
    Taint,
    TaintEffect,
    Toleration,
)
from scheduler_plugin.documents.peer_rule import PeerKind, PeerRule
from scheduler_plugin.documents.shared_boards import BANDWIDTH_MILLI, COMPUTE_MILLI
from scheduler_plugin.documents.snapshot import (
    Gang,
    Node,
    Pod,
    PodState,
    PowerDomain,
    SlowDown,
    Snapshot,
)

__all__ = ["KINDS", "large_snapshot", "random_snapshot"]

GIB: Final = 1024**3
MODELS: Final = {"H200": 700, "A100": 400, "L40S": 350}
PRIORITIES: Final = (0, 0, 5, 10)
BUSY: Final = 0.95
"""Of all GPUs that pods hold."""


class _Draft:
    """A snapshot in the making."""

    def __init__(self, rng: random.Random, nodes: int, racks: int) -> None:
        self.rng = rng
        self.nodes: list[dict[str, Any]] = []
        self.pods: list[dict[str, Any]] = []
        self.gangs: list[Gang] = []
        self.used = dict.fromkeys(range(racks), 0)
        for i in range(nodes):
            self.nodes.append(
                {
                    "name": f"n{i:04}",
                    "gpu_model": "H200",
                    "gpu_milli": 8000,
                    "milli_cpu": 96_000,
                    "memory_bytes": 1024 * GIB,
                    "watts_per_gpu": MODELS["H200"],
                    "idle_watts": 900,
                    "labels": {"kubernetes.io/hostname": f"n{i:04}", "zone": f"z{i % 3}"},
                    "domain": f"rack{i % racks}" if racks else "",
                }
            )

    def run_pods(self, sizes: tuple[int, ...] = (1, 1, 2, 4, 8), busy: float = BUSY) -> None:
        """Pods of so many GPUs until so much of each node is held."""
        rng = self.rng
        for i, node in enumerate(self.nodes):
            left = node["gpu_milli"] // 1000
            while left:
                gpus = min(left, rng.choice(sizes))
                left -= gpus
                if rng.random() < 1.0 - busy:
                    continue
                self.bound(i, gpus)

    def bound(self, at: int, gpus: int, **other: object) -> None:
        """One running pod; two in three may be moved."""
        rng, node = self.rng, self.nodes[at]
        pod = {
            **self.pod(f"r{len(self.pods):05}", gpus),
            "state": PodState.BOUND,
            "node": node["name"],
            "move_seconds": rng.choice([None, 30, 100, 300]),
        }
        self.pods.append(pod | other)
        rack = node["domain"].removeprefix("rack")
        if rack:
            self.used[int(rack)] += gpus * node["watts_per_gpu"]

    def pod(self, uid: str, gpus: int) -> dict[str, Any]:
        """What any pod of so many GPUs asks for."""
        cores = self.rng.choice([4_000, 6_000, 10_000])
        return {
            "uid": uid,
            "namespace": "team",
            "name": uid,
            "priority": self.rng.choice(PRIORITIES),
            "gpu_milli": gpus * 1000,
            "milli_cpu": cores * max(1, gpus),
            "memory_bytes": self.rng.choice([16, 64, 96]) * GIB * max(1, gpus),
        }

    def wait(self, count: int, sizes: tuple[int, ...] = (1, 2, 4, 8)) -> None:
        """Waiting pods."""
        for _ in range(count):
            self.pods.append(self.pod(f"w{len(self.pods):05}", self.rng.choice(sizes)))

    def gang(self, size: int, gpus: int, *, led: bool = False, **other: object) -> None:
        """A waiting gang, with a leader that needs no GPU if it is led."""
        name = f"g{len(self.gangs)}"
        template = self.pod("", gpus) | {"gang": name} | other
        for i in range(size):
            member = template | {"uid": f"{name}-{i}", "name": f"{name}-{i}"}
            self.pods.append(member | ({"gpu_milli": 0} if led and not i else {}))
        required = self.rng.random() < 0.3
        key = "zone" if required else ""
        self.gangs.append(Gang(id=name, size=size, topology_key=key, topology_required=required))

    def racks(self, spare: tuple[int, ...]) -> list[PowerDomain]:
        """Racks below a row, with so many watts to spare, and now and then a short guarantee."""
        rng = self.rng
        if not self.used:
            return []
        found = [
            PowerDomain(
                name=f"rack{rack}",
                parent="row",
                limit_watts=max(0, used + rng.choice(spare)),
                used_watts=used,
                guaranteed_margin_watts=rng.choice([500, 500, 500, -300]),
            )
            for rack, used in self.used.items()
        ]
        total = sum(self.used.values())
        row = PowerDomain(name="row", limit_watts=total + rng.choice(spare) * 2, used_watts=total)
        return [row, *found]

    def snapshot(self, domains: list[PowerDomain] | None = None) -> Snapshot:
        """As planners read it."""
        return Snapshot(
            nodes=tuple(Node(**node) for node in self.nodes),
            pods=tuple(Pod(**pod) for pod in self.pods),
            gangs=tuple(self.gangs),
            domains=tuple(domains or ()),
        )


def _full(rng: random.Random) -> Snapshot:
    draft = _Draft(rng, rng.randint(6, 24), 0)
    draft.run_pods()
    draft.wait(12)
    return draft.snapshot()


def _power(rng: random.Random) -> Snapshot:
    draft = _Draft(rng, rng.randint(6, 24), 3)
    draft.run_pods(busy=rng.choice([0.5, 0.8, BUSY]))
    draft.wait(12)
    return draft.snapshot(draft.racks((-400, 0, 300, 1500, 6000)))


def _rules(rng: random.Random) -> Snapshot:
    draft = _Draft(rng, rng.randint(6, 20), 0)
    for node in draft.nodes:
        _make_choosy(rng, node)
    draft.run_pods(busy=rng.choice([0.6, 0.9]))
    draft.wait(12)
    for pod in draft.pods:
        if "state" not in pod:
            _ask(rng, pod, draft.nodes)
    return draft.snapshot()


def _make_choosy(rng: random.Random, node: dict[str, Any]) -> None:
    keys = rng.sample(["dedicated", "maintenance", "spot"], rng.choice([0, 1, 1, 2]))
    effect = rng.choice(list(TaintEffect))
    node["taints"] = tuple(Taint(key=k, value=rng.choice(["", "a"]), effect=effect) for k in keys)
    node["schedulable"] = rng.random() > 0.15
    node["ready"] = rng.random() > 0.1
    node["power_known"] = rng.random() > 0.1
    node["disrupted"] = rng.random() < 0.1


def _ask(rng: random.Random, pod: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    if rng.random() < 0.5:
        pod["node_selector"] = {"zone": f"z{rng.randrange(5)}", "disk": "fast"}
        if rng.random() < 0.5:
            del pod["node_selector"]["disk"]
    if rng.random() < 0.3:
        named = Requirement(key="zone", operator="In", values=(f"z{rng.randrange(4)}",))
        pod["required_terms"] = (NodeTerm(match_expressions=(named,)),)
    if rng.random() < 0.4:
        pod["tolerations"] = (Toleration(key="dedicated", operator="Exists"),)
    if rng.random() < 0.3:
        banned = rng.sample([node["name"] for node in nodes], 3)
        pod["excluded_nodes"] = tuple(banned)


def _types(rng: random.Random) -> Snapshot:
    draft = _Draft(rng, rng.randint(8, 24), 2)
    for node in draft.nodes:
        model = rng.choice(list(MODELS))
        node |= {"gpu_model": model, "watts_per_gpu": MODELS[model]}
        node["resources"] = {"rdma/hca": rng.choice([0, 4])}
    draft.run_pods()
    draft.wait(12)
    for pod in draft.pods:
        if "state" not in pod:
            pod["gpu_models"] = tuple(rng.sample([*MODELS, "B200"], rng.choice([0, 1, 1, 2])))
            pod["resources"] = {"rdma/hca": rng.choice([0, 0, 1])}
    return draft.snapshot(draft.racks((0, 1500, 6000)))


def _gangs(rng: random.Random) -> Snapshot:
    draft = _Draft(rng, rng.randint(8, 20), rng.choice([0, 2]))
    draft.run_pods(busy=rng.choice([0.7, BUSY]))
    draft.wait(3)
    for _ in range(4):
        limited = {"gpu_models": ("A100",)} if rng.random() < 0.2 else {}
        size, gpus = rng.choice([(2, 8), (4, 4), (8, 2), (3, 1), (6, 8), (40, 8)])
        draft.gang(size, gpus, led=rng.random() < 0.3, **limited)
    return draft.snapshot(draft.racks((0, 3000, 20_000)))


def _hosts(rng: random.Random) -> Snapshot:
    draft = _Draft(rng, rng.randint(6, 20), 0)
    for node in draft.nodes:
        node["resources"] = {"rdma/hca": 4, "ephemeral-storage": 2000 * GIB}
        node["pods"] = rng.choice([4, 8, 110])
    draft.run_pods((1, 2), busy=0.6)
    for pod in draft.pods:
        pod["milli_cpu"] = rng.choice([6_000, 24_000])
        pod["resources"] = {"rdma/hca": rng.choice([0, 1])}
    draft.wait(12, (0, 1, 2))
    for pod in draft.pods:
        if "state" not in pod:
            pod["milli_cpu"] = rng.choice([8_000, 48_000, 90_000])
            pod["resources"] = {"rdma/hca": rng.choice([0, 2]), "ephemeral-storage": GIB}
    return draft.snapshot()


def _shares(rng: random.Random) -> Snapshot:
    draft = _Draft(rng, rng.randint(4, 10), 0)
    for at, node in enumerate(draft.nodes):
        node["gpu_milli"] = 4000
        for board in range(4):
            parts = rng.choice([(), (500, 300), (300, 300), (700,), (200, 200, 200), (1000,)])
            for milli in parts:
                draft.bound(at, 0, gpu_milli=milli, gpu_boards=(board,))
    draft.wait(12, (0, 1, 2))
    for pod in draft.pods:
        if "state" not in pod and not pod["gpu_milli"]:
            pod["gpu_milli"] = rng.choice([200, 400, 600, 900])
    return draft.snapshot()


def _peers(rng: random.Random) -> Snapshot:
    draft = _Draft(rng, rng.randint(6, 18), rng.choice([0, 2]))
    for node in draft.nodes:
        if rng.random() < 0.1:
            del node["labels"]["zone"]
    draft.run_pods(busy=rng.choice([0.5, 0.8]))
    draft.wait(12, (1, 2, 4))
    draft.gang(4, 2)
    for pod in draft.pods:
        waits = "state" not in pod
        if rng.random() < (0.6 if waits else 0.2):
            pod["groups"] = (rng.choice(["web", "db"]),)
            pod["move_seconds"] = None
        kinds = rng.sample(list(PeerKind), rng.choice([0, 1, 1, 2])) if waits else []
        if not waits and "groups" in pod and rng.random() < 0.2:
            kinds = [PeerKind.APART]
        pod["peer_rules"] = tuple(
            PeerRule(
                kind=kind,
                group=rng.choice(["web", "db"]),
                topology_key=rng.choice(["zone", "kubernetes.io/hostname"]),
            )
            for kind in kinds
        )
    return draft.snapshot(draft.racks((0, 3000, 20_000)))


def _neighbours(rng: random.Random) -> Snapshot:
    draft = _Draft(rng, rng.randint(3, 8), 0)
    works = ["chat", "embed", "tune"]
    for at, node in enumerate(draft.nodes):
        limit = rng.choice([1200, 1500, 2000])
        offers = {"nvidia.com/gpu.shared": rng.choice([2, 4])}
        offers |= {COMPUTE_MILLI: limit * 2, BANDWIDTH_MILLI: limit * 2}
        node |= {"gpu_milli": 0, "shared_boards": 2, "slow_down_limit_milli": limit}
        node["resources"] = offers
        for _ in range(rng.choice([1, 2, 3])):
            draft.bound(at, 0, **_sharing(rng, works))
    draft.wait(10, (0,))
    for pod in draft.pods:
        if "state" not in pod:
            pod |= _sharing(rng, works)
    pairs = [
        SlowDown(gpu_model="H200", work=one, beside=other, slow_down_milli=rng.randint(1000, 2600))
        for one in works
        for other in works
    ]
    return draft.snapshot().model_copy(update={"slow_downs": tuple(pairs)})


def _sharing(rng: random.Random, works: list[str]) -> dict[str, Any]:
    """Of a pod that shares a board; one in ten does work that nobody measured."""
    work = rng.choice(works) if rng.random() < 0.9 else "stranger"
    shares = {COMPUTE_MILLI: rng.choice([300, 900]), BANDWIDTH_MILLI: 100}
    return {"shared_work": work, "resources": {"nvidia.com/gpu.shared": 1, **shares}}


KINDS: Final[dict[str, Callable[[random.Random], Snapshot]]] = {
    "full": _full,
    "power": _power,
    "rules": _rules,
    "types": _types,
    "gangs": _gangs,
    "hosts": _hosts,
    "shares": _shares,
    "peers": _peers,
    "neighbours": _neighbours,
}


def random_snapshot(kind: str, seed: int) -> Snapshot:
    """One of a kind."""
    return KINDS[kind](random.Random(f"{kind}-{seed}"))


def large_snapshot(nodes: int, waiting: int, *, bound_by_power: bool, seed: int) -> Snapshot:
    """Full to 95 %, racks of 20 nodes; every waiting pod asks for something else."""
    rng = random.Random(f"large-{bound_by_power}-{seed}")
    draft = _Draft(rng, nodes, nodes // 20 if bound_by_power else 0)
    for node in draft.nodes:
        model = rng.choice(list(MODELS))
        node |= {"gpu_model": model, "watts_per_gpu": MODELS[model]}
    draft.run_pods()
    start = len(draft.pods)
    # One and a half times what is free.
    draft.wait(waiting, (1, 2, 4) if bound_by_power else (2, 4, 8))
    for number, pod in enumerate(draft.pods[start:]):
        pod["milli_cpu"] += number
        if rng.random() < 0.3:
            pod["gpu_models"] = (rng.choice(list(MODELS)),)
        if rng.random() < 0.2:
            pod["node_selector"] = {"zone": f"z{rng.randrange(4)}"}
    return draft.snapshot(draft.racks((0, 700, 6_000)) if bound_by_power else None)
