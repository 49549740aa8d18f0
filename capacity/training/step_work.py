"""From a job and its layouts to what the step-time formula needs: seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.model.kernel_samples import Floats
from capacity.training.layer_costs import ComputeCosts, LayerCosts
from capacity.training.layout_table import LayoutTable
from capacity.training.step_time import StepWork
from capacity.training.training_job import OFFLOADS, RECOMPUTES, ParallelLayout, TrainingJob
from capacity.training.training_memory import MASTER_BYTES, WEIGHT_BYTES
from wattpack.units import require_number

__all__ = ["HostResources", "KnownCosts", "TrainingGpu", "step_work"]

WIRE_BYTES: Final = 2
"""Of an activation between GPUs."""

UPDATE_MEMORY_SHARE: Final = 0.8
"""Of the memory bandwidth that the optimiser's pass attains; assumed."""


@dataclass(frozen=True, slots=True)
class HostResources:
    """What one GPU has of its host for offloaded state; the defaults are assumed.

    Attributes:
        memory_bytes: Of host memory; ``nvme_bytes`` of NVMe.
        link_bytes_per_second: Between GPU and host, one way.
        memory_bytes_per_second: That the processor's update attains.
        nvme_bytes_per_second: Read or written.
    """

    memory_bytes: float = 200e9
    nvme_bytes: float = 2e12
    link_bytes_per_second: float = 25e9
    memory_bytes_per_second: float = 20e9
    nvme_bytes_per_second: float = 3e9

    def __post_init__(self) -> None:
        for name in self.__slots__:
            require_number(name, getattr(self, name), minimum=0, maximum=1e18)


@dataclass(frozen=True, slots=True)
class TrainingGpu:
    """The GPU as training sees it.

    Attributes:
        idle_watts: No work; ``wait_watts``: spinning in a collective or waiting for a peer.
        exchange_watts: While a collective moves data; ``update_watts``: in the optimiser's pass.
    """

    model: str
    memory_bytes: float
    bytes_per_second: float
    limit_watts: float
    idle_watts: float
    wait_watts: float
    exchange_watts: float
    update_watts: float
    costs: ComputeCosts
    host: HostResources = HostResources()


def step_work(known: KnownCosts, table: LayoutTable) -> StepWork:
    """Seconds and bytes of each layout."""
    job, gpu = known.job, known.gpu
    costs = [known.of(layout) for layout in table.layouts]
    tokens = table.tokens(job)
    zero, shards = table.zero_stage, np.where(table.zero_stage >= 1, table.replicas, 1.0)
    experts = job.expert_parameters_per_layer / table.tensor / table.expert
    per_layer = (job.parameters_per_layer - job.expert_parameters_per_layer) / table.tensor
    updated = per_layer / shards + experts / np.where(zero >= 1, table.replicas / table.expert, 1.0)
    per_table = job.table_parameters / table.tensor
    full = table.recompute == RECOMPUTES.index("full")
    selective = table.recompute == RECOMPUTES.index("selective")
    forward, light = _column(costs, "forward_seconds"), _column(costs, "light_seconds")
    again = np.where(full, forward, np.where(selective, light, 0.0))
    output = _column(costs, "output_seconds")
    offload = _offload_seconds(job, gpu, table)
    local = np.where(table.offload > 0, 0.0, _update_bytes(job)) / (
        UPDATE_MEMORY_SHARE * gpu.bytes_per_second
    )
    sums = 1.0 + job.visits_per_token
    gathers = np.where((zero == 1) | (zero == 2), WEIGHT_BYTES, 0.0)
    return StepWork(
        micro_batches=table.micro_batches,
        chunks=table.chunks,
        layer_forward_seconds=forward,
        layer_backward_seconds=_column(costs, "backward_seconds") + again,
        attention_seconds=_column(costs, "attention_seconds"),
        output_forward_seconds=output,
        output_backward_seconds=2 * output,
        tensor=table.tensor,
        context=table.context,
        replicas=table.replicas,
        tensor_bytes=WIRE_BYTES * tokens * job.model.hidden,
        forward_sums=np.full(len(tokens), sums),
        backward_sums=np.where(full, 2.0, 1.0) * sums,
        dealt_bytes=_dealt_bytes(job, table),
        backward_deals=np.where(full, 2.0, 1.0),
        expert_ratio=experts / per_layer,
        expert=np.full(len(tokens), float(table.expert)),
        context_bytes=_context_bytes(job, table),
        boundary_bytes=WIRE_BYTES * tokens * job.model.hidden / table.tensor,
        layer_gradient_bytes=job.gradient_bytes * per_layer,
        table_gradient_bytes=job.gradient_bytes * per_table,
        sum_steps=np.select([zero == 0, zero == 1], [2.0, 1.0], 0.0),
        table_sum_steps=np.where(zero == 0, 2.0, 1.0),
        micro_gather_bytes=np.where(zero >= 3, WEIGHT_BYTES * per_layer, 0.0),
        micro_scatter_bytes=np.where(zero >= 2, job.gradient_bytes * per_layer, 0.0),
        gather_bytes=gathers * per_layer,
        table_gather_bytes=gathers * per_table,
        update_seconds=local * updated,
        table_update_seconds=local * per_table / shards,
        offload_seconds=offload * updated,
        table_offload_seconds=offload * per_table / shards,
        overlap=job.overlap,
        offload_overlap=job.offload_overlap,
    )


