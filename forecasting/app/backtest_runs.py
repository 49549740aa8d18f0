"""Runs a backtest's pools, in processes of their own if asked, and keeps what is finished.

A pool is what one forecaster process would carry: its series share one calibration. So the state
goes through a pool's origins in order, and only whole pools can be given to other processes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from forecasting.app.forecast_shards import Division
from forecasting.app.history_choice import FileHistorySettings, open_file_history
from forecasting.app.kept_pool import KeptPool
from forecasting.app.model_choice import Models, fresh_state
from forecasting.backtest.plan import BacktestPlan
from forecasting.backtest.rolling import rolling
from forecasting.backtest.window import Window
from forecasting.series_source import SeriesId

FORMAT: Final = 3
"""Of kept pools: another release's are not read."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Runs:
    """How to run.

    Attributes:
        history: Where the history is; each process opens it.
        models: That forecast.
        division: Into how many pools the series are dealt, and where they run.
        plug_ins: Entry points that forecast, too.
        kept: Folder of what is finished, or None; on a cluster one that its workers have, too.
    """

    history: FileHistorySettings
    models: Models = "all"
    division: Division = field(default_factory=Division)
    plug_ins: tuple[str, ...] = ()
    kept: Path | None = None


def run_backtest(plan: BacktestPlan, runs: Runs, progress: Progress) -> list[Window]:
    """All windows, by origin and then by series.

    Args:
        plan: What to go through.
        runs: How.
        progress: Told how many origins of how many are done, over all pools.

    Raises:
        WattpackError: when the history cannot be read, a kept pool is not one, or a plug-in is
            not there.
    """
    parts = [plan.of(part) for part in dealt(plan.series, runs.division.shards)]
    total, windows = len(parts) * len(plan.origins), list[Window]()
    progress(0, total)
    for done, fresh in enumerate(_run(parts, runs), start=1):
        windows += fresh
        progress(done * (1 if runs.division.is_here else len(plan.origins)), total)
    order = {name: i for i, name in enumerate(plan.series)}
    return sorted(windows, key=lambda w: (w.origin_seconds, order[SeriesId(w.series)]))


def dealt(series: Sequence[SeriesId], pools: int) -> list[list[SeriesId]]:
    """The series in so many hands, as even as can be; a hand without series is left out."""
    return [hand for i in range(pools) if (hand := list(series[i::pools]))]


def _run(parts: Sequence[BacktestPlan], runs: Runs) -> Iterator[list[Window]]:
    """The windows of one origin, or of whole pools where several processes run."""
    if runs.division.is_here:
        yield from _origins(parts[0], runs)
        return
    for _, windows in runs.division.sweep.rows(partial(_whole, runs), parts):
        yield windows


def _whole(runs: Runs, plan: BacktestPlan) -> list[Window]:
    return [window for windows in _origins(plan, runs) for window in windows]


def _origins(plan: BacktestPlan, runs: Runs) -> Iterator[list[Window]]:
    """The windows of each origin: those that are kept, then those that are gone through now."""
    kept = None if runs.kept is None else KeptPool(runs.kept / f"pool-{_name(plan, runs)}")
    state = fresh_state(runs.models, runs.plug_ins)
    lines, state = ([], state) if kept is None else kept.read(state)
    yield from lines
    source = open_file_history(runs.history)
    try:
        done = len(lines)
        for after, windows in rolling(plan, source, state, done):
            state, done = after, done + 1
            if kept is not None:
                kept.keep(done, state, windows)
            yield windows
    finally:
        state.close()
        source.close()


def _name(plan: BacktestPlan, runs: Runs) -> str:
    """Of what is asked: another question has another file."""
    history = runs.history.model_dump(mode="json")
    asked = [FORMAT, asdict(plan), runs.models, runs.plug_ins, history]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
