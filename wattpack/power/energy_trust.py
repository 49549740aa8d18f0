"""I7 for one board: the mean of its energy counter, and what that says about its cap.

Nothing here needs arrays: the node agent, which does without numpy, judges its own boards by these
rules one by one, and ``wattpack.power.board_trust`` applies them to all boards of a fleet at once.
Source: docs/architecture.md, Promises, I7.
"""

from __future__ import annotations

from collections.abc import Iterable

from wattpack.units import NS_PER_SECOND

ENERGY_WINDOW_NS = 3 * NS_PER_SECOND
"""A board is judged by the mean of its energy counter over this long."""

TRUSTED_AGAIN_NS = 30 * NS_PER_SECOND
"""So long a board must not offend before it is trusted again."""

OFFENDS_FOR_NS = NS_PER_SECOND
"""A mean has to stay too high for so long: after a pause in a training step a board that is held
below its knee, where 7 % above the cap is usual, exceeds 10 % for one look and is no offender."""

UNTRUSTED_OVER_CAP = 1.10
"""A mean above every cap of its time by more than this loses a board its trust."""

STALE_AFTER_SAME = 5
"""Identical readings with new time stamps."""

# Both come from one sensor, so its gain cancels; what is left is their different phase. Assumed.
AGREES_WITHIN = 0.10
AGREES_WITHIN_WATTS = 10.0


def agrees_with_counter(draw_watts: float, energy_mean: float) -> bool:
    """Whether the energy counter confirms a power reading."""
    return abs(energy_mean - draw_watts) <= AGREES_WITHIN * draw_watts + AGREES_WITHIN_WATTS


def hides_energy(highest_draw_watts: float, energy_mean: float) -> bool:
    """Whether the energy counter shows more than the highest power reading of its time."""
    return energy_mean > (1.0 + AGREES_WITHIN) * highest_draw_watts + AGREES_WITHIN_WATTS


def energy_mean_watts(newest_first: Iterable[tuple[int, float | None]]) -> float | None:
    """Mean power by the energy counter over the last 3 s, or over less while less is known.

    None with fewer than two values since the counter last started again (driver reload).

    Args:
        newest_first: (monotonic ns, joules), None where the counter gave nothing.
    """
    points = iter(newest_first)
    last_ns, last_joules = next(points, (0, None))
    if last_joules is None:
        return None
    begin: tuple[int, float] | None = None
    later = last_joules
    for at_ns, joules in points:
        if joules is None or joules > later:
            break
        begin, later = (at_ns, joules), joules
        if last_ns - at_ns >= ENERGY_WINDOW_NS:
            break
    if begin is None or last_ns <= begin[0]:
        return None
    return (last_joules - begin[1]) * NS_PER_SECOND / (last_ns - begin[0])


def trust_window_ns(reaction_seconds: float) -> int:
    """How long a cap counts after it last could hold: the energy window and the board's reaction.

    So a cap that was lowered a moment ago accuses nobody; and nobody is accused before so much time
    has passed since the first look, because what held before is unknown.
    """
    return ENERGY_WINDOW_NS + int(reaction_seconds * NS_PER_SECOND)
