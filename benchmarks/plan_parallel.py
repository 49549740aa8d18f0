"""Training plans against exhaustive search, a published table, uneven links, caps and memory.

What judges is not the planner's formula: ``_step_simulator`` plays a step event by event,
``_memory_ledger`` adds up tensors, ``_plan_oracle`` tries everything on small clusters. They share
the seconds of a layer with the planner, which kernels and not plans decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from itertools import combinations
from math import isfinite

import numpy as np

from benchmarks._cap_traces import CapWorld, cap_case, play
from benchmarks._megatron_table import FITTED, TABLE, fit, held_out_errors, log_errors
from benchmarks._memory_ledger import allocated_bytes, stage_peaks
from benchmarks._plan_oracle import best_of_all, keeps_classes
from benchmarks._step_simulator import Simulation
from benchmarks._training_cases import (
    DEVICE,
    ETHERNET,
    INFINIBAND,
    board,
    choices_of,
    decoder,
    fabric,
    perturbed,
    problem,
    random_cluster,
    random_job,
    small_case,
)
from benchmarks.runner import OneCase, Options, Result, Row, Rows, Target, finished_rows
from capacity.bench.shipped_rows import shipped_rows
from capacity.language_models import find_language_model
from capacity.model.gpu_model import GpuModel
from capacity.model.kernel_samples import Floats
from capacity.profile_library import shipped_library
from capacity.training.gpu_costs import measured_gpu
from capacity.training.link_matrix import Link, LinkMatrix
from capacity.training.plan_search import plan_parallel
from capacity.training.plan_values import (
    ParallelPlan,
    SearchChoices,
    TrainingCluster,
    TrainingProblem,
)
from capacity.training.training_errors import InfeasibleTraining
from capacity.training.training_job import TrainingJob
from wattpack.clock import SystemClock
from wattpack.units import ns_to_seconds

NAME = "plan_parallel"
SUMMARY = (
    "training plans against exhaustive search, Megatron-LM's table, uneven links, caps, memory"
)
TARGETS = {
    "plan_70b_on_64_gpus_seconds": Target(at_most=60.0),
    "small_cases_over_exhaustive_percent_max": Target(at_most=2.0),
    "fresh_cases_over_exhaustive_percent_max": Target(at_most=2.0),
    "megatron_held_out_error_percent_mean": Target(at_most=10.0),
    "perturbed_measured_beats_nominal_percent": Target(at_least=95.0),
    "rings_that_mix_nic_classes": Target(at_most=0),
    "replan_recovered_share_of_exhaustive": Target(at_least=0.5),
    "replans_in_pauses": Target(at_most=0),
    "plans_above_memory": Target(at_most=0),
    "islands_over_one_fabric_ratio": Target(at_most=1.1),
}
Figures = dict[str, float | int | str]
LEAN = SearchChoices(
    recompute=("none", "full"),
    zero_stages=(0, 1),
    offload=("none",),
    chunks=(1,),
    largest_micro_batch=2,
    fewer_gpus=False,
)
"""Of the parts that plan hundreds of clusters; the other parts choose from everything."""


def played(plan: ParallelPlan, job: TrainingJob, links: LinkMatrix) -> float:
    """Seconds of the plan's step by the simulator, on these links."""
    layout = plan.layout
    costs = board().costs.layer(job, layout.micro_batch, layout.tensor, layout.context)
    ranks, layers = plan.ranks.tolist(), list(plan.layers)
    return Simulation(job, layout, costs, links, ranks, layers, DEVICE).seconds()


def large(quick: bool) -> Figures:
    """70B on 64 H100 of 8 uneven hosts, from the shipped rows: kernel model and search."""
    clock = SystemClock()
    begun_ns = clock.monotonic_ns()
    model = GpuModel.from_rows(shipped_rows("h100"))
    gpu = measured_gpu(model, shipped_library().find("H100-SXM"))
    links = perturbed(fabric(8, 8), np.random.default_rng(1))
    job = TrainingJob(find_language_model("llama-3.1-70b"), 1024, 4096)
    choices = replace(SearchChoices(), fewer_gpus=not quick)
    plans = plan_parallel(TrainingProblem(job, TrainingCluster(links, (gpu,)), choices=choices))
    seconds = ns_to_seconds(clock.monotonic_ns() - begun_ns)
    best = plans.best
    return {
        "plan_70b_on_64_gpus_seconds": seconds,
        "plan_70b_layouts_priced": plans.considered,
        "plan_70b_layout": str(best.layout),
        "plan_70b_step_seconds": best.step_seconds,
        "plan_70b_teraflops_per_gpu": job.flops / best.step_seconds / 64 / 1e12,
        "plan_70b_mean_watts_per_gpu": best.power.mean_watts,
    }


