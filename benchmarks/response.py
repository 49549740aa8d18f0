"""How long a row stays above its rating when every board steps to full power at once.

60 servers on a row rated for 40. Up to 61 I2 asks for no cap at all, by the arithmetic of this page
and not the controller's (``survivable_mean_caps``): at 62 the row's breaker, held at its last cap
by a controller that dies at the jump, bears 695 W a board of 700. An arm of 62 compares what the
controller lets boards hold there with that arithmetic. Both are of breakers with a hot curve;
``cold_curve`` tells, without a line, what 60 servers hold and how many need no cap where only the
curve of a cold breaker is known, whose times count a quarter.

Work rises within a minute to 0.9405 of the rating and stays there, in band NORMAL with every cap at
its default (printed, with a line). Its level is found for each seed on the row without anybody in
control: one level for all missed the 0.94 asked for on one seed, and touched the cap band on
another. Then every board steps to its default limit (the hottest work wants 1.33 of it, for which
boards exceed it for most of a second: that is not asked for here), all at once, or in eight groups
within 2 s (``spread``). Counted is the time from the first moment above 1.00 to the last in the
following 20 s, on steps of 0.1 s, so a beat that comes back over counts whole.

How fast a *lowered* limit acts is not measured anywhere: the plant's own assumption (0.3 to 1.0 s,
drawn by board) carries the line, 1, 2 and 3 s for every board are swept without one. With two feeds
of which one is lost, nothing may cross at all: no use of reserve is counted on.

Of a scenario file: row, meters, plant, lease and tick, lowest and highest class; no work (that is
``--work``) and no faults. What makes an arm (delays, two feeds where none are declared, two more
servers of the first type) and the step are laid over it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks._breaker_curves import row_marks
from benchmarks._load_step import (
    RisingWork,
    recorded_boards,
    recorded_load,
    seconds_above,
    seconds_to_limits,
)
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
from benchmarks._row_reads import ROW_READS
from benchmarks._survivable_caps import servers_without_caps, survivable_mean_caps
from benchmarks.runner import Options, Result, Row, Rows, Target, finished_rows
from controller.tick_values import Band
from simulation.row_control.faults import RowFault, RowFaultKind, RowFaults
from simulation.row_control.row_policy import Uncapped
from simulation.row_control.run import RowRun, RowSetup
from simulation.row_control.wattpack_policy import WattpackPolicy
from wattpack.errors import InputError

Floats = NDArray[np.float64]

NAME = "response"
SUMMARY = "seconds above the rating after a step of everything, and after a lost feed"
TAKES_ARGUMENTS = True
USAGE: Final = ROW_CASES_USAGE
TAKES_SCHEDULER = True

RUNS: Final = 10
CALM_SECONDS, AFTER_SECONDS = 210.0, 20.0
LOAD_RATIO: Final = 0.9405
"""0.94 is asked for; what a level is found by is good to 0.0003."""
STEP_SECONDS: Final = 0.1
READS: Final = tuple(key for key in ROW_READS if key != "step_seconds")
SPREAD_GROUPS: Final = 8
SPREAD_SECONDS: Final = 2.0
GROUPS: Final = (
    {"gpu_model": "H200-SXM", "count": 46},
    {"gpu_model": "H100-SXM", "count": 14},
)
_OWN: Final[dict[str, Any]] = {"row": {"groups": GROUPS}}
MORE: Final = "two_servers_more"
MORE_SERVERS: Final = 2
COLD_CURVE: Final = "cold_curve"
COLD_SHARE: Final = 0.25
"""Time to trip of a breaker that carries its rating over a cold one's (Promises, I2)."""

DELAYS: Final[dict[str, float | None]] = {
    "as_plant": None,
    "delay_1": 1.0,
    "delay_2": 2.0,
    "delay_3": 3.0,
}
QUICK_DELAYS: Final = ("as_plant",)
FEED: Final = "feed_loss"
SPREAD: Final = "spread"

TARGETS: Final = {
    "as_plant_seconds_p99": Target(at_most=2.0),
    "as_plant_share_of_boards_at_default": Target(at_least=1.0),
    "as_plant_boards_at_limit_seconds_p99": Target(at_most=2.0),
    "as_plant_runs_not_normal_before": Target(at_most=0),
    "as_plant_load_ratio_before_lowest": Target(at_least=0.94),
    "as_plant_trips": Target(at_most=0),
    "spread_seconds_p99": Target(at_most=2.0),
    "spread_trips": Target(at_most=0),
    "two_servers_more_caps_over_survivable_highest": Target(at_most=1.0),
    "two_servers_more_caps_over_survivable_lowest": Target(at_least=0.995),
    "feed_loss_runs_above_rating": Target(at_most=0),
    "feed_loss_trips": Target(at_most=0),
}


