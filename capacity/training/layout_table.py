"""Many layouts of one job as columns, so that rules can be written once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from capacity.model.kernel_samples import Floats, Indices
from capacity.training.training_job import OFFLOADS, RECOMPUTES, ParallelLayout, TrainingJob

__all__ = ["LayoutTable", "even_split"]


@dataclass(frozen=True, slots=True)
class LayoutTable:
    """``n`` layouts that fit the job's shape and share one pipeline length and deal of experts.

    Attributes:
        layers: Of each stage, shape (n, pipeline).
        Every other column has shape (n,); ``recompute`` and ``offload`` are positions in
        ``RECOMPUTES`` and ``OFFLOADS``.
    """

    layouts: tuple[ParallelLayout, ...]
    pipeline: int
    expert: int
    layers: Indices
    replicas: Floats
    tensor: Floats
    context: Floats
    micro_batch: Floats
    micro_batches: Floats
    chunks: Floats
    recompute: Indices
    zero_stage: Indices
    offload: Indices

    @classmethod
    def of(
        cls, job: TrainingJob, layouts: Sequence[ParallelLayout], layers: Indices | None = None
    ) -> Self:
        """The columns of these layouts, with even stages unless layers are given."""
        pipeline = layouts[0].pipeline

        def column(value: Callable[[ParallelLayout], float]) -> Floats:
            return np.array([value(layout) for layout in layouts], dtype=np.float64)

        if layers is None:
            layers = np.tile(even_split(job.model.layers, pipeline), (len(layouts), 1))
        return cls(
            layouts=tuple(layouts),
            pipeline=pipeline,
            expert=layouts[0].expert,
            layers=layers,
            replicas=column(lambda x: x.replicas),
            tensor=column(lambda x: x.tensor),
            context=column(lambda x: x.context),
            micro_batch=column(lambda x: x.micro_batch),
            micro_batches=column(lambda x: x.micro_batches(job)),
            chunks=column(lambda x: x.chunks),
            recompute=column(lambda x: RECOMPUTES.index(x.recompute)).astype(np.int64),
            zero_stage=column(lambda x: x.zero_stage).astype(np.int64),
            offload=column(lambda x: OFFLOADS.index(x.offload)).astype(np.int64),
        )

    def with_layers(self, layers: Indices) -> Self:
        """The same layouts cut into these stages, shape (n, pipeline)."""
        return replace(self, layers=layers)

    def tokens(self, job: TrainingJob) -> Floats:
        """Of one micro-batch on one GPU before the tensor cut, shape (n,)."""
        return self.micro_batch * job.sequence_tokens / self.context


def even_split(layers: int, pipeline: int) -> Indices:
    """Layers of each stage; what is left over goes to the middle, away from table and output."""
    counts = np.full(pipeline, layers // pipeline, dtype=np.int64)
    rest = layers % pipeline
    first = (pipeline - rest) // 2
    counts[first : first + rest] += 1
    return counts
