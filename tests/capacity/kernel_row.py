"""Builders of measured rows: a clean cold row of an H200 unless told otherwise."""

from __future__ import annotations

from typing import Any

from capacity.bench.bench_identity import BenchIdentity
from capacity.bench.measurement_row import Latency, MeasurementRow, PowerWindow
from capacity.kernels import Kernel

LIMIT_WATTS = 700.0


def identity(product: str = "NVIDIA H200", limit_watts: float = LIMIT_WATTS) -> BenchIdentity:
    return BenchIdentity(
        run_id="r", gpu_product=product, gpu_uuid_hash="0" * 16, architecture="sm_90", vbios="v",
        driver="d", cuda="13.0", torch="2", image_digest="", kernel_source_sha256="0" * 64,
        power_limit_watts=limit_watts,
    )  # fmt: skip


def kernel_row(
    kernel: Kernel,
    seconds: float,
    *,
    section: str = "gemm",
    draw_watts: float | None = None,
    sustained_seconds: float | None = None,
    p10_seconds: float | None = None,
    throttled: bool = False,
    **changes: Any,
) -> MeasurementRow:
    power = None
    if draw_watts is not None:
        power = PowerWindow(
            mean_watts=draw_watts, sampled_watts=draw_watts, p99_watts=draw_watts,
            energy_joules=draw_watts, window_seconds=1.0,
            sustained_seconds=sustained_seconds or seconds, instant_watts=(draw_watts,) * 5,
        )  # fmt: skip
    values: dict[str, Any] = {
        "identity": identity(),
        "section": section,
        "kernel": kernel,
        "cache_state": "cold",
        "timing_mode": "continuous",
        "implementation": "x",
        "data_distribution": "normal",
        "latency": Latency(seconds, p10_seconds or seconds, seconds, 0.0, 10),
        "power": power,
        "sm_clock_mhz": 1980.0,
        "temperature_start_celsius": 40.0,
        "temperature_end_celsius": 40.0,
        "throttle_reasons": 4 if throttled else 0,
        "started_at": "2026-01-01T00:00:00Z",
        "flags": ("throttled",) if throttled and power else (),
    }
    return MeasurementRow(**{**values, **changes})
