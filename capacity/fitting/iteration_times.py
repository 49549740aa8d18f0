"""Iteration times of language model servers, fitted from end-to-end runs.

The time per output token of a run with ``batch`` concurrent requests of ``input`` and ``output``
tokens is taken as base + c * batch * (input + output / 2) + p * batch * input / output: the
weights, the KV cache at its mean length, and the prompts that each iteration carries on average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from capacity.fitting.curves import Floats
from capacity.fitting.reference_files import Row, number, read_csv
from capacity.serving_times import ServingTimes
from wattpack.errors import InputError

SERVING_FILE: Final = "aic_llama31_serving.csv.gz"
GEMM_FILE: Final = "aic_gemm_time.csv.gz"
MIN_RUNS: Final = 12
MAX_FIT_ERROR: Final = 0.1
"""Fits with a larger error are not published; the type falls back to the transfer rule."""

PARAMETERS_BILLION: Final = {"llama-3.1-70b": 70.6, "llama-3.1-8b": 8.0}
WEIGHT_MEMORY_SHARE: Final = 0.85
"""Weights that take more of the memory than this leave no room for a useful KV cache."""


@dataclass(frozen=True, slots=True)
class GpuSpeed:
    """What iteration times scale with when they are not measured on a type.

    Attributes:
        gemm_tflops: Median of large bf16 matrix products, or the datasheet's peak times the
            median measured efficiency.
        memory_gbytes_per_second: Nominal memory bandwidth.
        fp8: Whether the type multiplies in fp8; otherwise weights take twice the bytes.
        memory_gbytes: Memory of the smaller variant of the type.
    """

    gemm_tflops: float
    memory_gbytes_per_second: float
    fp8: bool
    memory_gbytes: float


def gemm_tflops(folder: Path, system: str) -> float:
    """Median throughput of bf16 products with m 2048-8192, n, k >= 1024, k <= 12288, > 0.2 ms."""
    rows = read_csv(folder / GEMM_FILE, ("system", "m", "n", "k", "latency_ms"))
    values = [
        2e-9
        * number(r, "m", GEMM_FILE)
        * number(r, "n", GEMM_FILE)
        * number(r, "k", GEMM_FILE)
        / number(r, "latency_ms", GEMM_FILE)
        for r in rows
        if r["system"] == system
    ]
    if not values:
        raise InputError("system", "a system in the file", system, GEMM_FILE)
    return float(np.median(values))


def measured_times(folder: Path, gpu_of_system: Mapping[str, str]) -> list[ServingTimes]:
    """One fit per GPU, model and parallelism of one engine each (vLLM 70B fp8, TensorRT 8B)."""
    columns = (
        "model_path",
        "system",
        "backend",
        "isl",
        "osl",
        "batch_size",
        "tp_size",
        "silicon_tpot_ms",
    )
    engines = {
        ("meta-llama/Llama-3.1-70B", "vllm", "fp8"): ("llama-3.1-70b", "fp8"),
        ("meta-llama/Llama-3.1-8B-Instruct", "trtllm", ""): ("llama-3.1-8b", "bf16"),
    }
    groups: dict[tuple[str, str, str, int], list[Row]] = {}
    for row in read_csv(folder / SERVING_FILE, columns):
        key = (row["model_path"], row["backend"], row["precision"])
        if key in engines and row["system"] in gpu_of_system:
            name, precision = engines[key]
            parallel = int(number(row, "tp_size", SERVING_FILE))
            groups.setdefault((gpu_of_system[row["system"]], name, precision, parallel), []).append(
                row
            )
    fits = [_fit(*key, rows) for key, rows in sorted(groups.items()) if len(rows) >= MIN_RUNS]
    return [fit for fit in fits if fit.error_mape <= MAX_FIT_ERROR and not _memory_bound(fit, fits)]


def _memory_bound(fit: ServingTimes, fits: Sequence[ServingTimes]) -> bool:
    """Whether prompts look cheaper than on more GPUs.

    That cannot be; it happens when the KV cache is too small for the batch, so that requests wait
    and the batch that ran was smaller than the one in the file (70B on two H100).
    """
    return any(
        other.prefill_seconds_per_token > fit.prefill_seconds_per_token
        for other in fits
        if (other.gpu, other.language_model) == (fit.gpu, fit.language_model)
        and other.tensor_parallel > fit.tensor_parallel
    )


def fits_in_memory(language_model: str, tensor_parallel: int, speed: GpuSpeed, fp8: bool) -> bool:
    """Whether the weights leave room for a KV cache on that many GPUs."""
    bytes_each = 1.0 if fp8 and speed.fp8 else 2.0
    weights = PARAMETERS_BILLION[language_model] * bytes_each
    return weights <= WEIGHT_MEMORY_SHARE * tensor_parallel * speed.memory_gbytes


def _fit(
    gpu: str, language_model: str, precision: str, parallel: int, rows: Sequence[Row]
) -> ServingTimes:
    """Non-negative least squares on relative errors."""
    table = np.array(
        [
            [number(r, c, SERVING_FILE) for c in ("batch_size", "isl", "osl", "silicon_tpot_ms")]
            for r in rows
        ]
    )
    batch, isl, osl, tpot = table.T
    design = np.column_stack([np.ones_like(batch), batch * isl / osl, batch * (isl + osl / 2)])
    coefficients = _non_negative_fit(design / tpot[:, None], np.ones_like(tpot))
    error = float(np.mean(np.abs(design @ coefficients / tpot - 1)))
    base, prefill, context = (float(c) * 1e-3 for c in coefficients)
    return ServingTimes(
        gpu, language_model, precision, parallel, base, prefill, context,
        "measured", f"{SERVING_FILE}: fit of {len(rows)} end-to-end runs", len(rows), error,
    )  # fmt: skip


def _non_negative_fit(design: Floats, target: Floats) -> Floats:
    """Least squares with no negative coefficient, by trying every set of active columns."""
    best, best_error = np.zeros(design.shape[1]), float("inf")
    columns = range(design.shape[1])
    for size in range(1, design.shape[1] + 1):
        for active in combinations(columns, size):
            solution = np.linalg.lstsq(design[:, active], target, rcond=None)[0]
            error = float(np.sum((design[:, active] @ solution - target) ** 2))
            if np.all(solution >= 0) and error < best_error:
                best, best_error = np.zeros(design.shape[1]), error
                best[list(active)] = solution
    return best


def transferred_times(
    reference: ServingTimes, speeds: Mapping[str, GpuSpeed], gpu: str, error: float
) -> ServingTimes:
    """Times on another type: prompts scale with matrix throughput, the rest with bandwidth.

    Args:
        reference: Measured on ``reference.gpu``.
        speeds: By GPU model.
        gpu: The target.
        error: Error of this rule where it can be checked.
    """
    old, new = speeds[reference.gpu], speeds[gpu]
    wider = 2.0 if reference.precision == "fp8" and not new.fp8 else 1.0
    memory = old.memory_gbytes_per_second / new.memory_gbytes_per_second
    precision = reference.precision if new.fp8 else "16-bit"
    return ServingTimes(
        gpu, reference.language_model, precision, reference.tensor_parallel,
        reference.base_seconds * memory * wider,
        reference.prefill_seconds_per_token * old.gemm_tflops / new.gemm_tflops * wider,
        reference.context_seconds_per_token * memory,
        "derived",
        f"{reference.gpu} times scaled by matrix throughput and memory bandwidth"
        + (", weights in 16 bits as the type has no fp8" if wider == 2.0 else ""),
        0, error,
    )  # fmt: skip


def transfer_error(measured: Sequence[ServingTimes], speeds: Mapping[str, GpuSpeed]) -> float:
    """Mean error of the time per token when each type is predicted from another.

    Working points: batch 8, 32, 64 with 1,024 and 8,192 tokens in, 1,024 out.
    """
    errors = []
    for target in measured:
        for reference in measured:
            same = (reference.language_model, reference.tensor_parallel) == (
                target.language_model,
                target.tensor_parallel,
            )
            if same and reference.gpu != target.gpu:
                guess = transferred_times(reference, speeds, target.gpu, 0.0)
                for batch in (8, 32, 64):
                    for tokens_in in (1024, 8192):
                        point = (batch * tokens_in / 1024, batch * (tokens_in + 512.0))
                        errors.append(
                            abs(
                                guess.iteration_seconds(*point) / target.iteration_seconds(*point)
                                - 1
                            )
                        )
    return float(np.mean(errors))
