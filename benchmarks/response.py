"""How long a row stays above its rating when every board steps to full power at once.

60 servers on a row rated for 40, steady work that holds it at 0.945 of its rating, then a step of
everything to what the hottest work wants (assumed 1.33 of the default limit). Counted is the time
from the first moment above 1.00 to the last in the following 20 s, on steps of 0.1 s, so a beat
that comes back over counts whole. Whether the row was in band NORMAL with every cap at its default
when the step came is printed and has a line: what I2 or the bands held before is not the response's
merit.

How fast a *lowered* limit acts is not measured anywhere: the plant's own assumption (0.3 to 1.0 s,
drawn by board) carries the line, 1, 2 and 3 s for every board are swept without one. With two feeds
of which one is lost, nothing may cross at all: no use of reserve is counted on.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks._row_cases import (
    BREAKER_CURVES,
    ROW,
    STEADY,
    Arm,
    Asked,
    RowCase,
    asked_of,
    level_for,
    shard_kind,
)
from benchmarks.runner import Options, Result, Row, Rows, Target, finished_rows
from controller.tick_values import Band
from simulation.row_control.faults import RowFault, RowFaultKind, RowFaults
from simulation.row_control.run import RowRun
from simulation.row_control.wattpack_policy import WattpackPolicy

Floats = NDArray[np.float64]

NAME = "response"
SUMMARY = "seconds above the rating after a step of everything, and after a lost feed"
TAKES_ARGUMENTS = True

RUNS: Final = 10
CALM_SECONDS, AFTER_SECONDS = 120.0, 20.0
QUICK_CALM_SECONDS: Final = 60.0
LOAD_RATIO: Final = 0.945
STEP_SECONDS: Final = 0.1
GROUPS: Final = (
    {"gpu_model": "H200-SXM", "count": 46},
    {"gpu_model": "H100-SXM", "count": 14},
)
DELAYS: Final[dict[str, float | None]] = {
    "as_plant": None,
    "delay_1": 1.0,
    "delay_2": 2.0,
    "delay_3": 3.0,
}
QUICK_DELAYS: Final = ("as_plant", "delay_3")
FEED: Final = "feed_loss"

TARGETS: Final = {
    "as_plant_seconds_p99": Target(at_most=2.0),
    "as_plant_share_of_boards_at_default": Target(at_least=1.0),
    "as_plant_trips": Target(at_most=0),
    "feed_loss_runs_above_rating": Target(at_most=0),
    "feed_loss_trips": Target(at_most=0),
}


def run(options: Options) -> Result:
    """Some seeds under each delay and with a lost feed."""
    asked = asked_of(NAME, options.arguments, 1 if options.quick else RUNS)
    calm = QUICK_CALM_SECONDS if options.quick else CALM_SECONDS
    arms = [*(QUICK_DELAYS if options.quick else DELAYS), FEED]

    def one_case(seed: int, number: int) -> Row:
        options.progress(f"run {number + 1} of {asked.runs}")
        # Ticks are a second apart: the steps fall everywhere between two.
        at = calm + STEP_SECONDS * (number * 3 % 10)
        return {arm: _judged(asked, seed + number, arm, at) for arm in arms}

    rows = finished_rows(options, shard_kind(NAME, asked, calm), one_case, asked.runs)
    return Result(figures(rows, arms), TARGETS)


def _judged(asked: Asked, seed: int, arm: str, at_seconds: float) -> dict[str, Any]:
    case = _case(asked, seed, arm)
    struck, kind = np.ones(case.plant.n_gpus, dtype=np.bool_), RowFaultKind.ALL_TO_FULL
    if arm == FEED:
        struck, kind = np.ones(case.scenario.row.racks + 1, dtype=np.bool_), RowFaultKind.FEED_LOST
    end = at_seconds + AFTER_SECONDS
    driven = case.wattpack(Arm(), RowFaults([RowFault(kind, at_seconds, end, struck)]))
    load = recorded_load(driven)
    driven.run(at_seconds)
    before = _before(driven, load)
    result = driven.run(AFTER_SECONDS)
    step = case.scenario.step_seconds
    fine = np.array(load[round(at_seconds / step) :])
    return before | {
        "seconds": seconds_above(fine, step),
        "above": float((fine > 1.0).sum() * step),
        "peak": float(fine.max()),
        "heat": float(result.max_heat[ROW]),
        "trips": result.trips,
        "brakes": result.brakes,
    }


def _case(asked: Asked, seed: int, arm: str) -> RowCase:
    own: dict[str, Any] = {"step_seconds": STEP_SECONDS, "row": {"groups": GROUPS}}
    if arm == FEED:
        own["row"] = {**own["row"], "redundancy": "2N"}
    delay = DELAYS.get(arm)
    if delay is not None:
        own["plant"] = {"cap_delay_min_seconds": delay, "cap_delay_max_seconds": delay}
    level = level_for(asked, seed, own, LOAD_RATIO)
    return RowCase(asked, seed, STEADY | level, own)


def seconds_above(load_ratio: Floats, step_seconds: float) -> float:
    """From the first step above 1.00 to the end of the last one, 0 without any."""
    above = np.flatnonzero(load_ratio > 1.0)
    return float(above[-1] - above[0] + 1) * step_seconds if above.size else 0.0


def recorded_load(driven: RowRun) -> list[float]:
    """The row's load over its rating, filled in at every step that the run will take."""
    load: list[float] = []
    took = driven.accounts.took

    def take(seconds: float) -> None:
        took(seconds)
        load.append(float(driven.plant.breakers.load_ratio(driven.plant.watts)[ROW]))

    driven.accounts.took = take  # type: ignore[method-assign]
    return load


def _before(driven: RowRun, load: list[float]) -> dict[str, Any]:
    policy = driven.policy
    assert isinstance(policy, WattpackPolicy)
    assert policy.decisions is not None
    bank = driven.plant.bank
    at_default = bank.limit_watts >= bank.default_limit_watts - 1.0
    return {
        "load_before": float(np.mean(load[-20:])),
        "normal": bool((policy.decisions.band == Band.NORMAL).all()),
        "at_default": float(at_default.mean()),
    }


def figures(rows: Rows, arms: list[str]) -> dict[str, float | int | str]:
    """Of any number of runs, at least one."""
    found: dict[str, float | int | str] = {"runs": len(rows), "breaker_curves": BREAKER_CURVES}
    for name in arms:
        arm = [row[name] for row in rows]
        crossed = [one["seconds"] for one in arm if one["seconds"] > 0.0]
        free = [one for one in arm if one["normal"] and one["at_default"] == 1.0]
        found |= {
            f"{name}_runs_above_rating": len(crossed),
            **_quantiles(f"{name}_seconds", crossed),
            f"{name}_peak_load_ratio": max(one["peak"] for one in arm),
            f"{name}_heat_max": max(one["heat"] for one in arm),
            f"{name}_trips": sum(one["trips"] for one in arm),
            f"{name}_brakes": sum(one["brakes"] for one in arm),
            f"{name}_load_ratio_before": float(np.mean([one["load_before"] for one in arm])),
            f"{name}_runs_normal_at_default_caps": len(free),
            f"{name}_share_of_boards_at_default": float(
                np.mean([one["at_default"] for one in arm])
            ),
        }
    return found


def _quantiles(name: str, seconds: list[float]) -> dict[str, float]:
    """Of the runs that crossed; nothing where none did, and a line on it is not met then."""
    quantiles = {"p50": 0.5, "p99": 0.99}
    return {
        f"{name}_{q}": float(np.quantile(seconds, at)) for q, at in quantiles.items() if seconds
    }
