"""The search finds what trying everything finds, fits the memory, and keeps rings in one class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks._memory_ledger import allocated_bytes, stage_peaks
from benchmarks._plan_oracle import best_of_all, keeps_classes
from benchmarks._training_cases import board, choices_of, problem, small_case
from capacity.language_models import find_language_model
from capacity.training.batch_plateau import batch_warnings, best_batch_tokens
from capacity.training.layout_choices import options
from capacity.training.layout_pricing import LayoutPricing
from capacity.training.layout_table import LayoutTable
from capacity.training.plan_search import plan_parallel
from capacity.training.plan_values import (
    Objective,
    ParallelPlan,
    SearchChoices,
    TrainingCluster,
    TrainingProblem,
)
from capacity.training.training_errors import InfeasibleTraining
from capacity.training.training_job import ParallelLayout, TrainingJob
from tests.capacity.training.training_builders import (
    INFINIBAND,
    cluster,
    gpu,
    job,
    model,
)
from wattpack.errors import InputError


def planned(of: TrainingJob | None = None, links: Any = None, **changes: Any) -> ParallelPlan:
    """The best plan on four hosts of four."""
    choices = SearchChoices(**({"fewer_gpus": False} | changes.pop("choices", {})))
    on = TrainingCluster(links or cluster(), (gpu(**changes),))
    return plan_parallel(TrainingProblem(of or job(), on, choices=choices)).best


@pytest.mark.parametrize(("seed", "number"), [(1, 0), (1, 2), (1, 7), (1, 18), (2, 16)])
def test_no_plan_of_all_is_two_per_cent_faster(seed: int, number: int) -> None:
    """The last one: the best layout holds the model with uneven stages only."""
    case = small_case(seed, number)
    asked = problem(
        case.job, case.links, choices_of(case), board(case.memory_bytes), np.array(case.speed)
    )
    best = plan_parallel(asked).best
    assert case.holds(best.layout, list(best.layers))
    played = case.played(best.layout, best.ranks.tolist(), list(best.layers))
    assert best.step_seconds == pytest.approx(played, rel=0.02)
    assert played <= 1.02 * best_of_all(case)[0]


def test_two_islands_joined_by_ethernet_are_cut_there_by_the_pipeline() -> None:
    islands = ["a", "b", "b", "a"]
    of = job(model=model(32), global_batch=256)
    apart = planned(of, cluster(classes=islands))
    together = planned(of, cluster())
    assert apart.layout.pipeline > 1
    assert keeps_classes(cluster(classes=islands), apart.ranks.tolist())
    assert apart.step_seconds <= 1.1 * together.step_seconds


def test_every_gpu_has_one_rank_and_every_layer_one_stage() -> None:
    plan = planned()
    assert sorted(plan.ranks.ravel().tolist()) == list(range(16))
    assert sum(plan.layers) == job().model.layers
    assert len(plan.layers) == plan.layout.pipeline


def test_the_shares_of_the_step_are_the_step() -> None:
    plan = planned()
    assert sum(plan.shares.values()) == pytest.approx(1.0, abs=0.02)
    assert plan.power.period_seconds == pytest.approx(plan.step_seconds)
    assert 70 < plan.power.dip_watts <= plan.power.mean_watts <= plan.power.peak_watts <= 700


def test_the_plan_fits_by_a_ledger_that_knows_nothing_of_the_formula() -> None:
    rng = np.random.default_rng(5)
    plan = planned(memory_bytes=24e9)
    for peak in stage_peaks(job(), plan.layout, list(plan.layers)):
        assert allocated_bytes(peak, rng) <= 24e9


def test_context_is_cut_once_one_sequence_no_longer_fits() -> None:
    long = job(global_batch=16, sequence_tokens=131072, model=model(32))
    only = {"recompute": ("none",), "offload": ("none",)}
    assert planned(long, choices=only).layout.context > 1
    short = job(global_batch=512, sequence_tokens=1024)
    assert planned(short, choices=only).layout.context == 1


def test_eight_bit_moments_make_an_infeasible_job_feasible() -> None:
    one = cluster(1, 1)
    kept = {"offload": ("none",)}
    with pytest.raises(InfeasibleTraining, match=r"56 GB of memory a GPU.*need 1\.\d+x") as caught:
        planned(links=one, memory_bytes=56e9, choices=kept)
    assert caught.value.constraints == ("56 GB of memory a GPU",)
    assert planned(job(optimizer_bits=8), one, memory_bytes=56e9, choices=kept).layout.gpus == 1


def test_a_shape_that_cannot_be_cut_is_named() -> None:
    with pytest.raises(InfeasibleTraining, match="global batch 7"):
        planned(job(global_batch=7, sequence_tokens=1001, model=model(7)), cluster(1, 13))


def test_rings_that_would_mix_classes_are_named_as_the_conflict() -> None:
    """Three hosts of two classes: no way to cut two layers into three stages."""
    few = job(model=model(2), global_batch=6)
    with pytest.raises(InfeasibleTraining, match="rings within a NIC class"):
        planned(few, cluster(3, 1, classes=["a", "b", "b"]))


def test_lean_activations_double_the_micro_batch_that_fits() -> None:
    only: Any = {"recompute": ("none",), "offload": ("none",), "zero_stages": (0,)}

    def largest(of: TrainingJob) -> int:
        choices = SearchChoices(**only, largest_micro_batch=64)
        asked = problem(of, cluster(1, 1), choices, board(40e9))
        layouts = options(of, (1, 1, 1, 1), asked.choices)
        ranks = np.zeros((1, 1, 1, 1, 1), dtype=np.int64)
        fits = LayoutPricing(asked, asked.cluster.gpus[0]).fits(LayoutTable.of(of, layouts), ranks)
        return max(layout.micro_batch for layout, holds in zip(layouts, fits, strict=True) if holds)

    lean = job(
        model=model(4), global_batch=64, sequence_tokens=1024, activation_factor=0.5, fused=True
    )
    assert largest(lean) >= 1.8 * largest(replace(lean, activation_factor=1.0))


def test_a_fused_loss_fits_where_all_logits_do_not() -> None:
    """Liger (arXiv 2410.10989): the logits of a large vocabulary are what does not fit."""
    large = model(4, vocabulary=256000)
    wide = job(model=large, global_batch=4, sequence_tokens=16384, optimizer_bits=8)
    kept = {"offload": ("none",)}
    with pytest.raises(InfeasibleTraining, match="48 GB of memory"):
        planned(wide, cluster(1, 1), memory_bytes=48e9, choices=kept)
    fused = replace(wide, fused=True)
    assert planned(fused, cluster(1, 1), memory_bytes=48e9, choices=kept).layout.gpus == 1


def test_energy_and_cost_have_plans_of_their_own() -> None:
    slow = gpu(limit_watts=500.0)
    on = TrainingCluster(cluster(), (gpu(), slow))
    answers = {
        goal: plan_parallel(TrainingProblem(job(), on, objective=goal)) for goal in Objective
    }
    for goal, answer in answers.items():
        assert answer.best.amount(goal) <= min(p.amount(goal) for p in answer.front) * 1.006
    seconds = [plan.step_seconds for plan in answers[Objective.TIME].front]
    assert seconds == sorted(seconds)


def test_a_batch_beyond_the_plateau_is_told() -> None:
    run = job(training_tokens=1e9)
    assert best_batch_tokens(1e11) == pytest.approx(1.11e6, rel=0.01)
    assert "above the plateau" in batch_warnings(run, ParallelLayout(data=16))[0]
    assert not batch_warnings(job(training_tokens=3e9), ParallelLayout(data=2))
    assert not batch_warnings(job(), ParallelLayout(data=16))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("global_batch", 0),
        ("sequence_tokens", 1.5),
        ("optimizer_bits", 12),
        ("activation_factor", float("nan")),
        ("training_tokens", -1),
        ("offload_overlap", 2),
    ],
)
def test_nonsense_in_a_job_is_refused_by_its_field(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        job(**{field: value})


def test_latent_attention_is_refused() -> None:
    with pytest.raises(InputError, match="without latent attention"):
        TrainingJob(find_language_model("deepseek-v3"), 8, 1024)


def test_a_slow_gpu_gets_fewer_layers() -> None:
    links = cluster(4, 1, INFINIBAND)
    speed = np.array([1.0, 0.5, 1.0, 1.0])
    asked = problem(
        job(model=model(14), global_batch=256),
        links,
        SearchChoices(fewer_gpus=False, zero_stages=(0,), offload=("none",), chunks=(1,)),
        board(40e9),
        speed,
    )
    best = plan_parallel(asked).best
    assert best.layout.pipeline == 4
    stage = int(np.flatnonzero((best.ranks == 1).any(axis=(1, 2, 3)))[0])
    assert best.layers[stage] == min(best.layers)
