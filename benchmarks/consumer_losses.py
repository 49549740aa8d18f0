"""What each consumer of forecasts loses when its forecast is gone, halved, or half as high again.

The four totals at the 20 origins of the forecast benchmarks; the forecaster process with its state
carried over says the next six hours' peak, a consumer decides by ``forecasting.decisions``, and the
peak that came tells the loss: surplus at 1 and shortfall at 19 a unit (assumed), as a share of the
ten days' record. Without a forecast the consumer has what a process without one has: the last day's
maximum and a fifth. A domain's draw is taken as proportional to the demand (assumed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.forecast_sets import DAY, totals
from benchmarks.runner import Options, Result, Target
from forecasting.decisions import (
    FORECAST_CHANGES,
    Prices,
    added_watts_that_fit,
    cost_and_risk,
    losses_by_change,
    mix_demand,
    promisable_watts,
)
from forecasting.forecast_round import ForecasterState, step
from forecasting.memory_source import MemorySource
from forecasting.series_source import BIN_SECONDS, SeriesId
from forecasting.targets import Target as ForecastTarget

NAME = "consumer_losses"
SUMMARY = "loss of each consumer with its forecast as it is, removed, halved and raised by half"

Floats = npt.NDArray[np.float64]

HORIZON: Final = 36
LEVELS: Final = tuple((k + 0.5) / 20 for k in range(20))
"""Equal shares, so that quantiles stand for samples."""

SURPLUS, SHORTFALL, RISK = 1.0, 19.0, 0.05
FALLBACK: Final = 1.2
"""Of the last day's maximum; what ``ForecastBook`` falls back to."""

LIMIT_OF_RECORD: Final = 1.3
"""A domain's limit as a share of its highest draw in training, assumed."""

CONSUMERS: Final = ("oversubscription", "planner", "pre_warming", "gpu_mix")

TARGETS: Final = {
    f"{consumer}_{change}_over_as_is_ratio": Target(at_least=1.0)
    for consumer in CONSUMERS
    for change in ("removed", "halved", "raised_half")
}
"""A consumer that loses nothing by a forecast that is wrong does not use it."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window of one series.

    Attributes:
        peaks: Quantiles of its peak at ``LEVELS``, as published.
        came: The peak that came.
        last_day: Highest of the day before.
        record: Highest of the ten days before.
    """

    peaks: Floats
    came: float
    last_day: float
    record: float


def run(options: Options) -> Result:
    """All consumers on all windows; ``--quick`` takes every fifth origin."""
    windows = _windows(5 if options.quick else 1)
    figures: dict[str, float | int | str] = {"windows": len(windows)}
    for name, decide in consumers().items():
        losses = losses_of(windows, decide)
        figures |= {f"{name}_loss_share_{change}": losses[change] for change in FORECAST_CHANGES}
        figures |= {
            f"{name}_{change}_over_as_is_ratio": losses[change] / losses["as_is"]
            for change in FORECAST_CHANGES
            if change != "as_is"
        }
    return Result(figures, TARGETS)


def _windows(every: int) -> list[Window]:
    given = totals()
    names = [SeriesId(name) for name in given.series]
    source = MemorySource(dict(zip(names, given.values, strict=True)))
    targets = [
        ForecastTarget(_owner(name), name, name, "series", HORIZON, BIN_SECONDS, LEVELS, None, 0)
        for name in names
    ]
    state, found = ForecasterState(), []
    for origin in given.origins[::every]:
        state, answers = step(state, float(origin * BIN_SECONDS), source, targets)
        for row, answer in zip(given.values, answers, strict=True):
            wanted = [answer.target.levels.index(level) for level in LEVELS]
            past = row[origin - 10 * DAY : origin]
            came = float(np.max(row[origin : origin + HORIZON]))
            last_day, record = float(past[-DAY:].max()), float(past.max())
            found.append(Window(answer.peaks[wanted], came, last_day, record))
    return found


def _owner(name: str) -> str:
    """GPUs of a cluster and requests of services belong to different people: calibrated apart."""
    return "cluster" if name == "helios" else "services"


Decide = Callable[[Window, Floats], float]
"""From a window and peaks to the demand that was provided for."""


def consumers() -> dict[str, Decide]:
    """Each consumer's decision, by name."""
    prices = Prices(SURPLUS, SHORTFALL)

    def oversubscription(window: Window, peaks: Floats) -> float:
        limit, promised = LIMIT_OF_RECORD * window.record, window.record
        made = promisable_watts(peaks[:, None], limit, promised, {"low": RISK})["low"]
        # What is promised draws in proportion: it was taken to peak at this.
        return limit * promised / (promised + made.amount)

    def planner(window: Window, peaks: Floats) -> float:
        limit = LIMIT_OF_RECORD * window.record
        return limit - added_watts_that_fit(peaks[:, None], limit, RISK).amount

    return {
        "oversubscription": oversubscription,
        "planner": planner,
        "pre_warming": lambda _, peaks: cost_and_risk(peaks, prices, None).amount,
        "gpu_mix": lambda _, peaks: mix_demand(peaks, LEVELS, SURPLUS, SHORTFALL).amount,
    }


def losses_of(windows: Sequence[Window], decide: Decide) -> dict[str, float]:
    """By change, the mean over windows, each as a share of its record."""
    total = dict.fromkeys(FORECAST_CHANGES, 0.0)
    for window in windows:

        def decided(peaks: Floats | None, window: Window = window) -> float:
            if peaks is None:
                return decide(window, np.full(len(LEVELS), FALLBACK * window.last_day))
            return decide(window, peaks)

        def loss(amount: float, window: Window = window) -> float:
            over = amount - window.came
            return SURPLUS * over if over >= 0 else -SHORTFALL * over

        for change, value in losses_by_change(window.peaks, decided, loss).items():
            total[change] += value / window.record / len(windows)
    return total
