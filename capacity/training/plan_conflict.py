"""Why no layout exists: the smallest set of constraints that cannot be kept together."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from capacity.model.kernel_samples import Floats, Indices
from capacity.training.layout_choices import expert_cuts, gpu_counts, options, shapes
from capacity.training.layout_pricing import LayoutPricing
from capacity.training.layout_table import LayoutTable
from capacity.training.plan_values import TrainingProblem
from capacity.training.training_errors import InfeasibleTraining
from capacity.training.training_job import ParallelLayout
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
    gpu, *others = (problem.cluster.gpus[0], *problem.cluster.others)
    host = gpu.host
    room = f"{gpu.memory_bytes / 1e9:.0f}"
    for other in others:
        room += f" or {other.memory_bytes / 1e9:.0f}"
    return (
        f"{room} GB of memory a GPU",
        f"{host.memory_bytes / 1e9:.0f} GB of host memory and {host.nvme_bytes / 1e9:.0f} GB of "
        "NVMe a GPU",
        "tensor groups within a host and rings within a NIC class",
    )


def _judged(
    problem: TrainingProblem,
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.bool_]], str]:
    """For every layout whether it keeps each constraint, and what the nearest one needs."""
    cluster = problem.cluster
    rows: list[np.ndarray[tuple[int, int], np.dtype[np.bool_]]] = []
    nearest, words = (1, np.inf), ""
    for count in gpu_counts(cluster.links.gpus, problem.choices):
        part = replace(problem, cluster=cluster.take(cluster.first(count)))
        pricing = LayoutPricing(part, cluster.gpus[0])
        cuts = [(s, e) for s in shapes(count) for e in expert_cuts(problem.job, s)]
        for shape, expert in cuts:
            layouts = options(problem.job, shape, problem.choices, expert)
            if not layouts:
                continue
            placed = list(pricing.starts(layouts[0]))
            ranks = placed[0] if placed else _any_placement(layouts[0])
            table = pricing.cut(LayoutTable.of(problem.job, layouts), ranks)
            kept = [
                np.any([_on_gpu(pricing, table, at) for at in placed or [ranks]], axis=0),
                pricing.off_gpu(table),
                np.full(len(layouts), bool(placed)),
            ]
            rows.append(np.stack(kept, axis=1))
            room = pricing.stage_room(ranks[None])
            ratio = (pricing.memory_bytes(table) / room).max(axis=1)
            allowed = kept[1] & kept[2]
            is_allowed = bool(allowed.any())
            row = int((np.where(allowed, ratio, np.inf) if is_allowed else ratio).argmin())
            if (0 if is_allowed else 1, ratio[row]) < nearest:
                nearest = (0 if is_allowed else 1, float(ratio[row]))
                words = _needs(problem, table, row, room[0])
    return (np.concatenate(rows) if rows else np.zeros((0, 3), dtype=np.bool_)), words


def _any_placement(layout: ParallelLayout) -> Indices:
    shape = (layout.pipeline, layout.data, layout.context, layout.tensor)
    return np.arange(layout.gpus).reshape(shape)


def _on_gpu(
    pricing: LayoutPricing, table: LayoutTable, ranks: Indices
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each layout fits on this placement, with its own split to begin with."""
    return pricing.on_gpu(pricing.cut(table, ranks), ranks[None])


def _needs(problem: TrainingProblem, table: LayoutTable, row: int, room: Floats) -> str:
    memory = rank_memory(problem.job, table)
    stage = int((memory.total[row] / room).argmax())

    def times(part: Floats) -> str:
        return f"{part[row, stage] / room[stage]:.2f}x"

    return (
        f"weights + optimizer + gradients need {times(memory.state)} the memory, activations "
        f"{times(memory.activations + memory.output)}, in all {times(memory.total)} in the "
        f"smallest layout ({table.layouts[row]})"
    )
