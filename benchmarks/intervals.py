"""Whether intervals hold as often as they say, and are worth more than one width for all.

The time half: 90 % intervals of kernels whose hold-out group no fit saw, per group of kernels and
pooled, with all training rows known and with 60. The comparison is an interval of one relative
width, ranked over the same errors as the model's own; a Winkler score in log units, so that long
kernels do not outvote short ones.

The own half (``own_``): models of shipped whole runs, some hundred kernels each, and the 90 %
intervals of products of other runs whose layers no fit saw. Their shapes are drawn, not designed,
which is what users ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks._kernel_times import GEMM_GROUP, Split, others_of, rounded, splits
from benchmarks.runner import Options, Result, Target
from capacity.bench.shipped_rows import shipped_rows
from capacity.kernels import Gemm
from capacity.model.conformal import ConformalScores, winkler_score
from capacity.model.gpu_model import GpuModel, timed_rows
from capacity.model.group_layers import fit_layers
from capacity.model.hold_outs import hold_out_folds, hold_out_group
from capacity.model.kernel_features import kernel_group, kernel_table
from capacity.model.kernel_samples import Floats, TimeSamples
from capacity.model.neighbours import neighbourhood
from capacity.model.reference_kernels import (
    ATTENTION_GPUS,
    GEMM_GPUS,
    reference_attention,
    reference_gemms,
)
from capacity.model.time_model import fit_time_model
from capacity.roofs import Roofs

NAME = "intervals"
SUMMARY = "90 % intervals of kernel times: coverage, and worth against one width for all"
COVERAGE: Final = 0.9
FEW: Final = 60
CASES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[str], TimeSamples], str]]] = {
    "prefill": (ATTENTION_GPUS, reference_attention, "attention_prefill"),
    "decode": (ATTENTION_GPUS, reference_attention, "attention_decode"),
    "gemm": (GEMM_GPUS, reference_gemms, GEMM_GROUP),
}
GPUS: Final = ("H200-SXM", "B200-SXM")
OWN_RUNS: Final = {
    "h100": ("h100-validation",),
    "h200": ("h200-validation", "h200-second-board"),
    "h200-fifth-board": ("h200-validation", "h200-second-board"),
}
"""Runs that models are fitted on, and those whose section ``validation`` judges them."""

TARGETS: Final = {
    "all_rows_scored": Target(at_least=1_000),
    "all_rows_coverage_ratio": Target(at_least=0.87, at_most=0.93),
    "all_rows_winkler_gain_ratio": Target(at_least=0.15),
    "own_coverage_ratio": Target(at_least=0.87, at_most=0.93),
}


@dataclass(frozen=True)
class Judged:
    """Log times of held-out kernels with two kinds of bounds, each of shape (n,)."""

    actual: Floats
    low: Floats
    high: Floats
    middle: Floats
    inside_errors: Floats


def run(options: Options) -> Result:
    """Measure; ``--quick`` judges prefill on one type alone."""
    figures: dict[str, float | int | str] = {}
    parts: dict[str, list[Judged]] = {"all_rows": [], "60_rows": []}
    for case, (gpus, read, group) in list(CASES.items())[: 1 if options.quick else None]:
        tables = splits(gpus, read, group)
        for gpu in GPUS[: 1 if options.quick else None]:
            options.progress(f"{case} on {gpu}")
            split, name = tables[gpu], f"{case}_{gpu.removesuffix('-SXM')}"
            for label, own in (("all_rows", split.train), ("60_rows", split.designed(FEW))):
                others = () if label == "all_rows" else others_of(tables, gpu)
                judged = _judged(split, own, others)
                parts[label].append(judged)
                figures |= _figures(f"{label}_{name}", [judged])
    for label, pooled in parts.items():
        figures |= _figures(label, pooled)
        figures[f"{label}_scored"] = sum(len(part.actual) for part in pooled)
    options.progress("own rows")
    return Result(rounded(figures | _own_figures()), TARGETS)


def _own_figures() -> dict[str, float]:
    """Shares of judged products inside, below and above their intervals, by run and of all."""
    pooled, figures = [], {}
    for run_name, judges in OWN_RUNS.items():
        model, known = _own_model(run_name)
        rows = [
            row
            for judge in judges
            for row in shipped_rows(judge)
            if row.section == "validation" and row.ok and isinstance(row.kernel, Gemm)
            and hold_out_group(row.kernel) not in known
        ]  # fmt: skip
        low, high = model.times.modelled.interval([row.kernel for row in rows], COVERAGE)
        seconds = model.free_seconds(rows)
        pooled.append(np.column_stack([seconds < low, seconds > high]))
        figures[f"own_{run_name}_coverage_ratio"] = 1 - float(pooled[-1].any(axis=1).mean())
    missed = np.concatenate(pooled)
    return figures | {
        "own_coverage_ratio": 1 - float(missed.any(axis=1).mean()),
        "own_faster_ratio": float(missed[:, 0].mean()),
        "own_slower_ratio": float(missed[:, 1].mean()),
        "own_scored": len(missed),
    }


def _own_model(run_name: str) -> tuple[GpuModel, set[str]]:
    """The model of a whole run, and the hold-out groups of the kernels that it saw."""
    rows = shipped_rows(run_name)
    return GpuModel.from_rows(rows), {hold_out_group(row.kernel) for row in timed_rows(rows)}


def _judged(split: Split, own: TimeSamples, others: tuple[TimeSamples, ...]) -> Judged:
    kernels = split.held.kernels
    model = fit_time_model(own, split.roofs, others)
    low, high = model.interval(kernels, COVERAGE)
    return Judged(
        actual=np.log(split.held.seconds),
        low=np.log(low),
        high=np.log(high),
        middle=np.log(model.seconds(kernels)),
        inside_errors=_inside_errors(split.roofs, own, others),
    )


def _inside_errors(roofs: Roofs, own: TimeSamples, others: tuple[TimeSamples, ...]) -> Floats:
    """Log errors of own kernels, each from a fit on the other groups: what one width ranks."""
    group = kernel_group(own.kernels[0])
    nearby = neighbourhood(group, roofs, others)
    folds = hold_out_folds(own.kernels, level=1)
    errors = []
    for fold in np.unique(folds).tolist():
        held, seen = (
            own.take(np.flatnonzero(folds == fold)),
            own.take(np.flatnonzero(folds != fold)),
        )
        layers = fit_layers(group, kernel_table(group, seen.kernels, roofs), seen.seconds, nearby)
        made = layers.log_seconds(kernel_table(group, held.kernels, roofs))
        errors.append(np.log(held.seconds) - made)
    return np.concatenate(errors)


def _figures(name: str, parts: list[Judged]) -> dict[str, float]:
    """Coverage and score over all parts, one width for all of them on the other side."""
    actual, low, high, middle = (
        np.concatenate([getattr(part, field) for part in parts])
        for field in ("actual", "low", "high", "middle")
    )
    ranked = ConformalScores.from_errors(np.concatenate([p.inside_errors for p in parts]))
    width = ranked.factor(COVERAGE) or np.inf
    score = winkler_score(low, high, actual, COVERAGE)
    plain = winkler_score(middle - width, middle + width, actual, COVERAGE)
    return {
        f"{name}_coverage_ratio": float(np.mean((actual >= low) & (actual <= high))),
        f"{name}_winkler": score,
        f"{name}_one_width_winkler": plain,
        f"{name}_winkler_gain_ratio": 1 - score / plain,
    }
