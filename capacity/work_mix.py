"""What a mix of work does under a cap on one GPU type: speed, draw, and what a watt buys.

WorkMix (parts of time, what binds each, how hard it draws) ─┐
GpuProfile (power and cap map of kernel classes) ────────────┴─> CapCurve

A cap slows a part as its class of kernels is slowed at the same cap over draw: work that draws less
than the class's median feels a lower cap only (as ``capacity.capacity_table.power`` reads the
curves). A part that waits for something outside the GPU is late only once its kernels take longer
than that wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from capacity.gpu_profile import GpuProfile, KernelClass
from wattpack.errors import InputError
from wattpack.units import require_number

Floats = NDArray[np.float64]

IDLE_CLASS: Final = "idle"
"""The kernel class of a GPU that waits."""

RARE_SHARE: Final = 0.05
"""Of the time: the hottest parts that are together this short lie beyond the 95th percentile."""

_CAPS: Final = 37
"""Points of a curve: one every 1.4 to 2.5 % of the limit, as fine as the shipped cap maps."""

SUM_TOLERANCE: Final = 1e-6
"""Shares are written with a few decimals; their sum is not exact."""


@dataclass(frozen=True, slots=True)
class WorkPart:
    """One part of the time.

    Attributes:
        kernel_class: Whose cap map it follows.
        time_share: Of all time, without a cap.
        busy_share: Of the part, that kernels run.
        draw_share: Mean draw without a cap over the default limit; None: the class's median draw.
        waits_outside: For host, storage, network or a deadline, and not for the GPU.
    """

    kernel_class: str
    time_share: float
    busy_share: float = 1.0
    draw_share: float | None = None
    waits_outside: bool = False

    def __post_init__(self) -> None:
        require_number("time_share", self.time_share, minimum=0, maximum=1 + SUM_TOLERANCE)
        require_number("busy_share", self.busy_share, minimum=0, maximum=1 + SUM_TOLERANCE)
        if self.draw_share is not None:
            require_number("draw_share", self.draw_share, minimum=0, maximum=10)


@dataclass(frozen=True, slots=True)
class WorkMix:
    """All parts; what is left of the time the GPU waits.

    Attributes:
        is_short: One round of the parts is shorter than a board regulates over, so that the limit
            holds their mean and not the hottest of them.
    """

    parts: tuple[WorkPart, ...]
    is_short: bool = False

    def __post_init__(self) -> None:
        total = sum(part.time_share for part in self.parts)
        if total > 1 + SUM_TOLERANCE:
            raise InputError("parts", "shares whose sum is at most 1", total)

    @property
    def waiting_share(self) -> float:
        """Of the time, in no part."""
        return max(0.0, 1.0 - sum(part.time_share for part in self.parts))


@dataclass(frozen=True, slots=True)
class CapCurve:
    """One kind of work on one GPU type.

    Attributes:
        cap_watts: Power limits from the lowest to the default, ascending, shape (n,).
        speed: Relative to the default limit, in (0, 1], never falling, shape (n,).
        draw_watts: Mean draw, shape (n,).
        p95_watts: Of the draw at the default limit; that of the part it falls in.
    """

    cap_watts: Floats
    speed: Floats
    draw_watts: Floats
    p95_watts: float

    def speed_at(self, cap_watts: float) -> float:
        """Relative to the default limit; held at the curve's ends."""
        return float(np.interp(cap_watts, self.cap_watts, self.speed))

    def value_per_watt(self, from_watts: float) -> float:
        """Share of the work that each watt between this cap and the default limit buys."""
        span = float(self.cap_watts[-1]) - from_watts
        return max(0.0, 1.0 - self.speed_at(from_watts)) / span if span > 0 else 0.0


def mix_of_classes(shares: Mapping[str, float]) -> WorkMix:
    """The mix of a WorkloadProfile's ``kernelMix``: kernel class to share of GPU time.

    Raises:
        InputError: a share that is none, or shares beyond the whole.
    """
    return WorkMix(
        tuple(WorkPart(name, share) for name, share in shares.items() if name != IDLE_CLASS)
    )


def cap_curve(profile: GpuProfile, mix: WorkMix) -> CapCurve | None:
    """The mix on the GPU type; None where nothing works or the type lacks a class of the mix."""
    classes = profile.kernel_classes
    parts = [part for part in mix.parts if part.time_share > 0]
    if not parts or any(part.kernel_class not in classes for part in parts):
        return None
    limit = profile.default_limit_watts
    caps = np.linspace(profile.min_limit_watts, limit, _CAPS)
    kernels = [classes[part.kernel_class] for part in parts]
    draws = [_draw(part, kernel, limit) for part, kernel in zip(parts, kernels, strict=True)]
    shares = [part.time_share for part in parts]
    mean = float(np.average(draws, weights=shares))
    held = [mean] * len(parts) if mix.is_short else draws
    times = np.full(_CAPS, mix.waiting_share)
    joules = times * profile.context_watts
    for part, kernel, draw, level in zip(parts, kernels, draws, held, strict=True):
        # The map is one of cap over draw: gentler work reads it at a higher cap.
        fractions = caps / limit * (kernel.power_p50_watts / level)
        kept = np.interp(fractions, kernel.cap_fractions, kernel.throughput)
        drawn = draw * np.interp(fractions, kernel.cap_fractions, kernel.draw)
        seconds = part.time_share * _stretch(part, kept)
        times += seconds
        joules += seconds * drawn
    highs = [
        draw * kernel.power_p95_watts / kernel.power_p50_watts
        for kernel, draw in zip(kernels, draws, strict=True)
    ]
    speed = np.minimum(1.0, times[-1] / times)
    return CapCurve(caps, speed, joules / times, _p95(highs, shares, limit))


def _p95(highs: Sequence[float], shares: Sequence[float], limit_watts: float) -> float:
    """Of the hottest part that, with all that are hotter, is not rare; the limit if all are."""
    share_so_far = 0.0
    for high, share in sorted(zip(highs, shares, strict=True), reverse=True):
        share_so_far += share
        if share_so_far > RARE_SHARE:
            return high
    return limit_watts


def _draw(part: WorkPart, kernel: KernelClass, limit_watts: float) -> float:
    if part.draw_share is None:
        return kernel.power_p50_watts
    return max(part.draw_share * limit_watts, 1.0)


def _stretch(part: WorkPart, kept: Floats) -> Floats:
    """Time under each cap over time without one, shape (n,)."""
    busy = part.busy_share / kept
    if part.waits_outside:
        return np.asarray(np.maximum(1.0, busy))
    return np.asarray(busy + (1.0 - part.busy_share))
