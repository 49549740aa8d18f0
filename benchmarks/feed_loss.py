"""What a lost feed does to a row whose load uses its reserve feeds, and to one whose does not.

60 servers on four feeds, three of which carry a rating for 40; one is lost. With ``use_reserve``
steady work holds the row at 0.945 of what all four carry, if the product lets it, so the three
that are left stand at up to 1.26 of their rating. Counted is the time from the first moment above
1.00 to the last in the following 20 s, on steps of 0.1 s, over row and racks. Without it nothing
may cross at all.

A judge of its own integrates what UPS and transformer of the busiest feed bear (``_power_house``,
plain loops); breakers are the plant's. The curves of UPSes and the delay of the feeds' meters are
assumed: ``weak_ups`` has the overload that Flex (ISCA 2021, read second-hand) names, about 10 s,
``late_meter`` the 2 s of POLCA's telemetry, ``controller_dies`` no controller from the loss on,
``everything_steps`` full power wanted by every board at the moment of the loss, ``unseen`` feeds
that nobody tells of. How a lowered cap acts is the plant's assumption (0.3 to 1.0 s).

Of a scenario file: row with its feeds (one arm, ``given``), meters, plant, lease and tick, lowest
and highest class; no work (that is ``--work``) and no faults but the loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks._breaker_curves import row_marks
from benchmarks._load_step import seconds_above
from benchmarks._power_house import Trip
from benchmarks._row_cases import ROW, STEADY, Arm, Asked, RowCase, asked_of, level_for, shard_kind
from benchmarks._row_cases import USAGE as ROW_CASES_USAGE
from benchmarks._row_reads import ROW_READS
from benchmarks.runner import Options, Result, Row, Rows, Target, finished_rows
from simulation.row_control.faults import RowFault, RowFaultKind, RowFaults
from simulation.row_control.run import RowRun
from wattpack.errors import InputError

Floats = NDArray[np.float64]

NAME = "feed_loss"
SUMMARY = "seconds above the rating after a lost feed, with and without the use of reserve feeds"
TAKES_ARGUMENTS = True
USAGE: Final = ROW_CASES_USAGE
TAKES_SCHEDULER = True
READS: Final = tuple(key for key in ROW_READS if key != "step_seconds")

RUNS: Final = 10
CALM_SECONDS, AFTER_SECONDS = 120.0, 20.0
QUICK_CALM_SECONDS: Final = 60.0
STEP_SECONDS: Final = 0.1
LOAD_RATIO: Final = 0.945
GROUPS: Final = (
    {"gpu_model": "H200-SXM", "count": 46},
    {"gpu_model": "H100-SXM", "count": 14},
)
FOUR_FEEDS: Final[dict[str, Any]] = {"redundancy": "KofN", "feeds": 4, "required_feeds": 3}
RESERVE: Final[dict[str, Any]] = {**FOUR_FEEDS, "use_reserve": True}
K = RowFaultKind


@dataclass(frozen=True, slots=True)
class Case:
    """One arm.

    Attributes:
        row: What its scenario says of the row.
        load_ratio: Uncapped load that is asked for, over what the required feeds carry.
        beside: What else goes wrong, from the loss on or all the time.
    """

    row: dict[str, Any]
    load_ratio: float = LOAD_RATIO * 4.0 / 3.0
    beside: tuple[RowFaultKind, ...] = field(default=())


CASES: Final = {
    "reserve": Case(RESERVE),
    "no_reserve": Case(FOUR_FEEDS, LOAD_RATIO),
    "weak_ups": Case({**RESERVE, "overload_points": ((1.1, 60.0), (4.0 / 3.0, 10.0), (1.5, 5.0))}),
    "late_meter": Case(
        {**RESERVE, "feed_meter": {"delay_seconds": 2.0}, "feed_share_max_age_seconds": 5.0}
    ),
    "controller_dies": Case(RESERVE, beside=(K.CONTROLLER_DOWN,)),
    "everything_steps": Case(RESERVE, beside=(K.ALL_TO_FULL,)),
    "unseen": Case(RESERVE, beside=(K.METER_SILENT,)),
}
QUICK_CASES: Final = ("reserve", "no_reserve")
GIVEN: Final = "given"
"""The only arm of a row that a file describes."""

TARGETS: Final = {
    "reserve_seconds_p99": Target(at_most=5.0),
    "reserve_load_ratio_before": Target(at_least=1.1),
    "no_reserve_runs_above_rating": Target(at_most=0),
    "unseen_runs_above_rating": Target(at_most=0),
    **{f"{name}_trips": Target(at_most=0) for name in CASES},
    **{f"{name}_feed_heat_max": Target(at_most=0.5) for name in CASES},
    **{f"{name}_invariant_violations": Target(at_most=0) for name in CASES},
}


def run(options: Options) -> Result:
    """Some seeds of each arm."""
    asked = asked_of(NAME, options, 1 if options.quick else RUNS, READS)
    calm = QUICK_CALM_SECONDS if options.quick else CALM_SECONDS
    cases = _cases(asked, quick=options.quick)

    def one_case(seed: int, number: int) -> Row:
        options.progress(f"run {number + 1} of {asked.runs}")
        # Ticks and readings are a second apart: losses fall everywhere between two.
        at = calm + STEP_SECONDS * (number * 3 % 10)
        return {name: _judged(asked, seed + number, case, at) for name, case in cases.items()}

    rows = finished_rows(options, shard_kind(NAME, asked, calm), one_case, asked.runs)
    targets = {n: t for n, t in TARGETS.items() if n.startswith(tuple(cases))}
    return Result({**figures(rows, list(cases)), **row_marks(asked.row()), **asked.told}, targets)


def _cases(asked: Asked, *, quick: bool) -> dict[str, Case]:
    """Arms; of a file's row it is the loss as the file declares its feeds.

    Raises:
        InputError: for a file's row that has no feed to lose.
    """
    if asked.scenario is not None:
        row = asked.row().row
        if row.redundancy == "None":
            expected = "2N or KofN: of one feed none can be lost"
            raise InputError("row.redundancy", expected, row.redundancy, str(asked.scenario))
        share = row.fed_by / row.carried_by if row.use_reserve else 1.0
        return {GIVEN: Case({}, LOAD_RATIO * share)}
    return {name: CASES[name] for name in (QUICK_CASES if quick else CASES)}


def _judged(asked: Asked, seed: int, case: Case, at_seconds: float) -> dict[str, Any]:
    own = {"row": {"groups": GROUPS}}
    arm = {"step_seconds": STEP_SECONDS, "row": case.row}
    level = level_for(asked, seed, case.load_ratio, own, arm)
    made = RowCase(asked, seed, STEADY | level, own, arm)
    driven = made.wattpack(Arm(), _faults(made, case, at_seconds))
    load = recorded_loads(driven)
    driven.run(at_seconds)
    step = made.scenario.step_seconds
    before = driven.plant.watts[ROW] / driven.plant.breakers.rating_watts[ROW]
    result = driven.run(AFTER_SECONDS)
    fine = np.array(load)[round(at_seconds / step) :]
    ups = Trip(points=made.scenario.row.overload_points)
    return {
        "load_before": float(before),
        "calm_peak": float(np.array(load)[: round(at_seconds / step)].max()),
        "seconds": max(seconds_above(column, step) for column in fine.T),
        "peak": float(fine.max()),
        "heat": float(result.max_heat.max()),
        "feed_heat": max(feed_heat(ups, column, step) for column in np.array(load).T),
        "trips": result.trips,
        "brakes": result.brakes,
        "violations": sum(result.violations.values()),
    }


def _faults(made: RowCase, case: Case, at_seconds: float) -> RowFaults:
    domains = np.ones(made.scenario.row.racks + 1, dtype=np.bool_)
    end = at_seconds + AFTER_SECONDS
    found = [RowFault(K.FEED_LOST, at_seconds, end, domains)]
    for kind in case.beside:
        struck = np.ones(made.plant.n_gpus, dtype=np.bool_) if kind is K.ALL_TO_FULL else domains
        begin = 0.0 if kind is K.METER_SILENT else at_seconds
        found.append(RowFault(kind, begin, end, struck))
    return RowFaults(found)


def recorded_loads(driven: RowRun) -> list[Floats]:
    """Every domain's busiest feed over its rating, filled in at every step of the run."""
    load: list[Floats] = []
    took = driven.accounts.took

    def take(seconds: float) -> None:
        took(seconds)
        load.append(driven.plant.breakers.load_ratio(driven.plant.watts))

    driven.accounts.took = take  # type: ignore[method-assign]
    return load


