"""What a GPU's model errs on kernels that it was not fitted on: time, draw and cap response apart.

A single figure would hide which of the three a user must not trust. Folds keep whole layers and
head layouts together (``hold_outs``); nothing here is an in-sample residual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.bench.measurement_row import MeasurementRow
from capacity.model.gpu_model import (
    PASSES,
    GpuModel,
    fit_times,
    held_out_draws,
    kernel_rows,
    powered_rows,
    timed_rows,
)
from capacity.model.hold_outs import out_of_fold
from capacity.model.kernel_features import kernel_group
from capacity.model.kernel_samples import Floats, Indices, TimeSamples
from capacity.model.regulator import Regulator, burst_was_free, memory_shares

UNTOUCHED: Final = 0.95
"""Rows below this share of the limit: at the limit a constant is right by construction."""


@dataclass(frozen=True, slots=True)
class ModelErrors:
    """Mean absolute relative errors, held out.

    Attributes:
        time: By kernel class, at full clock.
        draw: Of rows below 95 % of the limit, beside ``constant_draw``: the best constant's.
        cap_response: Of the slow-down at the limit (time at the limit over time without).
        counts: Rows behind each figure, by ``time.CLASS``, ``draw``, ``cap_response``.
    """

    time: Mapping[str, float]
    draw: float
    constant_draw: float
    cap_response: float
    counts: Mapping[str, int]


def held_out_errors(
    rows: Sequence[MeasurementRow], others: Sequence[TimeSamples] = ()
) -> ModelErrors:
    """The errors of ``GpuModel.from_rows(rows, others)`` on kernels it would not have seen."""
    model = GpuModel.from_rows(rows, others)
    fitted = kernel_rows(rows)
    times, time_counts = _time_errors(fitted, model, others)
    powered = powered_rows(fitted)
    predicted = held_out_draws(powered, model.times)
    measured = np.array([row.power.mean_watts for row in powered if row.power])
    below = measured < UNTOUCHED * model.limit_watts
    cap, held = _cap_errors(powered, predicted, model)
    return ModelErrors(
        time=times,
        draw=mean_error(predicted[below], measured[below]),
        constant_draw=constant_error(measured[below]),
        cap_response=cap,
        counts={**time_counts, "draw": int(below.sum()), "cap_response": held},
    )


def mean_error(predicted: Floats, measured: Floats) -> float:
    """Mean absolute relative error; NaN for nothing."""
    return float(np.mean(np.abs(predicted / measured - 1))) if measured.size else float("nan")


def constant_error(measured: Floats) -> float:
    """The least mean relative error that any one constant has in hindsight."""
    return min((mean_error(np.full_like(measured, c), measured) for c in measured), default=np.nan)


def _time_errors(
    rows: Sequence[MeasurementRow], model: GpuModel, others: Sequence[TimeSamples]
) -> tuple[dict[str, float], dict[str, int]]:
    timed = timed_rows(rows)
    kernels = [row.kernel for row in timed]
    seconds = model.free_seconds(timed)

    def predict(fitted: Indices, held: Indices) -> Floats:
        chosen = [timed[index] for index in fitted.tolist()]
        known = {kernel_group(row.kernel) for row in chosen}
        priced = [index for index in held.tolist() if kernel_group(kernels[index]) in known]
        told = np.full(len(kernels), np.nan)
        told[priced] = fit_times(chosen, seconds[fitted], others).seconds(
            [kernels[index] for index in priced]
        )
        return told[held]

    made = out_of_fold(kernels, predict)
    # A kind of kernel whose every row fell into one fold cannot be held out.
    kept = np.isfinite(made)
    made, seconds = made[kept], seconds[kept]
    classes = np.array([kernel.kernel_class for kernel in kernels])[kept]
    names = sorted(set(classes.tolist()))
    return (
        {name: mean_error(made[classes == name], seconds[classes == name]) for name in names},
        {f"time.{name}": int((classes == name).sum()) for name in names},
    )


def _cap_errors(
    powered: Sequence[MeasurementRow], uncapped_watts: Floats, model: GpuModel
) -> tuple[float, int]:
    """Slow-down of throttled rows, from draws and a response that saw other families only."""
    alone = np.flatnonzero([not isinstance(row.kernel, PASSES) for row in powered])
    chosen = [powered[index] for index in alone.tolist()]
    watts = uncapped_watts[alone]
    kernels = [row.kernel for row in chosen]
    seconds = np.array([row.latency.median_seconds for row in chosen])
    sustained = np.array([row.power.sustained_seconds for row in chosen if row.power])
    roofs = model.steps.roofs
    memory = memory_shares(kernels, seconds, roofs)

    def predict(fitted: Indices, held: Indices) -> Floats:
        seen = [chosen[index] for index in fitted.tolist()]
        response = Regulator.from_rows(seen, watts[fitted], roofs)
        return response.stretch(watts[held], memory[held], model.limit_watts)

    made = out_of_fold(kernels, predict)
    scored = np.array(["throttled" in row.flags and burst_was_free(row) for row in chosen])
    return mean_error(made[scored], (sustained / seconds)[scored]), int(scored.sum())
