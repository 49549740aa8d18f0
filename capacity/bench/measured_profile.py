"""A GPU type's profile with the draws of measured rows in place of the shipped ones.

The benchmark changes no setting, so rows say what a board draws and nothing about caps: the curves
are those of the shipped profile, read at the measured draw, and keep their own provenance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from capacity.bench.measurement_row import MeasurementRow
from capacity.bench.row_checks import require_one_board, require_own_name, require_possible
from capacity.gpu_profile import GpuProfile, KernelClass
from capacity.kernels import DecoderStep, Gemm, Kernel
from wattpack.errors import InputError

LEAST_ROWS: Final = 5
DECODE_TOKENS: Final = 256
"""Products of more tokens than a decode step has sequences belong to prefill."""


def measured_profile(rows: Sequence[MeasurementRow], shipped: GpuProfile) -> GpuProfile:
    """The shipped profile with measured draws of prefill and decode, where there are rows.

    Whole decoder steps count before single kernels: what runs in a step is the mix that counts.

    Raises:
        InputError: for rows that are impossible, of several boards, of another type, of a faulty
            run, or too few.
    """
    if not rows:
        raise InputError("rows", "some rows", len(rows))
    require_one_board(rows)
    require_possible(rows)
    require_own_name(rows)
    _require_type(rows[0].identity.gpu_product, shipped)
    sound = [row for row in rows if row.ok and row.power]
    classes = dict(shipped.kernel_classes)
    changed = 0
    for name in ("prefill", "decode"):
        draws = _draws(sound, name)
        if len(draws) >= LEAST_ROWS:
            classes[name] = _with_draws(classes[name], draws, rows[0])
            changed += 1
    if not changed:
        raise InputError("rows", f"at least {LEAST_ROWS} sound ones with power", len(sound))
    return replace(shipped, kernel_classes=classes)


def _require_type(product: str, shipped: GpuProfile) -> None:
    if product not in shipped.product_names:
        raise InputError("gpu_product", f"one of {shipped.product_names}", product)


def _draws(rows: Sequence[MeasurementRow], phase: str) -> list[float]:
    """Mean draws of the phase's whole steps, of its kernels where no step was measured."""
    draws: Mapping[bool, list[float]] = {True: [], False: []}
    for row in rows:
        if row.power and _phase(row.kernel) == phase:
            draws[isinstance(row.kernel, DecoderStep)].append(row.power.mean_watts)
    return draws[True] if len(draws[True]) >= LEAST_ROWS else draws[False]


def _phase(kernel: Kernel) -> str:
    if isinstance(kernel, Gemm):
        return "decode" if kernel.m <= DECODE_TOKENS else "prefill"
    return getattr(kernel, "phase", "")


def _with_draws(kernel: KernelClass, draws: Sequence[float], row: MeasurementRow) -> KernelClass:
    median, high = (float(q) for q in np.quantile(draws, (0.5, 0.95)))
    who = row.identity
    # The curves are functions of cap over uncapped draw: at a larger draw a cap binds earlier.
    caps = np.array(kernel.cap_fractions) * kernel.power_p50_watts / median
    throughput = np.interp(caps, kernel.cap_fractions, kernel.throughput)
    draw = np.interp(caps, kernel.cap_fractions, kernel.draw)
    return replace(
        kernel,
        power_p50_watts=round(median, 1),
        power_p95_watts=round(high, 1),
        power_provenance="measured",
        power_source=(
            f"wattpack bench, board {who.gpu_uuid_hash}, limit {who.power_limit_watts:g} W, "
            f"driver {who.driver}; designed points, not a workload's mix"
        ),
        power_samples=len(draws),
        throughput=tuple(round(float(x), 5) for x in throughput),
        draw=tuple(round(float(x), 5) for x in draw),
    )
