"""Boards whose work bears limits and locks as nobody told the controller: the judge's own plant.

The curves are those of the GPU profiles, moved by the capacity model's stated errors: half of the
variance belongs to the GPU type and kernel class, half to the job. Nothing here is shared with the
controller; it reads the profiles' figures only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.gpu_profile import GpuProfile, KernelClass

Floats = npt.NDArray[np.float64]

CAPS: Final = 41
"""Points of a board's truth between its lowest and its default limit."""

SHARES: Final = np.linspace(0.4, 1.0, 25)
"""Clocks over the highest at which locks are tabled."""

UNSTATED_DRAW_ERROR: Final = 0.0326
"""Of the draw where a profile states none: the largest that any states (H200 decode)."""

MEAN_OF_NORMAL: Final = float(np.sqrt(np.pi / 2))
"""Standard deviation over mean absolute value."""

BOARD_GAIN: Final = 0.05
"""Sensor gain of a board, at most: it regulates to what it reads (arXiv 2312.02741)."""

DECODE_CLOCK_BOUND: Final = (0.0, 0.05)
STANDING_SHARE: Final = (0.1, 0.35)
DRAW_EXPONENT: Final = (1.2, 2.2)
"""Ranges of the truth under locks, assumed: no sweep of a data-centre GPU is published. Within them
lie the figures that the controller assumes."""


@dataclass(frozen=True, slots=True)
class Board:
    """One GPU and its job, the truth.

    Attributes:
        caps: Limits, rising, (CAPS,).
        speed: Over that without a limit, (CAPS,).
        draw: True watts, (CAPS,).
        lock_speed: At ``SHARES``, of work that may be locked; empty for other work.
        lock_draw: The same, true watts.
        gain: Read watts are true watts over this.
    """

    gpu: str
    kind: str
    caps: Floats
    speed: Floats
    draw: Floats
    lock_speed: Floats
    lock_draw: Floats
    gain: float

    def at(self, cap_watts: float, clock_share: float) -> tuple[float, float]:
        """Speed and true draw under a limit and a lock together; the harder of both holds."""
        speed = float(np.interp(cap_watts, self.caps, self.speed))
        draw = float(np.interp(cap_watts, self.caps, self.draw))
        if clock_share >= 1.0 or not self.lock_speed.size:
            return speed, draw
        locked = float(np.interp(clock_share, SHARES, self.lock_draw))
        if locked > draw:
            return speed, draw
        return float(np.interp(clock_share, SHARES, self.lock_speed)), locked

    def points(self, *, locks: bool) -> tuple[Floats, Floats]:
        """Every way to hold the board that an optimum may choose: draws and speeds."""
        if not locks:
            return self.draw, self.speed
        return np.append(self.draw, self.lock_draw), np.append(self.speed, self.lock_speed)


def draw_fleet(
    profiles: Mapping[str, GpuProfile], jobs: Sequence[tuple[str, str]], rng: np.random.Generator
) -> list[Board]:
    """One board for each pair of GPU type and kernel class."""
    shared = {job: rng.standard_normal(2) for job in sorted(set(jobs))}
    return [_board(profiles[gpu], kind, shared[gpu, kind], rng) for gpu, kind in jobs]


def _board(
    profile: GpuProfile, kind: str, shared: npt.NDArray[np.float64], rng: np.random.Generator
) -> Board:
    kernel, limit = profile.kernel_classes[kind], profile.default_limit_watts
    off = (shared + rng.standard_normal(2)) / np.sqrt(2)
    caps = np.linspace(profile.min_limit_watts, limit, CAPS)
    speed = _moved(np.interp(caps / limit, kernel.cap_fractions, kernel.throughput),
                   off[0] * MEAN_OF_NORMAL * kernel.error_mape)  # fmt: skip
    gain = 1.0 + float(rng.uniform(-BOARD_GAIN, BOARD_GAIN))
    draw = _drawn(kernel, caps, limit, float(off[1])) * gain
    open_draw = float(draw[-1])
    lock_speed, lock_draw = np.zeros(0), np.zeros(0)
    if kind == "decode":
        bound, standing = rng.uniform(*DECODE_CLOCK_BOUND), rng.uniform(*STANDING_SHARE)
        lock_speed = 1 / (1 + bound * (1 / SHARES - 1))
        moving = SHARES ** rng.uniform(*DRAW_EXPONENT)
        lock_draw = open_draw * (standing + (1 - standing) * moving)
    return Board(profile.model, kind, caps, speed, draw, lock_speed, lock_draw, gain)


def _moved(speed: Floats, error: float) -> Floats:
    """The curve off by ``error`` on average where the limit binds, and right without a limit."""
    lost = 1.0 - speed
    binds = lost > 1e-6
    if not binds.any():
        return speed
    moved = np.minimum(speed * np.exp(error * lost / lost[binds].mean()), 1.0)
    return np.asarray(np.maximum.accumulate(moved))


def _drawn(kernel: KernelClass, caps: Floats, limit: float, off: float) -> Floats:
    """What the job asks for is off; what a limit holds is not."""
    stated = UNSTATED_DRAW_ERROR if kernel.power_error is None else kernel.power_error
    asked = kernel.power_p50_watts * np.interp(caps / limit, kernel.cap_fractions, kernel.draw)
    return np.asarray(np.minimum(asked * (1 + off * MEAN_OF_NORMAL * stated), caps))