def small_row(seed: int, number: int) -> Row:
    """The plan's step over the best of all plans', both played."""
    case = small_case(seed, number)
    best, tried = best_of_all(case)
    asked = problem(
        case.job, case.links, choices_of(case), board(case.memory_bytes), np.array(case.speed)
    )
    try:
        plan = plan_parallel(asked).best
    except InfeasibleTraining:
        return {"over": over_percent(float("inf"), best), "formula": 0.0, "tried": tried}
    seconds = case.played(plan.layout, plan.ranks.tolist(), list(plan.layers))
    return {
        "over": over_percent(seconds, best),
        "formula": 100 * abs(plan.step_seconds / seconds - 1),
        "tried": tried,
    }


def over_percent(seconds: float, best_seconds: float) -> float:
    """What a plan's step is longer than the best of all plans'; infinite seconds: no plan.

    A plan where the search by hand finds none, and none where it finds one, is as bad as can be.
    """
    if isfinite(seconds) and isfinite(best_seconds):
        return 100 * (seconds / best_seconds - 1)
    return 0.0 if seconds == best_seconds else 1e9


def small(rows: Rows) -> Figures:
    """Of the small cases."""
    over, formula = column(rows, "over"), column(rows, "formula")
    return {
        "small_cases": len(rows),
        "small_cases_infeasible_to_both": int((column(rows, "tried") == 0).sum()),
        "small_cases_plans_played": int(column(rows, "tried").sum()),
        "small_cases_over_exhaustive_percent_max": float(over.max()),
        "small_cases_over_exhaustive_percent_mean": float(over.mean()),
        "small_cases_formula_error_percent_mean": float(formula.mean()),
        "small_cases_formula_error_percent_max": float(formula.max()),
    }


FRESH_SEEDS, CASES_A_SEED = 100, 50