def run(options: Options) -> Result:
    """Some seeds under each delay and with a lost feed."""
    asked = asked_of(NAME, options, 1 if options.quick else RUNS, READS)
    _require_ratings_alone(asked)
    arms = [*(QUICK_DELAYS if options.quick else DELAYS), SPREAD, FEED]

    def one_case(seed: int, number: int) -> Row:
        options.progress(f"run {number + 1} of {asked.runs}")
        # Ticks are a second apart: the steps fall everywhere between two.
        at = CALM_SECONDS + STEP_SECONDS * (number * 3 % 10)
        level = level_before(asked, seed + number)
        judged = {arm: _judged(asked, seed + number, arm, at, level) for arm in arms}
        return judged | {
            MORE: _held_by_jump(asked, seed + number, more=MORE_SERVERS),
            COLD_CURVE: _held_by_jump(asked, seed + number, curve_share=COLD_SHARE),
        }

    kind = f"{shard_kind(NAME, asked, CALM_SECONDS)}-{len(arms)}"
    rows = finished_rows(options, kind, one_case, asked.runs)
    # Of the row as it is: arms change when a lowered limit acts.
    marks = {**row_marks(asked.row()), **asked.told}
    return Result({**figures(rows, arms), **marks}, TARGETS)


def _require_ratings_alone(asked: Asked) -> None:
    """Pass only a row of which this page's arithmetic knows what I2 allows.

    Raises:
        InputError: for one that spends reserve feeds or heat.
    """
    row, file = asked.row().row, str(asked.scenario or "")
    why = "what I2 allows is worked out for ratings alone here; feed_loss runs such a row"
    if row.use_reserve:
        raise InputError("row.use_reserve", f"false ({why})", row.use_reserve, file)
    if row.heat_budget_ratio > 0.0:
        why = "what I2 allows is worked out for declared standard curves here"
        raise InputError("row.heat_budget_ratio", f"0 ({why})", row.heat_budget_ratio, file)


def level_before(asked: Asked, seed: int) -> dict[str, float]:
    """Serving level at which the row draws ``LOAD_RATIO`` before the step, if nobody caps it.

    Its fans still rise then: two runs of it, and a line through both.
    """
    level = level_for(asked, seed, LOAD_RATIO, _OWN)["serving_level_lowest"]
    load = _uncapped_load(asked, seed, level)
    other = min(level * LOAD_RATIO / load, 1.0)
    more = _uncapped_load(asked, seed, other) - load
    if more == 0.0:
        # It is what was asked for, or a file says the level.
        return _serving(level)
    level += (LOAD_RATIO - load) * (other - level) / more
    return _serving(min(max(level, 0.0), 1.0))


def _serving(level: float) -> dict[str, float]:
    return {"serving_level_lowest": level, "serving_level_highest": level}


def _uncapped_load(asked: Asked, seed: int, level: float) -> float:
    """Load over the rating before the step with every board at its default limit."""
    case = _case(asked, seed, "", level=_serving(level))
    uncapped = Uncapped(case.plant.bank.default_limit_watts.copy())
    work = RisingWork(case.row.work())
    driven = RowRun(RowSetup(case.scenario), work, lambda _: uncapped)
    load = recorded_load(driven)
    driven.run(CALM_SECONDS)
    return _mean_before(load)


def _mean_before(load: list[float]) -> float:
    """Over the last two seconds."""
    return float(np.mean(load[-round(2.0 / STEP_SECONDS) :]))


def _judged(
    asked: Asked, seed: int, arm: str, at_seconds: float, level: dict[str, float]
) -> dict[str, Any]:
    case = _case(asked, seed, arm, level=level)
    faults = RowFaults(_faults(case, arm, at_seconds))
    driven = case.wattpack(Arm(), faults, RisingWork(case.row.work()))
    load, boards = recorded_load(driven), recorded_boards(driven)
    driven.run(at_seconds)
    before = _before(driven, load)
    result = driven.run(AFTER_SECONDS)
    step = case.scenario.step_seconds
    first = round(at_seconds / step)
    fine = np.array(load[first:])
    drawn, limits = (np.array([one[i] for one in boards[first:]]) for i in range(2))
    below = int(np.flatnonzero(fine > 1.0).max(initial=0))
    return before | {
        "seconds": seconds_above(fine, step),
        "at_limit": seconds_to_limits(drawn, limits, below, step),
        "above": float((fine > 1.0).sum() * step),
        "peak": float(fine.max()),
        "heat": float(result.max_heat[ROW]),
        "trips": result.trips,
        "brakes": result.brakes,
    }


