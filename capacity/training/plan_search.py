"""The search: every layout priced on its first placements, the best ones laid out by search.

Galvatron, Pipette and Mist all search this space; the closed form makes it small enough to price
whole: some ten thousand layouts a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from capacity.model.kernel_samples import Floats, Indices
from capacity.training.batch_plateau import batch_warnings
from capacity.training.layout_choices import expert_cuts, gpu_counts, options, shapes
from capacity.training.layout_pricing import LayoutPricing
from capacity.training.layout_table import LayoutTable
from capacity.training.plan_conflict import conflict_of
from capacity.training.plan_refine import refine
from capacity.training.plan_values import (
    Objective,
    ParallelPlan,
    ParallelPlans,
    TrainingProblem,
)
from capacity.training.step_work import TrainingGpu
from capacity.training.training_job import ParallelLayout

__all__ = ["plan_parallel"]

ALIKE: Final = {Objective.TIME: 0.0, Objective.ENERGY: 0.005, Objective.COST: 0.005}
"""Joules and dollars this near are the same; a fourth of the GPUs may not win by a thousandth."""

MOST_ON_FRONT: Final = 12
MARGIN: Final = np.array([1.0 + ALIKE[goal] for goal in Objective])


@dataclass(frozen=True, slots=True, eq=False)
class _Option:
    """A layout that was priced on its first placement."""

    layout: ParallelLayout
    pricing: LayoutPricing
    fits: bool
    amounts: dict[Objective, float]

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        one = self.layout
        return one.data, one.tensor, one.pipeline, one.context, one.expert


def plan_parallel(problem: TrainingProblem) -> ParallelPlans:
    """The best plan for the objective and the front over time, energy and cost.

    Raises:
        InfeasibleTraining: naming the constraints that conflict.
    """
    priced = list(_priced(problem))
    fitting = [option for option in priced if option.fits]
    if not fitting:
        raise conflict_of(problem)
    chosen = _worth_refining(fitting, problem)
    plans = [_laid_out(option, thorough=False) for option in chosen]
    order = np.argsort([plan.amount(problem.objective) for plan in plans], kind="stable")
    plans += [
        _laid_out(chosen[row], thorough=True) for row in order[: problem.choices.thorough].tolist()
    ]
    best = _best(plans, problem.objective)
    gain = 1 - min(o.amounts[problem.objective] for o in priced) / min(
        o.amounts[problem.objective] for o in fitting
    )
    return ParallelPlans(
        best=best,
        front=_front(plans, best),
        considered=len(priced),
        too_large=len(priced) - len(fitting),
        binding=_binding(problem, best, gain),
        warnings=batch_warnings(problem.job, best.layout),
    )


def _best(plans: Sequence[ParallelPlan], goal: Objective) -> ParallelPlan:
    """The fastest of those that are as good as the best."""
    least = min(plan.amount(goal) for plan in plans)
    alike = [plan for plan in plans if plan.amount(goal) <= least * (1 + ALIKE[goal])]
    return min(alike, key=lambda plan: plan.step_seconds)


def _priced(problem: TrainingProblem) -> Iterator[_Option]:
    counts = gpu_counts(problem.cluster.links.gpus, problem.choices)
    todo = [
        (count, shape, expert)
        for count in counts
        for shape in shapes(count)
        for expert in expert_cuts(problem.job, shape)
    ]
    pricings: dict[tuple[int, int], LayoutPricing] = {}
    for done, (count, shape, expert) in enumerate(todo):
        problem.progress(done, len(todo))
        layouts = options(problem.job, shape, problem.choices, expert)
        if not layouts:
            continue
        for at, gpu in enumerate(problem.cluster.gpus):
            if (count, at) not in pricings:
                pricings[count, at] = LayoutPricing(*_part(problem, gpu, count))
            yield from _priced_shape(pricings[count, at], layouts)
    problem.progress(len(todo), len(todo))


def _part(
    problem: TrainingProblem, gpu: TrainingGpu, count: int
) -> tuple[TrainingProblem, TrainingGpu, Indices]:
    """The problem on the first GPUs, hosts of one NIC class together, and these GPUs' numbers."""
    cluster = problem.cluster
    kept = cluster.first(count)
    return replace(problem, cluster=cluster.take(kept)), gpu, kept


