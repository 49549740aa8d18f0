"""A training job of which some GPUs are capped: stay, move a few layers, or cut it anew?

running plan ─► its step under the caps          what staying loses
├► its layers split anew             little to fetch
└► the best plan under the caps      perhaps everything to fetch
└► the move that gains the most, and when the rule of ``replan`` makes it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from capacity.model.kernel_samples import Floats, Indices
from capacity.training.layout_pricing import LayoutPricing
from capacity.training.plan_refine import balanced
from capacity.training.plan_search import plan_parallel
from capacity.training.plan_values import ParallelPlan, TrainingCluster, TrainingProblem
from capacity.training.replan import REMAINING_SECONDS, Move, best_move
from capacity.training.step_work import KnownCosts, TrainingGpu
from capacity.training.training_job import ParallelLayout, TrainingJob
from wattpack.errors import InputError

__all__ = ["CappedJob", "capped_job", "capped_speed", "priced_plan"]


@dataclass(frozen=True, slots=True)
class CappedJob:
    """What caps do to a running job, and what to do about them.

    Attributes:
        running: The plan as it was chosen; ``staying``: the same one under the caps.
        move: The plan under the caps that gains the most; the running one if none is faster.
        lasting_seconds: Of the caps, None where nobody knows.
    """

    running: ParallelPlan
    staying: ParallelPlan
    move: Move
    lasting_seconds: float | None

    @property
    def moves_after_seconds(self) -> float:
        """When to move, counted from the caps; infinite: never."""
        return self.move.begins_seconds(self.lasting_seconds)


def capped_speed(
    gpu: TrainingGpu, capped: TrainingGpu, job: TrainingJob, plan: ParallelPlan
) -> float:
    """Of a GPU under a lower limit, relative to the one the plan was made for, on its layers."""
    layout = plan.layout
    one, other = (KnownCosts(job, board).of(layout).forward_seconds for board in (gpu, capped))
    return min(1.0, one / other)


def capped_job(
    problem: TrainingProblem,
    running: ParallelPlan,
    speed: Floats,
    lasting_seconds: float | None = None,
    fastest: ParallelPlan | None = None,
) -> CappedJob:
    """What to do with a job whose GPUs run at these speeds now.

    Args:
        problem: As the running plan was made, without the caps; its choices are what the job can
            be cut into.
        speed: Of each GPU relative to an uncapped one, shape (n_gpus,).
        lasting_seconds: Of the caps, None where nobody knows.
        fastest: The best plan at these speeds, where it is known already.

    Raises:
        InputError: the running plan's limit is none of the problem's.
    """
    board = _board(problem.cluster, running.limit_watts)
    cluster = replace(problem.cluster, speed=speed, gpus=(board,))
    now = replace(problem, cluster=cluster)
    pricing = LayoutPricing(now, board)
    layers = np.array(running.layers)
    staying = pricing.plan(running.layout, running.ranks, layers)
    moved = _layers_moved(pricing, running, layers)
    anew = fastest or plan_parallel(now).best
    lasting = REMAINING_SECONDS if lasting_seconds is None else lasting_seconds
    move = best_move(now.job, cluster.links, staying, [moved, anew], lasting)
    return CappedJob(running, staying, move, lasting_seconds)


def _layers_moved(pricing: LayoutPricing, running: ParallelPlan, layers: Indices) -> ParallelPlan:
    """The same ranks with the layers that suit the caps."""
    split = balanced(pricing, running.layout, running.ranks, layers)
    return pricing.plan(running.layout, running.ranks, split)


def priced_plan(
    problem: TrainingProblem,
    layout: ParallelLayout,
    ranks: Indices,
    layers: Sequence[int],
    limit_watts: float,
) -> ParallelPlan:
    """A plan from elsewhere on the problem's links, without caps.

    Raises:
        InputError: naming what does not agree with the job, its GPUs or their limits.
    """
    _agrees(problem, layout, ranks, layers)
    pricing = LayoutPricing(problem, _board(problem.cluster, limit_watts))
    return pricing.plan(layout, ranks, np.array(layers))


def _board(cluster: TrainingCluster, limit_watts: float) -> TrainingGpu:
    for gpu in cluster.gpus:
        if gpu.limit_watts == limit_watts:
            return gpu
    limits = ", ".join(f"{gpu.limit_watts:g}" for gpu in cluster.gpus)
    raise InputError("limitWatts", f"one of the limits {limits}", limit_watts)


def _agrees(
    problem: TrainingProblem, layout: ParallelLayout, ranks: Indices, layers: Sequence[int]
) -> None:
    job, gpus = problem.job, problem.cluster.links.gpus
    if not layout.fits_shape(job):
        raise InputError("best", f"a cut of {job.model.name} at this batch", str(layout))
    shape = (layout.pipeline, layout.data, layout.context, layout.tensor)
    if ranks.shape != shape:
        raise InputError("gpuOfRank", f"shape {shape}", ranks.shape)
    if len(np.unique(ranks)) != ranks.size or ranks.min() < 0 or ranks.max() >= gpus:
        raise InputError("gpuOfRank", f"each rank another one of GPUs 0 to {gpus - 1}", "others")
    count = job.model.layers
    if len(layers) != layout.pipeline or sum(layers) != count or min(layers) < 1:
        stages = f"{layout.pipeline} stages of {count} layers in all"
        raise InputError("layersOfStage", stages, list(layers))
