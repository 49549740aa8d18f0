"""How long it takes from a cap that lowers a board to the board drawing less, by cause.

A *fall* is a decided cap that is lower than the cap decided before for the same board, lower than
the limit in force, and *binding*: the board's sensed power (mean of the last second) is above
``EFFECT_RATIO`` times the cap. A cap on an idle board, a repeated one and a raise are none. Each
fall has a clock of its own, from the decision to the first plant step whose sensed power is at or
below ``EFFECT_RATIO`` times its cap, also where lower caps follow before that.

A higher decision before the effect takes the fall's cap up with it; if nothing is above it then,
the fall is *withdrawn* and has no time. After ``EFFECT_LIMIT_SECONDS`` it counts as without effect.
A limit that falls below what was decided (a lease that ran out, the node's own emergency) is a fall
of cause ``NODE`` whose clock runs from the write. Work that ends on its own ends a clock, too.

*Urgent* falls are those that a present load asks for (``BAND``, ``BRAKE``); they have
``URGENT_SECONDS``, and those that take longer or have no effect are *late*. A cap for the
survivable jump or an override answers to what could come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from wattpack.units import NS_PER_SECOND

__all__ = [
    "EFFECT_LIMIT_SECONDS",
    "EFFECT_RATIO",
    "URGENT",
    "URGENT_SECONDS",
    "CapEffects",
    "DecidedCaps",
    "EffectFigures",
    "FallCause",
]

Floats = NDArray[np.float64]

EFFECT_RATIO = 1.155
"""A cap has taken effect once sensed power is at or below this times the cap: boards below their
knee settle up to 10 % above it and sensors read up to 5 % high, so less may never be seen."""

EFFECT_LIMIT_SECONDS = 30.0
"""After this a cap counts as without effect."""


URGENT_SECONDS = 5.0
"""What an urgent fall may take: the cap band keeps room for what rises in 1 s of actuation and 3 s
of settling (docs/power-control.md, "Bands"), and a sensor's mean shows it up to 1 s later."""


class FallCause(StrEnum):
    """Why a cap was lowered."""

    BAND = "band"
    BRAKE = "brake"
    JUMP = "jump"
    NODE = "node"
    OTHER = "other"


CAUSES = tuple(FallCause)
URGENT = frozenset({FallCause.BAND, FallCause.BRAKE})


@dataclass(frozen=True, slots=True)
class DecidedCaps:
    """The caps of one decision.

    Attributes:
        watts: NaN where nothing was decided, (n_gpus,).
        cause: Index into ``CAUSES``, (n_gpus,).
    """

    watts: Floats
    cause: NDArray[np.int64]


