"""How busy the H100 and H200 rows may be: ``python -m benchmarks.served_rows_fit``.

Forty servers in the hottest hours of three days without a policy, seeds 1 to 3: the highest load
on the grid at which p99 of the time to the first token is at most 0.5 s for each of them, and the
mean of their highest readings of 2 s over 40 nameplates. Both are frozen in
simulation/data/inference_row/served_rows.json. Prints a line of JSON each; takes some minutes.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks._frontier_cells import peak_reading
from benchmarks._row_days import hottest_windows
from simulation.inference_row.latency_accounts import RequestTimes
from simulation.inference_row.row_power import RATED_SERVERS
from simulation.inference_row.row_under_policy import UNCAPPED, polca_scenario, run_policy
from simulation.inference_row.served_rows import ServedRow, served_row

FIRST_TOKEN_SECONDS: Final = 0.5
LOADS: Final = (0.5, 0.45, 0.4, 0.35, 0.3)
SEEDS: Final = (3, 2, 1)
DAYS: Final = 3
STEP_SECONDS: Final = 0.5


def uncapped_marks(row: ServedRow, load: float, seed: int, hours: float) -> dict[str, float]:
    """p99 of the time to the first token, seconds, and highest 2 s mean over nameplates."""
    arrivals = replace(row, load=load).arrivals(RATED_SERVERS, seed=seed)
    scenario = polca_scenario(RATED_SERVERS, seed, row.power, STEP_SECONDS, row.times.gpu_model)
    first, peaks = [], []
    for window in hottest_windows(arrivals, DAYS, hours):
        run = run_policy(UNCAPPED, arrivals, window, scenario)
        arrived = run.work.servers.requests.arrival_seconds
        counted = (arrived >= window.counted[0]) & (arrived < window.counted[1])
        end = window.begin_seconds + window.whole_seconds
        first.append(RequestTimes.of(run.work.servers, end).first_seconds[counted])
        peaks.append(peak_reading(run.result.load_ratio[:, 0]))
    p99 = float(np.percentile(np.concatenate(first), 99))
    return {"first_token_p99_seconds": p99, "peak_over_nameplate": max(peaks)}


def main() -> None:
    """Fit both rows and print the marks of every load and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="of each day, from 13:00 on")
    hours = parser.parse_args().hours
    for name in ("h100", "h200"):
        row = served_row(f"{name}_nameplate")
        for load in LOADS:
            if _fits(row, load, hours):
                break


def _fits(row: ServedRow, load: float, hours: float) -> bool:
    """Whether every seed keeps first tokens at a load; says so."""
    for seed in SEEDS:
        marks = uncapped_marks(row, load, seed, hours)
        print(json.dumps({"row": row.name, "seed": seed, "load": load, **marks}), flush=True)
        if marks["first_token_p99_seconds"] > FIRST_TOKEN_SECONDS:
            return False
    return True


if __name__ == "__main__":
    main()
