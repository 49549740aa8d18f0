"""Uncapped board draw by kernel class, from kernel loops, serving runs and fleet traces.

Two traps of the kernel tables are honoured when the reference file is trimmed and again here:
rows shorter than 60 us under-read power (the meter averages a second), and bf16 matrices with
k > 16384 were never filled with random weights, which lowers their draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from capacity.fitting.curves import SweepPoint
from capacity.fitting.reference_files import Row, number, read_csv
from capacity.gpu_profile import Provenance

MIN_KERNEL_MS: Final = 0.06
MAX_GEMM_K: Final = 16384


@dataclass(frozen=True, slots=True)
class Draw:
    """Median and 95th percentile of a class's uncapped draw, watts, with where it comes from."""

    p50_watts: float
    p95_watts: float
    provenance: Provenance
    source: str
    samples: int


def summarise(values: Sequence[float], provenance: Provenance, source: str) -> Draw:
    """The two percentiles of a sample of draws in watts."""
    p50, p95 = np.percentile(np.asarray(values), [50, 95])
    return Draw(float(p50), float(p95), provenance, source, len(values))


def transferred(shares: Sequence[Draw], limits: Sequence[float], limit: float, rule: str) -> Draw:
    """The mean share of the limit of other GPU types, at this type's limit."""
    p50 = float(np.mean([d.p50_watts / w for d, w in zip(shares, limits, strict=True)]))
    p95 = float(np.mean([d.p95_watts / w for d, w in zip(shares, limits, strict=True)]))
    return Draw(p50 * limit, p95 * limit, "derived", rule, 0)


def gemm_draw(folder: Path, system: str) -> Draw:
    """Draw of matrix products with at least 1,024 rows (prefill and batch are made of them)."""
    name = "aic_gemm_power.csv.gz"
    rows = [
        row
        for row in read_csv(folder / name, ("system", "m", "k", "latency_ms", "power_w"))
        if row["system"] == system
        and number(row, "m", name) >= 1024
        and number(row, "k", name) <= MAX_GEMM_K
        and number(row, "latency_ms", name) >= MIN_KERNEL_MS
    ]
    source = f"{name}: bf16 kernel loops, m >= 1024, k <= 16384, >= 60 us"
    return summarise([number(r, "power_w", name) for r in rows], "measured", source)


def prompt_draw(folder: Path, tdp_watts: float) -> Draw:
    """Peak draw of an A100, the only type with power, in prompts of at least 2,048 tokens."""
    name = "splitwise_llama2_70b.csv.gz"
    columns = ("hardware", "prompt_size", "batch_size", "peak_power")

    def usable(row: Row) -> bool:
        tokens = number(row, "prompt_size", name) * number(row, "batch_size", name)
        return (
            row["hardware"] == "a100-80gb"
            and number(row, "peak_power", name) > 0
            and tokens >= 2048
        )

    rows = [row for row in read_csv(folder / name, columns) if usable(row)]
    values = [number(r, "peak_power", name) * tdp_watts for r in rows]
    return summarise(values, "measured", f"{name}: peak draw in prompts >= 2,048 tokens, A100-80GB")


def fleet_busy_draw(folder: Path, above_watts: float) -> Draw:
    """Draw of the busy part of a training fleet (Acme, A100-SXM4-80GB)."""
    name = "acme_gpu_power_cdf.csv.gz"
    rows = read_csv(folder / name, ("cdf_percent", "kalos_gpu_w", "seren_gpu_w"))
    values = [number(r, c, name) for r in rows for c in ("kalos_gpu_w", "seren_gpu_w")]
    busy = [value for value in values if value > above_watts]
    source = f"{name}: both clusters, samples above {above_watts:g} W"
    return summarise(busy, "measured", source)


def sweep_draw(
    points: Sequence[SweepPoint], gpu: str, keep: Callable[[float], bool], what: str
) -> Draw:
    """Uncapped draw of the swept training jobs whose share of the limit passes ``keep``."""
    values = [
        p.uncapped_watts
        for p in points
        if p.gpu == gpu and p.limit_watts == p.max_limit_watts and keep(p.share)
    ]
    return summarise(values, "measured", f"zeus_power_limit_sweep.csv.gz: {what}")