class EffectFigures(BaseModel):
    """Falls of one cause; seconds are None without any that took effect."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n: int
    p50_seconds: float | None
    p99_seconds: float | None
    max_seconds: float | None
    without_effect: int
    withdrawn: int


@dataclass(slots=True)
class _Falls:
    """Falls whose clocks run, each (n_falls,)."""

    gpu: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    since_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    cap_watts: Floats = field(default_factory=lambda: np.zeros(0))
    cause: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(
        self, now_ns: int, gpus: NDArray[np.int64], caps: Floats, cause: NDArray[np.int64]
    ) -> None:
        self.gpu = np.concatenate([self.gpu, gpus])
        self.since_ns = np.concatenate([self.since_ns, np.full(len(gpus), now_ns)])
        self.cap_watts = np.concatenate([self.cap_watts, caps])
        self.cause = np.concatenate([self.cause, cause])

    def keep(self, kept: NDArray[np.bool_]) -> None:
        self.gpu, self.since_ns = self.gpu[kept], self.since_ns[kept]
        self.cap_watts, self.cause = self.cap_watts[kept], self.cause[kept]


class CapEffects:
    """The clocks of one run.

    Args:
        n_gpus: Boards.
    """

    def __init__(self, n_gpus: int) -> None:
        self._decided_watts = np.full(n_gpus, np.inf)
        # Not known before the first look: a limit that is merely seen has not fallen.
        self._limit_watts = np.full(n_gpus, np.nan)
        self._open = _Falls()
        self._seconds: dict[FallCause, list[float]] = {cause: [] for cause in CAUSES}
        self._without_effect: Counter[FallCause] = Counter()
        self._withdrawn: Counter[FallCause] = Counter()

    def decided(self, now_ns: int, caps: DecidedCaps, sensed_watts: Floats) -> None:
        """Take in a decision; clocks start where it lowers what is drawn."""
        watts = np.where(np.isnan(caps.watts), np.inf, caps.watts)
        self._relax(watts, sensed_watts)
        lower = watts < np.fmin(self._decided_watts, self._limit_watts) - 1.0
        falls = np.flatnonzero(lower & (watts * EFFECT_RATIO < sensed_watts))
        self._open.add(now_ns, falls, watts[falls], caps.cause[falls])
        self._decided_watts = watts

    def _relax(self, watts: Floats, sensed_watts: Floats) -> None:
        """Open falls follow a higher decision; those that it leaves nothing to do are withdrawn."""
        falls = self._open
        higher = watts[falls.gpu] > falls.cap_watts + 1.0
        falls.cap_watts = np.where(higher, watts[falls.gpu], falls.cap_watts)
        idle = higher & (sensed_watts[falls.gpu] <= falls.cap_watts * EFFECT_RATIO)
        self._withdrawn.update(CAUSES[i] for i in falls.cause[idle])
        falls.keep(~idle)

    def observe(self, now_ns: int, limit_watts: Floats, sensed_watts: Floats) -> None:
        """Look at the boards after a plant step."""
        fell = limit_watts < np.minimum(self._limit_watts, self._decided_watts) - 1.0
        alone = np.flatnonzero(fell & (limit_watts * EFFECT_RATIO < sensed_watts))
        node = np.full(len(alone), CAUSES.index(FallCause.NODE), dtype=np.int64)
        self._open.add(now_ns, alone, limit_watts[alone], node)
        self._limit_watts = limit_watts.copy()
        falls = self._open
        passed = (now_ns - falls.since_ns) / NS_PER_SECOND
        reached = sensed_watts[falls.gpu] <= falls.cap_watts * EFFECT_RATIO
        late = ~reached & (passed > EFFECT_LIMIT_SECONDS)
        for cause, seconds in zip(falls.cause[reached], passed[reached], strict=True):
            self._seconds[CAUSES[cause]].append(float(seconds))
        self._without_effect.update(CAUSES[i] for i in falls.cause[late])
        falls.keep(~reached & ~late)

    def figures(self, causes: Iterable[FallCause] = CAUSES) -> EffectFigures:
        """Of the falls of some causes together."""
        chosen = frozenset(causes)
        seconds = np.array([s for cause in CAUSES if cause in chosen for s in self._seconds[cause]])
        any_ = len(seconds) > 0
        return EffectFigures(
            n=len(seconds),
            p50_seconds=float(np.percentile(seconds, 50)) if any_ else None,
            p99_seconds=float(np.percentile(seconds, 99)) if any_ else None,
            max_seconds=float(seconds.max()) if any_ else None,
            without_effect=sum(self._without_effect[cause] for cause in chosen),
            withdrawn=sum(self._withdrawn[cause] for cause in chosen),
        )

    def urgent_late(self) -> int:
        """Urgent falls that took too long, or had no effect at all."""
        slow = sum(s > URGENT_SECONDS for cause in URGENT for s in self._seconds[cause])
        return slow + sum(self._without_effect[cause] for cause in URGENT)

    def by_cause(self) -> dict[str, EffectFigures]:
        """Figures of each cause that had a fall."""
        found = {str(cause): self.figures([cause]) for cause in CAUSES}
        return {
            cause: figures
            for cause, figures in found.items()
            if figures.n or figures.without_effect or figures.withdrawn
        }