def _priced_shape(pricing: LayoutPricing, layouts: list[ParallelLayout]) -> Iterator[_Option]:
    starts = list(pricing.starts(layouts[0]))
    if not starts:
        return
    table = LayoutTable.of(pricing.job, layouts)
    cuts = [pricing.cut(table, ranks) for ranks in (starts if pricing.is_uneven else starts[:1])]
    cuts = cuts if len(cuts) == len(starts) else cuts * len(starts)
    holds = [pricing.fits(cut, ranks[None]) for cut, ranks in zip(cuts, starts, strict=True)]
    fits = np.any(holds, axis=0)
    on_each = [pricing.price(cut, ranks[None]) for cut, ranks in zip(cuts, starts, strict=True)]
    counts = np.array(holds) | ~fits
    amounts: dict[Objective, Floats] = {
        goal: np.where(counts, [priced.amount(goal) for priced in on_each], np.inf).min(axis=0)
        for goal in Objective
    }
    for row, layout in enumerate(layouts):
        yield _Option(
            layout,
            pricing,
            bool(fits[row]),
            {goal: float(values[row]) for goal, values in amounts.items()},
        )


def _worth_refining(fitting: Sequence[_Option], problem: TrainingProblem) -> list[_Option]:
    """The best of each shape for the objective, the best few of all, and the rough front."""
    keep = problem.choices.refined
    ordered = sorted(fitting, key=lambda option: option.amounts[problem.objective])
    best_of_shape: dict[object, _Option] = {}
    for option in ordered:
        best_of_shape.setdefault((option.shape, option.pricing.gpu.limit_watts), option)
    chosen = list(best_of_shape.values())[:keep] + ordered[: keep // 2]
    chosen += _rough_front(fitting)
    return list({id(option): option for option in chosen}.values())


def _rough_front(fitting: Sequence[_Option]) -> list[_Option]:
    amounts = np.array([[option.amounts[goal] for goal in Objective] for option in fitting])
    kept = _undominated(amounts)
    if len(kept) > MOST_ON_FRONT:
        kept = kept[np.linspace(0, len(kept) - 1, MOST_ON_FRONT).round().astype(np.int64)]
    return [fitting[row] for row in kept.tolist()]


def _undominated(amounts: Floats) -> Indices:
    """Rows by time that no faster one is as good as in the rest, half a per cent given."""
    order = np.lexsort(amounts.T[::-1])
    kept: list[int] = []
    for row in order.tolist():
        seen = amounts[kept]
        if not len(seen) or not (seen <= amounts[row] * MARGIN).all(axis=1).any():
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def _laid_out(option: _Option, *, thorough: bool) -> ParallelPlan:
    ranks, layers = refine(option.pricing, option.layout, thorough=thorough)
    return option.pricing.plan(option.layout, ranks, layers)


def _front(plans: Sequence[ParallelPlan], best: ParallelPlan) -> tuple[ParallelPlan, ...]:
    amounts = np.array([[plan.amount(goal) for goal in Objective] for plan in plans])
    kept = [plans[row] for row in _undominated(amounts).tolist()]
    if not any(plan is best for plan in kept):
        kept.append(best)
    return tuple(sorted(kept, key=lambda plan: plan.step_seconds))


def _binding(
    problem: TrainingProblem, best: ParallelPlan, memory_gain: float
) -> tuple[tuple[str, float], ...]:
    """Share of the step (of the objective for memory) that each limit costs, largest first."""
    gpu = next(g for g in problem.cluster.gpus if g.limit_watts == best.limit_watts)
    pricing = LayoutPricing(*_part(problem, gpu, best.ranks.size))
    table = LayoutTable.of(problem.job, [best.layout], np.array([best.layers]))
    ranks = np.searchsorted(pricing.numbers, best.ranks)
    free = float(pricing.price_without_links(table, ranks[None]).times.total[0])
    limits = {
        "memory": memory_gain,
        "links": 1 - free / best.step_seconds,
        "pipeline bubble": best.shares["bubble"],
        "stage imbalance": best.shares["imbalance"],
        "optimiser update": best.shares["update"],
    }
    ordered = sorted(limits.items(), key=lambda item: -item[1])
    return tuple((name, share) for name, share in ordered if share > 0.001)
