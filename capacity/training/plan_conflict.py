"""Why no layout exists: the smallest set of constraints that cannot be kept together."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from capacity.model.kernel_samples import Floats
from capacity.training.layout_choices import gpu_counts, options, shapes
from capacity.training.layout_pricing import LayoutPricing
from capacity.training.layout_table import LayoutTable
from capacity.training.plan_values import TrainingProblem
from capacity.training.rank_placement import first_placements
from capacity.training.training_errors import InfeasibleTraining
from capacity.training.training_memory import rank_memory

__all__ = ["conflict_of"]


def conflict_of(problem: TrainingProblem) -> InfeasibleTraining:
    """The conflict of a problem without a layout, as the error to raise."""
    names = _names(problem)
    kept, nearest = _judged(problem)
    if not len(kept):
        shape = (
            f"global batch {problem.job.global_batch}, sequence {problem.job.sequence_tokens} and "
            f"{problem.job.model.name}'s heads, widths and {problem.job.model.layers} layers"
        )
        return InfeasibleTraining((shape,), f"no cut of {problem.cluster.links.gpus} GPUs")
    for size in range(1, len(names) + 1):
        for chosen in combinations(range(len(names)), size):
            if not kept[:, list(chosen)].all(axis=1).any():
                detail = nearest if 0 in chosen else f"{len(kept)} layouts, none of them"
                return InfeasibleTraining(tuple(names[c] for c in chosen), detail)
    raise AssertionError("a problem with a layout has no conflict")


def _names(problem: TrainingProblem) -> tuple[str, ...]:
    gpu = problem.cluster.gpus[0]
    host = gpu.host
    return (
        f"{gpu.memory_bytes / 1e9:.0f} GB of memory a GPU",
        f"{host.memory_bytes / 1e9:.0f} GB of host memory and {host.nvme_bytes / 1e9:.0f} GB of "
        "NVMe a GPU",
        "tensor groups within a host and rings within a NIC class",
    )


def _judged(
    problem: TrainingProblem,
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.bool_]], str]:
    """For every layout whether it keeps each constraint, and what the nearest one needs."""
    pricing = LayoutPricing(problem, problem.cluster.gpus[0])
    rows: list[np.ndarray[tuple[int, int], np.dtype[np.bool_]]] = []
    nearest, words = (1, np.inf), ""
    links = problem.cluster.links
    for count in gpu_counts(links.gpus, problem.choices):
        part = links if count == links.gpus else links.take(np.arange(count))
        for shape in shapes(count):
            layouts = options(problem.job, shape, problem.choices)
            if not layouts:
                continue
            table = LayoutTable.of(problem.job, layouts)
            placed = any(True for _ in first_placements(part, layouts[0]))
            kept = [pricing.on_gpu(table), pricing.off_gpu(table), np.full(len(layouts), placed)]
            rows.append(np.stack(kept, axis=1))
            ratio = pricing.memory_bytes(table).max(axis=1) / pricing.gpu.memory_bytes
            allowed = kept[1] & kept[2]
            is_allowed = bool(allowed.any())
            row = int((np.where(allowed, ratio, np.inf) if is_allowed else ratio).argmin())
            if (0 if is_allowed else 1, ratio[row]) < nearest:
                nearest = (0 if is_allowed else 1, float(ratio[row]))
                words = _needs(problem, table, row)
    return (np.concatenate(rows) if rows else np.zeros((0, 3), dtype=np.bool_)), words


def _needs(problem: TrainingProblem, table: LayoutTable, row: int) -> str:
    memory = rank_memory(problem.job, table)
    stage = int(memory.total[row].argmax())
    room = problem.cluster.gpus[0].memory_bytes

    def times(part: Floats) -> str:
        return f"{part[row, stage] / room:.2f}x"

    return (
        f"weights + optimizer + gradients need {times(memory.state)} the memory, activations "
        f"{times(memory.activations + memory.output)}, in all {times(memory.total)} in the "
        f"smallest layout ({table.layouts[row]})"
    )
