"""Training plans against exhaustive search, a published table, uneven links, caps and memory.

What judges is not the planner's formula: ``_step_simulator`` plays a step event by event,
``_memory_ledger`` adds up tensors, ``_plan_oracle`` tries everything on small clusters. They share
the seconds of a layer with the planner, which kernels and not plans decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np

from benchmarks._cap_traces import CapWorld, cap_case, play
from benchmarks._megatron_table import FITTED, TABLE, fit, held_out_errors, log_errors
from benchmarks._memory_ledger import allocated_bytes, stage_peaks
from benchmarks._own_rows import own_rows
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
from benchmarks.runner import Options, Result, Target
from capacity.language_models import find_language_model
from capacity.model.gpu_model import GpuModel
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
    model = GpuModel.from_rows(own_rows("h100"))
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


def small(seed: int, cases: int) -> Figures:
    """The plan's step over the best of all plans', both played."""
    over: list[float] = []
    formula: list[float] = []
    tried = infeasible = 0
    for number in range(cases):
        case = small_case(seed, number)
        best, count = best_of_all(case)
        tried += count
        asked = problem(
            case.job, case.links, choices_of(case), board(case.memory_bytes), np.array(case.speed)
        )
        try:
            plan = plan_parallel(asked).best
        except InfeasibleTraining:
            # A conflict that is none would be a plan infinitely worse than the best.
            infeasible += best == float("inf")
            over += [] if best == float("inf") else [float("inf")]
            continue
        seconds = case.played(plan.layout, plan.ranks.tolist(), list(plan.layers))
        over.append(100 * (seconds / best - 1))
        formula.append(100 * abs(plan.step_seconds / seconds - 1))
    return {
        "small_cases": cases,
        "small_cases_infeasible_to_both": infeasible,
        "small_cases_plans_tried": tried,
        "small_cases_over_exhaustive_percent_max": max(over),
        "small_cases_over_exhaustive_percent_mean": float(np.mean(over)),
        "small_cases_formula_error_percent_mean": float(np.mean(formula)),
        "small_cases_formula_error_percent_max": max(formula),
    }


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


def uneven(seed: int, cases: int) -> Figures:
    """Links of every pair of hosts off by up to 30 %: the plan for them against the nominal one."""
    gains: list[float] = []
    nominal = fabric(8, 2, Link(12e9, 5e-6))
    jobs = [
        TrainingJob(decoder(layers, hidden), 32, 2048)
        for layers, hidden in ((16, 4096), (24, 4096), (32, 4096), (20, 5120))
    ]
    blind = [plan_parallel(problem(job, nominal, LEAN)).best for job in jobs]
    for number in range(cases):
        at = number % len(jobs)
        links = perturbed(nominal, np.random.default_rng([seed, 13, number]))
        plan = plan_parallel(problem(jobs[at], links, LEAN)).best
        seconds = played(blind[at], jobs[at], links)
        gains.append(100 * (seconds / played(plan, jobs[at], links) - 1))
    return {
        "perturbed_cases": cases,
        "perturbed_measured_beats_nominal_percent": 100 * float(np.mean(np.array(gains) > 0)),
        "perturbed_never_worse_percent": 100 * float(np.mean(np.array(gains) > -1e-6)),
        "perturbed_gain_percent_mean": float(np.mean(gains)),
        "perturbed_gain_percent_median": float(np.median(gains)),
        "perturbed_gain_at_least_5_percent_share": float(np.mean(np.array(gains) >= 5)),
    }


def rings(seed: int, cases: int) -> Figures:
    """Clusters of up to six hosts of up to three NIC classes in any order."""
    mixed = crossing = infeasible = 0
    for number in range(cases):
        rng = np.random.default_rng([seed, 14, number])
        links = random_cluster(rng)
        job = TrainingJob(decoder(12, 2048), 24, 1024)
        try:
            plan = plan_parallel(problem(job, links, replace(LEAN, refined=4))).best
        except InfeasibleTraining:
            infeasible += 1
            continue
        mixed += not keeps_classes(links, plan.ranks.tolist())
        crossing += len(set(links.nic_class)) > 1
    return {
        "ring_clusters": cases,
        "ring_clusters_of_several_classes": crossing,
        "ring_clusters_infeasible": infeasible,
        "rings_that_mix_nic_classes": mixed,
    }


def memory(seed: int, cases: int) -> Figures:
    """Random jobs on little memory; blocks, holes and contexts drawn, and without the slack."""
    above = blind = planned = infeasible = 0
    number = 0
    while planned < cases:
        rng = np.random.default_rng([seed, 15, number])
        number += 1
        job = random_job(rng)
        links = fabric(int(rng.integers(1, 5)), int(rng.choice([2, 4])))
        room = float(rng.choice([24e9, 40e9, 48e9, 80e9, 141e9]))
        above_it = []
        for told in (room, 1.12 * room):
            try:
                plan = plan_parallel(problem(job, links, _tight(), board(told))).best
            except InfeasibleTraining:
                break
            peaks = stage_peaks(job, plan.layout, list(plan.layers))
            above_it.append(max(allocated_bytes(peak, rng) for peak in peaks) > room)
        if not above_it:
            infeasible += 1
            continue
        planned += 1
        above += above_it[0]
        blind += above_it[-1]
    return {
        "memory_plans": planned,
        "memory_jobs_infeasible": infeasible,
        "plans_above_memory": above,
        "plans_above_memory_without_slack": blind,
    }


def _tight() -> SearchChoices:
    return SearchChoices(fewer_gpus=False, chunks=(1, 2), largest_micro_batch=8, refined=3)


def replanning(seed: int, worlds: int, traces: int) -> Figures:
    """Three hours with one host at 80 % for one of them, and pauses shorter than a move."""
    still = ruled = foresight = 0.0
    moves = in_pauses = better = able = 0
    for number in range(worlds):
        world = CapWorld(cap_case(seed, number))
        for trace in range(traces):
            outcome = play(world, np.random.default_rng([seed, 19, number, trace]))
            still, ruled = still + outcome.still, ruled + outcome.ruled
            foresight += outcome.foresight
            moves, in_pauses = moves + outcome.moves, in_pauses + outcome.moves_in_pauses
            gain = outcome.foresight - outcome.still
            able += gain > 1e-6 * outcome.still
            better += gain > 1e-6 * outcome.still and outcome.ruled - outcome.still >= gain / 2
    return {
        "replan_traces": worlds * traces,
        "replan_recovered_share_of_exhaustive": (ruled - still) / (foresight - still),
        "replan_traces_with_something_to_gain": able,
        "replan_traces_that_recover_half": better,
        "replan_moves": moves,
        "replans_in_pauses": in_pauses,
        "replan_steps_gained_percent": 100 * (ruled / still - 1),
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


def without_overlap(seed: int, cases: int) -> Figures:
    """Plans made as if gradients were summed after the step, played with overlap."""
    longer: list[float] = []
    misjudged: list[float] = []
    for number in range(cases):
        rng = np.random.default_rng([seed, 16, number])
        links = perturbed(fabric(4, 4, Link(float(rng.choice([12e9, 45e9])), 5e-6)), rng)
        job = TrainingJob(decoder(int(rng.choice([16, 24, 32])), 4096), 64, 2048)
        aware = plan_parallel(problem(job, links, LEAN)).best
        blind = plan_parallel(problem(replace(job, overlap=False), links, LEAN)).best
        seconds = played(blind, job, links)
        longer.append(100 * (seconds / played(aware, job, links) - 1))
        misjudged.append(100 * abs(blind.step_seconds / seconds - 1))
    return {
        "no_overlap_cases": cases,
        "no_overlap_plan_longer_percent_mean": float(np.mean(longer)),
        "no_overlap_plan_longer_percent_max": max(longer),
        "no_overlap_step_error_percent_mean": float(np.mean(misjudged)),
    }


def run(options: Options) -> Result:
    """All parts; a quick run has fewer cases, and no cap traces, whose foresight takes minutes.

    Finished parts are kept in and taken from the folder of ``--resume``.
    """
    figures: Figures = {}
    for name, part in _parts(options.seed, options.quick).items():
        shard = options.resume / f"plan_parallel-{name}.json" if options.resume else None
        if shard is not None and shard.exists():
            made: Figures = json.loads(shard.read_text(encoding="utf-8"))
        else:
            made = part()
            if shard is not None:
                shard.write_text(json.dumps(made), encoding="utf-8")
        figures |= made
        options.progress(f"{name}: {made}")
    targets = {name: target for name, target in TARGETS.items() if name in figures}
    return Result(figures, targets)


def _parts(seed: int, quick: bool) -> dict[str, Callable[[], Figures]]:
    parts: dict[str, Callable[[], Figures]] = {
        "large": lambda: large(quick),
        "megatron": lambda: megatron(quick),
        "islands": islands,
        "small": lambda: small(seed, 1 if quick else 50),
        "uneven": lambda: uneven(seed, 2 if quick else 200),
        "rings": lambda: rings(seed, 5 if quick else 1000),
        "memory": lambda: memory(seed, 2 if quick else 500),
        "overlap": lambda: without_overlap(seed, 1 if quick else 50),
        "caps": lambda: replanning(seed, 10, 10),
    }
    if quick:
        del parts["caps"]
    return parts
