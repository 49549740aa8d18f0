"""One forecaster in a process of its own, measured: ``python -m benchmarks._forecast_shard JSON``.

Series are the shipped clients at other hours and of other sizes (``forecast_speed.crowd``). Rounds:
the first, the next bin, and the one in which the first round's windows are over.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import numpy as np

from benchmarks.forecast_sets import BIN_SECONDS, HORIZON, TRAINING
from benchmarks.forecast_speed import LEVELS, crowd
from benchmarks.runner import Row
from forecasting.app.issue_files import IssueFiles
from forecasting.app.memory_file import write_state
from forecasting.memory_source import MemorySource
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import SeriesId
from forecasting.targets import Target
from forecasting.tiers.tier_sets import RIDGE_ALONE, all_tiers

NAMESPACE: Final = "crowd"
ROUNDS: Final = {"first": 0, "next": 1, "settling": HORIZON}
"""Bins after the first round's history."""


@dataclass(frozen=True, slots=True)
class ShardCase:
    """What is measured.

    Attributes:
        series: How many.
        models: That forecast.
        is_rehearsed: Whether all histories were gone through before; else that is the first round.
        seed: Of the series.
    """

    series: int
    models: Literal["all", "ridge"]
    is_rehearsed: bool = True
    seed: int = 1


def measured_alone(case: ShardCase) -> Row:
    """The same in a process of its own, whose memory is nobody else's."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks._forecast_shard", json.dumps(asdict(case))],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def measured(case: ShardCase) -> Row:
    """CPU seconds of each round and of keeping its state, wall seconds, peak memory."""
    before = _resident_mebibytes()
    made = crowd(case.series, case.seed)
    short = TRAINING + HORIZON - made.shape[1]
    values = np.concatenate([made, made[:, :short]], axis=1)
    del made
    names = [str(i) for i in range(case.series)]
    targets = [
        Target(NAMESPACE, name, SeriesId(name), "series", HORIZON, BIN_SECONDS, LEVELS, None, 1)
        for name in names
    ]
    known = [target.identity for target in targets] if case.is_rehearsed else []
    tiers = RIDGE_ALONE if case.models == "ridge" else all_tiers()
    state = ForecasterState(tiers=tiers, rehearsed=frozenset(known))
    row: Row = {"series": case.series, "process": os.getpid()}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state.npz"
        issues = IssueFiles(file)
        for name, bins in ROUNDS.items():
            rows = zip(names, values[:, : TRAINING + bins], strict=True)
            source = MemorySource(dict(rows))
            now = (TRAINING + bins) * float(BIN_SECONDS)
            began, used = time.perf_counter(), time.process_time()
            state, answers = step(state, now, source, targets)
            row[f"{name}_cpu_seconds"] = time.process_time() - used
            row[f"{name}_wall_seconds"] = time.perf_counter() - began
            assert all(answer.made is not None for answer in answers)
            used = time.process_time()
            write_state(file, state, issues)
            row[f"{name}_state_cpu_seconds"] = time.process_time() - used
            del answers
        row["state_mebibytes"] = _size(Path(folder))
    row["resident_mebibytes"] = _resident_mebibytes()
    row["before_mebibytes"] = before
    return row


def _size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 2**20


def _resident_mebibytes() -> float:
    """Most so far. The kernel's maximum of ``getrusage`` would begin with the parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def main(text: str, show: Callable[[str], None] = print) -> None:
    """Measure and say so in one line."""
    show(json.dumps(measured(ShardCase(**json.loads(text)))))


if __name__ == "__main__":
    main(sys.argv[1])
