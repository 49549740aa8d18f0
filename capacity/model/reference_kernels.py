"""The shipped kernel tables of other GPUs, in ``capacity/reference/kernels`` (PROVENANCE.md)."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import numpy as np

from capacity.kernels import Attention, Collective, Gemm, Kernel
from capacity.model.kernel_samples import Floats, PowerSamples, TimeSamples
from capacity.roofs import require_roofs
from wattpack.errors import InputError

FOLDER: Final = "reference/kernels"

GEMM_GPUS: Final = ("A100-SXM", "H100-SXM", "H200-SXM", "B200-SXM", "L40S", "RTX-PRO-6000")
ATTENTION_GPUS: Final = ("A100-SXM", "H100-SXM", "H200-SXM", "B200-SXM", "L40S")
COLLECTIVE_GPUS: Final = GEMM_GPUS

_Build = Callable[[Mapping[str, Any]], Kernel]

HEAD_DIM: Final = 128
"""Of every attention row that was kept."""

MATERIAL_SECONDS: Final = 60e-6
"""Shorter kernels under-read power: their runs end before the meter's second is over."""

LARGEST_FILLED_K: Final = 16384
"""Longer weights were never filled with data: less draw and more speed than real ones."""


@lru_cache(maxsize=1)
def shipped_times() -> tuple[TimeSamples, ...]:
    """Every table of times: what completes the few rows of a short benchmark."""
    return (
        *(reference_gemms(gpu) for gpu in GEMM_GPUS),
        *(reference_attention(gpu) for gpu in ATTENTION_GPUS),
        *(reference_all_reduces(gpu) for gpu in COLLECTIVE_GPUS),
    )


@lru_cache(maxsize=16)
def reference_gemms(gpu: str) -> TimeSamples:
    """Times of matrix products: bf16, on the H200 also block-scaled fp8."""
    return _times(gpu, f"gemm_{gpu}", _gemm)


@lru_cache(maxsize=16)
def reference_attention(gpu: str) -> TimeSamples:
    """Times of causal attention, prefill and decode, bf16 with head size 128."""
    return _times(gpu, f"attention_{gpu}", _attention)


@lru_cache(maxsize=16)
def reference_all_reduces(gpu: str, implementation: str = "nccl") -> TimeSamples:
    """Times of all-reduces over 2, 4 and 8 GPUs.

    Args:
        implementation: ``nccl``, or ``vllm_graph`` for that engine's own kernel.
    """
    rows = [
        row
        for row in _read(f"collective_{gpu}")
        if row["op"] == "all_reduce" and row["implementation"] == implementation
    ]
    return _time_samples(gpu, rows, _collective)


def reference_gemm_power(gpu: str) -> PowerSamples:
    """Draw of bf16 matrix products, only rows whose power can be trusted (PROVENANCE.md)."""
    rows = [
        row
        for row in _read(f"gemm_{gpu}")
        if row["number_format"] == "bf16" and int(row["k"]) <= LARGEST_FILLED_K
    ]
    return _power_samples(gpu, rows, _gemm)


def reference_attention_power(gpu: str) -> PowerSamples:
    """Draw of attention, only rows long enough for the meter."""
    return _power_samples(gpu, _read(f"attention_{gpu}"), _attention)


@lru_cache(maxsize=32)
def _read(name: str) -> tuple[dict[str, str], ...]:
    file = files("capacity").joinpath(FOLDER, f"{name}.csv.gz")
    if not file.is_file():
        known = sorted(
            entry.name.removesuffix(".csv.gz")
            for entry in files("capacity").joinpath(FOLDER).iterdir()
            if entry.name.endswith(".csv.gz")
        )
        raise InputError("table", f"one of {', '.join(known)}", name)
    text = gzip.decompress(file.read_bytes()).decode()
    return tuple(csv.DictReader(text.splitlines()))


def _times(gpu: str, table: str, build: _Build) -> TimeSamples:
    return _time_samples(gpu, _read(table), build)


def _time_samples(gpu: str, rows: Sequence[Mapping[str, str]], build: _Build) -> TimeSamples:
    return TimeSamples(gpu, tuple(build(row) for row in rows), _column(rows, "latency_ms") / 1e3)


def _power_samples(gpu: str, rows: Sequence[Mapping[str, str]], build: _Build) -> PowerSamples:
    kept = [row for row in rows if float(row["latency_ms"]) / 1e3 >= MATERIAL_SECONDS]
    if kept and "power_w" not in kept[0]:
        raise InputError("gpu", "a type whose table holds power: H200-SXM, B200-SXM", gpu)
    limit = require_roofs(gpu).default_limit_watts
    return PowerSamples(
        gpu,
        tuple(build(row) for row in kept),
        _column(kept, "latency_ms") / 1e3,
        _column(kept, "power_w"),
        np.full(len(kept), limit),
    )


def _column(rows: Sequence[Mapping[str, str]], name: str) -> Floats:
    return np.array([float(row[name]) for row in rows])


def _gemm(row: Mapping[str, Any]) -> Kernel:
    return Gemm(int(row["m"]), int(row["n"]), int(row["k"]), row["number_format"])


def _attention(row: Mapping[str, Any]) -> Kernel:
    return Attention(
        phase=row["phase"],
        batch=int(row["batch"]),
        query_tokens=int(row["query_tokens"]),
        kv_tokens=int(row["kv_tokens"]),
        heads=int(row["heads"]),
        kv_heads=int(row["kv_heads"]),
        head_dim=HEAD_DIM,
    )


def _collective(row: Mapping[str, Any]) -> Kernel:
    return Collective(row["op"], int(row["message_bytes"]), int(row["gpus"]))
