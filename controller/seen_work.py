"""What a board's work waits for, by what its units did: not by its name, nor its utilisation.

    engine idle ─────────────────────────> waits (for the host, for requests)
    DRAM beyond what products use ───────> memory: no clock hurries it
    the rest of the engine's time ───────> clock: operations, and chains of them

Time is shared out by two kinds of kernel: those at the memory's full rate, and all others, which
count as waiting for the clock whatever binds them. So several phases on one board, and steps that
need one another on a few multiprocessors, count with what they may lose at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from capacity.model.clock_map import STANDING_SHARE, ClockMap, clock_map
from capacity.work_mix import WorkMix, WorkPart
from wattpack.power.domain_tree import FloatArray

__all__ = ["UNITS", "Kind", "SeenWork", "Units", "work_of_units"]

Kind = Literal["compute", "memory", "mixed", "launches", "waits"]

UNITS: Final = ("engine", "sm", "tensor", "dram")

STREAM_DRAM: Final = 0.835
"""DRAM activity of a matrix times one row of 4 GiB, and in ``PRODUCT_DRAM`` of 8192³ products
(H200, docs/measurements/h200.md, 2026-11-22). Other types count as the same: assumed."""

PRODUCT_DRAM: Final = 0.17

PHASE_TENSOR: Final = 0.6
"""Tensor activity of phases that operations bind: prefills of the catalogue, priced on an H200;
real ones there showed 0.78, products 0.92. A lower figure trusts locks less."""

MEMORY_TENSOR: Final = 0.1
"""Tensor activity above which operations bind for a part of the time. A real H200 showed 0.03 to
0.06 in decodes of batches up to 16, 0.10 and 0.16 at 32 and 64, and 0.12 where a tenth of the time
was prefill (``benchmarks/data/h200_served/units.json``)."""

GAPS: Final = 0.3
TINY: Final = 0.1
"""Launch-bound: the engine rests for this share of the time at least, and its kernels occupy this
share of the multiprocessors at most. Kernels of 1,000 numbers, launched one by one: gaps of 0.6,
0.002 of the multiprocessors; the same in a graph, a chain of steps: no gaps, 0.003; an LSTM of one
sequence: 0.27 and 0.23 (``units.json``); thresholds between them are assumed. NVML's utilisation
says nothing more: on that board it equals the engine's activity."""

IDLE: Final = 0.05
"""Engine activity below which there is no work to tell."""

STEP: Final = 0.02
"""Shares are rounded by this so that like boards are priced once, the clock's upwards."""


@dataclass(frozen=True, slots=True)
class Units:
    """Shares of the time that units of a board were at work, means over a minute or more.

    Attributes:
        draw_share: Draw over the default limit while no cap held it; NaN if unknown.
    """

    engine: float
    sm: float
    tensor: float
    dram: float
    draw_share: float = math.nan


@dataclass(frozen=True, slots=True)
class SeenWork:
    """Shares of the time at the full clock; they add up to 1. A law of clocks like ClockResponse.

    Attributes:
        clock: Of the time, that waits for the clock.
        memory: At the memory's full rate.
        draw_share: Of the default limit, 0 if unknown.
    """

    kind: Kind
    clock: float
    memory: float
    draw_share: float

    @property
    def standing_share(self) -> float:
        """Of the draw, that no clock lowers; assumed."""
        return STANDING_SHARE

    @property
    def waits_for_clock(self) -> bool:
        """Whether it is as good as bound by its clock: what a lock takes is lost."""
        return self.kind in ("compute", "mixed")

    def speed(self, _gpu: str, clock_share: FloatArray) -> FloatArray:
        """Relative to the full clock.

        Where launches bind, the host is at work on the next one while a slower kernel runs.
        """
        share = np.asarray(clock_share)
        busy = self.clock / share + self.memory
        if self.kind == "launches":
            return np.asarray(1.0 / np.maximum(1.0, busy))
        return np.asarray(1.0 / (busy + (1.0 - self.clock - self.memory)))

    def draw_watts(self, gpu: str, clock_share: FloatArray, open_watts: float) -> FloatArray:
        """Mean draw of work that draws ``open_watts`` at the full clock."""
        law = ClockMap(clock_map(gpu).provenance, self.standing_share)
        return law.draw_watts(clock_share, open_watts)

    def mix(self) -> WorkMix:
        """As caps act on it; the draw is the same in all parts, as nobody tells them apart."""
        draw = self.draw_share or None
        if self.kind == "launches":
            busy = self.clock + self.memory
            return WorkMix((WorkPart("decode", 1.0, busy, draw, waits_outside=True),), True)
        parts = (("prefill", self.clock), ("decode", self.memory))
        return WorkMix(tuple(WorkPart(n, share, 1.0, draw) for n, share in parts if share), True)


def work_of_units(units: Units) -> SeenWork | None:
    """What the work waits for; None for a board at rest, or one whose units are unknown."""
    known = (units.engine, units.sm, units.tensor, units.dram)
    if not all(math.isfinite(share) for share in known) or units.engine < IDLE:
        return None
    engine = min(1.0, units.engine)
    of_products = PRODUCT_DRAM / STREAM_DRAM
    streamed = (units.dram / STREAM_DRAM - engine * of_products) / (1.0 - of_products)
    memory = min(engine, max(0.0, streamed))
    # Operations may have phases of their own between the memory's.
    clock = max(engine - memory, units.tensor / PHASE_TENSOR)
    clock = min(engine, math.ceil(clock / STEP - 1e-6) * STEP)
    memory = _rounded(engine - clock)
    draw = _rounded(units.draw_share) if math.isfinite(units.draw_share) else 0.0
    return SeenWork(_kind(units, clock, memory), _rounded(clock), memory, draw)


def _kind(units: Units, clock: float, memory: float) -> Kind:
    gaps = 1.0 - units.engine
    if gaps >= GAPS and units.sm <= TINY * units.engine:
        return "launches"
    if gaps > 0.5:
        return "waits"
    if memory >= 0.5 * units.engine and units.tensor <= MEMORY_TENSOR:
        return "memory"
    return "compute" if clock >= 0.8 * units.engine else "mixed"


def _rounded(share: float) -> float:
    return round(round(share / STEP) * STEP, 4)
