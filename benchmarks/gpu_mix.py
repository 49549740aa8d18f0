"""The GPU mix against Mélange's formulation, against the clock, and against mix-then-cap.

Every plan passes the checker. Mélange's program is solved to proved optimality on the same cases;
ours is proved optimal as well, so the saving with whole requests is all that dividing buckets can
bring. Beside it the plan that may also run prefill and decode on different types, which Mélange's
formulation cannot say: hand-overs are charged against both links, and a phase alone is no faster
than within the whole. The constants of hand-overs were fixed before any result was seen.
Mix-then-cap buys the cheapest mix without looking at watts, then lowers one cap for all boards (and
may switch replicas off) until the power budget holds; the joint plan has the same budget in watts
and in dollars. A stricter mix-then-cap that gives each bought replica its best cap is printed
beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from benchmarks._melange_formulation import MelangeAnswer, solve_melange
from benchmarks._mix_cases import TOY, Bounds, Case, generate, to_problem
from benchmarks.runner import OneCase, Options, Result, Row, Rows, Target, finished_rows
from capacity.mix.mix_checker import complaints
from capacity.mix.mix_model import NoMix, SolveOptions, solve_mix
from capacity.mix.mix_problem import Goal, MixProblem, Phase
from capacity.mix.mix_solution import MixSolution
from wattpack.clock import SystemClock
from wattpack.errors import PermanentError
from wattpack.units import ns_to_seconds

NAME = "gpu_mix"
SUMMARY = (
    "cost of a GPU mix against Mélange, gap in 2 s at full size, joint caps against mix-then-cap"
)
CAPS = (0.5, 0.625, 0.75, 0.875, 1.0)
DOLLARS_PER_KWH = 0.12
#: Of the cases with caps.
TYPES = 5
#: Of the plan's price; below is rounding.
SAME = 1e-6
#: Plans with phases that part are searched to this share; their savings are percents.
SPLIT_GAP = 1e-4
TARGETS = {
    "toy_dollars_per_hour": Target(at_most=4.68 + SAME),
    "cases_dearer_than_melange": Target(at_most=0),
    "mean_saving_percent": Target(at_least=2.0),
    "split_mean_saving_percent": Target(at_least=2.0),
    "full_size_gap_percent_max": Target(at_most=1.0),
    "full_size_cases_without_a_mix": Target(at_most=0),
    "joint_requests_per_kw_gain_percent_mean": Target(at_least=10.0),
    "split_joint_requests_per_kw_gain_percent_mean": Target(at_least=10.0),
}
Figures = dict[str, float | int | str]


def planned(problem: MixProblem, seconds: float, gap: float = SAME) -> MixSolution:
    """The plan, if the checker agrees."""
    solution = solve_mix(problem, SolveOptions(seconds=seconds, gap=gap))
    wrong = complaints(problem, solution)
    if wrong:
        raise PermanentError(f"the checker refuses a plan: {wrong}")
    return solution


@dataclass(frozen=True, slots=True)
class Pair:
    """Our answers and Mélange's on one case.

    Attributes:
        ours: Whole requests, like Mélange's.
        split: Prefill and decode may part; None where the case says nothing of phases.
        slow_link: The same with a tenth of the link.
    """

    ours: MixSolution
    theirs: MelangeAnswer
    split: MixSolution | None = None
    slow_link: MixSolution | None = None

    @property
    def saving_percent(self) -> float:
        """Of Mélange's price, with whole requests."""
        return self._saving(self.ours)

    @property
    def split_saving_percent(self) -> float:
        """Of Mélange's price, with phases that may part."""
        return self._saving(self.split or self.ours)

    @property
    def slow_link_saving_percent(self) -> float:
        """The same with a tenth of the link."""
        return self._saving(self.slow_link or self.ours)

    def _saving(self, plan: MixSolution) -> float:
        return 100 * (1 - plan.costs.total / self.theirs.dollars_per_hour)


def compare(case: Case, seconds: float = 20.0) -> Pair:
    """Both on the same case, GPUs paid only."""
    split = slow_link = None
    if case.phase_seconds is not None:
        parted = Bounds(splits=True)
        tenth = replace(parted, link_bytes_per_second=parted.link_bytes_per_second / 10)
        split = planned(to_problem(case, parted), seconds, SPLIT_GAP)
        slow_link = planned(to_problem(case, tenth), seconds, SPLIT_GAP)
    ours = planned(to_problem(case, Bounds()), seconds)
    return Pair(ours, solve_melange(case, seconds), split, slow_link)


