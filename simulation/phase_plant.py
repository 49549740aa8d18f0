"""One GPU that plays phases of work for ever, in small steps: the judge of the catalogue's shapes.

It shares no pricing with ``capacity``: a kernel takes the harder of two roofs and a start, energy
is counted by operation and byte, the board follows its limit by lowering a clock little by little,
and traffic is a queue beside the kernels. What it has in common with the catalogue is the
description of the work itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from wattpack.errors import InputError
from wattpack.units import require_number

Floats = npt.NDArray[np.float64]

PEAK_OPERATIONS: Final = {
    "products": 989e12, "narrow_products": 1978e12, "attention": 989e12,
    "masked_attention": 989e12,
}  # fmt: skip
PEAK_BYTES: Final = 4.8e12
"""Of an H200, by its datasheet."""

REACHED: Final = {
    "products": 0.83, "narrow_products": 0.62, "attention": 0.58,
    "masked_attention": 0.36,
}  # fmt: skip
REACHED_BYTES: Final = 0.90
START_SECONDS: Final = 2.5e-6
"""Large kernels of the own H200 rows (``h200``): the best products reach 0.82, long prefill
attention 0.52 to 0.61, the same under windows and documents 0.32 to 0.37, streams 0.89 to 0.91,
decode attention 0.88; small kernels take 2 to 4 us."""

GAP_WATTS: Final = 152.6
"""Between kernels (own H200 rows: chains of empty kernels, launched one by one)."""

STANDING_WATTS: Final = 162.0
JOULES_PER_OPERATION: Final = {
    "products": 0.836e-12, "narrow_products": 0.5e-12, "attention": 0.95e-12,
    "masked_attention": 1.5e-12,
}  # fmt: skip
JOULES_PER_BYTE: Final = {
    "products": 95e-12, "narrow_products": 95e-12, "attention": 108e-12,
    "masked_attention": 108e-12,
}  # fmt: skip
"""Least squares (relative) over 107 own H200 rows that the limit did not touch: products within
6 %, whole steps within 3 %. Narrow products and attention: of the few such rows.
Masked attention computes pairs that count as none."""

CLOCK_EXPONENT: Final = 2.3
"""Of dynamic power in the clock, near the top of the range: a product that would draw 1.27 of the
limit is held at it 1.16 times slower (own H200 rows)."""

FOLLOW_SECONDS: Final = 0.06
"""Time constant with which the clock follows what the limit asks. Boards stand above their limit
for 0.9 s and then dip for 0.3 s (``h200_power_steps``), which cancels in energy; this follower
keeps the energy and leaves both out."""

SLICE_SECONDS: Final = 0.01
"""Of a phase with traffic: each slice has its kernels, then its share of the traffic. Buffers are
small beside a layer, so a meter of 100 ms sees no grain."""

LOWEST_CLOCK: Final = 0.2
EAGER_LAUNCH_SECONDS: Final = 6.0e-6
CLOCK_HZ: Final = 1.98e9
SENSOR_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """Equal kernels.

    Attributes:
        unit: ``products``, ``narrow_products``, ``attention`` or ``masked_attention``.
        slowness: Time over that of the measured library.
    """

    operations: float
    bytes_moved: float
    count: float
    unit: str = "products"
    slowness: float = 1.0


@dataclass(frozen=True, slots=True)
class PlayedPhase:
    """One phase.

    Attributes:
        repeats: Of loads, cycles and outside work.
        cycles: Of the clock that depend on one another.
        outside_seconds: The slowest path outside the GPU, one repeat.
        hidden: Share of it that runs beside the kernels.
        eager: The host starts the kernels one by one.
        side_of: Share of the GPU that each load runs on, beside those of other shares; empty: all.
    """

    loads: Sequence[Load]
    repeats: int
    cycles: float
    outside_seconds: float
    hidden: float
    wait_seconds: float
    eager: bool = False
    side_of: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """What was drawn, in steps of unequal length.

    Attributes:
        seconds: Length of each step, shape (n_steps,); the others likewise.
        busy: 1 while a kernel runs.
        clock: Over the highest; ``bytes_moved`` a second.
        period_seconds: Between starts of cycles, once settled.
    """

    seconds: Floats
    watts: Floats
    busy: Floats
    clock: Floats
    bytes_moved: Floats
    period_seconds: float

    @property
    def mean_watts(self) -> float:
        """Over the trace."""
        return float(self.seconds @ self.watts / self.seconds.sum())

    def sensed(self) -> Floats:
        """Means over any 100 ms, one every 10 ms."""
        edges = np.concatenate([[0.0], np.cumsum(self.seconds)])
        energy = np.concatenate([[0.0], np.cumsum(self.seconds * self.watts)])
        at = np.arange(0.0, edges[-1] - SENSOR_SECONDS, SENSOR_SECONDS / 10)
        gained = np.interp(at + SENSOR_SECONDS, edges, energy) - np.interp(at, edges, energy)
        return np.asarray(gained / SENSOR_SECONDS)


Dynamic = tuple[float, float]
"""Watts that follow the clock (operations) and watts that do not (bytes)."""

NOTHING: Final[Dynamic] = (0.0, 0.0)

Step = tuple[float, float, float, float, float]
"""Seconds, watts, busy, clock and bytes a second."""


@dataclass(slots=True)
class _Board:
    """The clock that the limit leaves, and the meter."""

    limit_watts: float
    clock: float = 1.0
    filtered: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def step(self, seconds: float, dynamic: Dynamic) -> float:
        """Watts over the step; the clock then moves towards what holds the limit."""
        standing = STANDING_WATTS if dynamic != NOTHING else GAP_WATTS
        watts = standing + dynamic[1] + dynamic[0] * math.pow(self.clock, CLOCK_EXPONENT)
        weight = 1 - math.exp(-seconds / FOLLOW_SECONDS)
        for part in (0, 1):
            self.filtered[part] += weight * (dynamic[part] - self.filtered[part])
        room = max(self.limit_watts - STANDING_WATTS - self.filtered[1], 1.0)
        wanted = math.pow(room / max(self.filtered[0], 1.0), 1 / CLOCK_EXPONENT)
        self.clock = min(1.0, max(LOWEST_CLOCK, wanted))
        return watts


def play(
    phases: Sequence[PlayedPhase],
    limit_watts: float,
    *,
    settle_seconds: float = 3.0,
    seconds: float = 3.0,
    cycles: int = 2,
    step_seconds: float = 0.02,
) -> Trace:
    """The trace of whole cycles after the board has settled.

    Args:
        seconds: Played at least, and ``cycles`` whole cycles at least.

    Raises:
        InputError: no phase, or a limit that is not above 0.
    """
    if not phases:
        raise InputError("phases", "at least one", 0)
    require_number("limit_watts", limit_watts, exclusive_minimum=0)
    board = _Board(limit_watts)
    settled = 0.0
    while settled < settle_seconds:
        settled += sum(step[0] for step in _cycle(phases, board, step_seconds))
    steps: list[Step] = []
    played, turns = 0.0, 0
    while played < seconds or turns < cycles:
        made = list(_cycle(phases, board, step_seconds))
        steps += made
        played += sum(step[0] for step in made)
        turns += 1
    lengths, watts, busy, clock, moved = np.array(steps).T
    return Trace(lengths, watts, busy, clock, moved, played / turns)


def _cycle(phases: Sequence[PlayedPhase], board: _Board, step_seconds: float) -> Iterator[Step]:
    for phase in phases:
        yield from _phase(phase, board, step_seconds)


def _phase(phase: PlayedPhase, board: _Board, step_seconds: float) -> Iterator[Step]:
    """Kernels with hidden traffic beside them, then the rest of the traffic, then the wait."""
    clocked, fixed, joules = _unit(phase)
    unit = clocked + fixed
    share = clocked / unit if unit else 0.0
    dynamic = (joules[0] / unit, joules[1] / unit) if unit else NOTHING
    launching = EAGER_LAUNCH_SECONDS * sum(load.count for load in phase.loads) * phase.eager
    starved = max(0.0, launching - unit) * phase.repeats
    outside = phase.outside_seconds * phase.repeats
    whole = phase.repeats * unit + outside
    slices = math.ceil(whole / SLICE_SECONDS) if unit and outside + starved else 1
    for _ in range(slices):
        beside = phase.hidden * outside / slices
        for step in _kernels(phase.repeats * unit / slices, share, dynamic, board,
                                      step_seconds):  # fmt: skip
            beside -= step[0]
            yield step
        rest = max(beside, 0.0) + ((1 - phase.hidden) * outside + starved) / slices
        yield from _nothing(rest, board, step_seconds)
    yield from _nothing(phase.wait_seconds, board, step_seconds)


def _kernels(
    work: float, share: float, dynamic: Dynamic, board: _Board, step_seconds: float
) -> Iterator[Step]:
    """``work`` seconds at full clock, of which ``share`` waits for the clock."""
    while work > 1e-12:
        pace = 1 / (share / board.clock + 1 - share)
        length = min(step_seconds, work / pace)
        work -= length * pace
        watts = board.step(length, dynamic)
        yield length, watts, 1.0, board.clock, dynamic[1] / JOULES_PER_BYTE["products"]


def _nothing(seconds: float, board: _Board, step_seconds: float) -> Iterator[Step]:
    while seconds > 1e-12:
        length = min(step_seconds, seconds)
        seconds -= length
        yield length, board.step(length, NOTHING), 0.0, 1.0, 0.0


def _unit(phase: PlayedPhase) -> tuple[float, float, Dynamic]:
    """Seconds that wait for the clock and those that do not, and dynamic joules, of one repeat."""
    clocked = phase.cycles / CLOCK_HZ
    fixed = by_operation = by_byte = 0.0
    sides: dict[float, list[float]] = {}
    for index, load in enumerate(phase.loads):
        compute = load.operations / (PEAK_OPERATIONS[load.unit] * REACHED[load.unit])
        memory = load.bytes_moved / (PEAK_BYTES * REACHED_BYTES)
        side = phase.side_of[index] if phase.side_of else 1.0
        both = sides.setdefault(side, [0.0, 0.0])
        by_clock = compute > memory
        both[0] += load.count * load.slowness * compute / side * by_clock
        both[1] += load.count * load.slowness * (START_SECONDS + memory / side * (not by_clock))
        by_operation += load.count * load.operations * JOULES_PER_OPERATION[load.unit]
        by_byte += load.count * load.bytes_moved * JOULES_PER_BYTE[load.unit]
    if sides:
        longest = max(sides.values(), key=sum)
        clocked, fixed = clocked + longest[0], longest[1]
    return clocked, fixed, (by_operation, by_byte)
