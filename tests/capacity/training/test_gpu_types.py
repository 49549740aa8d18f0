"""Stages on GPUs of different types: speed, memory and what is impossible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest

from benchmarks._memory_ledger import stage_peaks
from benchmarks._step_simulator import Device, Simulation
from capacity.roofs import require_roofs
from capacity.training.layer_costs import RooflineCosts
from capacity.training.layout_table import LayoutTable
from capacity.training.plan_search import plan_parallel
from capacity.training.plan_values import (
    ParallelPlan,
    SearchChoices,
    TrainingCluster,
    TrainingProblem,
)
from capacity.training.stage_split import split_by_speed
from capacity.training.step_work import KnownCosts, TrainingGpu
from capacity.training.training_errors import InfeasibleTraining
from capacity.training.training_job import ParallelLayout, TrainingJob
from tests.capacity.training.training_builders import INFINIBAND, cluster, gpu, job, model
from wattpack.errors import InputError

LAYERS = 6
LEAN = SearchChoices(
    recompute=("none", "full"), zero_stages=(0, 1), offload=("none",), chunks=(1,),
    largest_micro_batch=1, fewer_gpus=False,
)  # fmt: skip


def slow(memory_bytes: float = 40e9) -> TrainingGpu:
    """An A100 by its datasheet."""
    roofs = require_roofs("A100-SXM")
    return gpu(
        model="A100-SXM",
        memory_bytes=memory_bytes,
        bytes_per_second=roofs.bytes_per_second,
        costs=RooflineCosts(roofs, 0.75, 300.0, 0.8, 380.0),
    )


def mixed(types: list[int], fast_bytes: float = 86e9, slow_bytes: float = 40e9) -> TrainingCluster:
    """Hosts of one GPU each."""
    return TrainingCluster(
        cluster(len(types), 1, INFINIBAND),
        (gpu(memory_bytes=fast_bytes),),
        others=(slow(slow_bytes),),
        type_of_gpu=np.array(types),
    )


def small_job() -> TrainingJob:
    return job(model=model(LAYERS), global_batch=8, sequence_tokens=2048)


def every_plan(of: TrainingJob, on: TrainingCluster) -> Iterator[tuple[float, str]]:
    """Every layout, order of GPUs and split that each GPU has memory for, played."""
    boards = (on.gpus[0], *on.others)
    room = [boards[t].memory_bytes for t in on.types.tolist()]
    for data, size, recompute, zero in product((1, 2, 4), (1,), LEAN.recompute, (0, 1)):
        layout = ParallelLayout(data, 1, 4 // data, 1, size, recompute, zero if data > 1 else 0)
        if not layout.fits_shape(of):
            continue
        for cuts in combinations(range(1, LAYERS), layout.pipeline - 1):
            layers = [b - a for a, b in pairwise([0, *cuts, LAYERS])]
            needs = [
                1.02 * p.state + 1.10 * (p.activations + p.output) + 2e9
                for p in stage_peaks(of, layout, layers)
            ]
            for order in permutations(range(4)):
                ranks = np.array(order).reshape(layout.pipeline, data, 1, 1)
                if all(
                    needs[stage] <= room[g]
                    for stage, row in enumerate(ranks.reshape(layout.pipeline, -1).tolist())
                    for g in row
                ):
                    yield played(of, on, layout, ranks.tolist(), layers), str(layout)


def played(
    of: TrainingJob,
    on: TrainingCluster,
    layout: ParallelLayout,
    ranks: list[list[list[list[int]]]],
    layers: list[int],
) -> float:
    boards = (on.gpus[0], *on.others)
    seconds = [KnownCosts(of, board).of(layout).forward_seconds for board in boards]
    speed = [seconds[0] / seconds[t] for t in on.types.tolist()]
    host, costs = boards[0].host, KnownCosts(of, boards[0]).of(layout)
    device = Device(
        boards[0].bytes_per_second, host.link_bytes_per_second,
        host.memory_bytes_per_second, host.nvme_bytes_per_second,
    )  # fmt: skip
    passes = [boards[t].bytes_per_second / boards[0].bytes_per_second for t in on.types.tolist()]
    return Simulation(
        of, layout, costs, on.links, ranks, layers, device, speed, update_speed=passes
    ).seconds()


def planned(of: TrainingJob, on: TrainingCluster) -> ParallelPlan:
    return plan_parallel(TrainingProblem(of, on, choices=LEAN)).best


@pytest.mark.parametrize(
    ("types", "fast_bytes", "slow_bytes"),
    [([0, 1, 1, 0], 86e9, 40e9), ([0, 0, 0, 1], 30e9, 16e9), ([1, 1, 1, 0], 60e9, 14e9)],
)
def test_no_plan_of_all_is_two_per_cent_faster(
    types: list[int], fast_bytes: float, slow_bytes: float
) -> None:
    of, on = small_job(), mixed(types, fast_bytes, slow_bytes)
    best = planned(of, on)
    seconds = played(of, on, best.layout, best.ranks.tolist(), list(best.layers))
    assert best.step_seconds == pytest.approx(seconds, rel=0.02)
    assert seconds <= 1.02 * min(every_plan(of, on))[0]


def test_no_stage_is_above_the_memory_of_its_smallest_gpu() -> None:
    on = mixed([0, 1, 0, 1], 60e9, 16e9)
    best = planned(small_job(), on)
    room = np.array([60e9, 16e9])[on.types[best.ranks]].min(axis=(1, 2, 3))
    assert (np.array(best.memory_bytes) <= room).all()


def test_slow_gpus_hold_fewer_layers() -> None:
    only = replace(LEAN, pipelines=(2,), recompute=("none",))
    on = mixed([0, 1])
    best = plan_parallel(TrainingProblem(small_job(), on, choices=only)).best
    of_type = dict(zip(on.types[best.ranks[:, 0, 0, 0]].tolist(), best.layers, strict=True))
    assert of_type[0] > of_type[1]


def test_types_that_hold_the_model_only_together_name_both_if_they_do_not() -> None:
    of = small_job()
    with pytest.raises(InfeasibleTraining, match="12 or 6 GB of memory a GPU"):
        planned(of, mixed([0, 1], 12e9, 6e9))


def test_alike_types_are_one_type() -> None:
    """The same board named twice changes no plan."""
    of, links = small_job(), cluster(4, 1)
    one = planned(of, TrainingCluster(links, (gpu(),)))
    twice = planned(
        of, TrainingCluster(links, (gpu(),), others=(gpu(),), type_of_gpu=np.array([0, 1, 1, 0]))
    )
    assert twice.step_seconds == pytest.approx(one.step_seconds)
    assert twice.joules == pytest.approx(one.joules)


@pytest.mark.parametrize("types", [None, np.array([0, 2, 0, 0]), np.array([0, 1])])
def test_types_that_are_not_there_are_refused(types: np.ndarray | None) -> None:
    with pytest.raises(InputError, match="type_of_gpu"):
        TrainingCluster(cluster(4, 1), (gpu(),), others=(slow(),), type_of_gpu=types)


def test_a_split_by_speed_keeps_all_layers_and_one_a_stage() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        stages = int(rng.integers(1, 6))
        of = job(model=model(int(rng.integers(stages, 24))))
        table = LayoutTable.of(of, [ParallelLayout(pipeline=stages)])
        speed = rng.choice([1.0, 0.5, 0.1, 0.01], (1, stages))
        split = split_by_speed(table, speed)
        assert split.sum() == of.model.layers
        assert split.min() >= 1
        order = np.argsort(speed[0])
        assert (np.diff(split[0][order]) >= -1).all()
