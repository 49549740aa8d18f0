"""What forecasts are worth to whoever starts replicas: GPU-hours at no more minutes beyond the SLO.

ServeGen's three totals, minute by minute (``_replica_demand``), on a plant of replicas that take
minutes to start (``_replica_fleet``). Every policy is tuned by its own knobs on days 1-10, for the
fewest replica hours of all services within a budget of violating minutes, and then runs days 11-14.
Ours is tuned on days 7-10 with forests of days 1-6, by the functions that the process calls. What
is judged is then read off ``status.replicas`` of DemandForecasts, as the forecaster process writes
it each minute of days 11-14 (``_replica_process``), its forests fitted anew each day. A replica is
one GPU.

Figures at 1 %, 2 % and 5 % of all minutes. ``saved_share`` compares our hours with the fewest that
any setting of any baseline needs, seen afterwards, for no more violating minutes than ours had in
the same days; ``tuned_saved_share`` with the best baseline as tuned, whatever it violated then.
``perfect_…`` knows every minute (and lets nobody wait, or all as long as is allowed), and
``known_totals_…`` is ours with each ten minutes' total told as they begin (``_replica_ceiling``).
Simulated; start times, replica rates and the objective are assumed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks import _replica_policies as policies
from benchmarks._arguments import read_arguments
from benchmarks._replica_ceiling import told_totals
from benchmarks._replica_demand import Service, services, start_minutes
from benchmarks._replica_fleet import (
    DAY_MINUTES,
    Floats,
    Outcome,
    Policy,
    just_in_time_hours,
    least_hours,
    played,
)
from benchmarks._replica_ours import LEAD_LEVEL, RULES, Told, banded, by_trees, start_steps
from benchmarks._replica_process import Rule, published
from benchmarks.runner import Options, Result, Target
from forecasting.app.replica_minutes import Pace
from forecasting.decisions import losses_by_change
from forecasting.prewarming.needed_quantiles import ROUNDS

NAME = "decision_value"
SUMMARY = "GPU-hours of pre-warming by forecasts against reactive and predictive scaling"
TAKES_ARGUMENTS = True
USAGE: Final = "--with-node"

BASELINES: Final = ("reactive", "dynamo", "aws")
BUDGETS: Final = {"1_percent": 0.01, "2_percent": 0.02, "5_percent": 0.05}
FIRST_TUNED, FITTED, TESTED, DAYS = 3, 6, 10, 14
"""Days, from 0: baselines are tuned on days 4-10, ours on days 7-10, all are tested on 11-14."""

KEEP_ALIVE_MINUTES: Final = 10
"""The usual fixed time (Shahrad et al., "Serverless in the Wild", USENIX ATC 2020, section 2)."""

TARGETS: Final = {
    "saved_share_at_1_percent": Target(at_least=0.10),
    "saved_share_at_5_percent": Target(at_least=0.10),
    "slo_minutes_of_keep_alive_ratio": Target(at_most=0.5),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on all services.

    Attributes:
        tuned: Violated minutes and replica hours of each service's settings in the tuning days.
        tested: The same in the days of the test.
        tuned_days: Length of the former.
    """

    tuned: Sequence[tuple[Floats, Floats]]
    tested: Sequence[tuple[Floats, Floats]]
    tuned_days: int