def _faults(case: RowCase, arm: str, at_seconds: float) -> list[RowFault]:
    end = at_seconds + AFTER_SECONDS
    if arm == FEED:
        everything = np.ones(case.scenario.row.racks + 1, dtype=np.bool_)
        return [RowFault(RowFaultKind.FEED_LOST, at_seconds, end, everything)]
    groups = SPREAD_GROUPS if arm == SPREAD else 1
    of_board = np.random.default_rng(case.scenario.seed).integers(0, groups, case.plant.n_gpus)
    apart = SPREAD_SECONDS / groups
    return [
        RowFault(RowFaultKind.ALL_TO_FULL, at_seconds + apart * group, end, of_board == group)
        for group in range(groups)
    ]


def _held_by_jump(
    asked: Asked, seed: int, *, more: int = 0, curve_share: float = 1.0
) -> dict[str, float]:
    """What boards hold over what I2 allows them, with so many more servers of the first type."""
    case = _case(asked, seed, "", more)
    tree = case.topology.tree
    curves = tuple(replace(one, a_seconds=curve_share * one.a_seconds) for one in tree.curves)
    case.topology = replace(case.topology, tree=replace(tree, curves=curves))
    driven = case.wattpack(Arm(), work=RisingWork(case.row.work()))
    driven.run(CALM_SECONDS)
    bank = driven.plant.bank
    allowed = min(survivable_mean_caps(case.scenario, curve_share).values())
    held = float(bank.limit_watts.mean())
    return {
        "survivable": allowed,
        "held": held,
        "over_survivable": held / min(allowed, float(bank.default_limit_watts.mean())),
        "most_servers": servers_without_caps(case.scenario, curve_share),
    }


def _case(
    asked: Asked, seed: int, arm: str, more: int = 0, level: dict[str, float] | None = None
) -> RowCase:
    """The row of an arm: what makes it is laid over the benchmark's own row and a file's alike.

    Without a serving level the row is loaded as if its fans had settled.
    """
    over: dict[str, Any] = {"step_seconds": STEP_SECONDS}
    row = asked.row(_OWN).row
    if more:
        first, *others = (group.model_dump() for group in row.groups)
        over["row"] = {"groups": [{**first, "count": first["count"] + more}, *others]}
    if arm == FEED and row.redundancy == "None":
        over["row"] = {"redundancy": "2N"}
    delay = DELAYS.get(arm)
    if delay is not None:
        over["plant"] = {"cap_delay_min_seconds": delay, "cap_delay_max_seconds": delay}
    level = level_for(asked, seed, LOAD_RATIO, _OWN, over) if level is None else level
    return RowCase(asked, seed, STEADY | level, _OWN, over)


def _before(driven: RowRun, load: list[float]) -> dict[str, Any]:
    policy = driven.policy
    assert isinstance(policy, WattpackPolicy)
    assert policy.decisions is not None
    bank = driven.plant.bank
    at_default = bank.limit_watts >= bank.default_limit_watts - 1.0
    return {
        "load_before": _mean_before(load),
        "normal": bool((policy.decisions.band == Band.NORMAL).all()),
        "at_default": float(at_default.mean()),
    }


def figures(rows: Rows, arms: list[str]) -> dict[str, float | int | str]:
    """Of any number of runs, at least one."""
    more = [row[MORE] for row in rows]
    cold = [row[COLD_CURVE] for row in rows]
    found: dict[str, float | int | str] = {
        "runs": len(rows),
        f"{MORE}_survivable_mean_cap_watts": more[0]["survivable"],
        f"{MORE}_caps_over_survivable_highest": max(one["over_survivable"] for one in more),
        f"{MORE}_caps_over_survivable_lowest": min(one["over_survivable"] for one in more),
        "servers_without_caps": more[0]["most_servers"],
        f"{COLD_CURVE}_servers_without_caps": cold[0]["most_servers"],
        f"{COLD_CURVE}_survivable_mean_cap_watts": cold[0]["survivable"],
        f"{COLD_CURVE}_held_mean_cap_watts": float(np.mean([one["held"] for one in cold])),
    }
    for name in arms:
        arm = [row[name] for row in rows]
        crossed = [one["seconds"] for one in arm if one["seconds"] > 0.0]
        free = [one for one in arm if one["normal"] and one["at_default"] == 1.0]
        found |= {
            f"{name}_runs_above_rating": len(crossed),
            **_quantiles(f"{name}_seconds", crossed),
            **_quantiles(f"{name}_boards_at_limit_seconds", [one["at_limit"] for one in arm]),
            f"{name}_peak_load_ratio": max(one["peak"] for one in arm),
            f"{name}_heat_max": max(one["heat"] for one in arm),
            f"{name}_trips": sum(one["trips"] for one in arm),
            f"{name}_brakes": sum(one["brakes"] for one in arm),
            f"{name}_load_ratio_before": float(np.mean([one["load_before"] for one in arm])),
            f"{name}_load_ratio_before_lowest": min(one["load_before"] for one in arm),
            f"{name}_runs_normal_at_default_caps": len(free),
            f"{name}_runs_not_normal_before": sum(not one["normal"] for one in arm),
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
