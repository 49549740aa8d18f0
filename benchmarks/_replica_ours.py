"""Our policy's settings side by side, by the functions that the forecaster process calls.

``_replica_process`` runs the process itself, which takes one rule an object: a knob is chosen here,
on days that are not judged, and what is judged is what the process then writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks._replica_demand import Service
from benchmarks._replica_fleet import WAIT_SECONDS, Floats, Policy
from benchmarks._replica_process import STEP_SECONDS, Rule
from forecasting.prewarming.needed_quantiles import LEVELS, fit_needed_quantiles
from forecasting.prewarming.replica_band import BandRule, ReplicaBand, wishes
from forecasting.prewarming.start_times import StartTimes

PRICES: Final = tuple(float(price) for price in np.geomspace(1.5, 3000, 48))
"""Knob: replica minutes that a violating minute is worth."""

KEEP_RATIOS: Final = (1.0, 2.0, 4.0)
HOLD_SECONDS: Final = (0.0, 480.0)
CLEAR_SECONDS: Final = (60.0, 180.0)

LEAD_LEVEL: Final = 0.8
"""Of the start's distribution, to whole minutes; on days 7-10 horizons of 4 to 6 minutes lay on one
frontier, those of 2 and 3 above it."""

RULES: Final = tuple(
    Rule(price, ratio, hold, clear)
    for ratio in KEEP_RATIOS
    for hold in HOLD_SECONDS
    for clear in CLEAR_SECONDS
    for price in PRICES
)


@dataclass(frozen=True, slots=True)
class Told:
    """Quantiles of the needed rate by minute.

    Attributes:
        quantiles: Shape (n_minutes, n_levels); zeros where nothing was told yet.
        levels: Rising.
    """

    quantiles: Floats
    levels: tuple[float, ...]


def start_steps(lead_seconds: float) -> int:
    """Minutes that an order of now has to cover."""
    return StartTimes(lead_seconds, STEP_SECONDS).steps(STEP_SECONDS)


def by_trees(
    services: Sequence[Service], fitted: int, first: int, last: int, steps: int, rounds: int
) -> list[Told]:
    """Fitted on minutes 0 to ``fitted``, told for ``first`` to ``last``."""
    known = [service.rates[:fitted] for service in services]
    model = fit_needed_quantiles(known, steps, STEP_SECONDS, WAIT_SECONDS, rounds)
    found = []
    for service, usual in zip(services, model.usual, strict=True):
        quantiles = np.zeros((len(service.rates), len(LEVELS)))
        quantiles[first:last] = model.quantiles(service.rates[:last], usual)[first:last]
        found.append(Told(quantiles, model.levels))
    return found


def banded(
    service: Service, told: Told, first: int, last: int, rules: Sequence[Rule] = RULES
) -> Policy:
    """Replicas by the rules; outside of ``first`` to ``last`` the newest demand alone counts."""
    rate = service.replica_rate
    asked = [
        BandRule(
            rate, rule.violation_price, 0.05, rule.keep_ratio, rule.hold_seconds, WAIT_SECONDS,
            rule.clear_seconds,
        )
        for rule in rules
    ]  # fmt: skip
    orders, keeps = wishes(asked, told.quantiles[first:last], told.levels)
    begun: list[ReplicaBand] = []

    def wish(minute: int, queued: Floats) -> Floats:
        if not first <= minute < last:
            newest = service.rates[max(minute - 1, 0)]
            alone: Floats = np.maximum(np.ceil((newest + queued / 60.0) / rate), 1)
            return alone
        order, keep = orders[minute - first], keeps[minute - first]
        if not begun:
            begun.append(ReplicaBand(asked, order))
        return begun[0].after(minute * STEP_SECONDS, order, keep, queued)

    return wish
