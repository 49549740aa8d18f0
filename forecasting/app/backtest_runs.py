"""Runs a backtest's pools, in processes of their own if asked, and keeps those that are finished.

A pool is what one forecaster process would carry: its series share one calibration. So the state
goes through a pool's origins in order, and only whole pools can be given to other processes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from forecasting.app.history_choice import FileHistorySettings, open_file_history
from forecasting.backtest.plan import BacktestPlan
from forecasting.backtest.rolling import rolling
from forecasting.backtest.window import Window
from forecasting.series_source import SeriesId
from wattpack.errors import InputError, PermanentError
from wattpack.flags import write_output

FORMAT: Final = 1
"""Of kept pools: another release's are not read."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Runs:
    """How to run.

    Attributes:
        history: Where the history is; each process opens it.
        pools: Into how many the series are dealt.
        kept: Folder of finished pools, or None.
    """

    history: FileHistorySettings
    pools: int = 1
    kept: Path | None = None


def run_backtest(plan: BacktestPlan, runs: Runs, progress: Progress) -> list[Window]:
    """All windows, by origin and then by series.

    Args:
        plan: What to go through.
        runs: How.
        progress: Told how many origins of how many are done, over all pools.

    Raises:
        WattpackError: when the history cannot be read, or a kept pool is not one.
    """
    parts = [plan.of(part) for part in dealt(plan.series, runs.pools)]
    total, done = len(parts) * len(plan.origins), 0
    windows: list[Window] = []
    missing = []
    for part in parts:
        kept = _read_kept(part, runs)
        windows += kept or []
        done += len(plan.origins) if kept is not None else 0
        missing += [part] if kept is None else []
    progress(done, total)
    for fresh in _run(missing, runs):
        windows += fresh
        done += len({window.origin_seconds for window in fresh}) if len(missing) > 1 else 1
        progress(min(done, total), total)
    order = {name: i for i, name in enumerate(plan.series)}
    return sorted(windows, key=lambda w: (w.origin_seconds, order[SeriesId(w.series)]))


def dealt(series: Sequence[SeriesId], pools: int) -> list[list[SeriesId]]:
    """The series in so many hands, as even as can be; a hand without series is left out."""
    return [hand for i in range(pools) if (hand := list(series[i::pools]))]


def _run(parts: Sequence[BacktestPlan], runs: Runs) -> Iterator[list[Window]]:
    """The windows of one origin, or of whole pools where several processes run."""
    if len(parts) == 1:
        finished: list[Window] = []
        for windows in _origins(parts[0], runs.history):
            finished += windows
            yield windows
        _keep(parts[0], runs, finished)
        return
    if not parts:
        return
    # Spawned: what a fork would copy of threads and open databases is not safe to use there.
    with ProcessPoolExecutor(len(parts), mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(_whole, part, runs.history): part for part in parts}
        for future in as_completed(waiting):
            windows = future.result()
            _keep(waiting[future], runs, windows)
            yield windows


def _whole(plan: BacktestPlan, history: FileHistorySettings) -> list[Window]:
    return [window for windows in _origins(plan, history) for window in windows]


def _origins(plan: BacktestPlan, history: FileHistorySettings) -> Iterator[list[Window]]:
    source = open_file_history(history)
    try:
        yield from rolling(plan, source)
    finally:
        source.close()


def _file(plan: BacktestPlan, runs: Runs) -> Path | None:
    """Where a pool is kept: named by what it is of."""
    if runs.kept is None:
        return None
    asked = json.dumps([FORMAT, asdict(plan), runs.history.model_dump(mode="json")])
    return runs.kept / f"pool-{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"


def _keep(plan: BacktestPlan, runs: Runs, windows: Sequence[Window]) -> None:
    file = _file(plan, runs)
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermanentError(f"finished pools cannot be kept in {file.parent}: {error}") from error
    write_output(file, json.dumps({"windows": [window.to_json() for window in windows]}))


def _read_kept(plan: BacktestPlan, runs: Runs) -> list[Window] | None:
    file = _file(plan, runs)
    if file is None or not file.exists():
        return None
    try:
        given = json.loads(file.read_text(encoding="utf-8"))["windows"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError("resume", "pools that a backtest kept", str(file)) from error
    return [Window.read(one) for one in given]
