"""Do gangs start beside small pods of the same priority? Virtual time, the planner's own core.

Twelve servers of eight GPUs below one row. Small pods of 1, 2 and 4 GPUs and gangs of 2 x 8 come at
random, all of one priority, and run for times that nobody tells; every ten seconds there is a plan.
The same work once without patience and once with it, in two kinds of cluster: short of boards, and
short of watts (power for nine servers of the twelve). Gangs that never start count with what they
waited until the end. What it costs is GPU-hours that were not held although they were asked for.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from benchmarks.runner import Options, Result, Row, Rows, Target, finished_rows
from scheduler_plugin.documents.snapshot import (
    Gang,
    Node,
    Pod,
    PodState,
    PowerDomain,
    Snapshot,
)
from scheduler_plugin.hold_book import HoldBook
from scheduler_plugin.solve import plan

NAME = "gang_patience"
SUMMARY = (
    "gangs beside small pods of equal priority: waiting and lost GPU-hours, patience off and on"
)

SERVERS: Final = 12
GPUS: Final = 8
WATTS: Final = 700
FED_SERVERS: Final = {"boards": SERVERS, "watts": 9}
PATIENCE_SECONDS: Final = 600.0
CYCLE_SECONDS: Final = 10
HOURS: Final = 4.0
QUICK_HOURS: Final = 1.5
SEEDS: Final = 5
#: Of what is fed, that small pods alone ask for; gangs come on top.
SMALL_LOAD: Final = 0.85
GANG_EVERY_SECONDS: Final = 3_600.0
GANG_SECONDS: Final = 1_200.0
SHORTEST_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 1_800.0
SIZES: Final = {1: 0.6, 2: 0.25, 4: 0.15}
#: Patience, and two others' turns: each ends with the longest run in its way.
BOUND_SECONDS: Final = PATIENCE_SECONDS + 3 * LONGEST_SECONDS
TARGETS: Final = {
    f"{figure}_{kind}_on": bound
    for kind in FED_SERVERS
    for figure, bound in {
        "gangs_overdue_beyond_bound": Target(at_most=0),
        "refused_plans": Target(at_most=0),
    }.items()
}


@dataclass(frozen=True, slots=True)
class Work:
    """A pod, or a gang of two, with what nobody is told: how long it runs."""

    name: str
    came_seconds: float
    runs_seconds: float
    pods: tuple[Pod, ...]

    @property
    def gpus(self) -> int:
        """Of all of its pods."""
        return sum(pod.gpu_milli for pod in self.pods) // 1000


@dataclass
class Cluster:
    """What runs and waits."""

    fed_servers: int
    patience_seconds: float
    waiting: dict[str, Work] = field(default_factory=dict)
    running: dict[str, tuple[Work, dict[str, str], float]] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)
    refused: int = 0

    def __post_init__(self) -> None:
        self.book = HoldBook(self.patience_seconds)

    def cycle(self, now: float) -> None:
        """Ends, then one plan, carried out at once."""
        self.running = {k: one for k, one in self.running.items() if one[2] > now}
        since = {p.uid: w.came_seconds for w in self.waiting.values() for p in w.pods}
        made = plan(self.book.applied(self.snapshot(), since, now), deadline_seconds=0.0)
        self.refused += bool(made.refusals)
        where = {placed.uid: placed.node for placed in made.placements}
        for name, work in list(self.waiting.items()):
            if work.pods[0].uid in where:
                nodes = {pod.uid: where[pod.uid] for pod in work.pods}
                self.running[name] = (work, nodes, now + work.runs_seconds)
                self.waited[name] = now - work.came_seconds
                del self.waiting[name]

    def snapshot(self) -> Snapshot:
        """As a planner sees it."""
        runs = [
            pod.model_copy(update={"state": PodState.BOUND, "node": nodes[pod.uid]})
            for work, nodes, _ in self.running.values()
            for pod in work.pods
        ]
        waits = [pod for work in self.waiting.values() for pod in work.pods]
        drawn = sum(pod.gpu_milli for pod in runs) // 1000 * WATTS
        row = PowerDomain(name="row", limit_watts=self.fed_servers * GPUS * WATTS, used_watts=drawn)
        gangs = {pod.gang for pod in (*runs, *waits)} - {""}
        return Snapshot(
            nodes=tuple(_SERVERS),
            pods=(*runs, *waits),
            gangs=tuple(Gang(id=name, size=2) for name in gangs),
            domains=(row,),
        )


_SERVERS: Final = [
    Node(
        name=f"server-{i:02}",
        gpu_model="H200",
        gpu_milli=GPUS * 1000,
        milli_cpu=10**6,
        memory_bytes=2**40,
        watts_per_gpu=WATTS,
        domain="row",
    )
    for i in range(SERVERS)
]


def run(options: Options) -> Result:
    """Both kinds of cluster, each with and without patience, the same work in all seeds."""
    seeds = 1 if options.quick else SEEDS
    one = quick_case if options.quick else one_case
    rows = finished_rows(options, NAME, one, seeds * 2 * len(FED_SERVERS))
    return Result(figures(rows), TARGETS)


def one_case(seed: int, number: int) -> Row:
    """One cluster for ``HOURS``."""
    return _case(seed, number, HOURS)


def quick_case(seed: int, number: int) -> Row:
    """The same for less time."""
    return _case(seed, number, QUICK_HOURS)


def _case(seed: int, number: int, hours: float) -> Row:
    kind = list(FED_SERVERS)[number % 2]
    is_on = number // 2 % 2
    chance = random.Random(seed * 1000 + number // 4)
    seconds = hours * 3600.0
    work = arrivals(chance, seconds, FED_SERVERS[kind] * GPUS)
    cluster = Cluster(FED_SERVERS[kind], PATIENCE_SECONDS * is_on)
    held = asked = 0.0
    for now in np.arange(0.0, seconds, CYCLE_SECONDS).tolist():
        while work and work[0].came_seconds <= now:
            new = work.pop(0)
            cluster.waiting[new.name] = new
        cluster.cycle(now)
        runs = sum(one.gpus for one, _, _ in cluster.running.values())
        waits = sum(one.gpus for one in cluster.waiting.values())
        held += runs * CYCLE_SECONDS / 3600.0
        asked += min(FED_SERVERS[kind] * GPUS, runs + waits) * CYCLE_SECONDS / 3600.0
    return _row(cluster, kind, is_on, seconds) | {"held": held, "asked": asked}


def arrivals(chance: random.Random, seconds: float, gpus: int) -> list[Work]:
    """Poisson streams of small pods and of gangs, in the order in which they come."""
    ratio = math.log(LONGEST_SECONDS / SHORTEST_SECONDS)
    mean_seconds = (LONGEST_SECONDS - SHORTEST_SECONDS) / ratio
    mean_gpus = sum(size * part for size, part in SIZES.items())
    every = mean_seconds * mean_gpus / (SMALL_LOAD * gpus)
    found: list[Work] = []
    at = 0.0
    while (at := at + chance.expovariate(1 / every)) < seconds:
        size = chance.choices(list(SIZES), list(SIZES.values()))[0]
        runs = SHORTEST_SECONDS * math.exp(chance.random() * ratio)
        name = f"small-{len(found):05}"
        found.append(Work(name, at, runs, (_pod(name, size),)))
    at = 0.0
    while (at := at + chance.expovariate(1 / GANG_EVERY_SECONDS)) < seconds:
        name = f"gang-{len(found):05}"
        pods = tuple(_pod(f"{name}-{i}", GPUS, gang=name) for i in range(2))
        found.append(Work(name, at, GANG_SECONDS, pods))
    return sorted(found, key=lambda work: work.came_seconds)


def _pod(uid: str, gpus: int, gang: str = "") -> Pod:
    return Pod(uid=uid, name=uid, gpu_milli=gpus * 1000, milli_cpu=1000, gang=gang)


def _row(cluster: Cluster, kind: str, is_on: int, seconds: float) -> Row:
    """Waiting times of all that came, those that never started up to the end."""
    waits: dict[str, list[float]] = {"gang": [], "small": []}
    for name, waited in cluster.waited.items():
        waits[name.partition("-")[0]].append(waited)
    for name, work in cluster.waiting.items():
        waits[name.partition("-")[0]].append(seconds - work.came_seconds)
    return {
        "kind": kind,
        "on": is_on,
        "gang_waits": waits["gang"],
        "small_waits": waits["small"],
        "gangs_left": sum(name.startswith("gang") for name in cluster.waiting),
        "refused": cluster.refused,
    }


def figures(rows: Rows) -> dict[str, float | int | str]:
    """Over all seeds, by kind of cluster, without and with patience."""
    found: dict[str, float | int | str] = {"simulated": "yes"}
    for kind in FED_SERVERS:
        for is_on, name in ((0, f"{kind}_off"), (1, f"{kind}_on")):
            some = [row for row in rows if (row["kind"], row["on"]) == (kind, is_on)]
            gangs = np.array([each for row in some for each in row["gang_waits"]] or [0.0])
            small = np.array([each for row in some for each in row["small_waits"]] or [0.0])
            held, asked = (sum(row[key] for row in some) for key in ("held", "asked"))
            found |= {
                f"gangs_{name}": sum(len(row["gang_waits"]) for row in some),
                f"gangs_left_{name}": sum(row["gangs_left"] for row in some),
                f"gang_wait_seconds_p50_{name}": round(float(np.quantile(gangs, 0.5)), 1),
                f"gang_wait_seconds_p99_{name}": round(float(np.quantile(gangs, 0.99)), 1),
                f"small_wait_seconds_p50_{name}": round(float(np.quantile(small, 0.5)), 1),
                f"small_wait_seconds_p99_{name}": round(float(np.quantile(small, 0.99)), 1),
                f"gpu_hours_held_{name}": round(held, 1),
                f"gpu_hours_lost_{name}": round(asked - held, 1),
                f"gpu_hours_lost_percent_{name}": round(100 * (1 - held / asked), 2),
                f"gangs_overdue_beyond_bound_{name}": int((gangs > BOUND_SECONDS).sum()),
                f"refused_plans_{name}": sum(row["refused"] for row in some),
            }
    return found
