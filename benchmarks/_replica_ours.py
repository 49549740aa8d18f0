"""Our policies: replicas by the price of a violation, from forecasts, on the judge's plant.

``lead_trees`` asks trees for the rate that the coming start needs (``forecasting.prewarming``);
``process`` asks the forecaster process with one-minute bins, every five minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks._replica_demand import Service
from benchmarks._replica_fleet import WAIT_SECONDS, Floats, Policy
from forecasting.memory_source import MemorySource
from forecasting.prewarming.needed_quantiles import LEVELS, fit_needed_quantiles
from forecasting.prewarming.priced_replicas import priced_replicas
from forecasting.prewarming.start_times import StartTimes
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesId
from forecasting.targets import Target

STEP_SECONDS: Final = 60.0
PRICES: Final = tuple(float(price) for price in np.geomspace(1.5, 3000, 48))
"""Knob: replica minutes that a violating minute is worth."""

CLEARING: Final = ((5.0, 180.0), (0.0, 60.0))
"""Knob: seconds of queue that need nobody more, and seconds in which the rest is worked off."""

HOLDS: Final = (0, 8)
"""Knob: minutes for which the highest wish counts."""

LEAD_LEVEL: Final = 0.8
"""Of the start's distribution; on days 7-10 horizons of 3 to 6 minutes lay on one frontier."""

PROCESS_LEVELS: Final = (
    0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999,
)  # fmt: skip
PROCESS_EVERY: Final = 5
"""Minutes between rounds of the process."""


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


def by_process(services: Sequence[Service], first: int, last: int, steps: int) -> list[Told]:
    """What the process says of the next minutes: each level's highest step, moved with the newest.

    A round is up to five minutes old; by how much demand rose or fell since, the quantiles do.
    """
    names = [SeriesId(service.name) for service in services]
    source = MemorySource(
        {name: s.rates for name, s in zip(names, services, strict=True)}, 0, round(STEP_SECONDS)
    )
    targets = [
        Target("", name, name, "series", steps + PROCESS_EVERY, 60, PROCESS_LEVELS, None, 0)
        for name in names
    ]
    state, count = ForecasterState(), len(services[0].rates)
    found = [np.zeros((count, len(PROCESS_LEVELS))) for _ in services]
    for minute in range(first, last, PROCESS_EVERY):
        state, answers = step(state, minute * STEP_SECONDS, source, targets)
        for i, answer in enumerate(answers):
            if answer.made is None:
                continue
            wanted = [answer.made.levels.index(level) for level in PROCESS_LEVELS]
            paths = answer.made.quantiles[answer.row][:, wanted]
            recent = np.convolve(
                services[i].rates[minute - 3 : minute + 4], np.ones(3) / 3, "valid"
            )
            for k in range(min(PROCESS_EVERY, last - minute)):
                told = paths[k : k + steps].max(axis=0) + recent[k] - recent[0]
                found[i][minute + k] = np.maximum.accumulate(np.maximum(told, 0.0))
    return [Told(quantiles, PROCESS_LEVELS) for quantiles in found]


@dataclass(frozen=True, slots=True)
class Setting:
    """One combination of the knobs."""

    price: float
    clearing: tuple[float, float]
    hold: int


SETTINGS: Final = tuple(
    Setting(price, clearing, hold) for clearing in CLEARING for hold in HOLDS for price in PRICES
)


def priced(
    service: Service, told: Told, first: int, last: int, settings: Sequence[Setting] = SETTINGS
) -> Policy:
    """Replicas by the settings; outside of ``first`` to ``last`` the newest demand alone counts."""
    rate = service.replica_rate
    wanted = np.zeros((len(service.rates), len(settings)))
    part, prices = told.quantiles[first:last], [setting.price for setting in settings]
    wanted[first:last] = _held(
        priced_replicas(part, told.levels, rate, prices).astype(np.float64), settings
    )
    short, within = np.array([setting.clearing for setting in settings]).T

    def wish(minute: int, queued: Floats) -> Floats:
        if not first <= minute < last:
            newest = service.rates[max(minute - 1, 0)]
            alone: Floats = np.maximum(np.ceil((newest + queued / 60.0) / rate), 1)
            return alone
        base: Floats = wanted[minute]
        late = np.maximum(queued - base * rate * short, 0.0)
        result: Floats = base + np.ceil(late / (within * rate))
        return result

    return wish


def _held(wanted: Floats, settings: Sequence[Setting]) -> Floats:
    """The highest of each setting's last wishes, shape as it came."""
    held = wanted.copy()
    for place, setting in enumerate(settings):
        for back in range(1, setting.hold + 1):
            np.maximum(held[back:, place], wanted[:-back, place], out=held[back:, place])
    return held
