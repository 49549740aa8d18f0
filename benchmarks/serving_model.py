"""Capacity's serving model against the twin's queues: first tokens and times per token, one server.

Capacity plays a server iteration by iteration (``capacity.serving.server_simulation``), the twin
lets its queues flow through steps (``simulation.serving_queues``). Both get the same requests: a
Poisson stream of lengths of an Azure trace or all alike, at a share of what the server serves with
every place taken. Two forms of capacity's side:

- ``costs``: iterations cost what the twin's step table says, so that only the queues differ;
- ``engine``: iterations cost what ``wattpack plan serving`` says, with its engine's constants.

And two of the twin's: its own step of 0.25 s, and one of about an iteration (13 ms for the 8B
shape), which shows what the step adds. Shorter ones say nothing: an iteration that a step cuts
keeps its size, and where small ones are cut, prompts go in small pieces.
The way to the server and back (capacity's 15 ms) is on neither side.

Of a scenario file: each of its services on each of its GPU types, as its replicas batch, at the
three loads and the twin's own step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from benchmarks._given_scenario import USAGE as GIVEN_USAGE
from benchmarks._given_scenario import Given, given_scenario
from benchmarks._twin_server import (
    TWIN_STEP_SECONDS,
    Batching,
    Floats,
    play,
)
from benchmarks.runner import Options, Result, Target
from capacity.kernels import NumberFormat
from capacity.language_models import find_language_model
from capacity.serving.deployment import Deployment
from capacity.serving.engine import BatchingRules
from capacity.serving.served_requests import ClosedLoop, OpenLoop, Size
from capacity.serving.server_simulation import BoardLimit, IterationClock, simulate
from capacity.serving.serving_clock import Cost
from capacity.step_library import shipped_step_tables
from capacity.step_table import IterationWork, StepTable
from simulation.arrivals import Requests
from simulation.plant_constants import frozen_plant
from simulation.plant_hash import plant_sha256
from simulation.traces import shipped_trace
from wattpack.errors import InputError

NAME = "serving_model"
SUMMARY = "capacity's serving model against the twin's queues: TTFT and TPOT, p50 and p99"
TAKES_ARGUMENTS = True
USAGE: Final = GIVEN_USAGE

BATCHING: Final = Batching(max_batch=64, chunk_tokens=2048)
UNBOUNDED_CACHE: Final = 10**9
"""The twin's servers are bounded by their batch alone."""

LOADS: Final = (0.3, 0.6, 0.85)
FINE_TOKENS: Final = 512
"""Of the iteration whose length is the finer step."""

SETTLING: Final = 0.2
"""Of a run's requests, the first, which are not counted: the server starts empty."""