def toy(quick: bool) -> Figures:
    """The published point, and the same matrix at other request rates."""
    factors = np.linspace(2, 200, 5 if quick else 19) / 30.0
    swept = [
        compare(replace(TOY, requests_per_second=TOY.requests_per_second * f)) for f in factors
    ]
    return {
        "toy_dollars_per_hour": round(compare(TOY).ours.costs.total, 6),
        "toy_melange_slice_1_dollars_per_hour": solve_melange(TOY, 20.0, 1).dollars_per_hour,
        "toy_melange_slice_4_dollars_per_hour": solve_melange(TOY, 20.0).dollars_per_hour,
        "toy_rates_mean_saving_percent": _mean(pair.saving_percent for pair in swept),
        "toy_rates_saving_percent_max": max(pair.saving_percent for pair in swept),
    }


def melange_row(seed: int, case_number: int) -> Row:
    """Every other case is like the toy (4 buckets), the rest like the paper's (9 to 36 buckets)."""
    rng = np.random.default_rng([seed, 1, case_number])
    is_small = case_number % 2 == 0
    buckets = 4 if is_small else int(rng.integers(9, 37))
    case = generate(rng, int(rng.integers(2, 6)), buckets, (1.0, 8.0) if is_small else (1.0, 40.0))
    pair = compare(case)
    return {
        "whole": pair.saving_percent,
        "split": pair.split_saving_percent,
        "slow_link": pair.slow_link_saving_percent,
        "is_small": is_small,
        "is_few_gpus": sum(pair.theirs.gpus) <= 4,
        "splits": _splits(pair.split),
        "ours_open": pair.ours.gap > 10 * SAME,
        "melange_open": pair.theirs.bound < pair.theirs.dollars_per_hour * (1 - SAME),
    }


def against_melange(rows: Rows) -> Figures:
    """Savings over all cases."""
    whole, split = ([row[name] for row in rows] for name in ("whole", "split"))
    return {
        "cases": len(rows),
        "cases_dearer_than_melange": sum(s < -100 * SAME for s in (*split, *whole)),
        "cases_cheaper_than_melange": sum(saving > 100 * SAME for saving in whole),
        "mean_saving_percent": _mean(whole),
        "saving_percent_max": max(whole),
        "mean_saving_percent_4_buckets": _mean(r["whole"] for r in rows if r["is_small"]),
        "mean_saving_percent_9_to_36_buckets": _mean(
            row["whole"] for row in rows if not row["is_small"]
        ),
        "mean_saving_percent_at_most_4_gpus": _mean(r["whole"] for r in rows if r["is_few_gpus"]),
        "split_cases_cheaper_than_melange": sum(saving > 100 * SAME for saving in split),
        "split_mean_saving_percent": _mean(split),
        "split_saving_percent_max": max(split),
        "split_mean_saving_percent_4_buckets": _mean(r["split"] for r in rows if r["is_small"]),
        "split_mean_saving_percent_9_to_36_buckets": _mean(
            row["split"] for row in rows if not row["is_small"]
        ),
        "split_mean_saving_percent_tenth_of_the_link": _mean(row["slow_link"] for row in rows),
        "cases_that_split": sum(row["splits"] for row in rows),
        "ours_not_proved": sum(row["ours_open"] for row in rows),
        "melange_not_proved": sum(row["melange_open"] for row in rows),
    }


def _splits(plan: MixSolution | None) -> bool:
    return plan is not None and any(row.phase is not Phase.WHOLE for row in plan.served)


def full_size_row(seed: int, case_number: int, seconds: float = 2.0) -> Row:
    """6 types x 40 buckets x 5 caps, energy paid; every other one within 90 % of the free draw.

    Empty where the budget can be kept by no mix.
    """
    clock = SystemClock()
    case = generate(np.random.default_rng([seed, 2, case_number]), 6, 40, (2.0, 100.0))
    bounds = Bounds(CAPS, dollars_per_kwh=DOLLARS_PER_KWH)
    if case_number % 2:
        free = planned(to_problem(case, bounds), seconds, gap=1e-3)
        bounds = replace(bounds, budget_watts=0.9 * free.mean_watts)
    begun_ns, cpu_before = clock.monotonic_ns(), sum(os.times()[:2])
    try:
        solution = planned(to_problem(case, bounds), seconds, gap=1e-3)
    except NoMix:
        return {}
    return {
        "gap_percent": 100 * solution.gap,
        "seconds": ns_to_seconds(clock.monotonic_ns() - begun_ns),
        "cpu_seconds": sum(os.times()[:2]) - cpu_before,
    }


