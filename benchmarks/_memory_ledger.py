"""A training rank's memory, tensor by tensor through the schedule: the judge of memory plans.

Shares no formula with the planner: it lists the tensors of a layer by name, walks the order of
passes, adds what a forward pass keeps and takes away what a backward pass has used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks._step_simulator import pass_order
from capacity.training.training_job import ParallelLayout, TrainingJob

BLOCK = 2 * 2**20
"""Large tensors come in blocks of 2 MiB."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest moment of one rank, bytes."""

    state: float
    activations: float
    output: float


def stage_peaks(job: TrainingJob, layout: ParallelLayout, layers: list[int]) -> list[Peak]:
    """Of every stage."""
    return [_stage_peak(job, layout, layers, stage) for stage in range(layout.pipeline)]


def layer_tensors(job: TrainingJob, layout: ParallelLayout) -> dict[str, float]:
    """What one layer's backward pass needs of one micro-batch, bytes on one rank by name."""
    model = job.model
    tokens = layout.micro_batch * job.sequence_tokens / layout.context / layout.tensor
    heads, groups = model.heads * model.head_dim, model.kv_heads * model.head_dim
    half = 2 * tokens
    tensors = {
        "layer input": half * model.hidden,
        "attention norm": half * model.hidden,
        "queries": half * heads,
        "keys": half * groups,
        "values": half * groups,
        "attention result": half * heads,
        "residual": half * model.hidden,
        "network norm": half * model.hidden,
    }
    inner = float(model.intermediate)
    if model.experts is not None:
        visits = model.experts.per_token * (job.expert_imbalance if layout.expert > 1 else 1.0)
        inner = (visits + model.experts.shared) * model.experts.intermediate
        tensors["sent to experts"] = half * visits * model.hidden
        tensors["back from experts"] = half * visits * model.hidden
    tensors["up"] = tensors["activated"] = half * inner
    if model.gated:
        tensors["gate"] = half * inner
    return {name: job.activation_factor * size for name, size in tensors.items()}


def _kept(job: TrainingJob, layout: ParallelLayout) -> float:
    tensors = layer_tensors(job, layout)
    if layout.recompute == "full":
        return tensors["layer input"] / job.activation_factor
    if layout.recompute == "selective":
        again = ("attention norm", "network norm", "activated")
        return sum(size for name, size in tensors.items() if name not in again)
    return sum(tensors.values())


def _stage_peak(job: TrainingJob, layout: ParallelLayout, layers: list[int], stage: int) -> Peak:
    model = job.model
    live = peak = 0.0
    here = layers[stage] / layout.chunks
    kept = _kept(job, layout)
    whole = sum(layer_tensors(job, layout).values()) if layout.recompute == "full" else 0.0
    order = pass_order(stage, layout.pipeline, layout.micro_batches(job), layout.chunks)
    for kind, _, _ in order:
        if kind == "F":
            live += here * kept
            peak = max(peak, live)
        else:
            peak = max(peak, live + whole)
            live -= here * kept
    routed = 0.0
    if model.experts is not None:
        one = (3 if model.gated else 2) * model.hidden * model.experts.intermediate
        routed = one * model.experts.count
    elsewhere = routed - routed / layout.expert
    weights = layers[stage] * (model.layer_parameters / model.layers - elsewhere)
    one_layer = (model.layer_parameters / model.layers - elsewhere) / layout.tensor
    if stage == 0:
        weights += model.vocabulary * model.hidden
    if stage == layout.pipeline - 1 and not (model.tied_embeddings and layout.pipeline == 1):
        weights += model.vocabulary * model.hidden
    weights /= layout.tensor
    share = layout.data * layout.context
    # A rank shares its experts with fewer: in all, as many hold as much as without dealing out.
    owned = (weights + layers[stage] * elsewhere / layout.tensor) / share
    state = 2 * weights if layout.zero_stage < 3 else 2 * owned
    state += job.gradient_bytes * (owned if layout.zero_stage >= 2 else weights)
    if layout.zero_stage == 3:
        state += 2 * one_layer + 2 * one_layer + job.gradient_bytes * one_layer
    moments = 4 + 2 * job.optimizer_bits / 8
    if layout.offload == "none":
        state += moments * (owned if layout.zero_stage >= 1 else weights)
    else:
        state += 1e9
    output = 0.0
    if stage == layout.pipeline - 1:
        tokens = layout.micro_batch * job.sequence_tokens / layout.context
        output = tokens * model.vocabulary / layout.tensor * (2 + 4)
        output *= 0.1 if job.fused else 1.0
    return Peak(state, peak, output)


def allocated_bytes(peak: Peak, rng: np.random.Generator) -> float:
    """What the driver would show: whole blocks, holes, and a context of a size not known before."""
    holes = 1 + rng.uniform(0.0, 0.09)
    context = rng.uniform(1.0e9, 1.9e9)
    blocks = BLOCK * rng.integers(10, 40)
    return float(1.01 * peak.state + holes * (peak.activations + peak.output) + context + blocks)
