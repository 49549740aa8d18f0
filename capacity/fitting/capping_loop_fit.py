"""``python -m capacity.fitting.capping_loop_fit``: the constants of ``model/capping_loop.py``.

From the calibrated steps of the recording alone (``board_steps.CALIBRATED``); deterministic.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np

from capacity.fitting.board_steps import (
    CALIBRATED,
    LIMIT_WATTS,
    TICK_SECONDS,
    BoardSteps,
    Floats,
    Work,
    read_steps,
)
from capacity.model.capping_loop import CappingLoop

STEP_SECONDS: Final = 0.02
BEFORE_SECONDS: Final = 1.2
"""Played before what is compared: longer than any window, so that the start is forgotten."""

COMPARED_TICKS: Final = 29
"""Of every step of 3 s, its own 100 ms from the first whole one on."""

CEILING_TICKS: Final = slice(1, 5)
"""Of those, after the fast loop has settled and before the slow one takes."""

WINDOWS: Final = np.arange(0.74, 0.961, 0.02)
DELAYS: Final = np.arange(0.0, 0.101, 0.02)
THRESHOLDS: Final = np.arange(0.960, 0.9881, 0.002)
GAINS: Final = np.geomspace(2.0, 12.0, 12)
"""Where the slow loop is looked for; a threshold and a gain that hold one mean differ little."""


def fit_loop(steps: BoardSteps) -> CappingLoop:
    """The constants with the least mean absolute error over 100 ms draws of calibrated steps."""
    firsts = [first_tick(steps, name) for name in CALIBRATED]
    seen = np.array([steps.draws[at : at + COMPARED_TICKS] for at in firsts]).T
    ceiling = float(np.median(seen[CEILING_TICKS])) / LIMIT_WATTS
    reaction = _reaction(steps, firsts, ceiling)
    gains, thresholds = (grid.ravel() for grid in np.meshgrid(GAINS, THRESHOLDS))
    each = len(firsts)
    demand = np.tile(demands(steps, firsts, COMPARED_TICKS), len(gains))
    best = (np.inf, CappingLoop(ceiling, 1.0, 0.0, 1.0, 0.0, reaction))
    for window, delay in product(WINDOWS.tolist(), DELAYS.tolist()):
        loop = CappingLoop(
            ceiling, np.repeat(thresholds, each), np.repeat(gains, each), window, delay, reaction
        )
        made = played(loop, demand, COMPARED_TICKS)
        # The first tick tells of the fast loop, whose constant is found apart.
        error = np.abs(made[1:] - np.tile(seen, len(gains))[1:]).mean(axis=0)
        error = error.reshape(len(gains), each).mean(axis=1)
        at = int(error.argmin())
        if error[at] < best[0]:
            threshold, gain = float(thresholds[at]), float(gains[at])
            found = CappingLoop(ceiling, threshold, gain, window, delay, reaction)
            best = (float(error[at]), found)
    return best[1]


def first_tick(steps: BoardSteps, phase: str) -> int:
    """Index of the first 100 ms that lie within the phase as a whole."""
    at = next(at for at, name in zip(*_starts(steps), strict=True) if name == phase)
    return int(np.searchsorted(steps.ends - TICK_SECONDS, at))


def _starts(steps: BoardSteps) -> tuple[list[float], list[str]]:
    times = [at for at, _ in steps.changes]
    middles = np.searchsorted(steps.ends, np.array(times) + 1.5 * TICK_SECONDS)
    return times, [str(steps.phases[min(at, len(steps.phases) - 1)]) for at in middles]


def work_watts(steps: BoardSteps) -> dict[Work, float]:
    """What each kind of work draws without a limit, from idling, copies and calibrated steps.

    A product: the highest instantaneous reading, of 25 ms, in a step's first moment.
    """
    rows = np.searchsorted(steps.ends, steps.instants[0]).clip(max=len(steps.ends) - 1)
    seen = steps.instants[1][np.isin(steps.phases[rows], CALIBRATED)]
    steady = steps.steady()
    return {
        "product": float(seen.max()),
        "copy": float(steps.draws[steady & np.char.startswith(steps.phases, "copy")].mean()),
        "idle": float(steps.draws[steady & np.char.startswith(steps.phases, "idle_")].mean()),
    }


def demands(steps: BoardSteps, firsts: Sequence[int], ticks: int) -> Floats:
    """What the work would draw around some 100 ms, shape (n_steps of 20 ms, n_firsts)."""
    watts = work_watts(steps)
    count = round((BEFORE_SECONDS + ticks * TICK_SECONDS) / STEP_SECONDS)
    made = []
    for first in firsts:
        begin = float(steps.ends[first]) - TICK_SECONDS - BEFORE_SECONDS
        shares = {work: steps.shares(work, begin, count, STEP_SECONDS) for work in watts}
        made.append(np.sum([watts[work] * shares[work] for work in watts], axis=0))
    return np.array(made).T


def played(
    loop: CappingLoop, demand: Floats, ticks: int, limit_watts: float = LIMIT_WATTS
) -> Floats:
    """Mean draw of the last 100 ms under the loop, shape (ticks, n_boards)."""
    state = loop.settled(demand[0], limit_watts, STEP_SECONDS)
    draws = []
    for watts in demand:
        state, drawn = loop.step(state, watts, limit_watts)
        draws.append(drawn)
    each = round(TICK_SECONDS / STEP_SECONDS)
    last: Floats = np.array(draws[-ticks * each :])
    return np.asarray(last.reshape(ticks, each, -1).mean(axis=1))


def _reaction(steps: BoardSteps, firsts: Sequence[int], ceiling: float) -> float:
    """From the joules above the ceiling that steps begin with.

    Until felt reaches the ceiling the work draws all it can, and then what is left of felt's way:
    joules / reaction = (top - allowed) * ln((top - felt) / (top - allowed))
    + allowed * ln(top / allowed).
    """
    watts, allowed = work_watts(steps), ceiling * LIMIT_WATTS
    top = watts["product"]
    joules = seconds = 0.0
    for first in firsts:
        start, was = _change_before(steps, float(steps.ends[first]) - TICK_SECONDS)
        quiet = start - (float(steps.ends[first]) - 2 * TICK_SECONDS)
        spent = float(steps.draws[first - 1 : first + 1].sum()) * TICK_SECONDS
        joules += spent - watts[was] * quiet - allowed * (2 * TICK_SECONDS - quiet)
        seconds += (top - allowed) * np.log((top - watts[was]) / (top - allowed))
        seconds += allowed * np.log(top / allowed)
    return joules / seconds


def _change_before(steps: BoardSteps, until: float) -> tuple[float, Work]:
    """When the work last changed, and what ran before."""
    last = max(i for i, (at, _) in enumerate(steps.changes) if at <= until)
    return steps.changes[last][0], steps.changes[last - 1][1]


def main() -> int:
    """Print the constants."""
    print(fit_loop(read_steps()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
