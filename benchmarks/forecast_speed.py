"""How long forecasts of many series take: 10,000 series, 36 steps, 11 quantiles, ten days each.

The tier that answers nearly always (``forecasting.tiers.direct_ridge``) is timed cold and with one
bin appended to every series, the whole process with all its tiers over 100 series beside it. Series
are the shipped clients, shifted and scaled at random: sorting real demand costs what it costs. How
good the timed tier is stands beside its time, fed bin by bin with as few refits a bin as in a
crowd of 10,000.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.forecast_references.refitted_daily import LEVELS as REFERENCE_LEVELS
from benchmarks.forecast_references.refitted_daily import reference_quantiles
from benchmarks.forecast_scores import DECILES, losses, ratios
from benchmarks.forecast_sets import BIN_SECONDS, HORIZON, TRAINING, Floats, ForecastSet, clients
from benchmarks.runner import Options, Result, Target
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import History, SeriesId
from forecasting.targets import Target as ForecastTarget
from forecasting.tiers import direct_ridge
from forecasting.tiers.tier_sets import RIDGE_ALONE, all_tiers

NAME = "forecast_speed"
SUMMARY = "10,000 series x 36 steps x 11 quantiles: cold, with one bin appended, memory, import"
LEVELS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999)
SERIES: Final = 10_000
APPENDED_BINS: Final = 6
PROCESS_SERIES: Final = 100
IMPORTED: Final = "forecasting.app.forecaster_command"
TARGETS: Final = {
    "cold_seconds": Target(at_most=5.0),
    "appended_seconds": Target(at_most=0.5),
    "tier_sql_ratio": Target(at_most=0.90),
    "one_series_milliseconds": Target(at_most=2.0),
    "peak_resident_mebibytes": Target(at_most=1024.0),
    "import_seconds": Target(at_most=1.5),
}


def run(options: Options) -> Result:
    """Measure; ``--quick`` takes a twentieth of the series and scales the times up."""
    share = 20 if options.quick else 1
    count = SERIES // share
    values = crowd(count, options.seed)
    options.progress(f"{count} series")
    figures: dict[str, float | int | str] = {"series_measured": count}
    figures |= _tier_times(values, share, rounds=1 if options.quick else 3)
    figures["peak_resident_mebibytes"] = round(_peak_mebibytes())
    figures["one_series_milliseconds"] = round(_one_series(values[:1]) * 1e3, 3)
    figures |= _imports(1 if options.quick else 5)
    options.progress("losses of the tier, bin by bin")
    given = clients().sample(8, 5) if options.quick else clients()
    figures["tier_sql_ratio"] = round(tier_ratio(given), 4)
    options.progress("rounds of the whole process")
    figures |= _process_times(values[: PROCESS_SERIES // share], is_light=options.quick)
    return Result(figures, TARGETS)


def crowd(count: int, seed: int) -> Floats:
    """Real clients at other times of the day and of other sizes, shape (count, bins)."""
    random = np.random.default_rng(seed)
    shipped = clients().values[:, : TRAINING + APPENDED_BINS]
    made = np.empty((count, shipped.shape[1]))
    for i in range(count):
        row = shipped[random.integers(len(shipped))]
        made[i] = np.roll(row, random.integers(len(row))) * random.lognormal()
    return made


def _tier_times(values: Floats, share: int, rounds: int) -> dict[str, float | int | str]:
    """The tier's seconds, wall and CPU, for 10,000 series."""
    names = [SeriesId(str(i)) for i in range(len(values))]
    cold, appended, cpu = [], [], []
    model = ""
    for _ in range(rounds):
        tier = direct_ridge.Ridge()
        wall, used = _timed(partial(_answer, tier, names, values[:, :TRAINING], 0))
        cold.append(wall)
        cpu.append(used)
        model = tier.provenance.model
    with few_refits():
        for bins in range(1, APPENDED_BINS + 1):
            shown = values[:, bins : TRAINING + bins]
            appended.append(_timed(partial(_answer, tier, names, shown, bins)))
    wall, used = np.median(appended, axis=0)
    return {
        "tier": model,
        "cold_seconds": round(min(cold) * share, 3),
        "cold_cpu_seconds": round(min(cpu) * share, 3),
        "appended_seconds": round(float(wall) * share, 3),
        "appended_cpu_seconds": round(float(used) * share, 3),
    }


def _answer(tier: direct_ridge.Ridge, names: list[SeriesId], shown: Floats, bins: int) -> None:
    until = (TRAINING + bins) * BIN_SECONDS
    tier.update(History(names, shown, until, BIN_SECONDS))
    made = tier.quantiles(HORIZON, LEVELS)
    assert made.shape == (len(names), HORIZON, len(LEVELS))


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - used


def _one_series(row: Floats) -> float:
    """Median seconds of a new tier that sees one series for the first time and answers."""
    names = [SeriesId("one")]
    times = [
        _timed(partial(_answer, direct_ridge.Ridge(), names, row[:, :TRAINING], 0))[0]
        for _ in range(50)
    ]
    return float(np.median(times))


def _peak_mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _imports(rounds: int) -> dict[str, float | int | str]:
    """Fastest import of the forecaster in a process of its own."""
    code = (
        f"import time; t = time.perf_counter(); import {IMPORTED}; print(time.perf_counter() - t)"
    )
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True, text=True
            ).stdout
        )
        for _ in range(rounds)
    ]
    return {"import_seconds": round(min(times), 3)}


# -- how good the timed tier is --------------------------------------------------------------------


def tier_ratio(given: ForecastSet) -> float:
    """SQL ratio of the tier when every bin is taken in as it comes."""
    names = [SeriesId(name) for name in given.series]
    found = []
    with few_refits():
        tier = direct_ridge.Ridge()
        for end in range(given.origins[0], given.origins[-1] + 1):
            shown = given.values[:, end - TRAINING : end]
            tier.update(History(names, shown, end * BIN_SECONDS, BIN_SECONDS))
            if end in given.origins:
                found.append(tier.quantiles(HORIZON, DECILES))
    truth, scales = given.truth(), given.scales()
    naive = losses(reference_quantiles("seasonal_naive", given), REFERENCE_LEVELS, truth, scales)
    return ratios(losses(np.stack(found), DECILES, truth, scales), naive).sql


@contextmanager
def few_refits() -> Iterator[None]:
    """No series is fitted anew sooner than its turn comes among 10,000."""
    tier: Any = direct_ridge
    usual, tier.MIN_REFIT = tier.MIN_REFIT, 1
    try:
        yield
    finally:
        tier.MIN_REFIT = usual


# -- the whole process -----------------------------------------------------------------------------


def _process_times(values: Floats, *, is_light: bool) -> dict[str, float | int | str]:
    """The first round, with all that is rehearsed, and the next one; light is the ridge alone."""
    known = {str(i): row for i, row in enumerate(values)}
    targets = [
        ForecastTarget("", name, SeriesId(name), "series", HORIZON, BIN_SECONDS, LEVELS, None, 1)
        for name in known
    ]
    state = ForecasterState(tiers=RIDGE_ALONE if is_light else all_tiers())
    seconds = []
    for end in (TRAINING, TRAINING + 1):
        source = MemorySource({name: row[:end] for name, row in known.items()})
        began = time.perf_counter()
        state, _ = step(state, end * float(BIN_SECONDS), source, targets)
        seconds.append(time.perf_counter() - began)
    return {
        "process_series": len(known),
        "process_first_round_seconds": round(seconds[0], 3),
        "process_next_round_seconds": round(seconds[1], 3),
    }
