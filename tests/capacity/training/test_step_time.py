"""The closed form of a step agrees with the step played event by event, and moves as it should."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks._training_cases import board, choices_of, problem, small_case
from capacity.training.layout_pricing import LayoutPricing
from capacity.training.training_job import ParallelLayout
from tests.capacity.training.training_builders import (
    ETHERNET,
    cluster,
    gpu,
    job,
    predicted,
    simulated,
)

LAYOUTS = [
    ParallelLayout(data=16),
    ParallelLayout(data=4, tensor=4, zero_stage=1),
    ParallelLayout(data=2, tensor=2, pipeline=4, recompute="full"),
    ParallelLayout(tensor=4, pipeline=4, micro_batch=2, recompute="selective"),
    ParallelLayout(data=2, tensor=2, context=4, micro_batch=2),
    ParallelLayout(data=2, tensor=4, pipeline=2, chunks=2),
    ParallelLayout(pipeline=16),
    ParallelLayout(data=16, zero_stage=3, micro_batch=2),
    ParallelLayout(data=16, zero_stage=2, offload="host"),
    ParallelLayout(data=16, zero_stage=1, offload="nvme"),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("nic", ["fast", "slow"])
def test_the_closed_form_agrees_with_the_events(layout: ParallelLayout, nic: str) -> None:
    links = cluster() if nic == "fast" else cluster(nic=ETHERNET)
    assert predicted(job(), layout, links).total[0] == pytest.approx(
        simulated(job(), layout, links), rel=0.05
    )


def drawn_error(number: int) -> float:
    """Of the closed form on a drawn plan: uneven stages, links and replicas, slow hosts."""
    case, rng = small_case(7, number), np.random.default_rng([7, number])
    asked = problem(case.job, case.links, choices_of(case), board(), np.array(case.speed))
    pricing = LayoutPricing(asked, asked.cluster.gpus[0])
    shapes = [
        ParallelLayout(data, 1, case.links.gpus // data, 1, 1, "none", 1 if data > 1 else 0)
        for data in (1, 2)
    ]
    layout = [shape for shape in shapes if shape.fits_shape(case.job)][number % 2]
    ranks = rng.permutation(case.links.gpus).reshape(layout.pipeline, layout.data, 1, 1)
    cuts = np.sort(rng.permutation(case.job.model.layers - 1)[: layout.pipeline - 1]) + 1
    layers = np.diff(np.concatenate([[0], cuts, [case.job.model.layers]]))
    played = case.played(layout, ranks.tolist(), layers.tolist())
    return pricing.plan(layout, ranks, layers).step_seconds / played - 1


def test_uneven_stages_replicas_and_hosts_are_priced_as_they_are_played() -> None:
    errors = np.abs([drawn_error(number) for number in range(60)])
    assert errors.mean() <= 0.005
    assert np.quantile(errors, 0.95) <= 0.02


def test_without_overlap_the_step_is_longer_by_what_was_hidden() -> None:
    layout, links = ParallelLayout(data=16), cluster()
    hidden = predicted(job(), layout, links).total[0]
    shown = predicted(job(overlap=False), layout, links).total[0]
    assert shown > 1.02 * hidden
    assert shown == pytest.approx(simulated(job(overlap=False), layout, links), rel=0.02)


def test_more_micro_batches_shrink_the_share_of_the_bubble() -> None:
    layout, links = ParallelLayout(tensor=4, pipeline=4), cluster()
    few, many = (predicted(job(global_batch=n), layout, links) for n in (8, 64))
    assert many.bubble[0] / many.total[0] < 0.3 * few.bubble[0] / few.total[0]


@pytest.mark.parametrize("batch", range(16, 400, 48))
def test_one_stage_never_waits(batch: int) -> None:
    """Not by 1e-16 either, which the answer would print."""
    assert predicted(job(global_batch=batch), ParallelLayout(data=16), cluster()).bubble[0] == 0


@pytest.mark.parametrize("rate", [1e9, 3e9, 10e9])
def test_with_full_overlap_the_slowest_of_compute_host_and_ssd_sets_the_step(rate: float) -> None:
    """As Fuyou (arXiv 2403.06504) plans it."""
    board = gpu()
    layout, links = ParallelLayout(zero_stage=0, offload="nvme", recompute="full"), cluster(1, 1)
    with_ssd = gpu(host=type(board.host)(nvme_bytes_per_second=rate))
    alone = predicted(job(global_batch=4), ParallelLayout(recompute="full"), links).pipeline[0]
    one = predicted(job(global_batch=4, offload_overlap=1.0), layout, links, with_ssd).total[0]
    parameters = job().model.parameters
    ssd = 2 * parameters * 12 / rate
    host = parameters * 30 / board.host.memory_bytes_per_second
    assert one == pytest.approx(max(alone, host, ssd), rel=0.1)
