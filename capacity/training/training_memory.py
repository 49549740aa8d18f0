"""Memory of the fullest moment on each rank: weights, gradients, optimiser, kept activations.

An upper quantile, not a mean: what allocators and libraries add is counted at the high end, because
a plan that does not fit is worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.model.kernel_samples import Floats
from capacity.training.layout_table import LayoutTable
from capacity.training.training_job import RECOMPUTES, TrainingJob

__all__ = ["RankMemory", "rank_memory"]

WEIGHT_BYTES: Final = 2
MASTER_BYTES: Final = 4
"""Of a weight in the optimiser."""

CONTEXT_BYTES: Final = 2.0e9
"""Driver context, NCCL buffers and library workspaces; assumed."""

STATE_SLACK: Final = 1.02
ACTIVATION_SLACK: Final = 1.10
"""What a caching allocator holds beyond live tensors at the upper quantile; assumed. Published
peaks differ from estimates by this order (Pipette, arXiv 2405.18093, section 5)."""

STAGING_BYTES: Final = 1.0e9
"""Buffers through which offloaded state passes; assumed."""

LOGIT_BYTES: Final = 6
"""Of an output number: 16 bits and an fp32 copy for the loss."""

FUSED_LOGIT_SHARE: Final = 0.1
"""Of the logits alive at once in a chunked loss; assumed (Liger, arXiv 2410.10989, section 3.2,
chunks to about the size of the hidden states)."""


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of the fullest rank of each stage, every array of shape (n, pipeline)."""

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    output: Floats

    @property
    def state(self) -> Floats:
        """What lives through the step, shape (n, pipeline)."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> Floats:
        """With what the allocator adds, shape (n, pipeline)."""
        live = STATE_SLACK * self.state + ACTIVATION_SLACK * (self.activations + self.output)
        return live + CONTEXT_BYTES


def rank_memory(job: TrainingJob, table: LayoutTable) -> RankMemory:
    """Memory of every stage of every layout."""
    parameters = _parameters(job, table)
    shards = table.replicas[:, None]
    zero = table.zero_stage[:, None]
    state_bytes = MASTER_BYTES + 2 * job.optimizer_bits / 8
    gathered = np.where(zero >= 3, _gathered(job, table), 0.0)
    optimizer = state_bytes * parameters / np.where(zero >= 1, shards, 1.0)
    return RankMemory(
        weights=WEIGHT_BYTES * parameters / np.where(zero >= 3, shards, 1.0) + gathered,
        gradients=job.gradient_bytes * parameters / np.where(zero >= 2, shards, 1.0),
        optimizer=np.where(table.offload[:, None] > 0, STAGING_BYTES, optimizer),
        activations=_activations(job, table),
        output=_output(job, table),
    )


def _parameters(job: TrainingJob, table: LayoutTable) -> Floats:
    """On one rank before ZeRO, shape (n, pipeline)."""
    counts = table.layers * job.parameters_per_layer
    counts[:, 0] += job.table_parameters
    if table.pipeline > 1 or not job.model.tied_embeddings:
        counts[:, -1] += job.table_parameters
    held: Floats = counts / table.tensor[:, None]
    return held


def _gathered(job: TrainingJob, table: LayoutTable) -> Floats:
    """Two layers of whole weights and one of whole gradients, while they are in use."""
    each = (2 * WEIGHT_BYTES + job.gradient_bytes) * job.parameters_per_layer
    whole: Floats = np.broadcast_to(each / table.tensor[:, None], table.layers.shape)
    return whole


def kept_bytes_per_token(job: TrainingJob) -> Floats:
    """Activations that one layer keeps for one token before any cut, by ``RECOMPUTES``, shape (3,).

    Inputs of both norms, of the products and of attention (whose probabilities are never kept), and
    of the activation function.

    Source: the sum of Korthikanti et al. 2022 (arXiv 2205.05198), section 4.1, for this layer.
    """
    model = job.model
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    wide = (2 if model.gated else 1) * model.intermediate
    selective = 2 * (2 * model.hidden + 2 * queries + 2 * keys + wide)
    everything = selective + 2 * (2 * model.hidden + model.intermediate)
    return np.array([everything, selective, 2 * model.hidden], dtype=np.float64)


def _activations(job: TrainingJob, table: LayoutTable) -> Floats:
    """With sequence parallelism: the tensor cut divides all of them. Shape (n, pipeline)."""
    kept = kept_bytes_per_token(job)
    full = RECOMPUTES.index("full")
    factor = np.where(np.arange(len(kept)) == full, 1.0, job.activation_factor)
    share = table.tokens(job) / table.tensor
    one_layer = (kept * factor)[table.recompute] * share
    again = np.where(table.recompute == full, kept[0] * job.activation_factor * share, 0.0)
    held: Floats = one_layer[:, None] * table.layers * _in_flight(table) + again[:, None]
    return held


def _in_flight(table: LayoutTable) -> Floats:
    """Micro-batches whose activations a stage holds at once, shape (n, pipeline).

    Source: Narayanan et al. 2021 (arXiv 2104.04473), sections 2.2.1 and 2.2.2.
    """
    after = np.arange(table.pipeline, 0, -1)[None, :]
    chunks, count = table.chunks[:, None], table.micro_batches[:, None]
    plain = np.minimum(after, count)
    warm = 2 * (after - 1) + (chunks - 1) * table.pipeline + 1
    held: Floats = np.where(chunks > 1, np.minimum(warm, count * chunks) / chunks, plain)
    return held


def _output(job: TrainingJob, table: LayoutTable) -> Floats:
    """Logits and their gradient on the last stage, shape (n, pipeline)."""
    share = FUSED_LOGIT_SHARE if job.fused else 1.0
    logits = share * LOGIT_BYTES * table.tokens(job) * job.model.vocabulary / table.tensor
    held = np.zeros(table.layers.shape)
    held[:, -1] = logits
    return held
