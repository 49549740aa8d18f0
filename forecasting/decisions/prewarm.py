"""Replicas that have to be started now, since what needs them comes before later ones could work.

    order ──────── start (a distribution) ────────► works
    now                                            now + lead: until then only older orders help

What is needed beyond the lead can still be ordered at the next decision; what is needed within it
cannot. Serverless cold starts are answered in the same way (Joosen et al., arXiv 2410.06145): by
the start's quantile, not by keeping replicas for a fixed time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from forecasting.decisions.amounts import cost_and_risk, highest_within, least_priced_violations
from forecasting.decisions.decision import Decision
from forecasting.series_source import Floats
from wattpack.errors import InputError
from wattpack.units import require_number


@dataclass(frozen=True, slots=True)
class StartTimes:
    """How long a replica takes until it works.

    Attributes:
        lead_seconds: A quantile of it, for example ``KnownWork.lead_seconds``.
        decision_seconds: Until the next decision: what is needed before that one's orders work has
            to be ordered now.
    """

    lead_seconds: float
    decision_seconds: float

    def steps(self, step_seconds: float) -> int:
        """Steps of a forecast that only orders of now and before can serve."""
        return max(1, math.ceil((self.lead_seconds + self.decision_seconds) / step_seconds - 1e-9))


@dataclass(frozen=True, slots=True)
class PrewarmRule:
    """What a service's replicas are kept for.

    Attributes:
        replica_rate: What one replica serves within its objectives, in the forecast's unit.
        violation_price: Replica steps that one step beyond the objectives is worth, or None.
        risk: Share of windows that may be short, or None; one of the two.
        least: Replicas that always run.
        most: Replicas that there is room for.
    """

    replica_rate: float
    violation_price: float | None = None
    risk: float | None = None
    least: int = 1
    most: int = 10_000

    def __post_init__(self) -> None:
        require_number("replicaRate", self.replica_rate, exclusive_minimum=0)
        if (self.violation_price is None) == (self.risk is None):
            raise InputError("violationPrice", "a price of violations or a risk, one of them", None)
        if not 0 <= self.least <= self.most:
            raise InputError("least", f"0 to {self.most} replicas", self.least)


def prewarm(
    paths: Floats | None,
    step_seconds: float,
    starts: StartTimes,
    rule: PrewarmRule,
    now_rate: float,
) -> Decision:
    """Replicas to have, started ones included.

    Args:
        paths: Joint paths of the demand, shape (n, horizon), the first step being the current one;
            None without a forecast.
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
    floor = _replicas(require_number("nowRate", now_rate, minimum=0), rule)
    if paths is None:
        told = f"{floor} replicas serve the newest demand, and there is no forecast"
        return _bounded(Decision(floor, math.nan, "no-forecast", told), rule)
    steps = starts.steps(step_seconds)
    if steps > np.shape(paths)[-1]:
        ends = np.shape(paths)[-1] * step_seconds
        raise InputError("paths", f"steps for {steps * step_seconds:g} s", f"{ends:g} s")
    needs = np.ceil(highest_within(paths, steps) / rule.replica_rate - 1e-9)
    if rule.violation_price is not None:
        # What runs in any case saves nothing by not being there.
        runs = min(max(rule.least, floor), rule.most)
        made = least_priced_violations(np.maximum(needs - runs, 0.0), 1.0, rule.violation_price)
        made = replace(made, amount=made.amount + runs)
    else:
        made = cost_and_risk(needs, None, rule.risk)
    if made.amount < floor:
        made = made.because("limit", floor, f"{floor} replicas serve the newest demand")
    within = f"needed within {steps * step_seconds:g} s, before later orders work"
    return _bounded(made.because(made.binding, made.amount, within), rule)


def _replicas(rate: float, rule: PrewarmRule) -> int:
    return math.ceil(rate / rule.replica_rate - 1e-9)


def _bounded(made: Decision, rule: PrewarmRule) -> Decision:
    amount = min(max(made.amount, rule.least), rule.most)
    if amount == made.amount:
        return made
    return made.because("limit", amount, f"{rule.least} to {rule.most} replicas are allowed")
