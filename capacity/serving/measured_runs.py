"""A user's own runs of a server: what they say of the engine's constants, and how well.

``wattpack bench import`` turns result files of vLLM's benchmark, GenAI-Perf and AIPerf into rows;
here each run of them is simulated as it was measured, and the engine's constants are fitted anew
with the shipped ones as prior. Rows say means by request size, not how lengths spread or which
rules the engine ran with: lengths are spread as everywhere, rules are the engine's defaults.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.catalogue.serving_measurement import ServingMeasurement, require_possible
from capacity.kernels import NumberFormat
from capacity.language_models import find_language_model
from capacity.serving.deployment import Deployment
from capacity.serving.engine import (
    BatchingRules,
    Engine,
    EngineConstants,
    find_engine,
    shipped_constants,
)
from capacity.serving.engine_fit import FittedRun, fit_constants, predict_run
from capacity.serving.open_runs import arrivals
from capacity.serving.request_mix import USUAL_SPREAD, MixPart, RequestBucket, RequestMix
from capacity.serving.served_requests import ClosedLoop, OpenLoop, Work
from capacity.serving.service_level import require_room
from wattpack.errors import InputError, read_from
from wattpack.units import require_number

REQUESTS_A_CLIENT: Final = 10
FEWEST_REQUESTS: Final = 40
MOST_REQUESTS: Final = 1_500
"""Of a run that are simulated; means over more hardly differ."""

MOST_RUNS: Final = 60
ROUNDS: Final = 2
FOLDS: Final = 4


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run, means over its requests.

    Attributes:
        requests: Completed ones.
        concurrency: Clients at once; None where requests came at ``request_rate``, or all at once
            if that is None, too.
    """

    engine: str
    language_model: str
    gpu: str
    tensor_parallel: int
    number_format: NumberFormat
    cache_format: NumberFormat
    mix: RequestMix
    requests: int
    concurrency: int | None
    request_rate: float | None
    ttft_seconds: float
    tpot_seconds: float

    @property
    def rules(self) -> BatchingRules:
        """The engine's defaults."""
        return find_engine(self.engine).rules

    def deployment(self, constants: EngineConstants) -> Deployment:
        """What was measured, with these constants."""
        return Deployment(
            find_language_model(self.language_model),
            self.gpu,
            self.tensor_parallel,
            self.number_format,
            self.cache_format,
            Engine(self.engine, self.rules, constants),
        )

    @property
    def work(self) -> Work:
        """What its clients sent."""
        most = MOST_REQUESTS
        if self.concurrency is not None:
            most = min(most, max(FEWEST_REQUESTS, REQUESTS_A_CLIENT * self.concurrency))
        sizes = self.mix.sizes(min(most, self.requests))
        if self.request_rate is not None:
            return OpenLoop(arrivals(len(sizes), self.request_rate), sizes)
        if self.concurrency is not None:
            return ClosedLoop(self.concurrency, sizes)
        return OpenLoop([0.0] * len(sizes), sizes)


@dataclass(frozen=True, slots=True)
class Correction:
    """What own runs change; errors are medians over the runs.

    Attributes:
        constants: To be used: the corrected ones, or the shipped where those were better.
        corrected: Fitted on all runs.
        tpot_before, ttft_before: With the shipped constants.
        tpot_after, ttft_after: With constants fitted on other runs than the judged one; of one run
            alone, on itself.
        is_held_out: Whether there were runs to hold out.
        is_used: Whether the corrected constants are.
    """

    constants: EngineConstants
    corrected: EngineConstants
    runs: int
    tpot_before: float
    tpot_after: float
    ttft_before: float
    ttft_after: float
    is_held_out: bool
    is_used: bool


