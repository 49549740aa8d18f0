"""What an entry keeps and what a checkpoint of it costs, with its widths counted in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from capacity.catalogue.host_roofline import HostRoofline
from capacity.catalogue.workload_schema import Workload

GRADIENT_BYTES: Final = 2
"""Of a trained parameter, in 16 bits."""

MASTER_BYTES: Final = 4
"""Its copy in 32 bits that the optimiser updates (Micikevicius et al., arXiv 1710.03740)."""

OPTIMIZER_STATES: Final = 2
"""Adam's two moments."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Of one GPU, bytes."""

    weight_bytes: float
    training_bytes: float
    activation_bytes: float
    cache_bytes: float
    other_bytes: float
    host_bytes: float
    storage_bytes: float
    p99_ratio: float

    @property
    def gpu_bytes(self) -> float:
        """Mean."""
        return (
            self.weight_bytes
            + self.training_bytes
            + self.activation_bytes
            + self.cache_bytes
            + self.other_bytes
        )

    @property
    def gpu_p99_bytes(self) -> float:
        """What a placement has to leave room for."""
        return self.gpu_bytes * self.p99_ratio


def memory_use(workload: Workload) -> MemoryUse:
    """Bytes by what they are for; monotone in ``weight_bits`` and ``optimizer_bits``."""
    memory, parameters = workload.memory, workload.parameters
    states = OPTIMIZER_STATES * parameters.optimizer_bits / 8
    return MemoryUse(
        weight_bytes=memory.parameters * parameters.weight_bits / 8,
        training_bytes=memory.trained_parameters * (GRADIENT_BYTES + MASTER_BYTES + states),
        activation_bytes=memory.activation_bytes * parameters.activation_factor,
        cache_bytes=memory.cache_bytes,
        other_bytes=memory.other_bytes,
        host_bytes=memory.host_bytes,
        storage_bytes=memory.storage_bytes,
        p99_ratio=memory.p99_ratio,
    )


def gpus_needed(workload: Workload, board_bytes: float) -> int:
    """Boards of so much memory that hold what the entry keeps on its own, at its 99th percentile.

    The entry's own number where each share fits; else the least that have the bytes, if these can
    be divided evenly at all.
    """
    kept = memory_use(workload).gpu_p99_bytes
    if kept <= board_bytes:
        return workload.gpus
    return math.ceil(kept * workload.gpus / board_bytes)


def checkpoint_bytes(workload: Workload) -> float:
    """What one GPU writes: the entry's own figure, else master copy and optimiser states."""
    if workload.checkpoint.mode in ("stateless", "none"):
        return 0.0
    if workload.checkpoint.bytes is not None:
        return workload.checkpoint.bytes
    states = OPTIMIZER_STATES * workload.parameters.optimizer_bits / 8
    return workload.memory.trained_parameters * (MASTER_BYTES + states)


def checkpoint_stall_seconds(workload: Workload, host: HostRoofline | None = None) -> float:
    """GPU time lost by one checkpoint: until it is in host memory if asynchronous, else stored."""
    checkpoint = workload.checkpoint
    if checkpoint.stall_seconds is not None:
        return checkpoint.stall_seconds
    rates = host or HostRoofline()
    moved = checkpoint_bytes(workload)
    if checkpoint.mode == "asynchronous":
        return moved / rates.pcie_bytes_per_second
    return moved / rates.storage_bytes_per_second


def stop_seconds(workload: Workload) -> float | None:
    """Work lost by a stop at a random moment; None where all of it is lost."""
    checkpoint = workload.checkpoint
    if checkpoint.mode == "none":
        return None
    if checkpoint.mode == "stateless":
        return workload.malleability.drain_seconds
    assert checkpoint.interval_seconds is not None
    return checkpoint.interval_seconds / 2 + checkpoint_stall_seconds(workload)
