"""What the benchmarks of the capacity model count, on steps whose answer is known beforehand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import step_power
from benchmarks._own_rows import best_constant_error, line_error, mean_error
from benchmarks.h200_profile import neighbour_figures, profile_figures, repeat_figures
from benchmarks.step_power import Judged, judge
from capacity.bench.measurement_row import MeasurementRow, row_line
from capacity.kernels import Gemm
from capacity.model.step_model import StepPrediction
from tests.capacity.kernel_row import identity, kernel_row
from tests.capacity.simulated_gpu_rows import decoder, simulated_rows
from wattpack.errors import InputError


def judged(
    batch: int, *, watts: float, made_watts: float, late: float = 1.0, p95: float = 900.0
) -> Judged:
    """One decode step of 10 ms with its prediction."""
    step = decoder("decode", batch, 1, 512)
    row = kernel_row(step, 0.01, section="steps", draw_watts=watts)
    made = StepPrediction(
        seconds=0.01 * late, uncapped_seconds=0.01, mean_watts=made_watts,
        uncapped_watts=made_watts, p95_watts=p95, kernel_seconds=np.array([0.01]),
        kernel_watts=np.array([made_watts]),
    )  # fmt: skip
    return [(row, step, made)]


def test_errors_are_of_the_steps_that_the_limit_does_not_touch() -> None:
    steps = [
        part
        for batch in (1, 2, 4)
        for part in (
            judged(batch, watts=400.0, made_watts=440.0, late=0.9)
            + judged(batch, watts=690.0, made_watts=300.0)
        )
    ]
    figures = judge({"x": steps}).figures
    assert figures["x_decode_draw_steps"] == 3
    assert figures["x_decode_draw_error"] == pytest.approx(0.10)
    assert figures["x_decode_time_error"] == pytest.approx(0.05)
    assert figures["x_decode_time_bias"] == pytest.approx(-0.05)


def test_the_worst_batch_is_told_where_it_has_three_steps() -> None:
    steps = 3 * judged(1, watts=400.0, made_watts=404.0)
    steps += 3 * judged(64, watts=400.0, made_watts=500.0) + judged(8, watts=400.0, made_watts=1.0)
    figures = judge({"x": steps}).figures
    assert figures["x_decode_draw_error_worst_batch"] == pytest.approx(0.25)
    assert "x_decode_draw_error_batch_8" not in figures


def test_the_tail_counts_every_instant_of_every_gpu() -> None:
    over = judged(1, watts=400.0, made_watts=400.0, p95=399.0)
    under = 3 * judged(1, watts=400.0, made_watts=400.0, p95=401.0)
    result = judge({"x": over, "y": under})
    assert result.figures["p95_samples"] == 20
    assert result.figures["p95_exceeded_ratio"] == pytest.approx(0.25)
    assert not result.met()


def test_references_are_the_best_of_their_kind() -> None:
    values = np.array([300.0, 400.0, 410.0, 600.0])
    brute = min(mean_error(np.full(4, c), values) for c in np.linspace(250, 650, 4001))
    assert best_constant_error(values) <= brute + 1e-9
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    assert line_error(x, 300 + 50 * x) == pytest.approx(0.0, abs=1e-6)
    bent = np.array([300.0, 320.0, 390.0, 500.0, 505.0])
    brute = min(
        mean_error(a + b * x, bent) for a in range(250, 350, 2) for b in np.arange(20, 90, 1.0)
    )
    assert line_error(x, bent) == pytest.approx(brute, abs=2e-3)


def rows_for(gemms: list[Gemm], seconds: float, watts: float, section: str) -> list[MeasurementRow]:
    return [kernel_row(gemm, seconds, draw_watts=watts, section=section) for gemm in gemms]


def test_the_spread_of_a_repeat_is_its_largest_change() -> None:
    gemms = [Gemm(1, 512, 512), Gemm(8, 512, 512)]
    rows = rows_for(gemms, 10e-6, 200.0, "gemm") + rows_for(gemms[1:], 10.1e-6, 204.0, "repeat")
    spread = repeat_figures(rows)
    assert spread["repeat_time_spread"] == pytest.approx(0.01)
    assert spread["repeat_draw_spread"] == pytest.approx(0.02)


def test_a_neighbour_shows_in_what_a_kernel_sustains() -> None:
    clean = rows_for([Gemm(m, 512, 512) for m in range(1, 9)], 10e-6, 200.0, "gemm")
    beside = [
        replace(
            kernel_row(row.kernel, 10e-6, draw_watts=300.0, sustained_seconds=17e-6),
            flags=("shared_gpu",),
        )
        for row in clean
    ]
    seen = neighbour_figures(beside, clean)
    assert seen["neighbour_seen_by_gate_ratio"] == 1
    assert seen["neighbour_seen_by_row_flags_ratio"] == 0
    assert seen["neighbour_seen_by_check"] == 1
    assert seen["clean_rows_accused_by_check"] == 0
    assert seen["neighbour_burst_stretch_median"] == pytest.approx(1.0)
    assert seen["neighbour_sustained_stretch_median"] == pytest.approx(1.7)


def test_rows_without_steps_are_refused(tmp_path: Path) -> None:
    row = kernel_row(Gemm(1, 512, 512), 1e-5)
    assert json.loads(row_line(row))["section"] == "gemm"
    with pytest.raises(InputError):
        step_power.predict([row], [row])


def test_steps_of_another_gpu_type_are_refused() -> None:
    step = kernel_row(decoder("decode", 1, 1, 512), 0.01, section="steps", draw_watts=400.0)
    stranger = replace(step, identity=identity("NVIDIA H100 80GB HBM3"))
    with pytest.raises(InputError, match="steps of an H200-SXM"):
        step_power.predict(simulated_rows(), [stranger])


def test_rows_without_designed_or_validation_products_are_refused() -> None:
    row = kernel_row(Gemm(1, 512, 512), 1e-5, draw_watts=200.0)
    for rows in ([row], [replace(row, section="validation")]):
        with pytest.raises(InputError, match="validation"):
            profile_figures(rows, rows)
