"""The GPU type that suits the work, and good neighbours: Gavel's tables through the planner.

*Policies*: 72 jobs, drawn as in Gavel's simulations, compete for 36 V100, 36 P100 and 36 K80 in
servers of eight, for 480 rounds (of six minutes: two days). A policy says shares of time, the
planner gives whole GPUs on servers round by round, and a judge of its own counts against the
optimum of a linear program that knows neither rounds nor servers: the smallest ratio of max-min
fairness (4.1), and the cost of speeds that jobs need (4.2), where what they got counts as well.
``agnostic_shares`` are those of the policy where all types count as equally fast, without rounds.

*Neighbours*: 40 jobs on 20 boards that two may share. The planner is told of each pair what all
other pairs say of it; measured figures of the table judge.

Source: Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads, OSDI 2020, and its repository (``benchmarks/data/capacity/gavel``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks._colocation_cases import harmful, knowledge, placed_pairs, random_pairs
from benchmarks._gavel_jobs import GPUS_OF_A_MODEL, MODELS, PRICE, GavelJob, drawn_jobs, servers
from benchmarks._heterogeneity_judge import (
    Verdict,
    best_smallest_ratio,
    cost_per_hour,
    equal_speed,
    fair_ratio,
    least_cost,
    mean_speed,
    recount,
)
from benchmarks._heterogeneity_rounds import ANEW_AFTER, rounds
from benchmarks.runner import Options, Result, Target
from scheduler_plugin.packing.throughput_policies import (
    Floats,
    Integers,
    Work,
    least_cost_shares,
    max_min_shares,
)

NAME = "heterogeneity"
SUMMARY = "GPU types by policy against the LP optimum, and harmful neighbours held out (Gavel)"

JOBS: Final = 72
ROUNDS: Final = {False: 480, True: 20}
SEEDS: Final = {False: 5, True: 1}
#: Of what max-min fairness would give a job, the least speeds of the cost policy (assumed).
LEAST: Final = (0.3, 0.9)
SHARING_JOBS, BOARDS = 40, 20
DRAWS: Final = {False: 20, True: 2}
WITHIN: Final = 0.02

TARGETS: Final = {
    "faults": Target(at_most=0),
    "max_min_of_optimum_lowest": Target(at_least=1.0 - WITHIN),
    "cost_of_optimum_highest": Target(at_most=1.0 + WITHIN),
    "cost_least_speeds_met_lowest": Target(at_least=1.0 - WITHIN),
    "harmful_pairs_avoided": Target(at_least=0.5),
    "good_pairs_used": Target(at_least=0.9),
}

Figures = dict[str, float | int | str]
GPUS: Final = dict.fromkeys(MODELS, GPUS_OF_A_MODEL)


def run(options: Options) -> Result:
    """Both halves; ``--quick`` has fewer rounds, seeds and draws."""
    seeds = range(options.seed, options.seed + SEEDS[options.quick])
    figures: Figures = {"rounds": ROUNDS[options.quick], "seeds": len(seeds)}
    figures |= _policies(options, seeds)
    draws = range(options.seed, options.seed + DRAWS[options.quick])
    figures |= _neighbours(draws)
    return Result(figures, {} if options.quick else TARGETS)


def _policies(options: Options, seeds: Sequence[int]) -> Figures:
    fair: list[float] = []
    agnostic: list[float] = []
    cost: list[float] = []
    met: list[float] = []
    faults: list[str] = []
    for seed in seeds:
        jobs = drawn_jobs(seed, JOBS)
        optimum = best_smallest_ratio(jobs, GPUS)
        verdict = _max_min(options, jobs)
        ratios = [fair_ratio(job, _speed(options, job, verdict), GPUS) for job in jobs]
        fair.append(min(ratios) / optimum)
        agnostic.append(_agnostic(jobs) / optimum)
        least = _least_speeds(seed, jobs, optimum)
        cheap = _least_cost(options, jobs, least)
        hour = cost_per_hour(cheap, jobs, PRICE, ROUNDS[options.quick])
        cost.append(hour / least_cost(jobs, GPUS, PRICE, least))
        met.append(min(_speed(options, j, cheap) / s for j, s in zip(jobs, least, strict=True)))
        faults += verdict.faults + cheap.faults
        options.progress(f"seed {seed}: max-min {fair[-1]:.4f}, cost {cost[-1]:.4f} of optimum")
    return {
        "faults": len(faults),
        **({"first_fault": faults[0]} if faults else {}),
        "max_min_of_optimum_lowest": min(fair),
        "max_min_of_optimum_mean": float(np.mean(fair)),
        "agnostic_shares_of_optimum_mean": float(np.mean(agnostic)),
        "cost_of_optimum_highest": max(cost),
        "cost_of_optimum_mean": float(np.mean(cost)),
        "cost_least_speeds_met_lowest": min(met),
    }


def _max_min(options: Options, jobs: Sequence[GavelJob]) -> Verdict:
    works = [Work(job.name, job.gpus, job.speeds) for job in jobs]

    def policy(had: Integers, _: int) -> Floats:
        return max_min_shares(works, GPUS, had=had, ahead=ANEW_AFTER)

    return recount(servers(), jobs, rounds(jobs, MODELS, policy, ROUNDS[options.quick]))


def _agnostic(jobs: Sequence[GavelJob]) -> float:
    """The smallest ratio where the policy takes all types for equally fast, without rounds."""
    alike = [Work(job.name, job.gpus, dict.fromkeys(job.speeds, 1.0)) for job in jobs]
    shares = max_min_shares(alike, GPUS)
    return min(
        fair_ratio(
            job, sum(s * job.speeds.get(m, 0) for m, s in zip(MODELS, row, strict=True)), GPUS
        )
        for job, row in zip(jobs, shares.tolist(), strict=True)
    )


def _speed(options: Options, job: GavelJob, verdict: Verdict) -> float:
    return mean_speed(verdict, job, ROUNDS[options.quick])


def _least_speeds(seed: int, jobs: Sequence[GavelJob], optimum: float) -> list[float]:
    """Below what a fair allocation gives each job, so that all can be met together."""
    random = np.random.default_rng(seed)
    shares = random.uniform(*LEAST, size=len(jobs))
    return [
        float(share) * optimum * equal_speed(job, GPUS) / job.gpus
        for job, share in zip(jobs, shares, strict=True)
    ]


def _least_cost(options: Options, jobs: Sequence[GavelJob], least: Sequence[float]) -> Verdict:
    works = [
        Work(job.name, job.gpus, job.speeds, least_speed=speed)
        for job, speed in zip(jobs, least, strict=True)
    ]
    shares = least_cost_shares(works, GPUS, PRICE)

    def policy(had: Integers, begun: int) -> Floats:
        # What is owed of the rounds so far comes with those up to the next look.
        return np.maximum(0.0, (shares * (begun + ANEW_AFTER) - had) / ANEW_AFTER)

    ran = rounds(jobs, MODELS, policy, ROUNDS[options.quick], leaves_idle=True)
    return recount(servers(), jobs, ran)


def _neighbours(seeds: Sequence[int]) -> Figures:
    figures: Figures = {}
    pairs_of = {"random": 0, "estimated": 0, "known": 0}
    harmful_of = dict.fromkeys(pairs_of, 0)
    for gpu in MODELS:
        know = knowledge(gpu)
        pairs, bad = dict.fromkeys(pairs_of, 0), dict.fromkeys(pairs_of, 0)
        for seed in seeds:
            random = np.random.default_rng(seed)
            drawn = random.integers(len(know.jobs), size=SHARING_JOBS)
            jobs = [know.jobs[i] for i in drawn]
            made = {
                "random": random_pairs(jobs, know.true, random),
                "estimated": placed_pairs(jobs, know.estimated, BOARDS)[0],
                "known": placed_pairs(jobs, know.true, BOARDS)[0],
            }
            for arm, found in made.items():
                pairs[arm] += len(found)
                bad[arm] += harmful(found, know.true)
        for arm in pairs:
            figures[f"{gpu}_{arm}_pairs"] = pairs[arm]
            figures[f"{gpu}_{arm}_harmful_share"] = bad[arm] / max(1, pairs[arm])
            pairs_of[arm] += pairs[arm]
            harmful_of[arm] += bad[arm]
    share = {arm: harmful_of[arm] / max(1, pairs_of[arm]) for arm in pairs_of}
    good = {arm: pairs_of[arm] - harmful_of[arm] for arm in pairs_of}
    return figures | {
        **{f"{arm}_harmful_share": value for arm, value in share.items()},
        "harmful_pairs_avoided": 1.0 - share["estimated"] / share["random"],
        "good_pairs_used": good["estimated"] / max(1, good["known"]),
    }
