"""How many allocations a timed kernel runs over."""

from __future__ import annotations

import pytest

from capacity.bench.operand_copies import MOST_PLACED_BYTES, PLACEMENTS, operand_copies
from capacity.kernels import Attention, Gemm, Kernel, MemoryStream

L2_BYTES = 60 * 2**20
ONE_TOKEN = Gemm(1, 12992, 15680)


def test_a_kernel_that_waits_for_memory_runs_over_eight_allocations() -> None:
    assert operand_copies(ONE_TOKEN, L2_BYTES, "cold") == PLACEMENTS == 8
    assert operand_copies(Attention("decode", 16, 1, 8192, 32, 8, 128), L2_BYTES, "cold") == 8


def test_a_kernel_that_computes_takes_what_misses_the_cache() -> None:
    assert operand_copies(Gemm(8192, 8192, 8192), L2_BYTES, "cold") == 2
    assert operand_copies(Gemm(2048, 4096, 4096), L2_BYTES, "cold") == 3


def test_a_warm_kernel_has_one() -> None:
    assert operand_copies(ONE_TOKEN, L2_BYTES, "warm") == 1


@pytest.mark.parametrize(
    "kernel", [Gemm(1, 256, 256), ONE_TOKEN, Gemm(8, 65536, 65536), MemoryStream("copy", 2**31)]
)
def test_copies_miss_the_cache_and_keep_below_the_room_for_them(kernel: Kernel) -> None:
    copies = operand_copies(kernel, L2_BYTES, "cold")
    missed = copies * kernel.bytes_moved >= 3 * L2_BYTES
    assert missed or copies == 400
    assert copies <= 2 or (copies - 1) * kernel.bytes_moved < max(MOST_PLACED_BYTES, 4 * L2_BYTES)
