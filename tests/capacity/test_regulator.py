"""What a board's own throttled rows say of its limit."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.kernels import Gemm
from capacity.model.regulator import Regulator, burst_was_free
from capacity.roofs import require_roofs
from tests.capacity.kernel_row import LIMIT_WATTS, kernel_row

ROOFS = require_roofs("NVIDIA H200")


def clocked(uncapped_watts: float, memory_seconds: float, compute_seconds: float) -> float:
    """An independent board: dynamic power goes with the cube of the clock, memory keeps its own."""
    static = 150.0
    if uncapped_watts <= LIMIT_WATTS:
        return 1.0
    clock = ((LIMIT_WATTS - static) / (uncapped_watts - static)) ** (1 / 3)
    free = max(memory_seconds, compute_seconds)
    return max(memory_seconds, compute_seconds / clock) / free


def test_the_response_of_a_simulated_board_is_learned_within_two_percent() -> None:
    rows, uncapped, truth = [], [], []
    for m in (16, 64, 128, 256, 512, 1024, 2048, 4096):
        for n in (1024, 2048, 4096, 8192):
            gemm = Gemm(m, n, 4096)
            memory = gemm.bytes_moved / ROOFS.bytes_per_second
            compute = gemm.flops / 7e14
            seconds = max(memory, compute)
            watts = 200 + 600 * compute / seconds + 300 * memory / seconds
            stretch = clocked(watts, memory, compute)
            row = kernel_row(
                gemm, seconds, draw_watts=min(watts, LIMIT_WATTS),
                sustained_seconds=seconds * stretch, throttled=watts > LIMIT_WATTS,
            )  # fmt: skip
            rows.append(row)
            uncapped.append(watts)
            truth.append(stretch)
    assert max(truth) > 1.1
    learned = Regulator.from_rows(rows, np.array(uncapped), ROOFS)
    seconds = np.array([row.latency.median_seconds for row in rows])
    memory_share = np.array([row.kernel.bytes_moved for row in rows]) / seconds
    memory_share /= ROOFS.bytes_per_second
    made = learned.stretch(np.array(uncapped), memory_share, LIMIT_WATTS)
    assert np.abs(made / np.array(truth) - 1).mean() < 0.02
    assert np.all(made[np.array(uncapped) <= LIMIT_WATTS] == pytest.approx(1.0))


def test_small_excesses_that_look_convex_are_not_drawn_out_to_low_caps() -> None:
    """A noisy run's throttled rows asked for depth ~ excess ** 1.5: 39 % of the speed at 300 W."""
    excesses = np.linspace(0.02, 0.25, 12)
    uncapped = LIMIT_WATTS * (1 + excesses)
    rows = [
        kernel_row(
            Gemm(4096, 4096, 4096 + i), 4e-4, draw_watts=LIMIT_WATTS, throttled=True,
            sustained_seconds=4e-4 * (1 + 0.8 * excess**1.5),
        )
        for i, excess in enumerate(excesses.tolist())
    ]  # fmt: skip
    learned = Regulator.from_rows(rows, uncapped, ROOFS)
    assert learned.bend <= 1.0
    assert 1 / (1 + float(learned.depth(900.0, 300.0))) > 0.5


def test_a_board_that_was_never_throttled_gets_the_common_response() -> None:
    row = kernel_row(Gemm(1, 512, 512), 3e-6, draw_watts=160.0)
    made = Regulator.from_rows([row], np.array([160.0]), ROOFS)
    assert made.depth(160.0, 700.0) == 0
    assert 1.1 < 1 + made.depth(1100.0, 700.0) < 1.4


@pytest.mark.parametrize(
    ("seconds", "p10_seconds", "throttled", "free"),
    [
        (600e-6, 600e-6, True, True),
        (3e-3, 3e-3, True, False),
        (3e-3, 3e-3, False, True),
        (700e-6, 640e-6, True, False),
    ],
)
def test_a_burst_is_a_time_at_full_clock_only_while_the_regulator_sleeps(
    seconds: float, p10_seconds: float, throttled: bool, free: bool
) -> None:
    row = kernel_row(Gemm(4096, 4096, 4096), seconds, p10_seconds=p10_seconds, throttled=throttled)
    assert burst_was_free(row) is free