def runs_of(
    rows: Iterable[ServingMeasurement],
    engine: str,
    number_format: NumberFormat,
    cache_format: NumberFormat,
) -> tuple[MeasuredRun, ...]:
    """Each run once, its request sizes as a mix.

    Raises:
        InputError: no run or too many, an unknown model, answers of one token, no time to the
            first one, more than the GPUs can do, a GPU count that cannot serve the model.
    """
    groups = defaultdict(list)
    for row in rows:
        groups[row.run, row.seconds].append(row)
    if not 1 <= len(groups) <= MOST_RUNS:
        raise InputError("measurements", f"1 to {MOST_RUNS} runs", len(groups))
    made = []
    for number, group in enumerate(groups.values(), start=1):
        with read_from(f"run {number}"):
            run = _run(group, engine, number_format, cache_format)
            require_room(run.deployment(shipped_constants()), run.mix)
            made.append(run)
    return tuple(made)


def correct(runs: Sequence[FittedRun], believed: EngineConstants | None = None) -> Correction:
    """Constants that these runs speak for, judged on runs that they were not fitted on.

    Args:
        believed: Prior, and what is used where they are no better; the shipped ones if None.
    """
    shipped = believed or shipped_constants()
    fitted = fit_constants(runs, ROUNDS, shipped)
    folds = min(FOLDS, len(runs))
    after = np.empty((len(runs), 2))
    for fold in range(folds):
        held = list(range(fold, len(runs), folds))
        rest = [run for index, run in enumerate(runs) if index not in held]
        constants = fit_constants(rest, ROUNDS, shipped) if rest else fitted
        after[held] = [_log_errors(runs[index], constants) for index in held]
    before = np.array([_log_errors(run, shipped) for run in runs])
    is_better = float(np.abs(after).mean()) < float(np.abs(before).mean())
    medians = [np.median(np.expm1(np.abs(errors)), axis=0).tolist() for errors in (before, after)]
    (tpot_before, ttft_before), (tpot_after, ttft_after) = medians
    return Correction(
        fitted if is_better else shipped,
        fitted,
        len(runs),
        tpot_before,
        tpot_after,
        ttft_before,
        ttft_after,
        len(runs) > 1,
        is_better,
    )


def _log_errors(run: FittedRun, constants: EngineConstants) -> tuple[float, float]:
    made = predict_run(run, constants)
    return (
        float(np.log(made.tpot_seconds / run.tpot_seconds)),
        float(np.log(made.ttft_seconds / run.ttft_seconds)),
    )


def _run(
    rows: Sequence[ServingMeasurement],
    engine: str,
    number_format: NumberFormat,
    cache_format: NumberFormat,
) -> MeasuredRun:
    facts = rows[0].run
    model = find_language_model(facts.model)
    # Rows may have been written by hand since `bench import` held them against the roofs.
    require_possible(rows, {facts.model: model})
    for row in rows:
        # What does not stream says 0.
        require_number(
            "time_to_first_token.mean", row.time_to_first_token.mean, exclusive_minimum=0
        )
    several = [
        row for row in rows if row.time_per_output_token is not None and row.output_tokens > 1
    ]
    if not several:
        raise InputError("time_per_output_token", "answers of several tokens", None)
    parts = [MixPart(_bucket(row), row.requests) for row in rows]
    return MeasuredRun(
        engine,
        model.name,
        facts.gpu,
        facts.gpus,
        number_format,
        cache_format,
        RequestMix(tuple(parts)),
        sum(row.requests for row in rows),
        facts.concurrency,
        facts.request_rate,
        _mean([(row.requests, row.time_to_first_token.mean) for row in rows]),
        _mean([(r.requests, r.time_per_output_token.mean) for r in several
               if r.time_per_output_token]),
    )  # fmt: skip


def _bucket(row: ServingMeasurement) -> RequestBucket:
    """Whose mean lengths are the row's."""
    longest = 1 / (1 - USUAL_SPREAD / 2)
    prompt, output = max(1, round(longest * row.input_tokens)), round(longest * row.output_tokens)
    return RequestBucket(prompt, max(1, output), USUAL_SPREAD)


def _mean(weighed: Sequence[tuple[int, float]]) -> float:
    return sum(n * value for n, value in weighed) / sum(n for n, _ in weighed)
