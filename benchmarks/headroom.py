"""How much of a breaker's rating a capped row uses, and what its low-priority work comes to.

A row whose work wants a little more than the rating all the time, without faults, under the
product's controller: with a meter at the breakers, with a reading of each server, with neither.
Work is compared with an oracle on the same arrivals (limit 1.00, perfect knowledge, caps that act
at once and hold exactly); with neither, also the oracle counts the declared worst of the servers.
60 s means count where the oracle's stands at 0.995 or above: elsewhere the work wants less. Every
figure is simulated. Accounts begin when the row has come up from its guaranteed caps.

Of a scenario file: row, meters, plant, lease and tick, lowest and highest class; no work (that is
``--work``) and no faults. Whether servers tell their draw is each arm's own.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks._breaker_curves import row_marks
from benchmarks._row_cases import (
    ROW,
    Arm,
    Asked,
    RowCase,
    asked_of,
    minute_means,
    second_means,
    shard_kind,
)
from benchmarks._row_cases import USAGE as ROW_CASES_USAGE
from benchmarks._row_reads import ROW_READS
from benchmarks.runner import Options, Result, Row, Rows, Target, finished_rows
from simulation.row_control.oracle_run import OracleResult
from simulation.row_control.run import RowRun
from simulation.row_control.work import HIGH, LOW

Floats = NDArray[np.float64]

NAME = "headroom"
SUMMARY = "60 s mean of a capped row over its rating, and its work over an oracle's"
TAKES_ARGUMENTS = True
USAGE: Final = ROW_CASES_USAGE
TAKES_SCHEDULER = True
READS: Final = tuple(key for key in ROW_READS if key != "row.bmc")

ARMS: Final = {
    "domain_meter": Arm(domain_meter=True),
    "host_meter": Arm(domain_meter=False, host_meter=True),
    "neither": Arm(domain_meter=False),
}
LOAD: Final = {"serving_level_lowest": 0.94, "serving_level_highest": 1.0}
RUNS: Final = 6
WARM_SECONDS, RUN_SECONDS = 180.0, 780.0
QUICK_WARM_SECONDS, QUICK_SECONDS = 90.0, 180.0
CAPPED: Final = 0.995

TARGETS: Final = {
    "domain_meter_minute_mean_lowest": Target(at_least=0.95),
    "domain_meter_above_rating_seconds": Target(at_most=0.0),
    "domain_meter_low_work_of_oracle": Target(at_least=0.95),
    "host_meter_minute_mean_lowest": Target(at_least=0.93),
    "host_meter_above_rating_seconds": Target(at_most=0.0),
    "host_meter_low_work_of_oracle": Target(at_least=0.95),
    "neither_above_rating_seconds": Target(at_most=0.0),
    "neither_low_work_of_worst_oracle": Target(at_least=0.95),
    "neither_high_work_of_worst_oracle": Target(at_least=0.95),
}


def run(options: Options) -> Result:
    """Some seeds under each arm; one row of figures a seed."""
    asked = asked_of(NAME, options, 1 if options.quick else RUNS, READS)
    spans = (QUICK_WARM_SECONDS, QUICK_SECONDS) if options.quick else (WARM_SECONDS, RUN_SECONDS)

    def one_case(seed: int, number: int) -> Row:
        options.progress(f"run {number + 1} of {asked.runs}")
        return _row(asked, seed + number, *spans)

    kind = shard_kind(NAME, asked, spans[1])
    rows = finished_rows(options, kind, one_case, asked.runs)
    return Result({**figures(rows), **row_marks(asked.row()), **asked.told}, TARGETS)


def _row(asked: Asked, seed: int, warm_seconds: float, seconds: float) -> Row:
    # Each arm says for itself whether servers tell their draw; a file's BMCs would tell in all.
    case = RowCase(asked, seed, LOAD, arm={"row": {"bmc": "none"}})
    free, worst = case.oracle(seconds), case.oracle(seconds, declared_worst=True)
    row: Row = {}
    for name, arm in ARMS.items():
        driven = case.wattpack(arm)
        row[name] = _judged(driven, free, worst, warm_seconds, seconds)
    return row


def _judged(
    driven: RowRun, free: OracleResult, worst: OracleResult, warm_seconds: float, seconds: float
) -> dict[str, object]:
    result = driven.run(seconds)
    step_seconds = driven.setup.scenario.step_seconds
    warm = round(warm_seconds)
    bound = minute_means(second_means(free.load_ratio[:, ROW], step_seconds)[warm:])
    means = minute_means(result.load_ratio[warm:, ROW])
    work = result.work_between(warm_seconds, seconds)
    return {
        "minute_means": means[bound >= CAPPED].tolist(),
        "above": float(result.above_seconds[ROW]),
        "peak": float(result.peak_ratio[ROW]),
        "trips": result.trips,
        "brakes": result.brakes,
        "violations": sum(result.violations.values()),
        "work": work.tolist(),
        "oracle_work": free.work_between(warm_seconds, seconds).tolist(),
        "worst_oracle_work": worst.work_between(warm_seconds, seconds).tolist(),
    }


def figures(rows: Rows) -> dict[str, float | int | str]:
    """Of any number of runs, at least one; work as sums over all."""
    found: dict[str, float | int | str] = {"runs": len(rows)}
    for name in ARMS:
        arm = [row[name] for row in rows]
        means = np.concatenate([np.asarray(one["minute_means"], dtype=np.float64) for one in arm])
        work, free, worst = (
            np.array([one[key] for one in arm]).sum(axis=0)
            for key in ("work", "oracle_work", "worst_oracle_work")
        )
        found |= {
            **_means(f"{name}_minute_mean", means),
            f"{name}_above_rating_seconds": sum(one["above"] for one in arm),
            f"{name}_peak_load_ratio": max(one["peak"] for one in arm),
            f"{name}_low_work_of_oracle": float(work[LOW] / free[LOW]),
            f"{name}_high_work_of_oracle": float(work[HIGH] / free[HIGH]),
            f"{name}_low_work_of_worst_oracle": float(work[LOW] / worst[LOW]),
            f"{name}_high_work_of_worst_oracle": float(work[HIGH] / worst[HIGH]),
            f"{name}_trips": sum(one["trips"] for one in arm),
            f"{name}_brakes": sum(one["brakes"] for one in arm),
            f"{name}_violations": sum(one["violations"] for one in arm),
        }
    return found


def _means(name: str, means: Floats) -> dict[str, float]:
    """Nothing where the oracle was never full: a line on it is not met then."""
    if not means.size:
        return {}
    return {f"{name}_lowest": float(means.min()), f"{name}_p50": float(np.median(means))}