class KnownCosts:
    """Layer costs of one job and GPU, each asked for once."""

    def __init__(self, job: TrainingJob, gpu: TrainingGpu) -> None:
        self.job, self.gpu = job, gpu
        self._known: dict[tuple[int, int, int, int], LayerCosts] = {}

    def of(self, layout: ParallelLayout) -> LayerCosts:
        """Of one GPU's share of a layer in this layout."""
        key = (layout.micro_batch, layout.tensor, layout.context, layout.expert)
        if key not in self._known:
            self._known[key] = self.gpu.costs.layer(self.job, *key)
        return self._known[key]


def _column(costs: list[LayerCosts], name: str) -> Floats:
    return np.array([getattr(cost, name) for cost in costs], dtype=np.float64)


def _context_bytes(job: TrainingJob, table: LayoutTable) -> Floats:
    """Keys and values of one rank's tokens, one layer."""
    heads = np.maximum(1, job.model.kv_heads // table.tensor)
    passed: Floats = WIRE_BYTES * table.tokens(job) * 2 * heads * job.model.head_dim
    return np.where(table.context > 1, passed, 0.0)


def _dealt_bytes(job: TrainingJob, table: LayoutTable) -> Floats:
    """Of one rank's tokens on their way to the experts that they visit, and once more back."""
    part = job.model.experts
    if part is None or table.expert == 1:
        return np.zeros(len(table.layouts))
    sparse = (job.model.layers - part.dense_layers) / job.model.layers
    visits = sparse * part.per_token * job.expert_imbalance
    sent: Floats = 2 * WIRE_BYTES * table.tokens(job) / table.tensor * visits * job.model.hidden
    return sent


def _update_bytes(job: TrainingJob) -> float:
    """Read and written by the optimiser for one parameter: gradient, master, moments, weight."""
    return job.gradient_bytes + 2 * MASTER_BYTES + 4 * job.optimizer_bits / 8 + WEIGHT_BYTES


def _offload_seconds(job: TrainingJob, gpu: TrainingGpu, table: LayoutTable) -> Floats:
    """Per parameter: gradients down and weights up, beside the host's pass and the NVMe's.

    The three run as a pipeline over pieces of the state, so the slowest counts.
    """
    host = gpu.host
    link = (job.gradient_bytes + WEIGHT_BYTES) / host.link_bytes_per_second
    update = _update_bytes(job) / host.memory_bytes_per_second
    state = 2 * (MASTER_BYTES + 2 * job.optimizer_bits / 8)
    nvme = state / host.nvme_bytes_per_second
    by_kind = {"none": 0.0, "host": max(link, update), "nvme": max(link, update, nvme)}
    return np.array([by_kind[kind] for kind in OFFLOADS])[table.offload]
