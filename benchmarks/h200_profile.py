"""One H200's profile from 60 designed products, judged on products of other layers.

The judged products were measured on the same board; beside them stand those of another H200 of
another host, where what two boards differ by counts as an error, and one H100's. The repeat section
tells what no model can be better than: of the run whose kernels that wait for memory were timed
over eight allocations, as the benchmark does by now, and of the run before. A run beside a busy
neighbour shows what the gate and the flags see of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks._own_rows import USAGE as OWN_ROWS_USAGE
from benchmarks._own_rows import (
    Floats,
    best_constant_error,
    mean_error,
    measurement_files,
    untouched,
)
from benchmarks.runner import Options, Result, Target
from capacity.bench.fault_finder import find_faults
from capacity.bench.measurement_row import MeasurementRow, read_rows
from capacity.bench.shipped_rows import shipped_rows
from capacity.kernels import Gemm, Kernel
from capacity.model.kernel_samples import power_samples, time_samples
from capacity.model.power_model import fit_power_model
from capacity.model.reference_kernels import GEMM_GPUS, reference_gemms
from capacity.model.time_model import fit_time_model
from capacity.roofs import Roofs, require_roofs
from wattpack.errors import InputError

NAME = "h200_profile"
SUMMARY = "an H200's time and draw of 150 unseen products from 60 designed ones"
TAKES_ARGUMENTS = True
USAGE = OWN_ROWS_USAGE

FEW_TOKENS = 10
"""Products of so few tokens take a few microseconds: which kernel the library picks decides."""

BOARD, JUDGED, EIGHT_ALLOCATIONS = "h200", "h200-validation", "h200-fifth-board"
OTHER_BOARD, NEIGHBOUR = "h200-second-board", "h200-busy-neighbour"
OTHER_TYPE, OTHER_JUDGED = "h100", "h100-validation"


def run(options: Options) -> Result:
    """The shipped boards, or the rows that ``--measurements`` names."""
    given = measurement_files(options.arguments, SUMMARY)
    if given:
        rows = [row for file in given for row in read_rows(file)]
        return Result({**profile_figures(rows, rows), **repeat_figures(rows)}, _TARGETS)
    rows, judged = shipped_rows(BOARD), shipped_rows(JUDGED)
    placed, other = shipped_rows(EIGHT_ALLOCATIONS), shipped_rows(OTHER_BOARD)
    few_allocations = repeat_figures(rows)
    figures = {
        **profile_figures(rows, judged),
        **repeat_figures(placed),
        "few_allocations_repeat_time_spread": few_allocations["repeat_time_spread"],
        "few_allocations_repeat_draw_spread": few_allocations["repeat_draw_spread"],
        **_errors("other_board", profile_figures(rows, other)),
        **_errors("fifth_board", profile_figures(placed, judged)),
        **_errors("older_design_same_board", profile_figures(other, other)),
        **_errors("h100", profile_figures(shipped_rows(OTHER_TYPE), shipped_rows(OTHER_JUDGED))),
        **neighbour_figures(shipped_rows(NEIGHBOUR), other),
    }
    if not options.quick:  # the trees of the other types take 10 s
        figures |= helped_figures(rows, judged)
    return Result(figures, _TARGETS)


def _errors(name: str, figures: Mapping[str, float | int | str]) -> dict[str, float | int | str]:
    """The figures of another pair of runs that stand beside the main ones."""
    kept = ("validation_rows", "latency_error", "draw_error")
    return {f"{name}_{figure}": figures[figure] for figure in kept}


_TARGETS = {
    "validation_rows": Target(at_least=150),
    "latency_error": Target(at_most=0.07),
    "draw_rows": Target(at_least=40),
    "draw_error": Target(at_most=0.08),
    "draw_error_over_best_constant": Target(at_most=0.999),
    "repeat_time_spread": Target(at_most=0.02),
    "repeat_draw_spread": Target(at_most=0.03),
}


def designed(rows: Sequence[MeasurementRow]) -> list[MeasurementRow]:
    """The cold bf16 products that a full run measures."""
    return [
        row for row in rows
        if row.section == "gemm" and row.cache_state == "cold" and isinstance(row.kernel, Gemm)
        and row.kernel.number_format == "bf16"
    ]  # fmt: skip


def unseen(
    shapes: Sequence[MeasurementRow], judged_rows: Sequence[MeasurementRow]
) -> list[MeasurementRow]:
    """Sound validation rows whose layer, either way round, no fitted row has."""
    fitted = {_layer(row.kernel) for row in shapes}
    return [
        row for row in judged_rows
        if row.section == "validation" and row.ok and _layer(row.kernel) not in fitted
    ]  # fmt: skip


def _layer(kernel: Kernel) -> frozenset[int]:
    return frozenset((kernel.n, kernel.k)) if isinstance(kernel, Gemm) else frozenset()


def profile_figures(
    fitted_rows: Sequence[MeasurementRow], judged_rows: Sequence[MeasurementRow]
) -> dict[str, float | int | str]:
    """Errors on the validation products, beside what a roofline and constants err."""
    shapes = designed(fitted_rows)
    validation = unseen(shapes, judged_rows)
    if not shapes or not validation:
        raise InputError("measurements", "cold bf16 products of sections gemm and validation", 0)
    kernels = [row.kernel for row in validation]
    measured = np.array([row.latency.median_seconds for row in validation])
    roofs = require_roofs(shapes[0].identity.gpu_product)
    times = fit_time_model(time_samples(shapes), roofs)
    cool = [row for row in validation if untouched(row)]
    drawn = np.array([row.power.mean_watts for row in cool if row.power])
    draws = fit_power_model(power_samples(shapes), times.seconds)
    limit = shapes[0].identity.power_limit_watts
    constant = best_constant_error(drawn)
    error = mean_error(draws.draw_watts([row.kernel for row in cool], limit), drawn)
    made = times.seconds(kernels)
    few = _sizes(kernels)[:, 0] < np.log2(FEW_TOKENS)
    return {
        "fitted_shapes": len(shapes),
        "validation_rows": len(validation),
        "latency_error": mean_error(made, measured),
        "latency_error_few_tokens": mean_error(made[few], measured[few]),
        "latency_error_more_tokens": mean_error(made[~few], measured[~few]),
        "latency_error_of_datasheet_roofline": mean_error(_roofline(kernels, roofs), measured),
        "latency_error_of_nearest_shape": mean_error(_nearest(shapes, kernels), measured),
        "draw_rows": len(cool),
        "draw_error": error,
        "draw_error_of_best_constant": constant,
        "draw_error_over_best_constant": error / constant,
    }


def helped_figures(
    rows: Sequence[MeasurementRow], judged_rows: Sequence[MeasurementRow]
) -> dict[str, float]:
    """The same 60 shapes with other types' residuals, without and with public rows of an H200."""
    shapes = designed(rows)
    validation = unseen(shapes, judged_rows)
    kernels = [row.kernel for row in validation]
    measured = np.array([row.latency.median_seconds for row in validation])
    roofs = require_roofs(shapes[0].identity.gpu_product)
    strangers = [reference_gemms(gpu) for gpu in GEMM_GPUS if gpu != roofs.model]
    errors = {}
    for name, others in (
        ("latency_error_with_other_types", strangers),
        ("latency_error_with_public_rows", [*strangers, reference_gemms(roofs.model)]),
    ):
        made = fit_time_model(time_samples(shapes), roofs, others).seconds(kernels)
        errors[name] = mean_error(made, measured)
    return errors


