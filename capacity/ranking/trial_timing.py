"""How the rounds of a trial become one time, and when that time is doubted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np

from capacity.bench.measurement_row import CacheState
from capacity.ranking.kernel_host import HostFacts, RoundReport, Sync, Trial
from capacity.ranking.kernel_verdict import KernelRefused, Timing
from capacity.ranking.ranked_task import RankedTask
from capacity.ranking.slot_layout import operand_bytes, slot_bytes, slot_layout

STREAM_RATIO: Final = 1.5
"""A round that waits for the whole device may take this much longer than one that waits for the
kernel's stream; CUDA-L2 refuses at the same ratio."""

COLD_FACTOR: Final = 3
CLOCK_SECONDS: Final = 2e-5
"""Clocks and events agree no better."""


@dataclass(frozen=True, slots=True)
class TrialRule:
    """How long a trial lasts.

    Attributes:
        rounds: Timed ones of each cache state, half of each way of waiting.
        wanted_runs: In a round, each on operands of its own.
        most_runs: In a round, where small operands need that many to fill the cache.
        checked_runs: Of each round, picked after it ended.
        empty_rounds: Without runs, to know what a round costs by itself.
        second_looks: Times that a doubted time is measured again.
    """

    rounds: int = 12
    wanted_runs: int = 64
    most_runs: int = 512
    checked_runs: int = 2
    empty_rounds: int = 5
    second_looks: int = 8


@dataclass(frozen=True, slots=True)
class TimedCase:
    """One shape in one cache state.

    Attributes:
        slots: Runs that there are operands for.
    """

    task: RankedTask
    cache_state: CacheState
    slots: int


@dataclass(frozen=True, slots=True)
class RoundCost:
    """Of a round without runs."""

    wall_seconds: float
    worked_seconds: float


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds per run."""

    sync: Sync
    wall_seconds: float
    worked_seconds: float
    claimed_seconds: float


def timed_cases(task: RankedTask, facts: HostFacts, rule: TrialRule) -> tuple[TimedCase, ...]:
    """Cache states that can be had, cold first."""
    fitting = max(2, int(facts.memory_bytes // slot_bytes(task)))
    cold = -(-int(COLD_FACTOR * facts.cache_bytes) // operand_bytes(task))
    warm = int(facts.cache_bytes / 2 // slot_bytes(task))
    cases: list[TimedCase] = []
    if cold <= min(rule.most_runs, fitting):
        cases.append(TimedCase(task, "cold", min(max(2, cold, rule.wanted_runs), fitting)))
    if warm >= 2:
        cases.append(TimedCase(task, "warm", min(warm, rule.wanted_runs)))
    return tuple(cases) or (TimedCase(task, "cold", fitting),)


def round_costs(
    trial: Trial, cases: Iterable[TimedCase], rule: TrialRule
) -> dict[TimedCase, RoundCost]:
    """What a round of each case costs without runs.

    Measured before the kernel is loaded: afterwards its process could stall empty rounds, and what
    a round is thought to cost is taken off the kernel's time.
    """
    costs = {}
    for case in cases:
        memory = trial.use(slot_layout(case.task, case.slots))
        empty = []
        for _ in range(rule.empty_rounds):
            memory.make_ready()
            empty.append(trial.run((), "device"))
        costs[case] = RoundCost(
            min(report.wall_seconds for report in empty),
            min(report.worked_seconds for report in empty),
        )
    return costs


def per_run(report: RoundReport, cost: RoundCost, sync: Sync, runs: int) -> Round:
    """One round's times.

    Raises:
        KernelRefused: if the events claim what cannot be.
    """
    if not 0 <= report.claimed_seconds <= 1.01 * report.wall_seconds + CLOCK_SECONDS:
        raise KernelRefused(
            "timers_disagree",
            f"its events tell {report.claimed_seconds:g} s for a round of "
            f"{report.wall_seconds:g} s",
        )
    wall = max(report.wall_seconds - cost.wall_seconds, 1e-9)
    worked = max(report.worked_seconds - cost.worked_seconds, 1e-9)
    return Round(sync, wall / runs, worked / runs, report.claimed_seconds / runs)


def timing_of(rounds: Sequence[Round], case: TimedCase, runs: int) -> Timing:
    """Quantiles of the rounds that waited for the whole device, by the judge's clock."""
    own = [r.wall_seconds for r in rounds if r.sync == "device"]
    low, middle, high = (float(x) for x in np.quantile(own, (0.1, 0.5, 0.9)))
    return Timing(
        cache_state=case.cache_state,
        median_seconds=middle,
        p10_seconds=low,
        p90_seconds=high,
        relative_std=float(np.std(own) / np.mean(own)),
        runs=len(own) * runs,
        device_seconds=float(np.median([r.claimed_seconds for r in rounds])),
    )


def doubted_time(rounds: Sequence[Round], slack_seconds: float) -> KernelRefused | None:
    """Why the kernel's stream and the whole device, or its events and the judge's clock, disagree.

    Other work on the machine makes single rounds longer, never shorter and never all of them: so
    the fastest rounds are compared, and a kernel gets a second look before it is refused.

    Args:
        slack_seconds: Per run.
    """
    worked = {s: [r.worked_seconds for r in rounds if r.sync == s] for s in get_args(Sync)}
    stream, device = min(worked["stream"]), min(worked["device"])
    if device > STREAM_RATIO * stream + slack_seconds:
        return KernelRefused(
            "side_stream",
            f"{stream * 1e6:.1f} us a run waiting for its stream, {device * 1e6:.1f} us for the "
            "device",
        )
    claimed, judged = min(r.claimed_seconds for r in rounds), min(stream, device)
    if judged > STREAM_RATIO * claimed + slack_seconds:
        return KernelRefused(
            "timers_disagree",
            f"its events tell {claimed * 1e6:.1f} us a run, the judge's clock "
            f"{judged * 1e6:.1f} us at best",
        )
    return None