def fresh_row(seed: int, number: int) -> Row:
    """A small case of a seed on which nothing was mended."""
    return small_row(seed + FRESH_SEEDS + number // CASES_A_SEED, number % CASES_A_SEED)


def fresh(rows: Rows) -> Figures:
    """Of the small cases of fresh seeds."""
    return {f"fresh_{name.removeprefix('small_')}": value for name, value in small(rows).items()}


def megatron(quick: bool) -> Figures:
    """Seven rows from constants of three; all other choices of three rows beside it."""
    errors = log_errors(coarse=quick)
    triples = list(combinations(range(len(TABLE)), 3))
    means = [float(held_out_errors(errors, triple).mean()) for triple in triples]
    shown = np.exp(errors[fit(errors, FITTED)]) - 1
    figures: Figures = {
        "megatron_held_out_error_percent_mean": 100 * float(held_out_errors(errors, FITTED).mean()),
        "megatron_held_out_error_percent_max": 100 * float(held_out_errors(errors, FITTED).max()),
        "megatron_any_three_rows_percent_mean": 100 * float(np.mean(means)),
        "megatron_any_three_rows_percent_max": 100 * max(means),
        "megatron_constant_rate_percent": 100 * _constant_rate_error(),
    }
    for row, error in zip(TABLE, shown, strict=True):
        figures[f"megatron_{row.billions:g}b_error_percent"] = 100 * float(error)
    return figures


def _constant_rate_error() -> float:
    """Naive: every row at the mean rate of the three fitted ones."""
    rate = np.mean([TABLE[row].tflops for row in FITTED])
    rest = [row for at, row in enumerate(TABLE) if at not in FITTED]
    return float(np.mean([abs(row.tflops / rate - 1) for row in rest]))


UNEVEN_JOBS = tuple(
    TrainingJob(decoder(layers, hidden), 32, 2048)
    for layers, hidden in ((16, 4096), (24, 4096), (32, 4096), (20, 5120))
)
NOMINAL = fabric(8, 2, Link(12e9, 5e-6))


@cache
def blind_plan(which: int) -> ParallelPlan:
    """The plan of a job for links as they are sold."""
    return plan_parallel(problem(UNEVEN_JOBS[which], NOMINAL, LEAN)).best


def uneven_row(seed: int, number: int) -> Row:
    """Links of every pair of hosts off by up to 30 %: the plan for them against the nominal one."""
    which = number % len(UNEVEN_JOBS)
    job = UNEVEN_JOBS[which]
    links = perturbed(NOMINAL, np.random.default_rng([seed, 13, number]))
    plan = plan_parallel(problem(job, links, LEAN)).best
    seconds = played(blind_plan(which), job, links)
    return {"gain": 100 * (seconds / played(plan, job, links) - 1)}


def uneven(rows: Rows) -> Figures:
    """Of the uneven links."""
    gains = column(rows, "gain")
    return {
        "perturbed_cases": len(rows),
        "perturbed_measured_beats_nominal_percent": 100 * float(np.mean(gains > 0)),
        "perturbed_gain_percent_mean": float(gains.mean()),
        "perturbed_gain_percent_min": float(gains.min()),
        "perturbed_gain_percent_max": float(gains.max()),
        "perturbed_gain_at_least_5_percent_share": float(np.mean(gains >= 5)),
    }


def rings_row(seed: int, number: int) -> Row:
    """A cluster of up to six hosts of up to three NIC classes in any order."""
    links = random_cluster(np.random.default_rng([seed, 14, number]))
    several = int(len(set(links.nic_class)) > 1)
    thorough = int(number % 10 == 0)
    few = replace(LEAN, recompute=("none",), zero_stages=(0,), refined=2, thorough=thorough)
    try:
        plan = plan_parallel(problem(TrainingJob(decoder(12, 2048), 24, 1024), links, few)).best
    except InfeasibleTraining:
        return {"several": several, "infeasible": 1, "mixed": 0}
    mixed = int(not keeps_classes(links, plan.ranks.tolist()))
    return {"several": several, "infeasible": 0, "mixed": mixed}


def rings(rows: Rows) -> Figures:
    """Of the random clusters."""
    return {
        "ring_clusters": len(rows),
        "ring_clusters_of_several_classes": int(column(rows, "several").sum()),
        "ring_clusters_infeasible": int(column(rows, "infeasible").sum()),
        "rings_that_mix_nic_classes": int(column(rows, "mixed").sum()),
    }


def memory_row(seed: int, number: int) -> Row:
    """A job on little memory, drawn until there is a plan; blocks, holes and context are drawn.

    Beside every fifth the plan of one who is told 12 % more memory, about what the slack is.
    """
    infeasible = 0
    while True:
        rng = np.random.default_rng([seed, 15, number, infeasible])
        job = random_job(rng)
        links = fabric(int(rng.integers(1, 5)), int(rng.choice([2, 4])))
        room = float(rng.choice([24e9, 40e9, 48e9, 80e9, 141e9]))
        try:
            above = _needs(job, links, room, rng) > room
            blind = number % 5 == 0 and _needs(job, links, 1.12 * room, rng) > room
        except InfeasibleTraining:
            infeasible += 1
            continue
        return {"above": int(above), "blind": int(blind), "infeasible": infeasible}


def _needs(job: TrainingJob, links: LinkMatrix, room: float, rng: np.random.Generator) -> float:
    """Bytes of the plan's fullest rank by the ledger."""
    plan = plan_parallel(problem(job, links, _tight(), board(room))).best
    peaks = stage_peaks(job, plan.layout, list(plan.layers))
    return max(allocated_bytes(peak, rng) for peak in peaks)


def memory(rows: Rows) -> Figures:
    """Of the random jobs."""
    return {
        "memory_plans": len(rows),
        "memory_jobs_infeasible": int(column(rows, "infeasible").sum()),
        "plans_above_memory": int(column(rows, "above").sum()),
        "plans_above_memory_without_slack_of_every_fifth": int(column(rows, "blind").sum()),
    }


def _tight() -> SearchChoices:
    return SearchChoices(
        fewer_gpus=False, chunks=(1, 2), largest_micro_batch=8, refined=3, thorough=1
    )


TRACES_PER_WORLD = 10


@cache
def cap_world(seed: int, number: int) -> CapWorld:
    """A job with its plans, shared by its traces."""
    return CapWorld(cap_case(seed, number))


def caps_row(seed: int, number: int) -> Row:
    """Three hours with one host at 80 % for one of them, and pauses shorter than a move."""
    world = cap_world(seed, number // TRACES_PER_WORLD)
    return asdict(play(world, np.random.default_rng([seed, 19, number])))


def caps(rows: Rows) -> Figures:
    """Of the cap traces."""
    still, ruled = column(rows, "still"), column(rows, "ruled")
    gain = column(rows, "foresight") - still
    able = gain > 1e-6 * still
    return {
        "replan_traces": len(rows),
        "replan_recovered_share_of_exhaustive": float((ruled - still).sum() / gain.sum()),
        "replan_traces_with_something_to_gain": int(able.sum()),
        "replan_traces_that_recover_half": int((able & (ruled - still >= gain / 2)).sum()),
        "replan_moves": int(column(rows, "moves").sum()),
        "replans_in_pauses": int(column(rows, "moves_in_pauses").sum()),
        "replan_steps_gained_percent": float(100 * (ruled / still - 1).mean()),
        "replan_steps_gained_with_foresight_percent": float(100 * (gain / still).mean()),
    }


def islands() -> Figures:
    """Four hosts of eight on one fabric, and as two islands joined by Ethernet."""
    job = TrainingJob(decoder(48, 6144), 512, 4096)
    one = plan_parallel(problem(job, fabric(4, 8), _tight())).best
    apart = fabric(4, 8, INFINIBAND, ["a", "b", "b", "a"])
    two = plan_parallel(problem(job, apart, _tight())).best
    slow = plan_parallel(problem(job, fabric(4, 8, ETHERNET), _tight())).best
    careless = plan_parallel(problem(job, fabric(4, 8), replace(_tight(), pipelines=(1,)))).best
    return {
        "islands_over_one_fabric_ratio": played(two, job, apart) / played(one, job, fabric(4, 8)),
        "islands_layout": str(two.layout),
        "islands_rings_over_ethernet_ratio": played(careless, job, apart)
        / played(one, job, fabric(4, 8)),
        "ethernet_only_over_one_fabric_ratio": slow.step_seconds / one.step_seconds,
    }


def overlap_row(seed: int, number: int) -> Row:
    """The plan made as if gradients were summed after the step, played with overlap."""
    rng = np.random.default_rng([seed, 16, number])
    links = perturbed(fabric(4, 4, Link(float(rng.choice([3e9, 12e9])), 5e-6)), rng)
    job = TrainingJob(decoder(int(rng.choice([16, 24, 32])), 4096), 32, 8192)
    only = replace(LEAN, pipelines=(1, 2))
    aware = plan_parallel(problem(job, links, only)).best
    blind = plan_parallel(problem(replace(job, overlap=False), links, only)).best
    seconds = played(blind, job, links)
    return {
        "longer": 100 * (seconds / played(aware, job, links) - 1),
        "error": 100 * abs(blind.step_seconds / seconds - 1),
    }


def without_overlap(rows: Rows) -> Figures:
    """Of the ablation."""
    longer = column(rows, "longer")
    return {
        "no_overlap_cases": len(rows),
        "no_overlap_plan_longer_percent_mean": float(longer.mean()),
        "no_overlap_plan_longer_percent_max": float(longer.max()),
        "no_overlap_step_error_percent_mean": float(column(rows, "error").mean()),
    }


PARTS: Mapping[str, tuple[OneCase, Callable[[Rows], Figures], int, int]] = {
    "small": (small_row, small, 50, 1),
    "fresh": (fresh_row, fresh, 200, 0),
    "uneven": (uneven_row, uneven, 200, 2),
    "rings": (rings_row, rings, 1000, 5),
    "memory": (memory_row, memory, 500, 2),
    "overlap": (overlap_row, without_overlap, 20, 1),
    "caps": (caps_row, caps, 100, 0),
}
"""By name: one case, the figures of all, how many, and how many in a quick run."""


def run(options: Options) -> Result:
    """All parts; a quick run has fewer cases, and no cap traces, whose foresight takes minutes.

    With ``--resume`` every finished case is kept in that folder and not played again.
    """
    figures = large(options.quick) | megatron(options.quick) | islands()
    for name, (row, sum_up, full, quick) in PARTS.items():
        count = quick if options.quick else full
        if count == 0:
            continue
        rows = finished_rows(options, f"{NAME}-{name}", row, count)
        figures |= sum_up(rows)
        options.progress(f"{name}: {sum_up(rows)}")
    targets = {name: target for name, target in TARGETS.items() if name in figures}
    return Result(figures, targets)


def column(rows: Rows, name: str) -> Floats:
    """One figure of every case, shape (n_cases,)."""
    return np.array([row[name] for row in rows], dtype=np.float64)