REQUESTS: Final = {False: 300, True: 150}
LINE: Final = 0.15
READS: Final = (
    "row.groups[].gpu_model", "services[].name", "services[].trace", "services[].language_model",
    "services[].tensor_parallel", "services[].max_batch", "services[].prefill_chunk_tokens",
    "step_seconds",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One server and what it is asked.

    Attributes:
        lengths: A trace's name, or prompt and output tokens of every request.
        batching: Of its iterations.
        step_seconds: Of the twin.
        called: In figures, where model and lengths do not tell it from others.
    """

    gpu: str
    language_model: str
    tensor_parallel: int
    lengths: str | tuple[int, int]
    batching: Batching = BATCHING
    step_seconds: float = TWIN_STEP_SECONDS
    called: str = ""

    @property
    def name(self) -> str:
        """For figures."""
        model = self.language_model.removeprefix("llama-3.1-")
        if self.called:
            return f"{self.gpu.split('-')[0].lower()}_{self.called}"
        asked = self.lengths if isinstance(self.lengths, str) else "x".join(map(str, self.lengths))
        return f"{self.gpu.split('-')[0].lower()}_{model}_{asked}"


CASES: Final = (
    Case("H200-SXM", "llama-3.1-8b", 1, "conversation"),
    Case("H200-SXM", "llama-3.1-8b", 1, "code"),
    Case("H200-SXM", "llama-3.1-8b", 1, (256, 512)),
    Case("H200-SXM", "llama-3.1-70b", 4, "conversation"),
    Case("H100-SXM", "llama-3.1-70b", 4, (512, 256)),
)

QUICK_CASES: Final = CASES[:1]
KINDS: Final = ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99")


@dataclass(slots=True)
class TableClock:
    """The step table as capacity's simulation asks for it, at the board's default limit.

    The twin's queues slow what would draw more than that limit, board or no board.
    """

    table: StepTable
    _kept: dict[tuple[float, ...], Cost] = field(default_factory=dict)

    def decode(self, decodes: int, context: float) -> Cost:
        """Without prompts."""
        return self._cost(0, 1.0, decodes, context)

    def prompt(self, decodes: int, context: float, prompts: int, tokens: int, pairs: float) -> Cost:
        """A prompt's tokens see half of it on average."""
        return self._cost(tokens, 2.0 * pairs / tokens, decodes, context)

    def _cost(self, tokens: int, length: float, decodes: int, context: float) -> Cost:
        # Nearer than 1 % in context and length is nothing that an iteration's time would show.
        near = (round(50 * np.log(max(length, 1.0))), round(50 * np.log(max(context, 1.0))))
        key = (tokens, decodes, *near)
        if key not in self._kept:
            made = self.table.iteration(
                IterationWork.of(tokens, max(length, 1.0), decodes, max(context, 1.0))
            )
            held = self.table.limited_seconds(made, self.table.default_limit_watts)
            self._kept[key] = (
                float(held[0]), float(made.joules[0]), float(made.clock_seconds[0])
            )  # fmt: skip
        return self._kept[key]


def run(options: Options) -> Result:
    """All cases at all loads; ``--quick`` one case and fewer requests."""
    rows = []
    given = given_scenario(NAME, options, READS)
    cases = list(CASES) if given is None else given_cases(given)
    for number, case in enumerate(cases[: len(QUICK_CASES)] if options.quick else cases):
        for load in LOADS:
            found = compare(case, load, REQUESTS[options.quick], (options.seed, number))
            rows.append((f"{case.name}_{load:g}", found))
            options.progress(f"{rows[-1][0]}: {found}")
    made = summary(rows)
    plant = frozen_plant() if given is None else given.scenario.plant
    told = {"plant_sha256": plant_sha256(plant), **(given.figures() if given else {})}
    return Result({**made.figures, **told}, made.targets)


def given_cases(given: Given) -> list[Case]:
    """Somebody's services.

    Raises:
        InputError: where there is none, or its step times are not known.
    """
    scenario, cases = given.scenario, []
    for model in {profile.model: profile for profile in given.profiles()}:
        for one in scenario.services:
            try:
                shipped_step_tables().find(model, one.language_model, one.tensor_parallel)
            except InputError as error:
                key = "services[].language_model"
                raise given.wrong(key, error.expected, one.language_model) from error
            batching = Batching(one.max_batch, one.prefill_chunk_tokens)
            case = Case(model, one.language_model, one.tensor_parallel, one.trace, batching)
            cases.append(replace(case, step_seconds=scenario.step_seconds, called=one.name))
    if not cases:
        raise given.wrong("services", "a service", [])
    return cases


def summary(rows: Sequence[tuple[str, Mapping[str, float]]]) -> Result:
    """Figures of all cells: their names and what ``compare`` found."""
    figures: dict[str, float | int | str] = {"cells": len(rows)}
    errors: dict[str, list[float]] = defaultdict(list)
    for cell, found in rows:
        figures |= {f"{cell}_{name}": round(value, 5) for name, value in found.items()}
        for name, value in found.items():
            if name.endswith("_error"):
                errors[name].append(abs(value))
    for name, values in errors.items():
        figures[f"{name}_median"] = round(float(np.median(values)), 4)
        figures[f"{name}_worst"] = round(max(values), 4)
    return Result(figures, {f"{name}_worst": Target(at_most=LINE) for name in errors})


def compare(case: Case, load: float, count: int, seed: tuple[int, int]) -> dict[str, float]:
    """Latencies of both sides and the twin's signed relative errors, by form."""
    table = shipped_step_tables().find(case.gpu, case.language_model, case.tensor_parallel)
    number_format: NumberFormat = "fp8" if table.precision == "fp8" else "bf16"
    deployment = Deployment(
        find_language_model(case.language_model), case.gpu, case.tensor_parallel,
        number_format, "bf16",
    )  # fmt: skip
    sizes = lengths(case, count, seed)
    clocks: Mapping[str, IterationClock] = {
        "costs": TableClock(table),
        "engine": deployment.clock(),
    }
    rate = load * most_requests_per_second(clocks["costs"], sizes, case.batching)
    gaps = np.random.default_rng((*seed, 1)).exponential(1.0 / rate, count)
    requests = Requests(np.cumsum(gaps), *sizes.T.astype(np.float64))
    made = {"requests_per_second": rate}
    played = {
        "costs": capacity_latencies(clocks["costs"], requests, case.batching),
        "engine": capacity_latencies(
            clocks["engine"], requests, case.batching, deployment.governor()
        ),
    }
    for name, values in played.items():
        made |= {f"{name}_{kind}": value for kind, value in zip(KINDS, values, strict=True)}
    fine = float(table.iteration(IterationWork.of(FINE_TOKENS, FINE_TOKENS, 0, 1)).seconds[0])
    for which, step in (("twin", case.step_seconds), ("fine", fine)):
        twin = twin_latencies(table, requests, step, case.batching)
        made |= {f"{which}_{kind}": value for kind, value in zip(KINDS, twin, strict=True)}
        for name, values in played.items():
            for kind, own, other in zip(KINDS, twin, values, strict=True):
                made[f"{which}_over_{name}_{kind}_error"] = own / other - 1.0
    return made


def lengths(case: Case, count: int, seed: tuple[int, int]) -> np.ndarray:
    """Prompt and output tokens of each request, at least two of an answer, shape (count, 2)."""
    if not isinstance(case.lengths, str):
        return np.tile(np.array(case.lengths), (count, 1))
    trace = shipped_trace("code" if case.lengths == "code" else "conversation")
    drawn = np.random.default_rng((*seed, 0)).integers(len(trace.prompt_tokens), size=count)
    both = np.stack([trace.prompt_tokens[drawn], trace.output_tokens[drawn]], axis=1)
    return np.maximum(both, (1, 2)).astype(np.int64)


def most_requests_per_second(clock: IterationClock, sizes: np.ndarray, batching: Batching) -> float:
    """What capacity's side serves with every place taken."""
    work = ClosedLoop(batching.max_batch, [Size(int(p), int(o)) for p, o in sizes])
    run = simulate(work, clock, _rules(batching), UNBOUNDED_CACHE)
    ends = np.sort([request.last for request in run.requests])
    first, last = len(ends) // 4, 3 * len(ends) // 4
    return float((last - first) / (ends[last] - ends[first]))


def capacity_latencies(
    clock: IterationClock,
    requests: Requests,
    batching: Batching,
    limit: BoardLimit | None = None,
) -> tuple[float, ...]:
    """By ``KINDS``, seconds."""
    sizes = [
        Size(int(p), int(o))
        for p, o in zip(requests.prompt_tokens, requests.output_tokens, strict=True)
    ]
    work = OpenLoop(requests.arrival_seconds.tolist(), sizes)
    ended = simulate(work, clock, _rules(batching), UNBOUNDED_CACHE, limit=limit).requests
    first = int(SETTLING * len(sizes))
    counted = [one for one in ended if one.number >= first]
    return _quantiles(
        np.array([one.ttft for one in counted]), np.array([one.tpot for one in counted])
    )


def twin_latencies(
    table: StepTable, requests: Requests, step_seconds: float, batching: Batching
) -> tuple[float, ...]:
    """The same of the twin's queues; time goes on until all have ended."""
    seconds = float(requests.arrival_seconds[-1]) + _drain_seconds(requests)
    run = play(table, requests, seconds, batching, step_seconds)
    counted = run.number >= int(SETTLING * len(requests))
    return _quantiles(run.first_token_seconds[counted], run.per_token_seconds[counted])


def _drain_seconds(requests: Requests) -> float:
    """For the last answers: as if each token took 0.05 s."""
    return 5.0 + 0.05 * float(requests.output_tokens.max())


def _quantiles(first: Floats, per_token: Floats) -> tuple[float, ...]:
    p50, p99 = np.percentile(first, [50, 99])
    each, slow = np.nanpercentile(per_token, [50, 99])
    return float(p50), float(p99), float(each), float(slow)


def _rules(batching: Batching) -> BatchingRules:
    return BatchingRules(
        batching.chunk_tokens, chunked=True, largest_batch=batching.max_batch, admission="whole"
    )
