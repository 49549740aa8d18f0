"""Pods that share boards, told only what other pairs say of each pair, and what it really does.

A pair is held out on every GPU type: the pair model of ``capacity.interference`` says each pair's
slow-downs from all other pairs of the type (types are learned apart), and those stand in the
snapshot. The table's own figures judge, and are what the planner is told in the arm ``knows``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.interference import HARMFUL_SPEED, Table
from capacity.interference.pair_model import PairModel, SharedJob
from scheduler_plugin.documents.snapshot import Node, Pod, SlowDown, Snapshot
from scheduler_plugin.kube_objects.shared_work import job_name
from scheduler_plugin.solve import plan

Pair = tuple[str, str]
Speeds = Mapping[Pair, float]
"""Speed of the first beside the second over its speed alone."""

SHARES: Final = "nvidia.com/gpu.shared"
NO_ROOM_MILLI: Final = 100_000
"""Slow-down of pairs that do not fit into memory: what a pod declares, not what is estimated."""
DEADLINE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Of one GPU type.

    Attributes:
        true: Measured; 0 for pairs without room.
        estimated: Of each pair from all others; 0 for pairs without room.
        jobs: Kinds of work by name.
    """

    true: Speeds
    estimated: Speeds
    jobs: tuple[str, ...]


def knowledge(gpu: str) -> Knowledge:
    """The table of one type, and what it says of each pair without that pair."""
    table = Table(gpu)
    said = PairModel(table.rows).left_out(table.pairs())
    true: dict[Pair, float] = {}
    estimated: dict[Pair, float] = {}
    for row, speed in zip(table.rows, said.tolist(), strict=True):
        pair = (_name(row.job), _name(row.beside))
        true[pair], estimated[pair] = row.speed, speed
    names = tuple(sorted({name for pair in true for name in pair}))
    without = {(a, b): 0.0 for a in names for b in names if (a, b) not in true}
    return Knowledge(true | without, estimated | without, names)


def _name(job: SharedJob) -> str:
    return job_name(job)


def placed_pairs(jobs: list[str], speeds: Speeds, boards: int) -> tuple[list[Pair], int]:
    """Pairs that the planner lets share a board, and how many of the jobs got a place.

    Args:
        jobs: Kind of work of each pod.
        speeds: What the planner is told.
        boards: Two pods may share each.
    """
    limit = round(1000.0 / HARMFUL_SPEED)
    nodes = [
        Node(
            name=f"{number:03d}",
            gpu_model="gpu",
            milli_cpu=1000,
            memory_bytes=1000,
            resources={SHARES: 2},
            slow_down_limit_milli=limit,
        )
        for number in range(boards)
    ]
    pods = [
        Pod(uid=f"{number:03d}", resources={SHARES: 1}, shared_work=job)
        for number, job in enumerate(jobs)
    ]
    told = [
        SlowDown(gpu_model="gpu", work=a, beside=b, slow_down_milli=_milli(speed))
        for (a, b), speed in speeds.items()
        if a in jobs and b in jobs
    ]
    snapshot = Snapshot(nodes=tuple(nodes), pods=tuple(pods), slow_downs=tuple(told))
    made = plan(snapshot, deadline_seconds=DEADLINE_SECONDS)
    on_board: dict[str, list[str]] = {}
    for placement in made.placements:
        on_board.setdefault(placement.node, []).append(jobs[int(placement.uid)])
    pairs = [(found[0], found[1]) for found in on_board.values() if len(found) == 2]
    return pairs, len(made.placements)


def _milli(speed: float) -> int:
    return min(NO_ROOM_MILLI, max(1000, round(1000.0 / speed))) if speed > 0 else NO_ROOM_MILLI


def random_pairs(jobs: list[str], speeds: Speeds, random: np.random.Generator) -> list[Pair]:
    """Pods two by two in random order, as far as memory lets them: nothing is known of pairs."""
    order = [jobs[i] for i in random.permutation(len(jobs))]
    pairs = zip(order[::2], order[1::2], strict=False)
    return [pair for pair in pairs if speeds[pair] > 0]


def harmful(pairs: Iterable[Pair], true: Speeds) -> int:
    """Pairs of which a member really runs at less than the harmful speed."""
    return sum(min(true[a, b], true[b, a]) < HARMFUL_SPEED for a, b in pairs)
