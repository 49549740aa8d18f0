"""Contended clusters for ``planner_latency``: almost full, with more asked for than is free.

Servers of eight GPUs, eight to a rack and sixteen racks to a row. Every bound pod stands in the
snapshot, and so do the pods without GPUs that run on every server. What waits comes from a few
dozen templates, as a cluster's work does. Half of the racks can feed only half of what is free
below them. All figures are assumed; no snapshot of a real cluster of this size is public.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any, Final

from scheduler_plugin.documents.node_rules import TaintEffect, Toleration
from scheduler_plugin.documents.snapshot import (
    MILLI_PER_GPU,
    Gang,
    Node,
    Pod,
    PodState,
    PowerDomain,
    Snapshot,
)
from wattpack.gpu_resources import COUNT_LABEL, NVIDIA_GPU
from wattpack.object_names import GPU_PRODUCT_LABEL

__all__ = ["contended"]

GIB: Final = 1024**3
GPUS: Final = 8
NODES_A_RACK: Final = 8
RACKS_A_ROW: Final = 16
MODELS: Final = ("H200-SXM", "H200-SXM", "A100-SXM")
WATTS: Final = {"H200-SXM": 900, "A100-SXM": 520}
DECODE_SHARE: Final = 0.6
FULL: Final = 0.95
"""Of the cluster's GPUs, taken by bound pods."""

DEMAND: Final = 1.5
"""GPUs that wait over GPUs that are free."""

SYSTEM_PODS: Final = 4
"""Pods on every server that ask for no GPU: agents, exporters, proxies."""

TEMPLATES: Final = 40
GANG_SHARE: Final = 0.1
"""Of the waiting pods, members of gangs of four."""

ALWAYS: Final = tuple(
    Toleration(key=f"node.kubernetes.io/{what}", operator="Exists", effect=TaintEffect.NO_EXECUTE)
    for what in ("not-ready", "unreachable")
)
"""What the API server gives every pod."""


def contended(servers: int, waiting: int, seed: int, cycle: int = 0) -> Snapshot:
    """One cycle's snapshot, the same for the same arguments.

    From cycle to cycle other pods have ended, so that a tenth of the pods that run differ, and all
    that wait are new: more than changes within a second.
    """
    nodes = [_node(i) for i in range(servers)]
    filled = _filled(random.Random(seed), nodes)
    chance = random.Random(f"{seed} {cycle}")
    bound = _without_some(chance, filled, round((1 - FULL) * GPUS * servers))
    free = {node.name: GPUS for node in nodes}
    for pod in bound:
        free[pod.node] -= pod.gpu_milli // MILLI_PER_GPU
    pods, gangs = _waiting(chance, waiting, round(DEMAND * sum(free.values())), f"c{cycle:03}")
    return Snapshot(
        nodes=tuple(nodes),
        pods=(*bound, *_system(nodes), *pods),
        gangs=gangs,
        domains=_domains(nodes, free),
    )


