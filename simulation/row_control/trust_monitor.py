"""Watches I7 of a row from outside, once a second: does a policy doubt what must be doubted?

    a board draws over 110 % of every cap that it held      -> the board is untrusted
    its readings stand still, and the counter disagrees     -> its readings are not believed
    the same, and the counter stands still as well          -> the same

Worked out anew from docs/architecture.md (Promises), with constants of its own that are wider than
the product's by what sensors, reports and ticks take. Only servers that were heard all the time are
judged. How far an estimate lies below the truth is measured, not judged: sensors may be 5 % off.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from math import ceil

import numpy as np

from simulation.row_control.actuators import NEVER, RowActuators
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.row_policy import Doubted
from simulation.row_control.work import Bools, Floats, Integers
from wattpack.units import NS_PER_SECOND

OVER_CAP = 1.12
DISAGREES_WITHIN, DISAGREES_WATTS = 0.15, 15.0
MEAN_LOOKS = 3
"""Seconds of the counter's mean."""

CAP_LOOKS = 7
"""Seconds in which a cap excuses a draw: the mean, actuation, settling, a report on its way; with
boards that take a lowered limit later than a second, so much longer."""

NOTICED_SECONDS = 10.0
HEARD_SECONDS = 1.6
TRUTH_LOOKS = 4
"""Estimates are held against the least truth of so many seconds: meters and reports lag."""


@dataclass(frozen=True, slots=True)
class FrozenSensors:
    """What stands still by a fault, (n_gpus,) each.

    Attributes:
        shown_watts: What a reading shows that stands still, NaN for those that move.
        counters: Energy counters that stand still.
    """

    shown_watts: Floats
    counters: Bools


class TrustMonitor:
    """Counts seconds in which something untrue is believed for too long.

    Args:
        plant: Truth.
        actuators: What is held.

    Attributes:
        counts: Violations by name.
        details: The first of them in words.
        hidden_share: How far an estimate of draw lay below the truth at most, over rating.
        hidden_heat: The same of breaker heat, 1 = trip.
    """

    def __init__(self, plant: RowPlant, actuators: RowActuators) -> None:
        self._plant, self._actuators = plant, actuators
        self.counts: Counter[str] = Counter()
        self.details: list[str] = []
        self.hidden_share = self.hidden_heat = 0.0
        n = plant.n_gpus
        self._joules: deque[Floats] = deque(maxlen=MEAN_LOOKS + 1)
        later = max(0, ceil(plant.scenario.plant.cap_delay_max_seconds) - 1)
        self._cap_looks = CAP_LOOKS + later
        self._caps: deque[Floats] = deque(maxlen=self._cap_looks)
        self._truth: deque[Floats] = deque(maxlen=TRUTH_LOOKS)
        self._true_heat: deque[Floats] = deque(maxlen=TRUTH_LOOKS)
        self._over_since_ns: Integers = np.full(n, NEVER)
        self._frozen_since_ns: Integers = np.full(n, NEVER)
        self._looked_ns = -1

    def check(self, doubted: Doubted | None, heard_ns: Integers, frozen: FrozenSensors) -> None:
        """Look once.

        Args:
            doubted: By the policy, None while it has said nothing.
            heard_ns: When it heard of each server last, (n_nodes,).
            frozen: By faults.
        """
        now_ns = self._plant.now_ns
        if now_ns - self._looked_ns > 1.5 * NS_PER_SECOND:
            self._begin_anew()
        self._looked_ns = now_ns
        mean = self._mean_watts()
        self._caps.append(np.maximum(self._actuators.cap_watts, self._actuators.seen_watts).ravel())
        self._truth.append(self._plant.watts)
        self._true_heat.append(self._plant.breakers.heat.copy())
        if doubted is None:
            return
        heard = (now_ns - heard_ns <= HEARD_SECONDS * NS_PER_SECOND) & self._plant.up
        judged = heard[self._plant.node_of_gpu]
        with np.errstate(invalid="ignore"):
            over = mean > OVER_CAP * np.max(self._caps, axis=0)
            limit = (1.0 + DISAGREES_WITHIN) * frozen.shown_watts + DISAGREES_WATTS
            wrong = ~np.isnan(frozen.shown_watts) & (frozen.counters | (mean > limit))
        over &= judged & ~frozen.counters & (len(self._caps) == self._cap_looks)
        self._over_since_ns = self._since(self._over_since_ns, over)
        self._frozen_since_ns = self._since(self._frozen_since_ns, wrong & judged)
        self._judge("I7 boards", self._over_since_ns, doubted.boards)
        self._judge("I7 readings", self._frozen_since_ns, doubted.readings)
        self._compare(doubted)

    def _begin_anew(self) -> None:
        """Nobody was in control for a while: who is, begins to learn."""
        for looks in (self._joules, self._caps, self._truth, self._true_heat):
            looks.clear()
        self._over_since_ns = np.full(self._plant.n_gpus, NEVER)
        self._frozen_since_ns = np.full(self._plant.n_gpus, NEVER)

    def _mean_watts(self) -> Floats:
        """By the counters over the last looks; NaN before, and where one began anew, (n_gpus,)."""
        self._joules.append(self._plant.bank.counter_joules().copy())
        if len(self._joules) <= MEAN_LOOKS:
            return np.full(self._plant.n_gpus, np.nan)
        steps = np.diff(np.array(self._joules), axis=0)
        return np.where((steps >= 0.0).all(axis=0), steps.mean(axis=0), np.nan)

    def _since(self, since_ns: Integers, bad: Bools) -> Integers:
        return np.where(bad, np.minimum(since_ns, self._plant.now_ns), NEVER)

    def _judge(self, name: str, since_ns: Integers, doubted: Bools) -> None:
        now_ns = self._plant.now_ns
        late = (now_ns - since_ns > NOTICED_SECONDS * NS_PER_SECOND) & ~doubted
        if not late.any():
            return
        self.counts[name] += 1
        seconds = (now_ns - self._plant.start_ns) / NS_PER_SECOND
        if len(self.details) < 100:
            self.details.append(f"{name} at {seconds:.2f} s: {late.sum()} believed")

    def _compare(self, doubted: Doubted) -> None:
        if len(self._truth) < TRUTH_LOOKS:
            return
        rating_watts = self._plant.breakers.rating_watts
        hidden = (np.min(self._truth, axis=0) - doubted.draw_watts) / rating_watts
        self.hidden_share = max(self.hidden_share, float(hidden.max()))
        heat = np.min(self._true_heat, axis=0) - doubted.heat
        self.hidden_heat = max(self.hidden_heat, float(heat.max()))
