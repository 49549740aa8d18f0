"""Element-wise kernels are told from their own rows; from streams where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.kernels import Elementwise, MemoryStream
from capacity.model.element_times import ElementTimes
from capacity.model.stream_times import StreamTimes
from tests.capacity.kernel_row import kernel_row

STREAMS = StreamTimes.from_rows(
    kernel_row(MemoryStream("copy", size), seconds, section="bandwidth")
    for size, seconds in {2**14: 1e-6, 2**29: 200e-6}.items()
)
MEASURED = {
    (1, 1024): 2e-6, (64, 1024): 3e-6, (8192, 1024): 40e-6,
    (1, 4096): 3e-6, (64, 4096): 4e-6, (8192, 4096): 160e-6,
}  # fmt: skip


def measured() -> ElementTimes:
    rows = [
        kernel_row(Elementwise("norm", *size), seconds, section="elementwise")
        for size, seconds in MEASURED.items()
    ]
    return ElementTimes.from_rows(rows, STREAMS)


def norm_seconds(tokens: int, width: int) -> float:
    return float(measured().seconds_of([Elementwise("norm", tokens, width)])[0])


def test_measured_sizes_are_told_as_measured() -> None:
    made = [norm_seconds(*size) for size in MEASURED]
    assert made == pytest.approx(list(MEASURED.values()))


def test_a_size_between_two_is_their_geometric_mean() -> None:
    assert norm_seconds(8, 1024) == pytest.approx((2e-6 * 3e-6) ** 0.5)
    assert norm_seconds(1, 2048) == pytest.approx((2e-6 * 3e-6) ** 0.5)


def test_beyond_the_largest_time_grows_with_the_bytes() -> None:
    assert norm_seconds(16384, 1024) == pytest.approx(80e-6)
    assert norm_seconds(8192, 16384) == pytest.approx(640e-6)
    assert norm_seconds(32, 2 * 4096) == pytest.approx(norm_seconds(64, 4096))
    assert norm_seconds(1, 256) == pytest.approx(2e-6)


def test_an_operation_without_rows_is_a_stream_of_its_bytes() -> None:
    gate = Elementwise("gate", 2048, 4096)
    stream = MemoryStream("read", int(gate.bytes_moved))
    assert measured().seconds_of([gate]) == pytest.approx(STREAMS.seconds_of([stream]))
    assert np.isfinite(ElementTimes.from_rows([], STREAMS).seconds_of([gate])).all()


def test_a_row_that_is_not_believed_teaches_nothing() -> None:
    kernel = Elementwise("norm", 1, 1024)
    rows = [kernel_row(kernel, 1.0, section="elementwise", flags=("above_peak",))]
    assert ElementTimes.from_rows(rows, STREAMS).seconds_of([kernel])[0] < 1e-4
