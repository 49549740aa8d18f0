"""A deployment's steps beside decode steps of the same boards, measured back to back.

No constant was fitted on the steps. They were run without an engine: kernels alone must come out
right, and what an engine adds in host time must explain how far a deployment's draw lies below.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np
import pytest

from capacity.bench.measurement_row import MeasurementRow, parse_rows
from capacity.kernels import DecoderStep
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
    assert -0.13 <= whole.draw.mean() < kernels.draw.mean()
    assert np.abs(kernels.draw).mean() <= 0.08
