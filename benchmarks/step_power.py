"""Whole decoder steps from kernel rows: time, mean draw and its 95th percentile, on two GPUs.

The steps were measured on the same boards as the kernels (no kernel row holds a step, no step is
fitted on). Time under the limit is what the stack sustains back to back; draw is scored where the
limit does not set it. A tail is judged by instantaneous samples, one a 100 ms update of the sensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks._own_rows import USAGE as OWN_ROWS_USAGE
from benchmarks._own_rows import (
    Floats,
    best_constant_error,
    line_error,
    mean_error,
    measurement_files,
    untouched,
)
from benchmarks.runner import Options, Result, Target
from capacity.bench.measurement_row import MeasurementRow, read_rows
from capacity.bench.shipped_rows import shipped_rows
from capacity.kernels import DecoderStep
from capacity.model.gpu_model import GpuModel
from capacity.model.step_model import StepPrediction
from capacity.roofs import find_roofs
from wattpack.errors import InputError

NAME = "step_power"
SUMMARY = "time and draw of whole decoder steps, predicted from kernel rows alone"
TAKES_ARGUMENTS = True
USAGE = OWN_ROWS_USAGE

RUNS = {"h200": ("h200", "h200-steps"), "h100": ("h100", "h100-steps")}
"""Kernel rows, and the steps of the same board that they are judged on."""

OTHER_BOARDS = {
    "h200_kernels_of_another_board": ("h200-fifth-board", "h200-steps"),
    "h200_steps_of_another_board": ("h200", "h200-third-board-steps"),
}
"""The same across two boards of one type: what they differ by counts as an error; printed."""

SMALLEST_CLASS = 3
"""Steps that a batch class needs before its own error is a figure."""

Judged = list[tuple[MeasurementRow, DecoderStep, StepPrediction]]


def run(options: Options) -> Result:
    """Both GPUs, or the one whose rows ``--measurements`` holds."""
    given = measurement_files(options.arguments, SUMMARY)
    if given:
        rows = [row for file in given for row in read_rows(file)]
        return judge({"given": predict(rows, rows)})
    return judge(of_runs(RUNS), beside=of_runs(OTHER_BOARDS))


def of_runs(runs: Mapping[str, tuple[str, str]]) -> dict[str, Judged]:
    """The shipped steps of each pair of runs, predicted."""
    return {
        name: predict(shipped_rows(kernels), shipped_rows(steps))
        for name, (kernels, steps) in runs.items()
    }


def predict(kernel_rows: Sequence[MeasurementRow], steps: Sequence[MeasurementRow]) -> Judged:
    """Each measured step with what the kernels of that board say of it."""
    model = GpuModel.from_rows(kernel_rows)
    judged = [
        (row, row.kernel, model.step(row.kernel))
        for row in steps
        if isinstance(row.kernel, DecoderStep) and row.power is not None
    ]
    strangers = {row.identity.gpu_product for row, _, _ in judged
                 if find_roofs(row.identity.gpu_product) != model.steps.roofs}  # fmt: skip
    if strangers:
        raise InputError("measurements", f"steps of an {model.gpu}", sorted(strangers))
    if not judged:
        raise InputError("measurements", "rows of section steps, with power", len(steps))
    return judged


def judge(judged: Mapping[str, Judged], beside: Mapping[str, Judged] | None = None) -> Result:
    """Figures and targets of all GPUs, and the main errors of what is printed beside them."""
    figures: dict[str, float | int | str] = {
        f"{name}_{error}": value
        for name, steps in (beside or {}).items()
        for error, value in _figures(steps).items()
        if error in _TARGETS
    }
    targets: dict[str, Target] = {}
    instants = [_instant_exceedances(steps) for steps in judged.values()]
    for gpu, steps in judged.items():
        figures |= {f"{gpu}_{name}": value for name, value in _figures(steps).items()}
        targets |= {f"{gpu}_{name}": target for name, target in _TARGETS.items()}
    together = np.concatenate(instants)
    figures["p95_samples"] = len(together)
    figures["p95_exceeded_ratio"] = float(together.mean())
    targets["p95_samples"] = Target(at_least=500)
    targets["p95_exceeded_ratio"] = Target(at_most=0.07)
    return Result(figures, targets)


_TARGETS = {
    "decode_time_error": Target(at_most=0.10),
    "prefill_time_error": Target(at_most=0.08),
    "decode_draw_error": Target(at_most=0.08),
    "decode_draw_error_worst_batch": Target(at_most=0.12),
}


def _figures(judged: Judged) -> dict[str, float | int]:
    decode = [part for part in judged if part[1].phase == "decode"]
    prefill = [part for part in judged if part[1].phase == "prefill"]
    cool = [part for part in decode if untouched(part[0])]
    measured = _drawn(cool)
    batches = np.array([step.batch for _, step, _ in cool])
    errors = np.abs(_predicted_draws(cool) / measured - 1)
    classes = {
        int(batch): float(errors[batches == batch].mean())
        for batch in sorted(set(batches.tolist()))
        if (batches == batch).sum() >= SMALLEST_CLASS
    }
    return {
        "decode_steps": len(decode),
        "prefill_steps": len(prefill),
        "decode_time_error": _time_error(decode),
        "prefill_time_error": _time_error(prefill),
        "decode_time_bias": _time_bias(decode),
        "prefill_time_bias": _time_bias(prefill),
        "decode_draw_steps": len(cool),
        "decode_draw_error": mean_error(_predicted_draws(cool), measured),
        "decode_draw_error_worst_batch": max(classes.values(), default=float("nan")),
        "decode_draw_error_of_constant": best_constant_error(measured),
        "decode_draw_error_of_line_in_log_batch": line_error(np.log(batches), measured),
        "prefill_draw_error": mean_error(_predicted_draws(prefill), _drawn(prefill)),
        "prefill_draw_error_of_constant": best_constant_error(_drawn(prefill)),
        "p95_over_measured_p95": _p95_ratio(judged),
        **{f"decode_draw_error_batch_{batch}": error for batch, error in classes.items()},
    }


def _drawn(judged: Judged) -> Floats:
    return np.array([row.power.mean_watts for row, _, _ in judged if row.power])


def _predicted_draws(judged: Judged) -> Floats:
    return np.array([made.mean_watts for _, _, made in judged])


def _time_ratios(judged: Judged) -> Floats:
    return np.array([
        made.seconds / row.power.sustained_seconds for row, _, made in judged if row.power
    ])  # fmt: skip


def _time_error(judged: Judged) -> float:
    ratios = _time_ratios(judged)
    return mean_error(ratios, np.ones_like(ratios))


def _time_bias(judged: Judged) -> float:
    return float(_time_ratios(judged).mean() - 1) if judged else float("nan")


def _instant_exceedances(judged: Judged) -> Floats:
    return np.concatenate([
        np.array(row.power.instant_watts) > made.p95_watts for row, _, made in judged if row.power
    ]).astype(np.float64)  # fmt: skip


def _p95_ratio(judged: Judged) -> float:
    """How much the bound keeps in reserve, on average over steps."""
    ratios = [
        made.p95_watts / float(np.quantile(row.power.instant_watts, 0.95))
        for row, _, made in judged
        if row.power
    ]
    return float(np.mean(ratios))
