"""Rounds of whole GPUs on servers: a policy's values go into a snapshot, the planner decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from benchmarks._gavel_jobs import GavelJob, servers
from benchmarks._heterogeneity_judge import Ran
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Node, Pod, Snapshot
from scheduler_plugin.packing.throughput_policies import (
    Floats,
    Integers,
    due_models,
    round_values,
    rounds_waited,
)
from scheduler_plugin.solve import plan

#: Host side of a server; never the limit here.
MILLI_CPU, MEMORY_BYTES = 96_000, 2**39
#: Of the search, in CP-SAT's deterministic work.
DEADLINE_SECONDS: Final = 0.05
#: Rounds (eight hours of six minutes each): chosen on seeds that the benchmark does not use.
ANEW_AFTER: Final = 80


def rounds(
    jobs: Sequence[GavelJob],
    models: Sequence[str],
    policy: Callable[[Integers, int], Floats],
    count: int,
    *,
    leaves_idle: bool = False,
    told: Callable[[str], None] = lambda _: None,
) -> list[Ran]:
    """Which job ran where, round by round.

    Args:
        jobs: All that compete.
        models: Order of the columns of ``shares``.
        policy: Shares of time that it wants next, (jobs, models), by the rounds that each job has
            had on each model and all rounds so far; asked again every ``ANEW_AFTER`` rounds.
        count: Of rounds.
        leaves_idle: Only jobs whose round is due ask for GPUs, and only for those types.
        told: Called with a line now and then.
    """
    nodes = tuple(
        Node(
            name=f"{number:03d}",
            gpu_model=model,
            gpu_milli=boards * MILLI_PER_GPU,
            milli_cpu=MILLI_CPU,
            memory_bytes=MEMORY_BYTES,
        )
        for number, (model, boards) in enumerate(servers())
    )
    model_of = [model for model, _ in servers()]
    total: Integers = np.zeros((len(jobs), len(models)), dtype=np.int64)
    column = {model: i for i, model in enumerate(models)}
    ran: list[Ran] = []
    for number in range(1, count + 1):
        since = (number - 1) % ANEW_AFTER + 1
        if since == 1:
            shares, had = policy(total, number - 1), np.zeros_like(total)
        values = round_values(shares, had, since)
        pods = [
            _pod(job, worth, rounds_waited(values[job.number], float(shares[job.number].sum())))
            for job in jobs
            if (worth := _worth(models, values[job.number], leaves_idle))
        ]
        snapshot = Snapshot(nodes=nodes, pods=tuple(pods))
        made = plan(snapshot, deadline_seconds=DEADLINE_SECONDS, seed=number)
        for placement in made.placements:
            job, server = int(placement.uid), int(placement.node)
            had[job, column[model_of[server]]] += 1
            total[job, column[model_of[server]]] += 1
            ran.append(Ran(number, job, server))
        if number % 60 == 0:
            told(f"round {number} of {count}")
    return ran


def _worth(models: Sequence[str], values: Integers, leaves_idle: bool) -> dict[str, int]:
    """Types on which the job may run now, and what they are worth to it."""
    due = due_models(values, models) if leaves_idle else models
    return {m: int(v) for m, v in zip(models, values, strict=True) if v and m in due}


def _pod(job: GavelJob, worth: dict[str, int], waited: int) -> Pod:
    return Pod(
        uid=f"{job.number:04d}",
        priority=waited,
        gpu_milli=job.gpus * MILLI_PER_GPU,
        gpu_models=tuple(worth),
        gpu_model_values=worth,
    )
