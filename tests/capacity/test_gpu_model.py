"""One GPU's model from its rows: against a simulated GPU that shares no code, and at its edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from capacity.bench.measurement_row import Latency, MeasurementRow
from capacity.kernels import Gemm
from capacity.model.gpu_model import GpuModel
from capacity.model.model_errors import held_out_errors
from tests.capacity.kernel_row import identity, kernel_row
from tests.capacity.simulated_gpu_rows import decoder, simulated_rows, truth
from wattpack.errors import InputError


@pytest.fixture(scope="module")
def rows() -> list[MeasurementRow]:
    return simulated_rows()


@pytest.fixture(scope="module")
def model(rows: list[MeasurementRow]) -> GpuModel:
    return GpuModel.from_rows(rows)


STEPS = [
    decoder("decode", batch, 1, context) for batch in (1, 16, 64, 256) for context in (512, 4096)
]
STEPS += [decoder("prefill", 1, tokens, tokens) for tokens in (256, 1024, 4096)]


def test_steps_of_a_simulated_gpu_are_predicted_from_its_kernels(model: GpuModel) -> None:
    real = [truth(step.kernel_mix()) for step in STEPS]
    made = [model.step(step) for step in STEPS]
    times = np.array([m.seconds / r.seconds for m, r in zip(made, real, strict=True)])
    draws = np.array([m.mean_watts / r.watts for m, r in zip(made, real, strict=True)])
    assert np.abs(times - 1).mean() < 0.08
    assert np.abs(draws - 1).mean() < 0.08
    assert any(r.free_watts > 700 for r in real)
    assert any(r.free_watts < 650 for r in real)


def test_a_lower_limit_costs_about_what_it_costs_the_simulated_gpu(model: GpuModel) -> None:
    step = decoder("prefill", 1, 4096, 4096)
    for limit in (600.0, 500.0):
        slower = truth(step.kernel_mix(), limit).seconds / truth(step.kernel_mix()).seconds
        made = model.step(step, limit).seconds / model.step(step).seconds
        assert made == pytest.approx(slower, rel=0.15)


def test_steps_and_validation_rows_teach_nothing(
    rows: list[MeasurementRow], model: GpuModel
) -> None:
    judged = [
        kernel_row(STEPS[0], 1.0, section="steps", draw_watts=100.0),
        kernel_row(Gemm(8, 512, 512), 1.0, section="validation", draw_watts=100.0),
    ]
    again = GpuModel.from_rows([*judged, *rows])
    assert [again.step(step).seconds for step in STEPS] == [model.step(s).seconds for s in STEPS]
    assert [again.step(s).mean_watts for s in STEPS] == [model.step(s).mean_watts for s in STEPS]


def test_a_long_burst_that_was_throttled_itself_is_taken_back_to_full_clock(
    rows: list[MeasurementRow],
) -> None:
    kernel = Gemm(8192, 16384, 8192)
    real = truth([(kernel, 1)])
    held = kernel_row(
        kernel, real.seconds, draw_watts=700.0, sustained_seconds=real.seconds, throttled=True
    )
    made = GpuModel.from_rows([*rows, held]).free_seconds([held])[0]
    assert real.seconds > 1.1 * real.free_seconds
    assert made == pytest.approx(real.free_seconds, rel=0.06)


def test_errors_are_stated_apart_and_held_out(rows: list[MeasurementRow]) -> None:
    errors = held_out_errors(rows)
    assert set(errors.time) == {"attention_decode", "attention_prefill", "gemm"}
    assert 0 < errors.time["gemm"] < 0.3
    assert 0 < errors.draw < errors.constant_draw
    assert 0 <= errors.cap_response < 0.1
    assert errors.counts["time.gemm"] == 60


def test_noise_of_the_held_out_rows_raises_the_error(rows: list[MeasurementRow]) -> None:
    rng = np.random.default_rng(5)

    def shaken(row: MeasurementRow) -> MeasurementRow:
        if row.section != "gemm":
            return row
        seconds = row.latency.median_seconds * float(np.exp(rng.normal(0, 0.3)))
        return replace(row, latency=Latency(seconds, seconds, seconds, 0.0, 10))

    noisy = held_out_errors([shaken(row) for row in rows])
    assert noisy.time["gemm"] > 0.15


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda rows: [r for r in rows if r.section != "launch"], "launch"),
        (lambda rows: [r for r in rows if r.section != "bandwidth"], "bandwidth"),
        (lambda rows: [replace(rows[0], identity=identity("NVIDIA A40")), *rows[1:]], "rows"),
        (lambda rows: [replace(rows[0], identity=identity(limit_watts=500.0)), *rows[1:]], "rows"),
        (lambda rows: [], "rows"),
    ],
)
def test_rows_that_make_no_model_are_refused(
    rows: list[MeasurementRow], change: object, field: str
) -> None:
    assert callable(change)
    with pytest.raises(InputError) as refusal:
        GpuModel.from_rows(change(rows))
    assert refusal.value.field == field


def test_a_limit_of_nothing_is_refused_and_not_taken_for_the_rows_own(model: GpuModel) -> None:
    with pytest.raises(InputError, match="limit_watts"):
        model.step(STEPS[0], 0.0)


def test_a_whole_step_is_no_kernel(model: GpuModel) -> None:
    with pytest.raises(InputError, match="a single kernel"):
        model.seconds([STEPS[0]])
