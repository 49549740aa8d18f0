"""A deployment's steps beside decode steps of the same boards, measured back to back.

No constant was fitted on the steps. They were run without an engine: kernels alone must come out
right, and what an engine adds in host time must explain how far a deployment's draw lies below.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Final

import numpy as np
import pytest

from capacity.bench.measurement_row import MeasurementRow, parse_rows
from capacity.kernels import DecoderStep, NumberFormat
from capacity.language_models import find_language_model
from capacity.serving.deployment import Deployment
from capacity.serving.engine import EngineConstants, find_engine, shipped_constants

LLAMA = find_language_model("llama-3.1-8b")
NO_HOST = {"layer_seconds": 0.0, "step_seconds": 0.0, "sequence_seconds": 0.0}
RUNS = [("H200-SXM", "h200-steps", 19), ("H100-SXM", "h100-steps", 17)]


@dataclass(frozen=True, slots=True)
class Errors:
    """Predicted over measured less 1, arrays of shape (n_steps,)."""

    draw: np.ndarray
    seconds: np.ndarray


def steps_of(run: str) -> list[tuple[MeasurementRow, DecoderStep]]:
    """Measured decode steps of the whole 8B model."""
    packed = files("capacity").joinpath("data", "profiles", f"{run}.jsonl.gz").read_bytes()
    rows = parse_rows(gzip.decompress(packed).decode().splitlines(), run)
    return [
        (row, row.kernel)
        for row in rows
        if isinstance(row.kernel, DecoderStep)
        and row.kernel.phase == "decode"
        and (row.kernel.layers, row.kernel.hidden) == (LLAMA.layers, LLAMA.hidden)
        and row.power is not None
    ]


def errors(gpu: str, run: str, constants: EngineConstants) -> Errors:
    engine = replace(find_engine("vllm"), constants=constants)
    draw, seconds = [], []
    for row, step in steps_of(run):
        assert row.power is not None
        limit = row.identity.power_limit_watts
        served = Deployment(LLAMA, gpu, 1, "bf16", "bf16", engine, limit)
        made = served.step(0, step.batch, step.kv_tokens)
        draw.append(made.mean_watts / row.power.mean_watts - 1)
        seconds.append(made.seconds / row.power.sustained_seconds - 1)
    return Errors(np.array(draw), np.array(seconds))


@pytest.mark.parametrize(("gpu", "run", "count"), RUNS)
def test_kernels_of_a_step_draw_and_take_what_was_measured(gpu: str, run: str, count: int) -> None:
    found = errors(gpu, run, EngineConstants(**NO_HOST))
    assert len(found.draw) == count
    assert np.abs(found.draw).mean() <= 0.04
    assert np.abs(found.seconds).mean() <= 0.05


@pytest.mark.parametrize(("gpu", "run", "count"), RUNS)
def test_an_engines_host_time_is_what_draws_less(gpu: str, run: str, count: int) -> None:
    """The bias that docs/serving-model.md states: it must not grow, and not be kernels'."""
    whole = errors(gpu, run, shipped_constants())
    kernels = errors(gpu, run, replace(shipped_constants(), **NO_HOST))
    assert len(whole.draw) == count
    assert -0.14 <= whole.draw.mean() < kernels.draw.mean()
    assert np.abs(kernels.draw).mean() <= 0.08


@pytest.mark.parametrize("number_format", ["bf16", "fp16"])
def test_what_8_bit_products_lose_does_not_slow_16_bit_ones(number_format: NumberFormat) -> None:
    """The factor on products holds what 8-bit kernels take over half a 16-bit product."""
    shipped = shipped_constants()
    slower = replace(shipped, decode_products=2.0, prompt_products=2.0)

    def seconds(constants: EngineConstants, number: NumberFormat, prompt: int) -> float:
        engine = replace(find_engine("vllm"), constants=constants)
        served = Deployment(LLAMA, "H200-SXM", 1, number, "bf16", engine)
        return served.step(prompt, 0 if prompt else 16, 1024).uncapped_seconds

    for prompt in (0, 4096):
        plain = seconds(shipped, number_format, prompt)
        assert seconds(slower, number_format, prompt) == plain
        assert seconds(slower, "fp8", prompt) > 1.3 * seconds(shipped, "fp8", prompt)


STEADY: Final = 1.2
"""Batch over time per token, over the tokens a second of the whole run: above, part of it ran with
fewer requests, and its mean draw is not that of the batch."""

PROMPT_TOKENS: Final = 161
"""Mean of ShareGPT's chats (vLLM, arXiv 2309.06180, figure 11); the file does not tell it. From
half to twice of it the mean error below is 5 to 8 %."""


def served_with_watts() -> Iterator[tuple[Deployment, float, float, float, float]]:
    """H100 runs of an engine: deployment, batch, answer's tokens, seconds a token, watts a GPU."""
    packed = files("capacity").joinpath("reference", "mlenergy_v2_llm.csv.gz").read_bytes()
    names = {"meta-llama/Meta-Llama-3.1-8B-Instruct": "llama-3.1-8b",
             "meta-llama/Meta-Llama-3.1-70B-Instruct": "llama-3.1-70b"}  # fmt: skip
    kernels = EngineConstants(**NO_HOST, launch_layer_seconds=0.0)
    engine = replace(find_engine("vllm"), constants=kernels)
    for row in csv.DictReader(gzip.decompress(packed).decode().splitlines()):
        batch, seconds = float(row["avg_batch"]), float(row["avg_tpot_s"])
        together = batch / seconds / float(row["token_throughput_tok_s"])
        if "H100" in row["gpu"] and row["model"] in names and together <= STEADY:
            model = find_language_model(names[row["model"]])
            served = Deployment(model, "H100-SXM", int(row["tp"]), "bf16", "bf16", engine)
            watts = float(row["derived_avg_power_per_gpu_w"])
            yield served, batch, float(row["avg_output_tokens"]), seconds, watts


def test_time_beyond_kernels_is_drawn_at_the_watts_between_kernels() -> None:
    """An engine's measured time per token and the kernels alone tell its draw.

    Its GPUs are busy for a fifth to a third of the time, so a wrong draw of the rest would show.
    """
    errors, busy = [], []
    for served, batch, answer, seconds, watts in served_with_watts():
        prompts = round(batch * PROMPT_TOKENS / answer)
        step = served.step(prompts, round(batch), PROMPT_TOKENS + answer / 2)
        rest = seconds - step.uncapped_seconds
        joules = step.uncapped_seconds * step.uncapped_watts + rest * served.prices.gap_watts
        errors.append(joules / seconds / watts - 1)
        busy.append(step.uncapped_seconds / seconds)
    assert len(errors) == 8
    assert max(busy) < 0.35
    assert np.abs(errors).mean() <= 0.07
    assert np.abs(errors).max() <= 0.13
