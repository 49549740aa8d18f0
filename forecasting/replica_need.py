"""Replicas that a service should have now: what only orders of now can serve in time.

Only until the next round's orders work has this one to answer, so the horizon is the start of a
replica and one round (``decisions.prewarm``). A status has quantiles of each step, no joint paths:
steps are taken to be high together, which neighbouring steps of ten minutes are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.decisions import Decision, PrewarmRule, StartTimes, prewarm
from forecasting.lead_time import StepWindow
from forecasting.peak_policy.coupling import path_levels
from forecasting.risk_scale import between_levels
from forecasting.series_source import Floats
from wattpack.api.demand_forecast import ReplicaRule

SAMPLES: Final = 400
"""Of each step, evenly over the levels: a risk of 1 % is four of them."""

MEDIAN: Final = 0.5

LONGEST_START_SECONDS: Final = 341.0
"""p95 of the slowest start among the shipped entries (docs/workloads.md, mostly assumed): for a
target of which nobody says what runs."""

DEFAULT_RISK: Final = 0.05
"""Share of windows that may be short where a rule names neither risk nor price (assumed)."""


@dataclass(frozen=True, slots=True)
class ExpectedDemand:
    """What is known of a service's demand.

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


def rule_of(spec: ReplicaRule) -> PrewarmRule:
    """What an object says of its replicas.

    Raises:
        InputError: bounds that contradict one another.
    """
    risk = spec.risk
    if risk is None and spec.violation_price is None:
        risk = DEFAULT_RISK
    return PrewarmRule(spec.rate, spec.violation_price, risk, spec.least, spec.most)


def needed_replicas(
    spec: ReplicaRule, demand: ExpectedDemand, now_seconds: float, starts: StartTimes
) -> Decision | None:
    """Replicas to have, started ones included; None where the window ends before an order works.

    Args:
        spec: Of the object.
        demand: Its forecast.
        now_seconds: Unix time.
        starts: How long a start takes, and until the next round.
    """
    window = demand.window
    over = max(0, math.floor((now_seconds - window.start_seconds) / window.step_seconds))
    left = np.asarray(demand.quantiles, dtype=np.float64)[over:]
    if starts.steps(window.step_seconds) > len(left):
        return None
    paths = _samples(demand.levels, left)
    return prewarm(paths, window.step_seconds, starts, rule_of(spec), demand.now_rate)


def _samples(levels: Sequence[float], quantiles: Floats) -> Floats:
    """Shape (n, horizon): straight in the logarithm of the risk, the highest level beyond.

    Nothing is published below the median unless it is asked for: there a step is as far below the
    median, as a factor, as it is above it at the opposite level (assumed).
    """
    at, known = path_levels(SAMPLES), np.asarray(levels, dtype=np.float64)
    paths = np.stack([between_levels(at, known, row) for row in quantiles], axis=1)
    low = at < known[0]
    if known[0] == MEDIAN and low.any():
        median, above = quantiles[:, 0], paths[::-1][low]
        paths[low] = np.where(above > 0, median * median / np.where(above > 0, above, 1.0), 0.0)
    return paths
