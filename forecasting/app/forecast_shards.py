"""One forecast of many series by several forecasters, here or on the workers of a Dask cluster.

Each has a calibration of its own, as several processes in a cluster have, and its answers are those
of one process that was asked for its series alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from forecasting.app.history_choice import FileHistorySettings, open_file_history
from forecasting.app.model_choice import Models, fresh_state
from forecasting.app.path_files import SeriesPaths
from forecasting.app.window_peaks import PeakWindow, WindowPeaks, peaks_of
from forecasting.forecast_status import has_figures, status_of
from forecasting.round.forecast_round import step
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import SeriesSource
from forecasting.shards import MOST_SHARDS, split
from forecasting.targets import Target, TargetKey
from forecasting.token_statuses import add_tokens, flagged, token_outlooks
from forecasting.told_lengths import LastLengths
from wattpack.errors import InputError, WattpackError
from wattpack.sweep.code_digest import packages_digest
from wattpack.sweep.sweep import OneByOne, Sweep, sweep_of

MOST_PROCESSES: Final = 64

SHARD_SERIES: Final = 1000
"""Series of a shard on a cluster where nobody says how many shards: a worker then needs some
hundred MiB and a minute. Assumed."""


@dataclass(frozen=True, slots=True)
class SeriesAnswer:
    """What is told about one series; plain, since it may come from another machine.

    Attributes:
        series: Its name.
        step_seconds: Width of a step.
        status: As the forecaster would write it; None without an answer.
        has_figures: Whether there is a forecast in it.
        problem: Why there is no answer.
        is_wrong_input: Whether that is the series' own fault.
        windows: Peaks of shorter windows, as many as were asked for.
        paths: Joint with those of all series of its forecaster; None where nobody asked.
    """

    series: str
    step_seconds: int
    status: dict[str, Any] | None
    has_figures: bool = False
    problem: str = ""
    is_wrong_input: bool = False
    windows: tuple[WindowPeaks, ...] = ()
    paths: SeriesPaths | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ShardJob:
    """What one forecaster is asked.

    Attributes:
        history: Where the history is; it must be within the forecaster's reach.
        models: That forecast.
        targets: One a series.
        now_seconds: Unix time.
        plug_ins: Entry points that forecast, too.
        windows: Shorter ones, whose peaks are told, too.
    """

    history: FileHistorySettings
    models: Models
    targets: tuple[Target, ...]
    now_seconds: float
    plug_ins: tuple[str, ...] = ()
    windows: tuple[PeakWindow, ...] = ()


@dataclass(frozen=True, slots=True)
class Division:
    """How many forecasters, and where.

    Attributes:
        shards: How many.
        sweep: Where they run.
    """

    shards: int = 1
    sweep: Sweep = field(default_factory=OneByOne)

    @property
    def is_here(self) -> bool:
        """Whether one forecaster in this process does it."""
        return self.shards == 1 and isinstance(self.sweep, OneByOne)

    @classmethod
    def of(
        cls, n_series: int, shards: int | None, processes: int, scheduler: str | None
    ) -> Division:
        """What the command line asks for.

        Args:
            n_series: To be forecast.
            shards: How many; None is one a process, on a cluster one in ``SHARD_SERIES`` series.
            processes: Of this machine.
            scheduler: Address of a Dask scheduler, or None for this machine.

        Raises:
            InputError: both processes and a scheduler, too many, or Dask is not installed.
        """
        for name, value, most in (
            ("processes", processes, MOST_PROCESSES), ("shards", shards, MOST_SHARDS)
        ):  # fmt: skip
            if value is not None and not 1 <= value <= most:
                raise InputError(name, f"1 to {most}", value)
        if scheduler is not None and processes > 1:
            raise InputError("processes", "processes here or --scheduler, not both", processes)
        usual = processes if scheduler is None else -(-n_series // SHARD_SERIES)
        return cls(shards or max(1, usual), sweep_of(scheduler, forecasting_code, processes))


def add_division_flags(parser: argparse.ArgumentParser) -> None:
    """``--processes``, ``--scheduler`` and ``--shards``."""
    parser.add_argument(
        "--processes", type=int, default=1,
        help="so many forecasters of this machine, each with its own calibration (1)",
    )  # fmt: skip
    parser.add_argument(
        "--scheduler", metavar="ADDRESS",
        help="forecast on a Dask cluster, for example tcp://10.0.0.1:8786; it reads the history",
    )  # fmt: skip
    parser.add_argument(
        "--shards", type=int, metavar="N",
        help="deal the series to so many forecasters (a process each; there one in 1,000 series)",
    )  # fmt: skip


def forecasting_code() -> str:
    """Digest of the code that a forecast depends on."""
    return packages_digest("forecasting", "capacity", "wattpack")


def answers_of(job: ShardJob, division: Division, source: SeriesSource) -> list[SeriesAnswer]:
    """The answers to all targets, in their order.

    Args:
        job: All that is asked.
        division: Among whom.
        source: The history as it was opened here, for one that is not divided.

    Raises:
        WattpackError: if not one series could be read, or the cluster is away.
        InputError: a plug-in that is not there.
    """
    if division.is_here:
        return _answered(job, source)
    by_series = {target.series: target for target in job.targets}
    jobs = [
        replace(job, targets=tuple(by_series[name] for name in hand))
        for hand in split(list(by_series), division.shards)
    ]
    found: dict[str, SeriesAnswer] = {}
    for _, answers in division.sweep.rows(run_shard, jobs):
        found |= {answer.series: answer for answer in answers}
    return [found[str(target.series)] for target in job.targets]


def run_shard(job: ShardJob) -> list[SeriesAnswer]:
    """The answers of one forecaster that has these series and no others.

    What it could not read is told as an answer: other shards may be able to.
    """
    try:
        source = open_file_history(job.history)
        try:
            return _answered(job, source)
        finally:
            source.close()
    except WattpackError as error:
        return [_refused(target, error) for target in job.targets]


def _answered(job: ShardJob, source: SeriesSource) -> list[SeriesAnswer]:
    """One round of what is asked and of all windows beside it."""
    asked = [*job.targets, *(window.of(target) for window in job.windows for target in job.targets)]
    fresh = fresh_state(job.models, job.plug_ins)
    state, answers = step(
        fresh, job.now_seconds, source, list({target.key: target for target in asked}.values())
    )
    state.close()
    found = {answer.target.key: answer for answer in answers}
    return [_told(job, target, found, source) for target in job.targets]


def _told(
    job: ShardJob, target: Target, found: Mapping[TargetKey, TargetForecast], source: SeriesSource
) -> SeriesAnswer:
    answer, now_seconds = found[target.key], job.now_seconds
    beside = [(window, found[window.of(target).key]) for window in job.windows]
    for one in (answer, *(of_window for _, of_window in beside)):
        if one.error is not None:
            return _refused(target, one.error)
    tokens = token_outlooks([answer], source, LastLengths(), {})
    (answer,) = flagged([answer], tokens)
    status = status_of(answer, now_seconds)
    add_tokens({target.key: status}, [answer], tokens)
    return SeriesAnswer(
        str(target.series), target.step_seconds, status, has_figures(answer),
        windows=tuple(peaks_of(window, one, answer, now_seconds) for window, one in beside),
        paths=_paths(answer),
    )  # fmt: skip


def _paths(answer: TargetForecast) -> SeriesPaths | None:
    if answer.paths is None or answer.made is None or not has_figures(answer):
        return None
    tree = answer.made.coherent
    return SeriesPaths(answer.paths, tree is not None and answer.row in tree.rows)


def _refused(target: Target, error: WattpackError) -> SeriesAnswer:
    is_wrong = isinstance(error, InputError)
    return SeriesAnswer(str(target.series), target.step_seconds, None, False, str(error), is_wrong)
