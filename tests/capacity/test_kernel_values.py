"""Kernels count what a person counts by hand, and refuse sizes that mean nothing."""

from __future__ import annotations

import pytest

from capacity.kernels import (
    Attention,
    Collective,
    DecoderStep,
    Elementwise,
    Gemm,
    Idle,
    Kernel,
    LaunchChain,
    MemoryStream,
    kernel_from_shape,
    kernel_shape,
)
from wattpack.errors import InputError

SMALL_STEP = DecoderStep("decode", 2, 1, 5, 3, 8, 4, 2, 2, 16, 10)

BY_HAND: list[tuple[Kernel, float, float]] = [
    # 2*3*5*7 operations; x 3*7, w 5*7, y 3*5 elements of 2 bytes
    (Gemm(3, 5, 7), 210, 2 * (21 + 35 + 15)),
    # 8-bit operands, 16-bit result
    (Gemm(3, 5, 7, "fp8"), 210, 21 + 35 + 2 * 15),
    (Gemm(3, 5, 7, "fp32"), 210, 4 * (21 + 35 + 15)),
    # 4 queries see 1, 2, 3, 4 keys: 10 pairs, 2 heads of 2 numbers, two products
    (Attention("prefill", 1, 4, 4, 2, 1, 2), 4 * 2 * 2 * 10, 2 * (2 * 4 * 2 * 2 + 2 * 4 * 1 * 2)),
    # the same, each sees at most 2: 1, 2, 2, 2
    (
        Attention("prefill", 1, 4, 4, 2, 1, 2, "window", 2),
        4 * 2 * 2 * 7,
        2 * (2 * 4 * 2 * 2 + 2 * 4 * 1 * 2),
    ),
    # two documents of two tokens: 1, 2 and 1, 2
    (
        Attention("prefill", 1, 4, 4, 2, 1, 2, "document", 0, 2),
        4 * 2 * 2 * 6,
        2 * (2 * 4 * 2 * 2 + 2 * 4 * 1 * 2),
    ),
    # one query each of 3 sequences over 5 keys
    (Attention("decode", 3, 1, 5, 2, 1, 2), 4 * 3 * 2 * 2 * 5, 2 * (2 * 3 * 2 * 2 + 2 * 3 * 5 * 2)),
    (Attention("prefill", 1, 2, 6, 1, 1, 1, "full"), 4 * 12, 2 * (2 * 2 + 2 * 6)),
    (MemoryStream("copy", 100), 0, 200),
    (MemoryStream("triad", 100), 0, 300),
    (MemoryStream("read", 100), 0, 100),
    # two arrays of 3 x 5 in and two out; one and one; two and one
    (Elementwise("norm", 3, 5), 0, 2 * 4 * 15),
    (Elementwise("rotate", 3, 5), 0, 2 * 2 * 15),
    (Elementwise("gate", 3, 5), 0, 2 * 3 * 15),
    (Idle("none"), 0, 0),
    (LaunchChain(20, "graph"), 0, 0),
    # bus bytes of nccl-tests for 4 GPUs that hold 100 bytes each
    (Collective("all_reduce", 100, 4), 0, 150),
    (Collective("reduce_scatter", 100, 4), 0, 75),
    (Collective("all_to_all", 100, 4), 0, 75),
    (Collective("all_gather", 100, 4), 0, 300),
    (Collective("send_recv", 100, 4), 0, 100),
]


@pytest.mark.parametrize(("kernel", "flops", "moved"), BY_HAND, ids=str)
def test_counts_are_those_made_by_hand(kernel: Kernel, flops: float, moved: float) -> None:
    assert kernel.flops == flops
    assert kernel.bytes_moved == moved


@pytest.mark.parametrize("kernel", [*(case[0] for case in BY_HAND), SMALL_STEP], ids=str)
def test_a_kernel_can_be_built_again_from_its_shape(kernel: Kernel) -> None:
    assert kernel_from_shape(kernel.kernel_class, kernel_shape(kernel)) == kernel


def test_a_step_is_the_sum_of_its_kernels() -> None:
    mix = dict(SMALL_STEP.kernel_mix())
    assert mix[Gemm(2, 16, 8)] == 3  # queries, keys and values: (4 + 2*2) heads of 2
    assert mix[Gemm(2, 32, 8)] == 3  # both halves of the gated layer
    assert mix[Gemm(2, 10, 8)] == 1  # logits of one token a sequence
    assert mix[Elementwise("norm", 2, 8)] == 2 * 3
    assert mix[Elementwise("rotate", 2, 16)] == 3
    assert mix[Elementwise("gate", 2, 16)] == 3
    assert sum(n * k.flops for k, n in SMALL_STEP.kernel_mix()) == SMALL_STEP.flops


def test_weights_and_cache_of_a_step_are_those_counted_by_hand() -> None:
    layer = 8 * 16 + 8 * 8 + 3 * 8 * 16
    assert SMALL_STEP.weight_bytes == 2 * (3 * layer + 10 * 8)
    assert SMALL_STEP.cache_bytes == 2 * 3 * (2 * 5) * 2 * 2 * 2


@pytest.mark.parametrize(
    ("kernel_class", "shape", "field"),
    [
        ("gemm", {"m": 0, "n": 1, "k": 1, "number_format": "bf16"}, "m"),
        ("gemm", {"m": 1.5, "n": 1, "k": 1, "number_format": "bf16"}, "m"),
        ("gemm", {"m": True, "n": 1, "k": 1, "number_format": "bf16"}, "m"),
        ("gemm", {"m": float("nan"), "n": 1, "k": 1, "number_format": "bf16"}, "m"),
        ("gemm", {"m": 1, "n": 1, "k": 1, "number_format": "int3"}, "number_format"),
        ("gemm", {"m": 1, "n": 1, "number_format": "bf16"}, "shape.k"),
        ("gemm", {"m": 1, "n": 1, "k": 1, "z": 1, "number_format": "bf16"}, "shape.z"),
        ("gemm", [], "shape"),
        ("magic", {}, "kernel_class"),
        ("collective", {"op": "all_reduce", "message_bytes": 8, "gpus": 1}, "gpus"),
        ("step_prefill", kernel_shape(SMALL_STEP), "kernel_class"),
    ],
)
def test_a_shape_that_means_nothing_is_refused_by_its_field(
    kernel_class: str, shape: object, field: str
) -> None:
    with pytest.raises(InputError) as refused:
        kernel_from_shape(kernel_class, shape)
    assert refused.value.field == field


def test_attention_refuses_heads_that_do_not_share_and_masks_without_their_size() -> None:
    for arguments in (
        {"heads": 5, "kv_heads": 2},
        {"mask": "window"},
        {"window": 4},
        {"query_tokens": 9},
        {"mask": "document", "query_tokens": 4},
    ):
        sizes = {"batch": 1, "query_tokens": 8, "kv_tokens": 8, "heads": 4, "kv_heads": 2}
        with pytest.raises(InputError):
            Attention("prefill", **{**sizes, **arguments})  # type: ignore[arg-type]
