"""What the host takes of an iteration, and where launches one by one would bind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capacity.bench.launch_bound import eager_launch_seconds, transition_batch
from capacity.bench.shipped_rows import WHOLE_RUNS, shipped_rows
from capacity.kernels import DecoderStep
from capacity.language_models import LanguageModel, find_language_model
from capacity.serving import host_share as host_share_module
from capacity.serving.deployment import Deployment
from capacity.serving.engine import Engine, EngineConstants, find_engine
from capacity.serving.host_share import LARGEST_BATCH, host_share, launch_bound

BARE = EngineConstants(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1e-9, 1e-9, 1e-12, 1e-9, 1e-9, 1e-12)
"""Kernels and nothing else."""


def measured_stack(gpu: str) -> tuple[DecoderStep, LanguageModel]:
    """The stack of the rows' transition section as a language model."""
    step = next(
        row.kernel
        for row in shipped_rows(WHOLE_RUNS[gpu])
        if row.section == "transition" and isinstance(row.kernel, DecoderStep)
    )
    shape = {
        name: getattr(step, name)
        for name in (
            "layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocabulary"
        )
    }  # fmt: skip
    return step, replace(find_language_model("llama-3.1-8b"), name="stack", **shape)


@pytest.mark.parametrize("gpu", sorted(WHOLE_RUNS))
def test_the_launch_bound_batch_is_the_measured_one(gpu: str) -> None:
    step, model = measured_stack(gpu)
    bare = Engine("bare", find_engine("vllm").rules, BARE)
    made = launch_bound(Deployment(model, gpu, 1, "bf16", "bf16", bare), step.kv_tokens)
    rows = shipped_rows(WHOLE_RUNS[gpu])
    measured = transition_batch(rows)
    assert measured is not None
    assert made.measured_on == gpu
    if measured == float("inf"):
        largest = max(row.kernel.batch for row in rows if isinstance(row.kernel, DecoderStep))
        assert made.batch >= largest
    else:
        assert made.batch == pytest.approx(measured, rel=0.15)


def test_large_models_hide_their_launches_and_types_without_rows_borrow_a_host() -> None:
    large = Deployment(find_language_model("llama-3.1-70b"), "H200-SXM", 1)
    small = Deployment(find_language_model("llama-3.1-8b"), "H200-SXM", 1)
    assert launch_bound(large, 1024).batch < launch_bound(small, 1024).batch < LARGEST_BATCH
    measured_on, seconds = host_share_module._launch_seconds("B200-SXM")
    assert measured_on == "H200-SXM"
    assert 1e-5 < seconds < 1e-4


def test_the_hosts_share_grows_with_the_sequences_that_it_streams() -> None:
    one = Deployment(find_language_model("llama-3.1-8b"), "H200-SXM", 1)
    small, large = host_share(one, 1, 1024), host_share(one, 128, 1024)
    assert 0 < small.share < large.share < 1
    without = replace(one, engine=Engine("bare", one.engine.rules, BARE))
    assert host_share(without, 128, 1024).share < 0.001


def test_rows_without_a_transition_tell_no_launch() -> None:
    rows = [row for row in shipped_rows(WHOLE_RUNS["H200-SXM"]) if row.section != "transition"]
    assert eager_launch_seconds(rows) is None
