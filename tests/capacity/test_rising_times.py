"""Times do not fall as batch, context or tokens grow: of whole steps on own rows, and the rule."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capacity.bench.shipped_rows import WHOLE_RUNS, shipped_rows
from capacity.kernels import Attention, DecoderStep, Gemm, Kernel, Phase
from capacity.model.gpu_model import GpuModel
from capacity.model.rising_times import SIZES, rising_log_seconds

GPUS = sorted(WHOLE_RUNS)


@lru_cache(maxsize=2)
def model_of(gpu: str) -> GpuModel:
    return GpuModel.from_rows(shipped_rows(WHOLE_RUNS[gpu]))


def step_seconds(gpu: str, phase: Phase, batch: int, tokens: int, context: int, tp: int) -> float:
    """One GPU's share of an 8B decoder at full clock."""
    step = DecoderStep(
        phase, batch, tokens, context, 32, 4096, 32 // tp, 8 // tp, 128, 14336 // tp, 128256 // tp
    )
    return model_of(gpu).step(step).uncapped_seconds


@pytest.mark.parametrize("gpu", GPUS)
@settings(max_examples=30)
@given(
    st.integers(1, 511), st.integers(1, 512), st.integers(64, 8192), st.integers(1, 8192),
    st.sampled_from([1, 2, 8]),
)  # fmt: skip
@example(4, 12, 512, 1, 1)
@example(8, 39, 2048, 1, 1)
def test_a_decode_step_takes_no_less_for_more(
    gpu: str, batch: int, more: int, context: int, longer: int, tp: int
) -> None:
    base = step_seconds(gpu, "decode", batch, 1, context, tp)
    assert step_seconds(gpu, "decode", batch + more, 1, context, tp) >= base
    assert step_seconds(gpu, "decode", batch, 1, context + longer, tp) >= base


@pytest.mark.parametrize("gpu", GPUS)
@settings(max_examples=30)
@given(st.integers(1, 16384), st.integers(1, 16384), st.sampled_from([1, 2, 8]))
@example(128, 1, 1)
def test_a_prefill_step_takes_no_less_for_more_tokens(
    gpu: str, tokens: int, more: int, tp: int
) -> None:
    base = step_seconds(gpu, "prefill", 1, tokens, tokens, tp)
    assert step_seconds(gpu, "prefill", 1, tokens + more, tokens + more, tp) >= base


def line_with_a_dip(kernel: Kernel) -> float:
    """Rises with the size but for a dip between 20 and 40."""
    assert isinstance(kernel, Gemm | Attention)
    size = kernel.m if isinstance(kernel, Gemm) else kernel.kv_tokens
    return 0.1 * float(np.log(size)) - 0.05 * (20 <= size < 40)


def ask(kernels: list[Kernel]) -> np.ndarray:
    return np.array([line_with_a_dip(kernel) for kernel in kernels])


def test_where_times_rise_they_stay_and_a_dip_is_pooled_with_what_lies_around() -> None:
    sizes = [1, 7, 19, 20, 30, 39, 64, 5000, SIZES[-1], 2 * SIZES[-1]]
    products = [Gemm(size, 512, 256) for size in sizes]
    made = rising_log_seconds(products, ask)
    assert (np.diff(made) >= 0).all()
    np.testing.assert_allclose(made[[0, 6, 7, 8, 9]], ask(products)[[0, 6, 7, 8, 9]], atol=1e-9)
    before, dip = sizes.index(19), sizes.index(20)
    assert made[before] < ask(products)[before]
    assert made[dip] > ask(products)[dip]


def test_several_new_tokens_of_a_decode_see_at_least_themselves() -> None:
    kernels = [Attention("decode", 1, 4, keys, 8, 8) for keys in (4, 5, 100)]
    np.testing.assert_allclose(rising_log_seconds(kernels, ask), ask(kernels), atol=1e-3)


def test_a_kernel_s_time_does_not_depend_on_what_is_asked_beside_it() -> None:
    kernels = [Gemm(4, 512, 256), Gemm(25, 1024, 256), Attention("decode", 1, 1, 30, 8, 8)]
    together = rising_log_seconds(kernels, ask)
    alone = [rising_log_seconds([kernel], ask)[0] for kernel in kernels]
    assert together.tolist() == alone
