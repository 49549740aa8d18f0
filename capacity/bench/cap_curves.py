"""What a power cap costs: speed at each cap, of measured rows or else of the shipped profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capacity.bench.measurement_row import MeasurementRow
from capacity.kernels import Kernel
from capacity.profile_library import shipped_library
from wattpack.errors import InputError

SHIPPED_CLASSES = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class CapCurve:
    """One kernel or class of work under caps.

    Attributes:
        label: What it is and where the curve comes from.
        caps_watts: Ascending, shape (n,).
        speeds: Over the speed at the highest cap, shape (n,).
    """

    label: str
    caps_watts: tuple[float, ...]
    speeds: tuple[float, ...]


def cap_curves(rows: Sequence[MeasurementRow]) -> tuple[CapCurve, ...]:
    """A curve for each kernel of section ``caps``; without such rows those of the shipped profile.

    Empty for a type that has neither.
    """
    return _measured(rows) or _shipped(rows[0].identity.gpu_product)


def _measured(rows: Iterable[MeasurementRow]) -> tuple[CapCurve, ...]:
    sustained: dict[Kernel, dict[float, float]] = {}
    for row in rows:
        if row.section == "caps" and row.power and not row.identity.sm_clock_lock_mhz:
            cap = row.identity.power_limit_watts
            sustained.setdefault(row.kernel, {})[cap] = row.power.sustained_seconds
    return tuple(
        _relative(f"{kernel.kernel_class} {turn}, measured", seconds)
        for turn, (kernel, seconds) in enumerate(sustained.items(), start=1)
        if len(seconds) > 1
    )


def _relative(label: str, seconds: dict[float, float]) -> CapCurve:
    caps = tuple(sorted(seconds))
    return CapCurve(label, caps, tuple(seconds[caps[-1]] / seconds[cap] for cap in caps))


def _shipped(product: str) -> tuple[CapCurve, ...]:
    try:
        profile = shipped_library().find(product)
    except InputError:
        return ()
    limit = profile.default_limit_watts
    return tuple(
        CapCurve(
            f"{name}, shipped profile, {kernel.curve_provenance}",
            tuple(share * limit for share in kernel.cap_fractions),
            kernel.throughput,
        )
        for name in SHIPPED_CLASSES
        for kernel in (profile.kernel_classes[name],)
    )
