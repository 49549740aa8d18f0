"""A layout that only uneven stages fit is neither thrown away nor called infeasible."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest

from benchmarks._memory_ledger import stage_peaks
from capacity.training.layout_pricing import LayoutPricing
from capacity.training.layout_table import LayoutTable
from capacity.training.plan_search import plan_parallel
from capacity.training.plan_values import SearchChoices, TrainingCluster, TrainingProblem
from capacity.training.step_work import HostResources
from capacity.training.training_job import OFFLOADS, ParallelLayout
from tests.capacity.training.training_builders import cluster, first, gpu, job, model

LAYERS = 7


def splits(stages: int, layers: int = LAYERS) -> Iterator[list[int]]:
    """Every way to cut the layers."""
    for cuts in combinations(range(1, layers), stages - 1):
        yield [b - a for a, b in pairwise([0, *cuts, layers])]


def ledger_bytes(layout: ParallelLayout, layers: list[int]) -> float:
    """Of the fullest rank, with the planner's slack."""
    peaks = stage_peaks(job(model=model(LAYERS)), layout, layers)
    return max(1.02 * p.state + 1.10 * (p.activations + p.output) + 2e9 for p in peaks)


def holds(pricing: LayoutPricing, layout: ParallelLayout) -> bool:
    """Whether the split to begin with fits."""
    ranks = first(pricing.problem.cluster.links, layout)
    cut = pricing.cut(LayoutTable.of(pricing.job, [layout]), ranks)
    return bool(pricing.fits(cut, ranks[None])[0])


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_split_that_fits_is_found_where_there_is_one(stages: int, recompute: str) -> None:
    """Against every split, from no room for any to room for the even one."""
    layout = ParallelLayout(pipeline=stages, recompute=recompute)  # type: ignore[arg-type]
    needs = sorted(ledger_bytes(layout, split) for split in splits(stages))
    for room in np.linspace(0.97 * needs[0], 1.2 * needs[0], 24):
        on = TrainingCluster(cluster(1, stages), (gpu(memory_bytes=float(room)),))
        pricing = LayoutPricing(TrainingProblem(job(model=model(LAYERS)), on), on.gpus[0])
        ranks = first(on.links, layout)
        table = pricing.cut(LayoutTable.of(pricing.job, [layout]), ranks)
        assert table.layers[0].sum() == LAYERS
        assert pricing.fits(table, ranks[None])[0] == (needs[0] <= room)


def test_a_host_too_small_for_an_even_share_takes_an_uneven_one() -> None:
    layout = ParallelLayout(pipeline=2, offload=OFFLOADS[1])
    small = model(LAYERS, vocabulary=256)
    state = 12 * small.layer_parameters / LAYERS
    host = HostResources(memory_bytes=4.01 * state)
    on = TrainingCluster(cluster(1, 2), (gpu(host=host),))
    pricing = LayoutPricing(TrainingProblem(job(model=small), on), on.gpus[0])
    assert holds(pricing, layout)
    less = TrainingCluster(cluster(1, 2), (gpu(host=HostResources(memory_bytes=3.5 * state)),))
    pricing = LayoutPricing(TrainingProblem(job(model=small), less), less.gpus[0])
    assert not holds(pricing, layout)


def test_a_job_that_only_uneven_stages_hold_gets_a_plan() -> None:
    of = job(model=model(LAYERS), global_batch=8)
    shape = ParallelLayout(pipeline=2)
    sizes = [
        max(1.02 * p.state + 1.10 * (p.activations + p.output) + 2e9 for p in
            stage_peaks(of, shape, split))
        for split in ([4, 3], [3, 4])
    ]  # fmt: skip
    assert sizes[1] < sizes[0]
    on = TrainingCluster(cluster(1, 2), (gpu(memory_bytes=(sizes[0] + sizes[1]) / 2),))
    only = SearchChoices(
        recompute=("none",), zero_stages=(0,), offload=("none",), chunks=(1,),
        pipelines=(2,), largest_micro_batch=1, fewer_gpus=False,
    )  # fmt: skip
    assert plan_parallel(TrainingProblem(of, on, choices=only)).best.layers == (3, 4)