def feed_heat(ups: Trip, load_ratio: Floats, step_seconds: float) -> float:
    """What of its overload a feed's UPS has spent, 1 = it gives in; nothing is forgiven in a run.

    Infinite beyond the curve's last point.
    """
    spent = 0.0
    for ratio in load_ratio.tolist():
        if ratio > 1.0:
            borne = ups.seconds(ratio)
            spent += step_seconds / borne if borne > 0.0 else float("inf")
    return spent


def figures(rows: Rows, names: list[str]) -> dict[str, float | int | str]:
    """Of any number of runs, at least one."""
    found: dict[str, float | int | str] = {"runs": len(rows)}
    for name in names:
        arm = [row[name] for row in rows]
        crossed = [one["seconds"] for one in arm if one["seconds"] > 0.0]
        quantiles = {"p50": 0.5, "p99": 0.99}
        # Without a crossing there is none to tell, and a line on it is not met.
        found |= {f"{name}_seconds_{q}": float(np.quantile(crossed, at))
                  for q, at in quantiles.items() if crossed}  # fmt: skip
        found |= {
            f"{name}_runs_above_rating": len(crossed),
            f"{name}_load_ratio_before": float(np.mean([one["load_before"] for one in arm])),
            f"{name}_calm_peak_ratio": max(one["calm_peak"] for one in arm),
            f"{name}_peak_load_ratio": max(one["peak"] for one in arm),
            f"{name}_heat_max": max(one["heat"] for one in arm),
            f"{name}_feed_heat_max": max(one["feed_heat"] for one in arm),
            f"{name}_trips": sum(one["trips"] for one in arm),
            f"{name}_runs_braked": sum(one["brakes"] > 0 for one in arm),
            f"{name}_invariant_violations": sum(one["violations"] for one in arm),
        }
    return found
