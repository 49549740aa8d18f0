"""GPU types as pictures: roofline, draw over intensity, what a cap costs each kind of work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from capacity.bench.measurement_row import MeasurementRow
from capacity.gpu_profile import GpuProfile, KernelClass
from capacity.roofs import Roofs, find_roofs

DRAWN_CLASSES: Final = (
    "gemm",
    "attention_prefill",
    "attention_decode",
    "step_prefill",
    "step_decode",
)
"""Kernels that count operations; passes over memory have no place on an axis of intensity."""

ROOF_FORMATS: Final = ("bf16", "fp8")


def gpu_type_views(
    profiles: Iterable[GpuProfile], rows: Sequence[MeasurementRow]
) -> list[dict[str, Any]]:
    """One view a type, those with measured points first, then by name.

    Args:
        profiles: What counts now: objects over the shipped ones.
        rows: Measured rows of any types; rows that something speaks against are left out.
    """
    by_type: dict[str, list[MeasurementRow]] = {}
    for row in rows:
        roofs = find_roofs(row.identity.gpu_product)
        if roofs is not None and row.ok and row.kernel.kernel_class in DRAWN_CLASSES:
            by_type.setdefault(roofs.model, []).append(row)
    views = [gpu_type_view(profile, by_type.get(profile.model, ())) for profile in profiles]
    return sorted(views, key=lambda view: (not view["points"], view["model"]))


def gpu_type_view(profile: GpuProfile, rows: Sequence[MeasurementRow]) -> dict[str, Any]:
    """What the page draws of one type.

    Args:
        rows: Measured on this type.
    """
    return {
        "model": profile.model,
        "idleWatts": profile.idle_watts,
        "kneeWatts": profile.knee_watts,
        "minLimitWatts": profile.min_limit_watts,
        "limitWatts": profile.default_limit_watts,
        "roofs": _roofs(find_roofs(profile.model)),
        "points": _points(rows),
        "curves": {
            name: _curve(profile, kernel)
            for name, kernel in profile.kernel_classes.items()
            if name != "idle"
        },
    }


def _roofs(roofs: Roofs | None) -> dict[str, Any] | None:
    if roofs is None:
        return None
    peaks = {name: roofs.flops_per_second(name) for name in ROOF_FORMATS}
    return {
        "bytesPerSecond": roofs.bytes_per_second,
        "flopsPerSecond": {name: peak for name, peak in peaks.items() if peak},
    }


def _points(rows: Sequence[MeasurementRow]) -> dict[str, dict[str, list[float | bool | None]]]:
    points: dict[str, dict[str, list[float | bool | None]]] = {}
    for row in sorted(rows, key=_intensity):
        columns = points.setdefault(
            row.kernel.kernel_class,
            {"intensity": [], "flopsPerSecond": [], "drawWatts": [], "held": []},
        )
        columns["intensity"].append(_digits(_intensity(row)))
        columns["flopsPerSecond"].append(_digits(row.kernel.flops / row.latency.median_seconds))
        columns["drawWatts"].append(round(row.power.mean_watts, 1) if row.power else None)
        columns["held"].append("throttled" in row.flags)
    return points


def _curve(profile: GpuProfile, kernel: KernelClass) -> Mapping[str, Any]:
    return {
        "capWatts": [
            round(share * profile.default_limit_watts, 1) for share in kernel.cap_fractions
        ],
        "throughput": list(kernel.throughput),
        "drawWatts": [round(share * kernel.power_p50_watts, 1) for share in kernel.draw],
        "provenance": kernel.provenance,
        "errorShare": kernel.error_mape,
        "errorKind": kernel.error_kind,
    }


def _intensity(row: MeasurementRow) -> float:
    return row.kernel.flops / row.kernel.bytes_moved


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