def repeat_figures(rows: Sequence[MeasurementRow]) -> dict[str, float]:
    """Largest change of a repeated product between the start and the end of a run."""
    first = {row.kernel: row for row in designed(rows)}
    pairs = [(first[row.kernel], row) for row in rows
             if row.section == "repeat" and row.kernel in first]  # fmt: skip
    times = [_change(a.latency.median_seconds, b.latency.median_seconds) for a, b in pairs]
    draws = [_change(a.power.mean_watts, b.power.mean_watts) for a, b in pairs
             if a.power and b.power]  # fmt: skip
    return {
        "repeat_time_spread": max(times, default=float("nan")),
        "repeat_draw_spread": max(draws, default=float("nan")),
    }


def neighbour_figures(
    disturbed: Sequence[MeasurementRow], clean: Sequence[MeasurementRow]
) -> dict[str, float | int]:
    """A run beside a busy process: what it did to the rows, and who noticed.

    The gate counts processes before the run; flags of the single row see noise and what samples and
    energy counter do not agree on; the check of a whole file compares held times with bursts.
    """
    alone = {(row.kernel, row.cache_state): row for row in clean if row.section == "gemm"}
    pairs = [(alone[key], row) for row in disturbed
             if (key := (row.kernel, row.cache_state)) in alone]  # fmt: skip
    bursts = [b.latency.median_seconds / a.latency.median_seconds for a, b in pairs]
    held = [b.power.sustained_seconds / a.power.sustained_seconds for a, b in pairs
            if a.power and b.power and "throttled" not in a.flags]  # fmt: skip
    by_gate = ["shared_gpu" in row.flags for row in disturbed]
    by_row = [bool(set(row.flags) - {"shared_gpu", "throttled"}) for row in disturbed]
    return {
        "neighbour_rows": len(disturbed),
        "neighbour_seen_by_gate_ratio": float(np.mean(by_gate)),
        "neighbour_seen_by_row_flags_ratio": float(np.mean(by_row)),
        "neighbour_seen_by_check": int(_check_sees(disturbed)),
        "clean_rows_accused_by_check": int(_check_sees(clean)),
        "neighbour_burst_stretch_median": float(np.median(bursts)),
        "neighbour_sustained_stretch_median": float(np.median(held)),
    }


def _check_sees(rows: Sequence[MeasurementRow]) -> bool:
    """Whether the rows alone, without what the gate saw, look disturbed."""
    blind = [replace(row, flags=tuple(f for f in row.flags if f != "shared_gpu")) for row in rows]
    return any(finding.fault == "busy_neighbour" for finding in find_faults(blind))


def _change(before: float, after: float) -> float:
    return abs(after / before - 1)


def _roofline(kernels: Sequence[Kernel], roofs: Roofs) -> Floats:
    """The datasheet's roofs: what one knows without measuring."""
    return np.array([
        max(kernel.flops / roofs.flops_per_second("bf16"),
            kernel.bytes_moved / roofs.bytes_per_second)
        for kernel in kernels
    ])  # fmt: skip


def _nearest(shapes: Sequence[MeasurementRow], kernels: Sequence[Kernel]) -> Floats:
    """The nearest measured shape's time, scaled by the roofline's ratio."""
    known = [row.kernel for row in shapes]
    seconds = np.array([row.latency.median_seconds for row in shapes])
    roofs = require_roofs(shapes[0].identity.gpu_product)
    distances = np.linalg.norm(_sizes(kernels)[:, None] - _sizes(known)[None], axis=2)
    near = distances.argmin(axis=1)
    return np.asarray(seconds[near] * _roofline(kernels, roofs) / _roofline(known, roofs)[near])


def _sizes(kernels: Sequence[Kernel]) -> Floats:
    gemms = [kernel for kernel in kernels if isinstance(kernel, Gemm)]
    return np.log2([(gemm.m, gemm.n, gemm.k) for gemm in gemms])
