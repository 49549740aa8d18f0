"""What each GPU model is worth to a waiting pod, by a policy over all that wait.

    waiting pods that name speeds ─ kinds of equal jobs ─┐
    free GPUs by model ──────────────────────────────────┴─ policy ─> shares of time by model
                     jobs of a kind are dealt to models by their shares ─> Pod.gpu_model_values

Without a policy each pod counts the speeds that it named, against its own best. A policy changes
only these values: which of plans that place and move as much is the best.
Source: Gavel (OSDI 2020), as in ``throughput_policies``; jobs here run until they end, so that a
kind's share of time on a model becomes the part of its jobs that go there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from capacity.profile_library import normal_name
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Pod, PodState, Snapshot
from scheduler_plugin.packing.free_gpus import free_gpus
from scheduler_plugin.packing.throughput_policies import (
    Floats,
    Work,
    least_cost_shares,
    max_min_shares,
)
from wattpack.errors import InputError

__all__ = ["PolicyChoice", "ThroughputPolicy", "with_policy_values"]

WORTH_OF_DUE: Final = 1000
"""Of the model that a job is dealt; its own speeds count half as much on all others."""
MAX_KINDS: Final = 200
"""Kinds of jobs that compete, those of most GPUs first: the programs' tables grow with its square.
The others keep the speeds that they named."""
_LEAST_PART: Final = 1 / 64
"""Of the slowest speed, below which nothing is asked for in the cost policy."""

_Kind = tuple[tuple[tuple[str, int], ...], int]
"""Speeds by model, and GPUs of one job."""


class ThroughputPolicy(StrEnum):
    """By what GPU models are given to waiting work."""

    NONE = "none"
    MAX_MIN = "max-min"
    COST = "cost"


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy and what it needs.

    Attributes:
        policy: Which one.
        gpu_prices: Of an hour of one GPU by model, in any currency; of the cost policy. A model
            without a price counts as the dearest.
    """

    policy: ThroughputPolicy = ThroughputPolicy.NONE
    gpu_prices: Mapping[str, float] = field(default_factory=dict)


def with_policy_values(snapshot: Snapshot, choice: PolicyChoice) -> Snapshot:
    """The snapshot with values of the policy for waiting pods that name speeds.

    A gang is one job: its members get the same values, and are left out where they name different
    speeds. Nothing changes without free GPUs that a pod can use.
    """
    if choice.policy is ThroughputPolicy.NONE:
        return snapshot
    free = {model: int(gpus) for model, gpus in free_gpus(snapshot).items() if gpus >= 1}
    jobs = _jobs_by_kind(snapshot, free)
    if not jobs:
        return snapshot
    shares = _shares(choice, jobs, free)
    values: dict[str, dict[str, int]] = {}
    for (kind, members), row in zip(jobs.items(), shares, strict=True):
        for job, due in zip(members, _dealt(len(members), row, list(free)), strict=True):
            if due:
                worth = {model: speed // 2 for model, speed in kind[0]} | {due: WORTH_OF_DUE}
                values |= dict.fromkeys((pod.uid for pod in job), worth)
    pods = tuple(
        pod.model_copy(update={"gpu_model_values": dict(sorted(values[pod.uid].items()))})
        if pod.uid in values
        else pod
        for pod in snapshot.pods
    )
    return snapshot.model_copy(update={"pods": pods})


def _jobs_by_kind(snapshot: Snapshot, free: Mapping[str, int]) -> dict[_Kind, list[list[Pod]]]:
    """Waiting jobs of whole GPUs that a free model can run, those of most GPUs first."""
    jobs: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.state in (PodState.PENDING, PodState.ABSENT) and pod.gpu_milli >= MILLI_PER_GPU:
            jobs[f"gang {pod.gang}" if pod.gang else f"pod {pod.uid}"].append(pod)
    kinds: dict[_Kind, list[list[Pod]]] = defaultdict(list)
    for members in jobs.values():
        speeds = members[0].gpu_model_values
        alike = all(pod.gpu_model_values == speeds for pod in members)
        if alike and any(speeds.get(model) for model in free):
            gpus = sum(pod.gpu_milli for pod in members) // MILLI_PER_GPU
            kinds[tuple(sorted(speeds.items())), gpus].append(members)
    order = sorted(kinds, key=lambda kind: (-kind[1] * len(kinds[kind]), kind))
    return {kind: kinds[kind] for kind in order[:MAX_KINDS]}


def _shares(
    choice: PolicyChoice, jobs: Mapping[_Kind, Sequence[object]], free: Mapping[str, int]
) -> Floats:
    """Of all jobs of a kind, the part for each free model, shape (kinds, models)."""
    if choice.policy is ThroughputPolicy.MAX_MIN:
        # A kind stands for its jobs: so many times their GPUs, and so many times their weight.
        works = [
            Work(f"kind {i}", kind[1] * len(jobs[kind]), dict(kind[0]), weight=len(jobs[kind]))
            for i, kind in enumerate(jobs)
        ]
        return max_min_shares(works, free)
    prices = {normal_name(model): price for model, price in choice.gpu_prices.items()}
    dearest = max(prices.values(), default=1.0)
    price = {model: prices.get(normal_name(model), dearest) for model in free}
    part = 1.0
    while part >= _LEAST_PART:
        try:
            return least_cost_shares(_needing(jobs, free, part), free, price)
        except InputError:  # More waits than there are GPUs: all ask for less alike.
            part /= 2.0
    return np.zeros((len(jobs), len(free)))


def _needing(
    jobs: Mapping[_Kind, Sequence[object]], free: Mapping[str, int], part: float
) -> list[Work]:
    """Kinds that ask for a part of the speed that their slowest free model gives."""
    works = []
    for i, kind in enumerate(jobs):
        speeds = dict(kind[0])
        slowest = min(speeds[model] for model in free if speeds.get(model))
        gpus = kind[1] * len(jobs[kind])
        works.append(Work(f"kind {i}", gpus, speeds, least_speed=part * slowest))
    return works


def _dealt(count: int, shares: Floats, models: Sequence[str]) -> list[str]:
    """A model for each job of a kind, as even as shares are; empty where it has no share."""
    total = float(shares.sum())
    if total <= 0.0:
        return [""] * count
    given: Counter[str] = Counter()
    found = []
    for number in range(1, count + 1):
        owed = [
            share / total * number - given[model]
            for model, share in zip(models, shares.tolist(), strict=True)
        ]
        due = models[int(np.argmax(owed))]
        given[due] += 1
        found.append(due)
    return found
