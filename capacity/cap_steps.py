"""Power caps worth choosing from for one kind of work on one GPU type, and what each comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from capacity.gpu_profile import GpuProfile

__all__ = ["STEPS", "CapStep", "cap_steps"]

STEPS: Final = 5
"""Caps from the default limit to the knee, both included."""


@dataclass(frozen=True, slots=True)
class CapStep:
    """One cap of a board and what the work does there.

    Attributes:
        cap_watts: Power limit of the board.
        p95_watts: 95th percentile of its draw; a cap cuts it.
        speed: Relative to the default limit, in (0, 1].
    """

    cap_watts: float
    p95_watts: float
    speed: float


def cap_steps(
    profile: GpuProfile,
    p95_watts: float,
    speed_at: Callable[[float], float],
    overshoot: float = 1.0,
) -> tuple[CapStep, ...]:
    """Caps from the default limit down to the knee, where training keeps 85 % of its speed.

    Args:
        profile: Of the GPU type.
        p95_watts: Of the work's draw without a cap.
        speed_at: Its speed at a cap in watts, relative to the default limit.
        overshoot: What a board draws over its cap at most.
    """
    caps = np.linspace(profile.default_limit_watts, profile.knee_watts, STEPS).tolist()
    return tuple(CapStep(cap, min(p95_watts, overshoot * cap), speed_at(cap)) for cap in caps)