def run(options: Options) -> Result:
    """All policies; ``--quick`` takes one service, fewer settings and trees."""
    parser = argparse.ArgumentParser(prog=NAME, add_help=False, exit_on_error=False)
    parser.add_argument("--with-node", action="store_true")
    given = read_arguments(parser, options.arguments, USAGE)
    found = services(
        options.seed, ("m-small",) if options.quick else ("m-large", "m-mid", "m-small")
    )
    starts = start_minutes(options.seed, DAYS * DAY_MINUTES, with_node=given.with_node)
    lead = float(np.quantile(starts, LEAD_LEVEL)) * 60.0
    last, rounds = (TESTED + 1, 12) if options.quick else (DAYS, ROUNDS)
    plant = Plant(found, starts, lead, start_steps(lead), rounds, last)
    runs = _baselines(plant, 6 if options.quick else 1, options)
    side_by_side, trees = _by_trees(plant)
    options.progress("ours, settings side by side")
    runs["ours"] = _by_process(plant, side_by_side)
    options.progress("ours, by the process")
    if not options.quick:
        runs["known_totals"] = _by_known_totals(plant)
        options.progress("known totals")
    told: dict[str, float | int | str] = {
        "services": len(found),
        "start_mean_minutes": float(starts.mean()),
        "horizon_minutes": plant.steps,
    }
    for name, share in BUDGETS.items():
        told |= _at_budget(runs, name, share)
    kept = _against_keep_alive(runs["keep_alive"], side_by_side)
    told |= _perfect(plant, told) | _worth(plant, trees, side_by_side) | kept
    return Result(told, TARGETS)


# -- policies on the plant -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plant:
    """What all policies run on; ``lead`` (seconds), ``steps`` and ``rounds`` are of our model.

    ``last`` is the day after those that are judged.
    """

    services: Sequence[Service]
    starts: np.ndarray
    lead: float
    steps: int
    rounds: int
    last: int


def _played(plant: Plant, service: Service, policy: Policy, settings: int) -> Outcome:
    return played(policy, service.rates, service.replica_rate, plant.starts, settings)


def _baselines(plant: Plant, sparse: int, options: Options) -> dict[str, Run]:
    outcomes: dict[str, list[Outcome]] = {}
    for service in plant.services:
        rates, rate = service.rates, service.replica_rate
        made = {
            "reactive": policies.reactive(rates, rate, sparse),
            "dynamo": policies.dynamo(rates, rate, TESTED * DAY_MINUTES, sparse),
            "aws": policies.aws(rates, rate, sparse),
            "keep_alive": policies.keep_alive(rates, rate),
        }
        for name, (knobs, policy) in made.items():
            outcome = _played(plant, service, policy, len(knobs))
            outcomes.setdefault(name, []).append(outcome)
        options.progress(f"baselines of {service.name}")
    return {name: _run_of(plant, seen, seen, FIRST_TUNED) for name, seen in outcomes.items()}


def _run_of(
    plant: Plant, tuned: Sequence[Outcome], tested: Sequence[Outcome], first_tuned: int
) -> Run:
    return Run(
        [outcome.between(first_tuned, TESTED) for outcome in tuned],
        [outcome.between(TESTED, plant.last) for outcome in tested],
        TESTED - first_tuned,
    )


def _outcomes(plant: Plant, told: Sequence[Told], first: int, last: int) -> list[Outcome]:
    span = first * DAY_MINUTES, last * DAY_MINUTES
    return [
        _played(plant, service, banded(service, t, *span), len(RULES))
        for service, t in zip(plant.services, told, strict=True)
    ]


def _by_trees(plant: Plant) -> tuple[Run, list[Told]]:
    def told(fitted: int, last: int) -> list[Told]:
        minutes = fitted * DAY_MINUTES, fitted * DAY_MINUTES, last * DAY_MINUTES
        return by_trees(plant.services, *minutes, plant.steps, plant.rounds)

    tuned = _outcomes(plant, told(FITTED, TESTED), FITTED, TESTED)
    test = told(TESTED, plant.last)
    return _run_of(plant, tuned, _outcomes(plant, test, TESTED, plant.last), FITTED), test


def _by_known_totals(plant: Plant) -> Run:
    """Ours, told each ten minutes' total as they begin."""

    def told(fitted: int, last: int) -> list[Told]:
        minutes = fitted * DAY_MINUTES, last * DAY_MINUTES
        return told_totals(plant.services, *minutes, plant.steps, plant.rounds)

    tuned = _outcomes(plant, told(FITTED, TESTED), FITTED, TESTED)
    tested = _outcomes(plant, told(TESTED, plant.last), TESTED, plant.last)
    return _run_of(plant, tuned, tested, FITTED)


