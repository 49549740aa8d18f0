"""Experts dealt out among replicas: time, memory and links, against judges of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks._memory_ledger import stage_peaks
from capacity.language_models import Experts, LanguageModel, find_language_model
from capacity.training.layer_costs import layer_kernels
from capacity.training.layout_choices import expert_cuts
from capacity.training.layout_table import LayoutTable
from capacity.training.plan_search import plan_parallel
from capacity.training.plan_values import SearchChoices, TrainingCluster, TrainingProblem
from capacity.training.replan import reshard_seconds
from capacity.training.training_job import ParallelLayout, TrainingJob
from capacity.training.training_memory import rank_memory
from tests.capacity.training.training_builders import (
    ETHERNET,
    cluster,
    first,
    gpu,
    job,
    model,
    predicted,
    pricing,
    simulated,
)
from wattpack.errors import InputError


def sparse(layers: int = 16, **changes: int) -> LanguageModel:
    """16 experts of which a token visits two, and one that all visit."""
    shape = {"count": 16, "per_token": 2, "intermediate": 3584, "shared": 1} | changes
    return model(layers, experts=Experts(**shape))


OF = job(model=sparse())
LAYOUTS = [
    ParallelLayout(data=16, expert=4),
    ParallelLayout(data=16, expert=16, zero_stage=1),
    ParallelLayout(data=16, expert=8, zero_stage=3, micro_batch=2),
    ParallelLayout(data=4, tensor=4, expert=4, recompute="full"),
    ParallelLayout(data=2, tensor=2, pipeline=4, expert=2),
    ParallelLayout(data=4, context=4, expert=16, zero_stage=1, micro_batch=2),
    ParallelLayout(data=16, expert=4, zero_stage=1, offload="host"),
    ParallelLayout(data=16),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("nic", ["fast", "slow"])
def test_the_closed_form_agrees_with_the_events(layout: ParallelLayout, nic: str) -> None:
    links = cluster() if nic == "fast" else cluster(nic=ETHERNET)
    assert predicted(OF, layout, links).total[0] == pytest.approx(
        simulated(OF, layout, links), rel=0.03
    )


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_memory_agrees_with_a_ledger_of_tensors(layout: ParallelLayout) -> None:
    table = LayoutTable.of(OF, [layout])
    memory = rank_memory(OF, table)
    for stage, peak in enumerate(stage_peaks(OF, layout, table.layers[0].tolist())):
        live = memory.state[0, stage] + memory.activations[0, stage] + memory.output[0, stage]
        assert live == pytest.approx(peak.state + peak.activations + peak.output, rel=0.01)


def test_dealing_out_keeps_the_work_and_divides_the_weights() -> None:
    even = replace(OF, expert_imbalance=1.0)
    whole, dealt = (
        sum(
            kernel.flops * count
            for kernel, count in zip(*layer_kernels(even, 1, 1, 1, expert), strict=True)
        )
        for expert in (1, 8)
    )
    assert dealt == pytest.approx(whole, rel=0.01)
    one, eight = (
        rank_memory(OF, LayoutTable.of(OF, [ParallelLayout(data=16, expert=expert)])).weights[0, 0]
        for expert in (1, 8)
    )
    experts = 2 * 16 * OF.expert_parameters_per_layer
    assert one - eight == pytest.approx(experts * 7 / 8)


def test_slow_links_keep_experts_inside_hosts() -> None:
    only = SearchChoices(
        recompute=("full",), zero_stages=(0, 1), offload=("none",), chunks=(1,),
        pipelines=(1,), fewer_gpus=False,
    )  # fmt: skip
    links, of = cluster(4, 4, ETHERNET), job(model=sparse(count=32), global_batch=256)
    room = gpu(memory_bytes=120e9)
    asked = TrainingProblem(of, TrainingCluster(links, (room,)), choices=only)
    best = plan_parallel(asked).best
    assert 1 < best.layout.expert <= 4
    replicas = best.ranks.reshape(-1, best.layout.tensor)
    groups = replicas.reshape(-1, best.layout.expert, best.layout.tensor)
    hosts = links.host[groups]
    assert (hosts == hosts[:, :1, :1]).all()


def test_a_real_model_gets_a_plan_with_its_experts_dealt_out() -> None:
    of = TrainingJob(find_language_model("qwen3-235b-a22b"), 256, 4096)
    assert of.flops == pytest.approx(6 * of.tokens * of.model.active_parameters, rel=0.2)
    only = SearchChoices(
        recompute=("full",), zero_stages=(1,), offload=("none",), chunks=(1,),
        pipelines=(4, 8), largest_micro_batch=1, fewer_gpus=False, refined=2, thorough=0,
    )  # fmt: skip
    on = TrainingCluster(cluster(16, 8), (gpu(),))
    best = plan_parallel(TrainingProblem(of, on, choices=only)).best
    assert best.layout.expert > 1
    assert max(best.memory_bytes) <= gpu().memory_bytes


@pytest.mark.parametrize("name", ["gpt-oss-120b", "qwen3-235b-a22b"])
def test_every_kernel_of_a_mean_layer_runs_a_positive_time(name: str) -> None:
    """Windows and leading layers of another kind are shares of the mean layer."""
    of = TrainingJob(find_language_model(name), 8, 4096)
    _, counts = layer_kernels(of, 1, 1, 1, 4)
    assert (counts > 0).all()


def test_experts_cannot_be_dealt_out_unevenly_or_where_there_are_none() -> None:
    assert not ParallelLayout(data=16, expert=3).fits_shape(OF)
    assert not ParallelLayout(data=2, expert=4).fits_shape(OF)
    assert not ParallelLayout(data=16, expert=4).fits_shape(job())
    assert expert_cuts(job(), (16, 1, 1, 1)) == [1]
    assert expert_cuts(OF, (4, 1, 1, 8)) == [1, 2, 4, 8, 16]


def test_another_deal_of_experts_fetches_the_layers() -> None:
    links = cluster(1, 4)
    prices = pricing(OF, links)
    before, after = (
        prices.plan(layout, first(links, layout), np.array([16]))
        for layout in (ParallelLayout(data=4, expert=2), ParallelLayout(data=4, expert=4))
    )
    assert reshard_seconds(OF, before, after, links) > 30.0 + 16 * 14 * 1e8 / 370e9


def test_an_imbalance_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="expert_imbalance"):
        job(expert_imbalance=0.9)
