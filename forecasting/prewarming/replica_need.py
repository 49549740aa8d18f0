"""Replicas that a service should have now: what only orders of now can serve in time.

What is needed beyond a start can still be ordered at the next decision; what is needed within it
cannot. Serverless cold starts are answered in the same way (Joosen et al., arXiv 2410.06145): by
the start's quantile, not by keeping replicas for a fixed time. A status has quantiles of each step,
no joint paths: steps are taken to be high together, which neighbouring steps of ten minutes are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forecasting.decisions import Decision, highest_within, least_priced_violations, within_risk
from forecasting.lead_time import StepWindow
from forecasting.prewarming.start_times import StartTimes
from forecasting.quantile_samples import even_samples
from forecasting.series_source import Floats
from wattpack.api.forecast_replicas import ReplicaRule
from wattpack.errors import InputError
from wattpack.units import require_number

LONGEST_START_SECONDS: Final = 341.0
"""p95 of the slowest start among the shipped entries (docs/workloads.md, mostly assumed): for a
target of which nobody says what runs."""

DEFAULT_RISK: Final = 0.05
"""Share of windows that may be short where a rule names neither risk nor price (assumed)."""


@dataclass(frozen=True, slots=True)
class ExpectedDemand:
    """What is known of a service's demand, in the unit that its rule counts.

    Attributes:
        window: Steps of the forecast.
        levels: Rising.
        quantiles: By step and level, shape (horizon, n_levels).
        now_rate: Newest measured demand.
    """

    window: StepWindow
    levels: Sequence[float]
    quantiles: Floats
    now_rate: float


def needed_replicas(
    rule: ReplicaRule, demand: ExpectedDemand, now_seconds: float, starts: StartTimes
) -> Decision | None:
    """Replicas to have, started ones included; None where the window ends before an order works.

    Args:
        rule: Of the object.
        demand: Its forecast.
        now_seconds: Unix time.
        starts: How long a start takes, and until the next round.
    """
    window = demand.window
    over = max(0, math.floor((now_seconds - window.start_seconds) / window.step_seconds))
    left = np.asarray(demand.quantiles, dtype=np.float64)[over:]
    elapsed = max(0.0, now_seconds - window.start_seconds - over * window.step_seconds)
    # Steps count from where the running one began; orders of now and later do not.
    starts = replace(starts, lead_seconds=starts.lead_seconds + elapsed)
    if starts.steps(window.step_seconds) > len(left):
        return None
    paths = even_samples(demand.levels, left)
    return ordered_now(paths, window.step_seconds, starts, rule, demand.now_rate)


def ordered_now(
    paths: Floats, step_seconds: float, starts: StartTimes, rule: ReplicaRule, now_rate: float
) -> Decision:
    """Replicas to have, started ones included.

    Args:
        paths: Joint paths of the demand, shape (n, horizon), the first step being the current one.
        step_seconds: Width of a step.
        starts: How long a start takes.
        rule: What replicas are kept for.
        now_rate: Newest measured demand, which a forecast may have missed; queued work per second
            included.

    Returns:
        Whole replicas; what is there beyond can go, since it could be back before it is needed.

    Raises:
        InputError: a forecast that ends before an order could work.
    """
    floor = math.ceil(require_number("nowRate", now_rate, minimum=0) / rule.served - 1e-9)
    steps = starts.steps(step_seconds)
    if steps > np.shape(paths)[-1]:
        ends = np.shape(paths)[-1] * step_seconds
        raise InputError("paths", f"steps for {steps * step_seconds:g} s", f"{ends:g} s")
    needs = np.ceil(highest_within(paths, steps) / rule.served - 1e-9)
    if rule.violation_price is not None:
        # What runs in any case saves nothing by not being there.
        runs = min(max(rule.least, floor), rule.most)
        made = least_priced_violations(np.maximum(needs - runs, 0.0), 1.0, rule.violation_price)
        made = replace(made, amount=made.amount + runs)
    else:
        made = within_risk(needs, DEFAULT_RISK if rule.risk is None else rule.risk)
    if made.amount < floor:
        made = made.because("limit", floor, f"{floor} replicas serve the newest demand")
    within = f"needed within {steps * step_seconds:g} s, before later orders work"
    return _bounded(made.because(made.binding, made.amount, within), rule)


def _bounded(made: Decision, rule: ReplicaRule) -> Decision:
    amount = min(max(made.amount, rule.least), rule.most)
    if amount == made.amount:
        return made
    return made.because("limit", amount, f"{rule.least} to {rule.most} replicas are allowed")