def _node(i: int) -> Node:
    rack = i // NODES_A_RACK
    model = MODELS[rack % len(MODELS)]
    name = f"gpu-{i:05}.cluster.example"
    return Node(
        name=name,
        gpu_model=model,
        gpu_milli=GPUS * MILLI_PER_GPU,
        milli_cpu=192_000,
        memory_bytes=2048 * GIB,
        pods=110,
        resources={NVIDIA_GPU: GPUS, "ephemeral-storage": 3000 * GIB},
        labels={
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": f"zone-{rack // RACKS_A_ROW}",
            "topology.example/rack": f"rack-{rack:03}",
            GPU_PRODUCT_LABEL: model,
            COUNT_LABEL: str(GPUS),
        },
        domain=f"rack-{rack:03}",
        idle_watts=1200,
        watts_per_gpu=WATTS[model],
        class_watts_per_gpu={"decode": round(DECODE_SHARE * WATTS[model])},
    )


def _pod(
    uid: str,
    gpus: int,
    cpu_a_gpu: int = 20_000,
    gib_a_gpu: int = 200,
    **more: Any,  # noqa: ANN401
) -> Pod:
    """A pod with GPUs, or one of the system's."""
    return Pod(
        uid=f"6f1c2d9e-0000-4000-8000-{uid:>012}",
        name=f"work-{uid}",
        gpu_milli=gpus * MILLI_PER_GPU,
        milli_cpu=gpus * cpu_a_gpu or 500,
        memory_bytes=(gpus * gib_a_gpu or 2) * GIB,
        resources={NVIDIA_GPU: gpus},
        **({"namespace": f"team-{gpus % 7}"} | more),
    )


def _filled(chance: random.Random, nodes: list[Node]) -> list[Pod]:
    """Every GPU of every server is somebody's; seven pods of ten could be moved."""
    pods: list[Pod] = []
    for node in nodes:
        left = GPUS
        while left:
            gpus = min(left, chance.choice((1, 1, 2, 4, 8)))
            left -= gpus
            rules: dict[str, Any] = {}
            if chance.random() < 0.7:
                rules = {"move_seconds": chance.randrange(60, 900), "tolerations": ALWAYS}
            pods.append(
                _pod(
                    f"{len(pods):x}",
                    gpus,
                    state=PodState.BOUND,
                    node=node.name,
                    priority=chance.choice((0, 0, 50, 100)),
                    kernel_class=chance.choice(("", "decode")),
                    **rules,
                )
            )
    return pods


def _without_some(chance: random.Random, pods: list[Pod], free_gpus: int) -> list[Pod]:
    """Some have ended at random, so that so many GPUs are free, or a few more."""
    left = chance.sample(pods, len(pods))
    while free_gpus > 0:
        free_gpus -= left.pop().gpu_milli // MILLI_PER_GPU
    return left


def _system(nodes: list[Node]) -> list[Pod]:
    return [
        _pod(f"{kind}5{i:06x}", 0, state=PodState.BOUND, node=node.name, namespace="system")
        for i, node in enumerate(nodes)
        for kind in range(SYSTEM_PODS)
    ]


def _waiting(
    chance: random.Random, count: int, gpus: int, mark: str
) -> tuple[tuple[Pod, ...], tuple[Gang, ...]]:
    """So many pods that ask for so many GPUs together, a few more or less."""
    templates = [_template(chance, (1, 1, 2, 4, 8)[i % 5]) for i in range(TEMPLATES)]
    gangs = round(GANG_SHARE * count) // 4
    chosen = [chance.choice(templates) for _ in range(count - 4 * gangs)]
    wanted = gpus - gangs * 4 * GPUS
    while abs(missing := wanted - sum(each["gpus"] for each in chosen)) > GPUS:
        fitting = [t for t in templates if (t["gpus"] > 1) == (missing > 0)]
        chosen[chance.randrange(len(chosen))] = chance.choice(fitting)
    single = [_pod(f"a{mark}{i:06x}", tolerations=ALWAYS, **each) for i, each in enumerate(chosen)]
    members = [
        _pod(f"b{mark}{i:06x}", GPUS, gang=f"gang-{i // 4}", priority=50, tolerations=ALWAYS)
        for i in range(4 * gangs)
    ]
    return (*single, *members), tuple(Gang(id=f"gang-{i}", size=4) for i in range(gangs))


def _template(chance: random.Random, gpus: int) -> dict[str, Any]:
    return {
        "gpus": gpus,
        "cpu_a_gpu": chance.choice((6_000, 12_000, 20_000)),
        "gib_a_gpu": chance.choice((60, 120, 200)),
        "priority": chance.choice((0, 0, 0, 50, 100)),
        "kernel_class": chance.choice(("", "decode")),
        "gpu_models": chance.choice(((), (), ("H200-SXM",), ("A100-SXM", "H200-SXM"))),
    }


def _domains(nodes: list[Node], free: dict[str, int]) -> tuple[PowerDomain, ...]:
    """Racks below rows below one site; every other rack feeds half of what is free below it."""
    below: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        below[node.domain].append(node)
    racks: list[PowerDomain] = []
    for number, (name, servers) in enumerate(sorted(below.items())):
        share = 0.5 if number % 2 else 1.2
        idle = sum(free[node.name] * node.watts_per_gpu for node in servers)
        used = sum(n.idle_watts + GPUS * n.watts_per_gpu for n in servers) - idle
        racks.append(
            PowerDomain(
                name=name,
                parent=f"row-{number // RACKS_A_ROW:02}",
                limit_watts=used + round(share * idle),
                used_watts=used,
            )
        )
    rows: dict[str, list[PowerDomain]] = defaultdict(list)
    for rack in racks:
        rows[rack.parent].append(rack)
    for name, under in rows.items():
        racks.append(_above(name, under, "site"))
    return (*racks, _above("site", [d for d in racks if d.parent == "site"], ""))


def _above(name: str, under: list[PowerDomain], parent: str) -> PowerDomain:
    limit, used = sum(d.limit_watts for d in under), sum(d.used_watts for d in under)
    return PowerDomain(name=name, parent=parent, limit_watts=limit, used_watts=used)
