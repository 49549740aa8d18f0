"""The judge of workload_classes scores every recorded step, near the ridge on either side."""

from __future__ import annotations

import pytest

from benchmarks.workload_classes import _recorded, side_of_ridge
from capacity.bench.shipped_rows import shipped_rows
from capacity.kernels import DecoderStep


@pytest.mark.parametrize(
    ("ratio", "side"),
    [(0.1, "bandwidth"), (0.69, "bandwidth"), (0.71, "either"), (1.29, "either"), (2, "compute")],
)
def test_operations_a_byte_say_which_roof_binds(ratio: float, side: str) -> None:
    assert side_of_ridge(ratio) == side


def test_no_recorded_step_with_a_draw_is_left_out() -> None:
    rows = [row for name in ("h200-steps", "h100-steps") for row in shipped_rows(name)]
    drawn = [row for row in rows if isinstance(row.kernel, DecoderStep) and row.power is not None]
    assert len(list(_recorded())) == len(drawn)
