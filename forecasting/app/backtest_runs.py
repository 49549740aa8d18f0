"""Runs a backtest's pools, in processes of their own if asked, and keeps what is finished.

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
from forecasting.app.kept_pool import KeptPool
from forecasting.app.model_choice import Models, fresh_state
from forecasting.backtest.plan import BacktestPlan
from forecasting.backtest.rolling import rolling
from forecasting.backtest.window import Window
from forecasting.series_source import SeriesId

FORMAT: Final = 1
"""Of kept pools: another release's are not read."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Runs:
    """How to run.

    Attributes:
        history: Where the history is; each process opens it.
        models: That forecast.
        pools: Into how many the series are dealt.
        kept: Folder of what is finished, or None.
    """

    history: FileHistorySettings
    models: Models = "all"
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
    total, windows = len(parts) * len(plan.origins), list[Window]()
    progress(0, total)
    for done, fresh in enumerate(_run(parts, runs), start=1):
        windows += fresh
        progress(done * (1 if len(parts) == 1 else len(plan.origins)), total)
    order = {name: i for i, name in enumerate(plan.series)}
    return sorted(windows, key=lambda w: (w.origin_seconds, order[SeriesId(w.series)]))


def dealt(series: Sequence[SeriesId], pools: int) -> list[list[SeriesId]]:
    """The series in so many hands, as even as can be; a hand without series is left out."""
    return [hand for i in range(pools) if (hand := list(series[i::pools]))]


def _run(parts: Sequence[BacktestPlan], runs: Runs) -> Iterator[list[Window]]:
    """The windows of one origin, or of whole pools where several processes run."""
    if len(parts) == 1:
        yield from _origins(parts[0], runs)
        return
    # Spawned: what a fork would copy of threads and open databases is not safe to use there.
    with ProcessPoolExecutor(len(parts), mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_whole, part, runs) for part in parts]):
            yield future.result()


def _whole(plan: BacktestPlan, runs: Runs) -> list[Window]:
    return [window for windows in _origins(plan, runs) for window in windows]


def _origins(plan: BacktestPlan, runs: Runs) -> Iterator[list[Window]]:
    """The windows of each origin: those that are kept, then those that are gone through now."""
    kept = None if runs.kept is None else KeptPool(runs.kept / f"pool-{_name(plan, runs)}")
    state = fresh_state(runs.models)
    lines, state = ([], state) if kept is None else kept.read(state)
    yield from lines
    source = open_file_history(runs.history)
    try:
        done = len(lines)
        for after, windows in rolling(plan, source, state, done):
            done += 1
            if kept is not None:
                kept.keep(done, after, windows)
            yield windows
    finally:
        source.close()


def _name(plan: BacktestPlan, runs: Runs) -> str:
    """Of what is asked: another question has another file."""
    asked = [FORMAT, asdict(plan), runs.models, runs.history.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
