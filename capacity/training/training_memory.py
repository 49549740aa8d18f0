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
    whole, shared = _parameters(job, table)
    zero = table.zero_stage[:, None]
    state_bytes = MASTER_BYTES + 2 * job.optimizer_bits / 8
    gathered = np.where(zero >= 3, _gathered(job, table), 0.0)
    optimizer = state_bytes * np.where(zero >= 1, shared, whole)
    return RankMemory(
        weights=WEIGHT_BYTES * np.where(zero >= 3, shared, whole) + gathered,
        gradients=job.gradient_bytes * np.where(zero >= 2, shared, whole),
        optimizer=np.where(table.offload[:, None] > 0, STAGING_BYTES, optimizer),
        activations=_activations(job, table),
        output=_output(job, table),
    )


def _parameters(job: TrainingJob, table: LayoutTable) -> tuple[Floats, Floats]:
    """On one rank, and if replicas shared instead of copying, both of shape (n, pipeline).

    Experts that are dealt out have fewer copies to share among, so that a share is the same.
    """
    dealt = job.expert_parameters_per_layer
    counts = table.layers * (job.parameters_per_layer - dealt)
    counts[:, 0] += job.table_parameters
    if table.pipeline > 1 or not job.model.tied_embeddings:
        counts[:, -1] += job.table_parameters
    experts = table.layers * dealt
    held: Floats = (counts + experts / table.expert) / table.tensor[:, None]
    share: Floats = (counts + experts) / (table.tensor * table.replicas)[:, None]
    return held, share


def _gathered(job: TrainingJob, table: LayoutTable) -> Floats:
    """Two layers of whole weights and one of whole gradients, while they are in use."""
    dealt = job.expert_parameters_per_layer
    held = job.parameters_per_layer - dealt + dealt / table.expert
    each = (2 * WEIGHT_BYTES + job.gradient_bytes) * held
    whole: Floats = np.broadcast_to(each / table.tensor[:, None], table.layers.shape)
    return whole


def kept_bytes_per_token(job: TrainingJob, expert: int = 1) -> Floats:
    """Activations that one layer keeps for one token before any cut, by ``RECOMPUTES``, shape (3,).

    Inputs of both norms, of the products and of attention (whose probabilities are never kept), and
    of the activation function. A token that visits experts is kept once for each, there and back,
    on the fullest of the ranks among which experts are dealt out.

    Source: the sum of Korthikanti et al. 2022 (arXiv 2205.05198), section 4.1, for this layer.
    """
    model = job.model
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    inner, copies = _visited_width(job, expert)
    wide = (2 if model.gated else 1) * inner + 2 * copies * model.hidden
    selective = 2 * (2 * model.hidden + 2 * queries + 2 * keys + wide)
    everything = selective + 2 * (2 * model.hidden + inner)
    return np.array([everything, selective, 2 * model.hidden], dtype=np.float64)


def _visited_width(job: TrainingJob, expert: int) -> tuple[float, float]:
    """Inner width of the networks that a token passes, and its copies sent to experts: means."""
    part = job.model.experts
    if part is None:
        return job.model.intermediate, 0.0
    sparse = (job.model.layers - part.dense_layers) / job.model.layers
    uneven = job.expert_imbalance if expert > 1 else 1.0
    copies = sparse * part.per_token * uneven
    inner = copies * part.intermediate + sparse * part.shared * part.intermediate
    return inner + (1 - sparse) * job.model.intermediate, copies


def _activations(job: TrainingJob, table: LayoutTable) -> Floats:
    """With sequence parallelism: the tensor cut divides all of them. Shape (n, pipeline)."""
    kept = kept_bytes_per_token(job, table.expert)
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
