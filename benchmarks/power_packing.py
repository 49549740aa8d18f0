"""Work for each kilowatt of budget: openb's load below node, rack and row budgets, four ways.

Tasks for 130 % of the GPUs come one by one in the published order; the planner's greedy places
each or drops it. Only the count of watts differs (``_power_arms``): boards at their limits
(``tdp``), at the 95th percentile of their work (``peak``), nothing and caps afterwards (``blind``),
and ours: a cap for each kind of work and GPU type by the price of a watt, and the 99th percentile
of the sum of what runs in each rack and row. A judge of its own draws what boards draw
(``_power_judge``) and counts work and budgets that are exceeded at their 99th percentile, at the
correlation recorded of loads' changes (0.37) and, as ``alike_``, at that of Helios' queues (0.64),
more than ours assumes. Then each placement runs on the twin's boards (``_power_twin``), second by
second: ``twin_``. That no GPU idles below a limit in the twin is told by ``first_minutes``.

Budgets, datasheet limits and kinds of work are assumed (``_power_cluster``), draws and cap curves
measured or derived (profiles), everything else simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from benchmarks._openb_trace import IntArray
from benchmarks._power_arms import ARMS, Placed, capped_blindly, placed_by
from benchmarks._power_cluster import SHARES, Cluster, arrivals, budgets, cluster
from benchmarks._power_judge import Verdict, judge
from benchmarks._power_twin import Seen, watch
from benchmarks.runner import Options, Result, Target
from simulation.plant_constants import frozen_plant
from simulation.plant_hash import plant_sha256

NAME = "power_packing"
SUMMARY = "openb below node, rack and row budgets: work per kW against TDP, measured peak, caps"

TRACE: Final = "default"
SEEDS: Final = {False: 3, True: 1}
#: The percentile of 1,000 draws is wider than what a domain that is full by the same law leaves.
DRAWS: Final = {False: 20_000, True: 5_000}
#: Every so many tasks, in the short form.
TASKS: Final = {False: None, True: 5000}
RECORDED, ALIKE = 0.37, 0.64
#: Simulated, in the twin; ours on so many seeds of the twin a placement, the other arms on one.
TWIN_SECONDS: Final = {False: 300, True: 40}
TWIN_SEEDS: Final = {False: 3, True: 1}
#: Other rows, in the full form on one seed.
OTHER_ROWS: Final = (0.55, 0.75)
OVER_TDP, OVER_PEAK = 0.25, 0.08

TARGETS: Final = {
    "ours_work_per_kw_over_tdp_lowest": Target(at_least=OVER_TDP),
    "ours_work_per_kw_over_peak_lowest": Target(at_least=OVER_PEAK),
    "ours_budgets_exceeded": Target(at_most=0),
    "twin_budgets_exceeded": Target(at_most=0),
    "twin_tasks_without_boards": Target(at_most=0),
    "overbooked_nodes": Target(at_most=0),
}

Figures = dict[str, float | int | str]


def run(options: Options) -> Result:
    """All arms on each seed; ``--quick`` has one seed and the first tasks."""
    seeds = range(options.seed, options.seed + SEEDS[options.quick])
    verdicts: dict[str, list[Verdict]] = {arm: [] for arm in ARMS}
    alike: dict[str, list[Verdict]] = {arm: [] for arm in ARMS}
    seen: dict[str, list[Seen]] = {arm: [] for arm in ARMS}
    kilowatts: list[float] = []
    for seed in seeds:
        made = cluster(seed)
        limits = budgets(made, SHARES["row"])
        kilowatts.append(float(limits["row"].sum() / 1000.0))
        for arm, placed in _placed(options, made, limits, seed).items():
            drawn = DRAWS[options.quick]
            verdicts[arm].append(judge(made, limits, placed, seed, RECORDED, drawn))
            alike[arm].append(judge(made, limits, placed, seed, ALIKE, drawn))
            for twin in range(TWIN_SEEDS[options.quick] if arm == "ours" else 1):
                seconds = TWIN_SECONDS[options.quick]
                seen[arm].append(watch(made, limits, placed, 100 * seed + twin, seconds))
        work = ", ".join(f"{arm} {verdicts[arm][-1].work:.0f}" for arm in ARMS)
        options.progress(f"seed {seed}: GPUs' worth of work: {work}")
    figures = _figures(verdicts, kilowatts) | _twin_figures(seen)
    figures["plant_sha256"] = plant_sha256(frozen_plant())
    for arm, told in alike.items():
        figures[f"alike_{arm}_budgets_exceeded"] = sum(_exceeded(v) for v in told)
    if options.quick:
        return Result(figures)
    for share in OTHER_ROWS:
        made, seed = cluster(options.seed), options.seed
        limits = budgets(made, share)
        told_of = {
            arm: [judge(made, limits, placed, seed, RECORDED, DRAWS[False])]
            for arm, placed in _placed(options, made, limits, seed).items()
        }
        figures |= _gains(f"row_{round(100 * share)}_", told_of, lowest=False)
        exceeded = sum(_exceeded(v) for v in told_of["ours"])
        figures[f"row_{round(100 * share)}_ours_budgets_exceeded"] = exceeded
    return Result(figures, TARGETS)


def _placed(
    options: Options, made: Cluster, limits: Mapping[str, IntArray], seed: int
) -> dict[str, list[Placed]]:
    """What each arm makes of the same tasks."""
    tasks = arrivals(TRACE, seed)[: TASKS[options.quick]]
    found = {arm: placed_by(arm, made, limits, tasks) for arm in ARMS}
    return found | {"blind": capped_blindly(made, limits, found["blind"])}


def _exceeded(verdict: Verdict) -> int:
    return sum(verdict.exceeded.values())


def _figures(verdicts: Mapping[str, list[Verdict]], kilowatts: list[float]) -> Figures:
    figures: Figures = {"row_budget_kilowatts": float(np.mean(kilowatts))}
    for arm, told in verdicts.items():
        works = [v.work for v in told]
        figures[f"{arm}_work_per_kw"] = float(np.mean(np.divide(works, kilowatts)))
        drawn = [v.work / (v.mean_watts / 1000.0) for v in told]
        figures[f"{arm}_work_per_drawn_kw"] = float(np.mean(drawn))
        figures[f"{arm}_budgets_exceeded"] = sum(_exceeded(v) for v in told)
        for level in told[0].exceeded:
            figures[f"{arm}_{level}_budgets_exceeded"] = sum(v.exceeded[level] for v in told)
    figures["overbooked_nodes"] = sum(v.overbooked for told in verdicts.values() for v in told)
    return figures | _gains("", verdicts, lowest=True)


def _twin_figures(seen: Mapping[str, list[Seen]]) -> Figures:
    """Ours by level; of the others what is exceeded."""
    figures: Figures = {
        f"{arm}_twin_budgets_exceeded": sum(sum(s.exceeded.values()) for s in told)
        for arm, told in seen.items()
        if arm != "ours"
    }
    ours = seen["ours"]
    figures["twin_budgets_exceeded"] = sum(sum(s.exceeded.values()) for s in ours)
    for level in ours[0].exceeded:
        figures[f"twin_{level}_budgets_exceeded"] = sum(s.exceeded[level] for s in ours)
        figures[f"twin_{level}_budgets_exceeded_for_a_second"] = sum(s.touched[level] for s in ours)
    figures["twin_seconds_above_budgets"] = sum(s.seconds_above for s in ours)
    figures["twin_highest_share_of_a_budget"] = max(s.highest_share for s in ours)
    unseated = sum(s.unseated for told in seen.values() for s in told)
    return figures | {"twin_tasks_without_boards": unseated}


def _gains(prefix: str, verdicts: Mapping[str, list[Verdict]], *, lowest: bool) -> Figures:
    """Ours over every other arm, a budget for a budget; by work and weighted by boards' limits."""
    figures: Figures = {}
    for arm in ARMS[:-1]:
        pairs = list(zip(verdicts["ours"], verdicts[arm], strict=True))
        gains = [ours.work / other.work - 1.0 for ours, other in pairs]
        figures[f"{prefix}ours_work_per_kw_over_{arm}"] = float(np.mean(gains))
        if lowest:
            figures[f"{prefix}ours_work_per_kw_over_{arm}_lowest"] = min(gains)
            weighted = [ours.weighted_work / other.weighted_work - 1.0 for ours, other in pairs]
            figures[f"{prefix}ours_weighted_work_over_{arm}"] = float(np.mean(weighted))
    return figures
