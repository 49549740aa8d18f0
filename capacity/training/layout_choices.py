"""Every layout that a search looks at."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from capacity.training.plan_values import SearchChoices
from capacity.training.training_job import ParallelLayout, TrainingJob

__all__ = ["expert_cuts", "gpu_counts", "options", "shapes"]


def gpu_counts(gpus: int, choices: SearchChoices) -> list[int]:
    """All GPUs, then halves as long as they are whole."""
    counts = [gpus]
    while choices.fewer_gpus and counts[-1] % 2 == 0:
        counts.append(counts[-1] // 2)
    return counts


def shapes(gpus: int) -> Iterator[tuple[int, int, int, int]]:
    """Every (data, tensor, pipeline, context) of this product."""
    for tensor in _divisors(gpus):
        for pipeline in _divisors(gpus // tensor):
            for context in _divisors(gpus // tensor // pipeline):
                yield gpus // tensor // pipeline // context, tensor, pipeline, context


def expert_cuts(job: TrainingJob, shape: tuple[int, int, int, int]) -> list[int]:
    """Ways to deal a layer's experts out to the replicas of a shape; one for a dense decoder."""
    if job.model.experts is None:
        return [1]
    replicas = shape[0] * shape[3]
    return [cut for cut in _divisors(replicas) if job.model.experts.count % cut == 0]


def options(
    job: TrainingJob,
    shape: tuple[int, int, int, int],
    choices: SearchChoices,
    expert: int = 1,
) -> list[ParallelLayout]:
    """Every layout of one shape and deal of experts that the job can be cut into.

    ZeRO beyond the optimiser state sums gradients in every micro-batch, which a pipeline has many
    of; with one replica there is nothing to share.
    """
    data, tensor, pipeline, context = shape
    if choices.pipelines is not None and pipeline not in choices.pipelines:
        return []
    replicas = data * context
    zeros = [
        stage
        for stage in choices.zero_stages
        if (replicas > 1 or stage == 0) and (stage <= 1 or pipeline == 1)
    ] or [0]
    chunks = [
        count
        for count in choices.chunks
        if count == 1 or (pipeline > 1 and job.model.layers % (pipeline * count) == 0)
    ]
    share = job.global_batch // data
    micro = [
        size
        for size in range(1, choices.largest_micro_batch + 1)
        if job.global_batch % data == 0 and share % size == 0
    ]
    made = (
        ParallelLayout(
            data, tensor, pipeline, context, size, recompute, zero, offload, count, expert
        )
        for size, recompute, zero, offload, count in product(
            micro, choices.recompute, zeros, choices.offload, chunks
        )
    )
    return [layout for layout in made if layout.fits_shape(job)]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
