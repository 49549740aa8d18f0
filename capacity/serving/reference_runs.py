"""Public end-to-end runs and how each was measured, in ``capacity/reference/serving``.

The table names model, GPUs, lengths and concurrency; the rest is in the measuring scripts, and it
decides the latencies as much as the GPU does:

inferencemax
    Lengths uniform in 80 to 100 % of the nominal ones, all clients start at once, ten requests a
    client, means over all. TensorRT-LLM streams every tenth token and, for 1k/1k below 8 GPUs,
    lets prompts wait up to 20 iterations for company; cache in 8 bits; no reuse of prefixes.
genai-perf
    Fixed lengths, ten requests a client after a warm-up, all prompts different. Clients of one
    length stay in step: their prompts queue behind one another in every round.
aiperf
    Fixed lengths, 100 different prompts (the tool's default) used again and again: from the 101st
    request on the engine finds nearly all of a prompt in its prefix cache.
sglang
    As genai-perf; one model only, so it is printed and never scored.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Final, Literal

import numpy as np

from capacity.kernels import NumberFormat
from capacity.language_models import find_language_model
from capacity.serving.deployment import Deployment
from capacity.serving.engine import RULES, BatchingRules, Engine, EngineConstants
from capacity.serving.served_requests import ClosedLoop, Size

RUNS_FILE: Final = "reference/serving/aic_fp8_dense.csv.gz"

Protocol = Literal["inferencemax", "genai-perf", "aiperf", "sglang"]

REQUESTS_A_CLIENT: Final = 10
DIFFERENT_PROMPTS: Final = 100
CACHE_BLOCK: Final = 16
"""Tokens; the last, unfilled block of a prompt is computed again."""

PROMPT_MARGIN: Final = 1500
"""Tokens of the budget beyond one prompt in the genai-perf runs: two short prompts fit, two long
ones do not. Assumed: the table does not tell it."""


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """One measured point, means over its requests."""

    engine: str
    language_model: str
    gpu: str
    tensor_parallel: int
    prompt_tokens: int
    output_tokens: int
    concurrency: int
    protocol: Protocol
    ttft_seconds: float
    tpot_seconds: float

    def deployment(self, constants: EngineConstants) -> Deployment:
        """What was measured, with these constants."""
        cache: NumberFormat = "fp8" if self.protocol in ("inferencemax", "genai-perf") else "bf16"
        return Deployment(
            model=find_language_model(self.language_model),
            gpu=self.gpu,
            tensor_parallel=self.tensor_parallel,
            cache_format=cache,
            engine=Engine(self.engine, self.rules, constants),
        )

    @property
    def rules(self) -> BatchingRules:
        """How the server batched."""
        known = RULES.get(self.engine, RULES["vllm"])
        if self.engine == "trtllm":
            if self.protocol != "inferencemax":
                budget = self.prompt_tokens + PROMPT_MARGIN
                return replace(known, token_budget=budget, largest_batch=self.concurrency)
            waits = self.prompt_tokens == self.output_tokens == 1024 and self.tensor_parallel < 8
            return replace(
                known,
                token_budget=16384,
                largest_batch=1024,
                stream_interval=10,
                wait_iterations=20 if waits else 0,
                wait_fill=0.9 if waits else 0.0,
            )
        ahead = self.protocol == "inferencemax"
        return replace(known, largest_batch=self.concurrency, scheduled_ahead=ahead)

    @property
    def work(self) -> ClosedLoop:
        """What the clients sent."""
        count = REQUESTS_A_CLIENT * self.concurrency
        return ClosedLoop(self.concurrency, tuple(self._size(i) for i in range(count)))

    def _size(self, index: int) -> Size:
        prompt, output = self.prompt_tokens, self.output_tokens
        if self.protocol == "inferencemax":
            draw = _draws(REQUESTS_A_CLIENT * self.concurrency)
            shares = 0.8 + 0.2 * draw[index]
            return Size(round(prompt * shares[0]), round(output * shares[1]))
        if self.protocol == "aiperf" and index >= DIFFERENT_PROMPTS:
            return Size(prompt, output, prompt - CACHE_BLOCK)
        return Size(prompt, output)


@lru_cache(maxsize=64)
def _draws(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.random.default_rng(0).uniform(size=(count, 2))


@lru_cache(maxsize=1)
def reference_runs() -> tuple[ReferenceRun, ...]:
    """All 559 runs of dense models in 8 bits."""
    text = gzip.decompress(files("capacity").joinpath(RUNS_FILE).read_bytes()).decode()
    return tuple(_run(row) for row in csv.DictReader(text.splitlines()))


def scored_runs() -> tuple[ReferenceRun, ...]:
    """Those of engines with at least two models."""
    runs = reference_runs()
    models: dict[str, set[str]] = {}
    for run in runs:
        models.setdefault(run.engine, set()).add(run.language_model)
    return tuple(run for run in runs if len(models[run.engine]) > 1)


def _run(row: Mapping[str, str]) -> ReferenceRun:
    return ReferenceRun(
        engine=row["engine"],
        language_model=row["language_model"],
        gpu=row["gpu"],
        tensor_parallel=int(row["tensor_parallel"]),
        prompt_tokens=int(row["prompt_tokens"]),
        output_tokens=int(row["output_tokens"]),
        concurrency=int(row["concurrency"]),
        protocol=row["protocol"],  # type: ignore[arg-type]
        ttft_seconds=float(row["ttft_ms"]) / 1e3,
        tpot_seconds=float(row["tpot_ms"]) / 1e3,
    )
