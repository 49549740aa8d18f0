"""What boards draw while they follow their limits: the first second's overshoot, dip and beat.

A busy board is held by two loops (``h200_power_steps``). The fast one follows what the work would
draw with a lag of some ten milliseconds and allows a ceiling a few per cent *above* the limit::

    felt' = (demand - felt) / reaction           draw = demand * min(1, allowed / felt)

The slow one looks at the mean draw of about the last second, and takes from the ceiling what that
mean is too much::

    allowed = ceiling - gain * max(0, mean - threshold)     mean over ``window``, ``delay`` ago

So a step of work draws all it can for 50 ms, the ceiling for as long as the quiet second before
hides it, then a dip; and since a dip leaves the mean one window later, the board beats once a
window, ever less. Nothing of this depends on chance: boards that step together beat in phase.

``model/regulator.py`` has what the same limit costs in *speed*, held for long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from wattpack.units import require_number

Floats = npt.NDArray[np.float64]

LONGEST_TICK_SECONDS: Final = 0.1
"""Longer ticks would step over the dip; a second is ten of them."""

LEAST_SHARE: Final = 0.1
"""Of the limit: no board gets less, whatever its ceiling and history; never reached in practice."""

GAIN_SPREAD: Final = 0.025
"""Standard deviation of what boards read over what they draw: +-5 % (arXiv 2312.02741)."""

CEILING_SPREAD: Final = 0.01
"""Standard deviation of ceilings of one type: three H200 hold 1.028, 1.042 and 1.043 (recording,
and the 90th percentiles of throttled rows of ``h200`` and ``h200-second-board``)."""


@dataclass(frozen=True, slots=True)
class LoopState:
    """What each board remembers.

    Attributes:
        recent_watts: Mean draw of the last ticks, latest first, shape (n_slots, n_boards).
        felt_watts: What the fast loop takes the demand for, shape (n_boards,).
        tick_seconds: Length of a tick.
        weights: Share of each slot in the slow loop's mean, shape (n_slots,).
    """

    recent_watts: Floats
    felt_watts: Floats
    tick_seconds: float
    weights: Floats


@dataclass(frozen=True, slots=True)
class LimitWatts:
    """What a loop's shares come to at each board's limit, shape (n_boards,) each."""

    ceiling: Floats
    threshold: Floats
    least: Floats


@dataclass(frozen=True, slots=True)
class CappingLoop:
    """Constants of a board; the two shares may be one value a board, shape (n_boards,).

    Attributes:
        ceiling_share: Most that the fast loop allows, over the limit.
        threshold_share: Trailing mean over the limit from which the slow loop takes.
        gain: Watts taken a watt of the mean above the threshold.
        window_seconds: Of the slow loop's mean.
        delay_seconds: Until the slow loop's answer acts.
        reaction_seconds: Time constant of the fast loop.
    """

    ceiling_share: Floats | float
    threshold_share: Floats | float
    gain: Floats | float
    window_seconds: float
    delay_seconds: float
    reaction_seconds: float

    @property
    def held_share(self) -> Floats:
        """Draw over limit that steady heavy work settles at: ceiling and threshold, weighted."""
        return np.asarray((self.ceiling_share + self.gain * self.threshold_share) / (1 + self.gain))

    def settled(
        self, demand_watts: Floats, limit_watts: Floats | float, tick_seconds: float = 0.1
    ) -> LoopState:
        """Boards that have had this demand for long.

        Args:
            demand_watts: What the work draws without a limit, shape (n_boards,).
            limit_watts: Of each board, as it reads itself, shape (n_boards,) or one for all.
            tick_seconds: Of every following ``step``; at most 0.1.

        Raises:
            InputError: for a tick that is too long or not above 0, a demand below 0, a limit that
                is not above 0.
        """
        require_number(
            "tick_seconds", tick_seconds, exclusive_minimum=0, maximum=LONGEST_TICK_SECONDS
        )
        demand = np.asarray(demand_watts, dtype=np.float64)
        require_number("demand_watts", float(demand.min(initial=0.0)), minimum=0)
        require_number("limit_watts", float(np.min(limit_watts)), exclusive_minimum=0)
        drawn = np.minimum(demand, self.held_share * limit_watts)
        weights = self._weights(tick_seconds)
        return LoopState(np.tile(drawn, (len(weights), 1)), demand, tick_seconds, weights)

    def step(
        self, state: LoopState, demand_watts: Floats, limit_watts: Floats | float
    ) -> tuple[LoopState, Floats]:
        """One tick: the state after it and the mean draw in it, shape (n_boards,).

        Args:
            demand_watts: Mean of what the work would draw in this tick, at least 0.
        """
        mean = state.weights @ state.recent_watts
        drawn, felt = self.held(
            mean, state.felt_watts, demand_watts, limit_watts, state.tick_seconds
        )
        recent = np.concatenate([drawn[np.newaxis], state.recent_watts[:-1]])
        return LoopState(recent, felt, state.tick_seconds, state.weights), drawn

    def held(
        self,
        mean_watts: Floats,
        felt_watts: Floats,
        demand_watts: Floats,
        limit_watts: Floats | float,
        seconds: float,
    ) -> tuple[Floats, Floats]:
        """Mean draw over a tick and what is felt after it, for callers with a record of their own.

        Args:
            mean_watts: The slow loop's mean, shape (n_boards,).
            felt_watts: What the fast loop takes the demand for as the tick begins, (n_boards,).
            demand_watts: Mean of what the work would draw in this tick, at least 0, (n_boards,).
            limit_watts: Of each board, as it reads itself; infinite for one that holds none.
            seconds: Length of the tick; at most ``LONGEST_TICK_SECONDS``.
        """
        at = self.at_limit(limit_watts)
        return self.held_at(at, mean_watts, felt_watts, demand_watts, seconds)

    def at_limit(self, limit_watts: Floats | float) -> LimitWatts:
        """The loop's watts at a limit, for callers whose limits stand for many ticks."""
        limit = np.asarray(limit_watts)
        return LimitWatts(
            self.ceiling_share * limit, self.threshold_share * limit, LEAST_SHARE * limit
        )

    def held_at(
        self,
        at: LimitWatts,
        mean_watts: Floats,
        felt_watts: Floats,
        demand_watts: Floats,
        seconds: float,
    ) -> tuple[Floats, Floats]:
        """The same as ``held`` at limits whose watts are known."""
        above = np.maximum(0.0, mean_watts - at.threshold)
        allowed = np.maximum(at.ceiling - self.gain * above, at.least)
        return self._follow(demand_watts, felt_watts, allowed, seconds)

    def looks_ago(self, tick_seconds: float) -> tuple[float, float]:
        """When, before a tick begins, the slow loop's mean ends and began; seconds."""
        newest_ago = max(self.delay_seconds - tick_seconds / 2.0, 0.0)
        return newest_ago, self.delay_seconds + self.window_seconds - tick_seconds / 2.0

    def play(
        self, state: LoopState, demand_watts: Floats, limit_watts: Floats | float
    ) -> tuple[LoopState, Floats]:
        """Many ticks: demand and draws of shape (n_ticks, n_boards); ten of 0.1 s make a second."""
        draws = np.empty(np.shape(demand_watts))
        for tick, watts in enumerate(demand_watts):
            state, draws[tick] = self.step(state, watts, limit_watts)
        return state, draws

    def boards(self, count: int, generator: np.random.Generator) -> tuple[CappingLoop, Floats]:
        """Boards of one type: their loops, and what each reads over what it draws, (count,).

        A board that reads too much holds its true draw lower: divide its limit by its gain.
        """
        ceilings = self.ceiling_share + CEILING_SPREAD * generator.standard_normal(count)
        gains = np.clip(1 + GAIN_SPREAD * generator.standard_normal(count), 0.95, 1.05)
        return replace(self, ceiling_share=np.maximum(ceilings, self.held_share)), gains

    def _weights(self, tick_seconds: float) -> Floats:
        """Overlap of each past tick with the window as the middle of the coming tick sees it."""
        newest = min(tick_seconds / 2 - self.delay_seconds, 0.0)
        oldest = tick_seconds / 2 - self.delay_seconds - self.window_seconds
        ends = -tick_seconds * np.arange(int(np.ceil(-oldest / tick_seconds)) + 1)
        begins = ends - tick_seconds
        overlap = np.minimum(ends, newest) - np.maximum(begins, oldest)
        weights = np.maximum(overlap, 0.0)
        return np.asarray(weights / weights.sum())

    def _follow(
        self, demand: Floats, felt: Floats, allowed: Floats, seconds: float
    ) -> tuple[Floats, Floats]:
        """Mean draw over the tick and what is felt after it, integrated exactly.

        Where felt stays above what is allowed, the mean of 1 / felt over a time is
        (time + reaction * ln(felt at its end / felt at its beginning)) / time / demand.
        """
        reaction = self.reaction_seconds
        after = demand + (felt - demand) * math.exp(-seconds / reaction)
        was_held, is_held = felt > allowed, after > allowed
        drawn = np.array(demand, dtype=np.float64)
        (held,) = (was_held & is_held).nonzero()
        if held.size:
            shed = 1 + reaction / seconds * np.log(after.take(held) / felt.take(held))
            drawn[held] = allowed.take(held) * shed
        (turned,) = (was_held != is_held).nonzero()
        if turned.size:
            demand, felt, allowed = demand.take(turned), felt.take(turned), allowed.take(turned)
            drawn[turned] = self._turning(demand, felt, allowed, after.take(turned), seconds)
        return drawn, after

    def _turning(
        self, demand: Floats, felt: Floats, allowed: Floats, after: Floats, seconds: float
    ) -> Floats:
        """Mean draws of boards whose felt crosses what is allowed, once, within the tick."""
        reaction, rises = self.reaction_seconds, after > allowed
        crossing = reaction * np.log((demand - felt) / (demand - allowed))
        held = np.where(rises, seconds - crossing, crossing)
        ratio = np.where(rises, after / allowed, allowed / np.where(rises, allowed, felt))
        shed = held + reaction * np.log(ratio)
        return np.asarray((demand * (seconds - held) + allowed * shed) / seconds)


RECORDED_LOOP: Final = CappingLoop(
    ceiling_share=1.028,
    threshold_share=0.978,
    gain=4.5,
    window_seconds=0.86,
    delay_seconds=0.04,
    reaction_seconds=0.035,
)
"""Of the recorded H200: ``python -m capacity.fitting.capping_loop_fit``, a test fits it again."""

CEILING_SHARES: Final = {"H200-SXM": RECORDED_LOOP.ceiling_share, "H100-SXM": 1.10}
"""Of the H100: median over throttled rows of ``h100`` of the 90th percentile of their instants.
All else is the recorded H200's; ``python -m benchmarks draw_at_limit`` holds it against rows of
both."""


def capping_loop(gpu_type: str) -> CappingLoop:
    """The loop of a type by wattpack's name; of the recorded H200 (assumed) for one never seen."""
    ceiling = CEILING_SHARES.get(gpu_type, RECORDED_LOOP.ceiling_share)
    return replace(RECORDED_LOOP, ceiling_share=ceiling)
