"""The hold-out that the benchmarks of kernel times share."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from benchmarks._kernel_times import GEMM_GROUP, Split, mape_percent, own_rows, own_split
from capacity.kernels import Gemm
from capacity.model.kernel_samples import TimeSamples
from wattpack.errors import InputError


def table(shapes: list[tuple[int, int, int]]) -> TimeSamples:
    kernels = tuple(Gemm(*shape) for shape in shapes)
    return TimeSamples("H200-SXM", kernels, np.arange(1, len(kernels) + 1) * 1e-6)


def test_a_pair_of_sizes_is_held_out_by_its_hash_in_either_order() -> None:
    sizes = [128 * n for n in range(1, 20)]
    split = Split.of(table([(8, n, k) for n in sizes for k in sizes]), GEMM_GROUP)
    for kernels, held in ((split.train.kernels, False), (split.held.kernels, True)):
        for kernel in kernels:
            assert isinstance(kernel, Gemm)
            text = f"{min(kernel.n, kernel.k)},{max(kernel.n, kernel.k)}"
            assert (int(hashlib.sha256(text.encode()).hexdigest(), 16) % 4 == 0) is held


def test_designed_points_are_training_rows() -> None:
    split = Split.of(table([(m, 128 * n, 512) for m in (1, 64) for n in range(1, 40)]), GEMM_GROUP)
    assert set(split.designed(10).kernels) <= set(split.train.kernels)


def test_errors_are_relative_to_what_was_measured() -> None:
    assert mape_percent(np.array([1.1, 4.0]), np.array([1.0, 2.0])) == pytest.approx(55.0)


def test_a_file_that_is_not_there_is_refused_by_its_flag(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        own_rows(["--measurements", str(tmp_path / "none.jsonl")])
    assert refused.value.field == "--measurements"


def test_too_few_rows_are_refused_instead_of_judged() -> None:
    with pytest.raises(InputError, match="held out"):
        own_split(table([(1, 128, 128)]), GEMM_GROUP, 15)