def full_size(rows: Rows) -> Figures:
    """Gap and time of those that have a mix."""
    solved = [row for row in rows if row]
    gaps, times = ([row[name] for row in solved] for name in ("gap_percent", "seconds"))
    return {
        "full_size_cases": len(gaps),
        "full_size_cases_without_a_mix": len(rows) - len(solved),
        "full_size_gap_percent_max": max(gaps),
        "full_size_gap_percent_mean": _mean(gaps),
        "full_size_cases_within_1_percent": sum(gap <= 1.0 for gap in gaps),
        "full_size_seconds_mean": _mean(times),
        "full_size_seconds_max": max(times),
        "full_size_cpu_seconds_max": max(row["cpu_seconds"] for row in solved),
    }


@dataclass(frozen=True, slots=True)
class Capped:
    """Share of four times the demand that is served within one power budget.

    Attributes:
        one_cap: The mix bought without looking at watts, all boards at the best common cap.
        best_caps: The same mix, each replica at its best cap.
        joint: Mix and caps chosen together for the same dollars.
        joint_at_any_price: Without a limit on dollars.
    """

    one_cap: float
    best_caps: float
    joint: float
    joint_at_any_price: float


def within_budget(case: Case, splits: bool) -> Capped:
    """All four on 70 % of what the cheapest mix draws at its default caps."""
    free = Bounds(dollars_per_kwh=DOLLARS_PER_KWH, splits=splits)
    mix = planned(to_problem(case, free), 5.0, 1e-3)
    bought = {row.offer: row.replicas for row in mix.replicas}
    most = Bounds(
        CAPS,
        scale=4.0,
        budget_watts=0.7 * mix.mean_watts,
        goal=Goal.MOST_REQUESTS,
        dollars_per_kwh=DOLLARS_PER_KWH,
        splits=splits,
    )
    bought_only = replace(most, stock=tuple(bought.get(f"t{t}", 0) for t in range(TYPES)))

    def served(bounds: Bounds) -> float:
        return planned(to_problem(case, bounds), 3.0, 1e-3).served_fraction

    return Capped(
        one_cap=max(served(replace(bought_only, caps=(cap,))) for cap in CAPS),
        best_caps=served(bought_only),
        joint=served(replace(most, dollars_per_hour=mix.costs.total)),
        joint_at_any_price=served(most),
    )


def joint_row(seed: int, case_number: int, splits: bool) -> Row:
    """One case; phases may part on both sides or on neither."""
    rng = np.random.default_rng([seed, 3, case_number])
    return asdict(within_budget(generate(rng, TYPES, 12, (10.0, 60.0)), splits))


def joint_caps(rows: Rows, mark: str) -> Figures:
    """What it brings to choose mix and caps together, in requests a second for the same watts."""

    def gains(better: str, base: str) -> list[float]:
        return [100 * (row[better] / row[base] - 1) for row in rows]

    return {
        f"{mark}joint_cases": len(rows),
        f"{mark}joint_requests_per_kw_gain_percent_mean": _mean(gains("joint", "one_cap")),
        f"{mark}joint_requests_per_kw_gain_percent_min": min(gains("joint", "one_cap")),
        f"{mark}joint_requests_per_kw_gain_percent_max": max(gains("joint", "one_cap")),
        f"{mark}joint_gain_at_any_price_percent_mean": _mean(
            gains("joint_at_any_price", "one_cap")
        ),
        f"{mark}joint_gain_over_best_caps_percent_mean": _mean(gains("joint", "best_caps")),
        f"{mark}joint_gain_over_best_caps_at_any_price_percent_mean": _mean(
            gains("joint_at_any_price", "best_caps")
        ),
    }


PARTS: Final[dict[str, tuple[OneCase, Callable[[Rows], Figures], int, int]]] = {
    "melange": (melange_row, against_melange, 200, 20),
    "full_size": (full_size_row, full_size, 20, 2),
    "joint": (partial(joint_row, splits=False), partial(joint_caps, mark=""), 20, 1),
    "split_joint": (partial(joint_row, splits=True), partial(joint_caps, mark="split_"), 20, 1),
}
"""By name: one case, the figures of all, how many, and how many in a quick run."""


def run(options: Options) -> Result:
    """All parts; a quick run has fewer cases of the same sizes.

    With ``--resume`` every finished case is kept in that folder and not solved again.
    """
    figures = toy(options.quick)
    for name, (one_case, sum_up, full, quick) in PARTS.items():
        rows = finished_rows(options, f"{NAME}-{name}", one_case, quick if options.quick else full)
        figures |= sum_up(rows)
        options.progress(f"{name}: {sum_up(rows)}")
    return Result(figures, TARGETS)


def _mean(values: Iterator[float] | list[float]) -> float:
    listed = list(values)
    return float(np.mean(listed)) if listed else 0.0
