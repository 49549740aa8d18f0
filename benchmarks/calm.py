"""How often caps move when nothing else does: cap changes, cycles and overshoot of a capped row.

Work that wants a little more than the row's rating and stands still but for 1 % of noise on each
board, under the product's controller, with three answers of the row to a watt at its boards: half,
as declared, and double. The rest of that answer is load that follows the boards of each server from
the time at which accounts begin (as cooling in the row would), which nobody declared: the gain of
the loop is wrong and its level is not. After that, 3 % of the rating of undeclared load comes at
once, so that the loop has to answer. Then random work that fills the row, and requests to the
inference row (docs/inference-row.md), 20 servers behind a breaker for 15.4: of simulated clients
from 13:00 on, and Azure's recorded ones of 2023, replayed (a part of their hour by the seed).

A cap change is a move of a power limit by 5 W or more since it was last counted. A cycle would show
as a line in the spectrum of the row's load: the strongest of 4 to 120 s is told, as amplitude over
the rating, of the time that stands still and of that from 15 s after the step on. Overshoot is how
far 1 s means lie from the settled mean in that last time, as a share of the rating.

Of a scenario file: row, meters, plant, lease and tick, lowest and highest class; no work (that is
``--work``) and no faults. The inference row of both kinds of requests stays as it is.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks._breaker_curves import row_marks
from benchmarks._following_load import FollowingLoad
from benchmarks._row_cases import (
    ROW,
    STEADY,
    Arm,
    Asked,
    RowCase,
    asked_of,
    level_for,
    shard_kind,
)
from benchmarks._row_cases import USAGE as ROW_CASES_USAGE
from benchmarks.runner import Options, Result, Row, Rows, Target, finished_rows
from simulation.inference_row.client_arrivals import DAY_SECONDS
from simulation.inference_row.row_calibration import frozen_calibration
from simulation.inference_row.row_power import GPU_SHARE, ServerPower
from simulation.inference_row.row_under_policy import (
    WATTPACK,
    Arrivals,
    Window,
    polca_scenario,
    run_policy,
)
from simulation.inference_row.trace_arrivals import TraceArrivals
from simulation.row_control.run import RowRun

Floats = NDArray[np.float64]

NAME = "calm"
SUMMARY = "cap changes per GPU-hour, cycles and overshoot of a capped row that stands still"
TAKES_ARGUMENTS = True
USAGE: Final = ROW_CASES_USAGE
TAKES_SCHEDULER = True

RUNS: Final = 3
WARM_SECONDS, SECONDS = 240.0, 600.0
QUICK_WARM_SECONDS, QUICK_SECONDS = 60.0, 60.0
STEP_RATIO: Final = 0.03
SETTLE_SECONDS: Final = 15
WANTED_RATIO: Final = 1.04
FULL: Final = {"serving_level_lowest": 0.94, "serving_level_highest": 1.0}
"""Random: work that wants about the rating all the time, so that caps have something to do."""
GAINS: Final = {"gain_half": 0.5, "gain_as_declared": 1.0, "gain_double": 2.0}
RANDOM: Final = "random"
REQUESTS: Final = "requests"
TRACE: Final = "trace"
REQUEST_SERVERS, REQUEST_RATED_SERVERS = 20, 20 / 1.3
REQUEST_DAY, REQUEST_HOUR = 1, 13.0
WORKS: Final = (RANDOM, REQUESTS, TRACE)
CYCLE_SECONDS: Final = (4.0, 120.0)
CYCLE_RATIO: Final = 0.005
"""Amplitude over the rating from which a line in the spectrum is called a cycle; the noise of
boards and servers comes to a tenth of it. Chosen."""

TARGETS: Final = {
    **{f"{gain}_cap_changes_per_gpu_hour": Target(at_most=6.0) for gain in GAINS},
    **{f"{gain}_cycle_amplitude_ratio": Target(at_most=CYCLE_RATIO) for gain in GAINS},
    **{f"{gain}_cycle_after_step_amplitude_ratio": Target(at_most=CYCLE_RATIO) for gain in GAINS},
    **{f"{gain}_overshoot_ratio": Target(at_most=0.02) for gain in GAINS},
    **{f"{kind}_cap_changes_per_gpu_hour": Target(at_most=60.0) for kind in WORKS},
}


def run(options: Options) -> Result:
    """Some seeds under each gain and each kind of work."""
    asked = asked_of(NAME, options, 1 if options.quick else RUNS)
    warm, seconds = (
        (QUICK_WARM_SECONDS, QUICK_SECONDS) if options.quick else (WARM_SECONDS, SECONDS)
    )

    def one_case(seed: int, number: int) -> Row:
        options.progress(f"run {number + 1} of {asked.runs}")
        return _row(asked, seed + number, warm, seconds)

    rows = finished_rows(options, shard_kind(NAME, asked, seconds), one_case, asked.runs)
    return Result({**figures(rows), **row_marks(asked.row()), **asked.told}, TARGETS)


def _row(asked: Asked, seed: int, warm_seconds: float, seconds: float) -> Row:
    steady = RowCase(asked, seed, STEADY | level_for(asked, seed, WANTED_RATIO))
    row: Row = {}
    for name, gain in GAINS.items():
        driven = steady.wattpack(Arm())
        load = FollowingLoad.of(driven.plant)
        driven.run(warm_seconds)
        load.follow(gain)
        still = _judged(driven, seconds)
        load.add(STEP_RATIO * steady.scenario.row_rating_watts)
        row[name] = still | _after_step(driven, seconds)
    random = RowCase(asked, seed, FULL).wattpack(Arm())
    random.run(warm_seconds)
    drawn = frozen_calibration().arrivals(REQUEST_SERVERS, seed=seed)
    hour = REQUEST_DAY * DAY_SECONDS + REQUEST_HOUR * 3600.0 - warm_seconds
    recorded, span = TraceArrivals(REQUEST_SERVERS), (warm_seconds, seconds)
    # Three seeds in a row have parts of the hour that do not overlap.
    part = seed * sum(span) % (recorded.length_seconds - sum(span))
    return row | {
        RANDOM: _judged(random, seconds),
        REQUESTS: _requests(drawn, seed, hour, span),
        TRACE: _requests(recorded, seed, part, span),
    }


def _requests(
    arrivals: Arrivals, seed: int, begin: float, span: tuple[float, float]
) -> dict[str, Any]:
    """Requests of some minutes to a small row of their own; changes are those after the warm-up."""
    scenario = polca_scenario(REQUEST_SERVERS, seed, ServerPower.of(GPU_SHARE))
    row = scenario.row.model_copy(update={"rated_servers": REQUEST_RATED_SERVERS})
    scenario = scenario.model_copy(update={"row": row})
    warm_seconds, seconds = span
    warm, whole = (
        run_policy(WATTPACK, arrivals, Window(begin, warm_seconds, more, 0.0), scenario).result
        for more in (0.0, seconds)
    )
    hours = whole.gpu_hours - warm.gpu_hours
    load = whole.load_ratio[-round(seconds) :, ROW]
    amplitude, period = strongest_cycle(load)
    return {
        "changes": (whole.cap_changes - warm.cap_changes) / hours,
        "amplitude": amplitude,
        "period": period,
        "mean": float(load.mean()),
        "peak": float(load.max()),
        "above": float(whole.above_seconds[ROW]),
        "trips": whole.trips,
        "brakes": whole.brakes,
    }


def _judged(driven: RowRun, seconds: float) -> dict[str, Any]:
    changes = driven.accounts.cap_changes
    result = driven.run(seconds)
    load = result.load_ratio[-round(seconds) :, ROW]
    amplitude, period = strongest_cycle(load)
    hours = driven.plant.n_gpus * seconds / 3600.0
    return {
        "changes": (driven.accounts.cap_changes - changes) / hours,
        "amplitude": amplitude,
        "period": period,
        "mean": float(load.mean()),
        "peak": float(load.max()),
        "above": float(result.above_seconds[ROW]),
        "trips": result.trips,
        "brakes": result.brakes,
    }


def _after_step(driven: RowRun, seconds: float) -> dict[str, Any]:
    result = driven.run(seconds)
    load = result.load_ratio[-round(seconds) + SETTLE_SECONDS :, ROW]
    amplitude, period = strongest_cycle(load)
    settled = float(load[len(load) // 2 :].mean())
    return {
        "step_amplitude": amplitude,
        "step_period": period,
        "overshoot": float(np.abs(load - settled).max()),
        "step_peak": float(result.peak_ratio[ROW]),
        "above": float(result.above_seconds[ROW]),
        "trips": result.trips,
        "brakes": result.brakes,
    }


def strongest_cycle(seconds: Floats) -> tuple[float, float]:
    """Amplitude and period of the strongest line in the spectrum of a series by seconds.

    Args:
        seconds: Evenly a second apart, (n_seconds,).

    Returns:
        In the series' unit, and in seconds; of a sine the amplitude itself.
    """
    n = len(seconds)
    # Hann's window keeps a slow drift out of the lines beside it; its mean is a half.
    window = np.hanning(n)
    level = np.average(seconds, weights=window)
    lines = np.abs(np.fft.rfft((seconds - level) * window)) * 2.0 / window.sum()
    periods = n / np.maximum(np.arange(len(lines)), 1e-9)
    inside = (periods >= CYCLE_SECONDS[0]) & (periods <= min(CYCLE_SECONDS[1], n / 3.0))
    best = int(np.flatnonzero(inside)[lines[inside].argmax()])
    return float(lines[best]), float(periods[best])


def figures(rows: Rows) -> dict[str, float | int | str]:
    """Of any number of runs, at least one: the worst of each."""
    found: dict[str, float | int | str] = {"runs": len(rows)}
    for name in (*GAINS, *WORKS):
        arm = [row[name] for row in rows]
        found |= {
            f"{name}_cap_changes_per_gpu_hour": max(one["changes"] for one in arm),
            **_worst_cycle(f"{name}_cycle", arm, "amplitude", "period"),
            f"{name}_mean_load_ratio": float(np.mean([one["mean"] for one in arm])),
            f"{name}_peak_load_ratio": max(one["peak"] for one in arm),
            f"{name}_above_rating_seconds": sum(one["above"] for one in arm),
            f"{name}_trips": sum(one["trips"] for one in arm),
            f"{name}_brakes": sum(one["brakes"] for one in arm),
        }
    for name in GAINS:
        arm = [row[name] for row in rows]
        found |= {
            **_worst_cycle(f"{name}_cycle_after_step", arm, "step_amplitude", "step_period"),
            f"{name}_overshoot_ratio": max(one["overshoot"] for one in arm),
            f"{name}_step_peak_load_ratio": max(one["step_peak"] for one in arm),
        }
    return found


def _worst_cycle(
    name: str, arm: list[dict[str, Any]], amplitude: str, period: str
) -> dict[str, float]:
    worst = max(arm, key=lambda one: float(one[amplitude]))
    return {f"{name}_amplitude_ratio": worst[amplitude], f"{name}_seconds": worst[period]}