def _by_process(plant: Plant, tuned: Run) -> Run:
    """What the process publishes with the rules that were chosen for each share of minutes."""
    rules: list[list[Rule]] = [[] for _ in plant.services]
    for share in BUDGETS.values():
        picks = chosen(tuned.tuned, share * tuned.tuned_days * DAY_MINUTES * len(tuned.tuned))
        for asked, pick in zip(rules, picks or _dearest(tuned), strict=True):
            asked.append(RULES[pick])
    tested = published(
        plant.services,
        rules,
        plant.starts,
        (TESTED, plant.last),
        Pace(rounds=plant.rounds),
        plant.lead,
    )
    return Run(tuned.tuned, tested, tuned.tuned_days)


def _dearest(tuned: Run) -> tuple[int, ...]:
    """Of each service the setting with the fewest violated minutes."""
    return tuple(int(np.argmin(minutes)) for minutes, _ in tuned.tuned)


# -- figures ---------------------------------------------------------------------------------------


def chosen(seen: Sequence[tuple[Floats, Floats]], most_minutes: float) -> tuple[int, ...] | None:
    """Of each service the setting, for the fewest hours of all within the minutes; None: none is.

    Args:
        seen: Violated minutes and hours of each service's settings.
        most_minutes: Of all services together.
    """
    fronts = [_front(minutes, hours) for minutes, hours in seen]
    total_minutes, total_hours = np.zeros(1), np.zeros(1)
    picks = np.zeros((1, 0), dtype=np.intp)
    for front, (minutes, hours) in zip(fronts, seen, strict=True):
        total_minutes = np.add.outer(total_minutes, minutes[front]).ravel()
        total_hours = np.add.outer(total_hours, hours[front]).ravel()
        picks = np.column_stack(
            [np.repeat(picks, len(front), axis=0), np.tile(front, len(picks))]
        ).astype(np.intp)
        keep = total_minutes <= most_minutes
        total_minutes, total_hours, picks = total_minutes[keep], total_hours[keep], picks[keep]
    if not len(picks):
        return None
    return tuple(int(place) for place in picks[np.argmin(total_hours)])


def _front(minutes: Floats, hours: Floats) -> np.ndarray:
    """Settings that no other beats in both, shape (n,)."""
    order = np.lexsort((minutes, hours))
    lowest = np.minimum.accumulate(np.concatenate([[np.inf], minutes[order][:-1]]))
    front: np.ndarray = order[minutes[order] < lowest]
    return front


def sums(seen: Sequence[tuple[Floats, Floats]], picks: Sequence[int]) -> tuple[float, float]:
    """Violated minutes and hours of all services with these settings."""
    minutes = sum(float(m[pick]) for (m, _), pick in zip(seen, picks, strict=True))
    return minutes, sum(float(h[pick]) for (_, h), pick in zip(seen, picks, strict=True))


def _at_budget(runs: Mapping[str, Run], name: str, share: float) -> dict[str, float | str]:
    told: dict[str, float | str] = {}
    tested: dict[str, tuple[float, float]] = {}
    for policy, seen in runs.items():
        budget = share * seen.tuned_days * DAY_MINUTES * len(seen.tuned)
        picks: Sequence[int] | None = chosen(seen.tuned, budget)
        if policy == "ours":
            picks = [list(BUDGETS).index(name)] * len(seen.tested)
        if picks is None or policy == "keep_alive":
            continue
        tested[policy] = sums(seen.tested, picks)
        told[f"{policy}_slo_minutes_at_{name}"] = tested[policy][0]
        told[f"{policy}_gpu_hours_at_{name}"] = tested[policy][1]
    best = min((p for p in BASELINES if p in tested), key=lambda p: tested[p][1], default=None)
    if best is None or "ours" not in tested:
        return told
    if "known_totals" in tested:
        afterwards = _seen_afterwards(runs, name, *tested["known_totals"])
        if (saved := afterwards.get(f"saved_share_at_{name}")) is not None:
            told[f"known_totals_saved_share_at_{name}"] = saved
    minutes, hours = tested["ours"]
    told[f"best_tuned_baseline_at_{name}"] = best
    told[f"tuned_saved_share_at_{name}"] = 1 - hours / tested[best][1]
    told[f"tuned_slo_minutes_over_best_at_{name}"] = minutes - tested[best][0]
    told |= _seen_afterwards(runs, name, minutes, hours)
    return told


def _seen_afterwards(
    runs: Mapping[str, Run], name: str, minutes: float, hours: float
) -> dict[str, float | str]:
    """The best setting of any baseline with no more violating minutes."""
    found = {
        policy: sums(runs[policy].tested, picks)[1]
        for policy in BASELINES
        if (picks := chosen(runs[policy].tested, minutes)) is not None
    }
    if not found:
        return {}
    best = min(found, key=found.__getitem__)
    return {
        f"best_baseline_at_{name}": best,
        f"best_baseline_gpu_hours_at_{name}": found[best],
        f"saved_share_at_{name}": 1 - hours / found[best],
    }


def _perfect(plant: Plant, told: Mapping[str, float | int | str]) -> dict[str, float]:
    """What whoever knew every minute would need, and what share of the best baseline it saves."""
    first, last = TESTED * DAY_MINUTES, plant.last * DAY_MINUTES
    start = float(plant.starts.mean())
    hours = sum(
        just_in_time_hours(s.rates[first:last], s.replica_rate, start) for s in plant.services
    )
    queueing = sum(least_hours(s.rates[first:last], s.replica_rate, start) for s in plant.services)
    found = {"perfect_gpu_hours": hours, "perfect_queueing_gpu_hours": queueing}
    for name in BUDGETS:
        if (best := told.get(f"best_baseline_gpu_hours_at_{name}")) is not None:
            found[f"perfect_saved_share_at_{name}"] = 1 - hours / float(best)
            found[f"perfect_queueing_saved_share_at_{name}"] = 1 - queueing / float(best)
    return found


def _worth(plant: Plant, told: Sequence[Told], ours: Run) -> dict[str, float]:
    """Hours and priced minutes of ours with the forecast as it is, gone, halved, raised by half."""
    picks = chosen(ours.tuned, BUDGETS["2_percent"] * ours.tuned_days * DAY_MINUTES * len(told))
    losses: dict[str, float] = {}
    for service, t, pick in zip(plant.services, told, picks or (), strict=False):
        rule = RULES[pick]
        span = TESTED * DAY_MINUTES, plant.last * DAY_MINUTES

        def decide(
            changed: Floats | None, service: Service = service, t: Told = t,
            rule: Rule = rule, span: tuple[int, int] = span,
        ) -> Outcome:  # fmt: skip
            if changed is None:
                return _played(plant, service, banded(service, t, 0, 0, [rule]), 1)
            policy = banded(service, Told(changed, t.levels), *span, [rule])
            return _played(plant, service, policy, 1)

        def loss(outcome: Outcome, price: float = rule.violation_price) -> float:
            (minutes,), (hours,) = outcome.between(TESTED, plant.last)
            return float(hours + price * minutes / 60.0)

        for name, value in losses_by_change(t.quantiles, decide, loss).items():
            losses[name] = losses.get(name, 0.0) + value
    return {f"loss_gpu_hours_forecast_{name}": value for name, value in losses.items()}


def _against_keep_alive(keep_alive: Run, side_by_side: Run) -> dict[str, float]:
    """Violating minutes over those of a fixed keep-alive, with no more GPU-hours than it has."""
    kept, ours = keep_alive.tested, side_by_side.tested
    place = policies.KEPT_MINUTES.index(KEEP_ALIVE_MINUTES)
    minutes, hours = sums(kept, [place] * len(kept))
    # With both axes swapped: the fewest minutes within the hours.
    picks = chosen([(used, missed) for missed, used in ours], hours)
    told = {"keep_alive_slo_minutes": minutes, "keep_alive_gpu_hours": hours}
    if picks is not None and minutes:
        told["slo_minutes_of_keep_alive_ratio"] = sums(ours, picks)[0] / minutes
    return told
