"""Domain meters: which readings can be used, and what is drawn beyond servers at their worst.

    gain         what is drawn beyond GPUs, servers at their worst and external load   1 .. 1.25

A coarse meter speaks in steps of more than 0.1 % of the rating. It may say the same for long, so it
is stuck only when the sum of its boards and servers has left the step (I7), and counts at the upper
edge of what it says.

What readings tell of servers without a meter of their own: ``controller.server_hosts``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.tick_values import Tick
from wattpack.masks import some
from wattpack.power.board_trust import STALE_AFTER_SAME
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

__all__ = [
    "Lesson",
    "MeterMemory",
    "Taken",
    "has_spoken",
    "initial_meters",
    "learned",
    "take_meters",
    "valid_meters",
]

_GAIN_RATE = 0.05
_GAIN_BOUNDS = (1.0, 1.25)
_CREDIBLE_OVER_RATING = 3.0
_COARSE_FROM_SHARE = 0.001  # of the rating: docs/architecture.md, Promises, I7
# A step more than this hides too much beside a cross-check of 8 %. Assumed.
_COARSE_UP_TO_SHARE = 0.05
# Three differences of a fine and noisy meter have no common divisor worth a step.
_CHANGES_TO_KNOW_STEP = 3
# Beside a step, what noise of meter and boards may add. Assumed.
_LEFT_STEP_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class MeterMemory:
    """What the domain meters taught.

    Attributes:
        last_watts: Last fresh reading, (n_domains,).
        last_time_ns: Its time stamp, -1 before the first, (n_domains,).
        same_count: Identical readings in a row, (n_domains,).
        step_watts: Greatest common divisor of all changes, 0 before the first, (n_domains,).
        changes: How many there were, (n_domains,).
        read_watts: What was read of boards and servers at the first of the identical readings, NaN
            where not all of them could be, (n_domains,).
        gain: Learned meter over sum of nodes, (n_domains,).
        lessons: Readings that told of servers without a meter of their own, (n_domains,).
        unused_seconds: How long no reading was used: there was none, it stood still, or it showed
            less than what is read below it, (n_domains,).
    """

    last_watts: FloatArray
    last_time_ns: IntArray
    same_count: IntArray
    step_watts: IntArray
    changes: IntArray
    read_watts: FloatArray
    gain: FloatArray
    lessons: IntArray
    unused_seconds: FloatArray


def initial_meters(n_domains: int) -> MeterMemory:
    """No meter was heard yet."""
    return MeterMemory(
        np.zeros(n_domains),
        np.full(n_domains, -1, dtype=np.int64),
        np.zeros(n_domains, dtype=np.int64),
        np.zeros(n_domains, dtype=np.int64),
        np.zeros(n_domains, dtype=np.int64),
        np.full(n_domains, np.nan),
        np.ones(n_domains),
        np.zeros(n_domains, dtype=np.int64),
        np.zeros(n_domains),
    )


def has_spoken(memory: MeterMemory) -> BoolArray:
    """Domains whose meter is lost while it says nothing, (n_domains,).

    What a meter taught rests on readings, whether or not the time of the last one is known.
    """
    return np.asarray((memory.last_time_ns >= 0) | (memory.lessons > 0))


def valid_meters(tick: Tick, load: LoadTree) -> BoolArray:
    """Which readings can be of a meter at all, (n_domains,)."""
    watts = tick.observations.meter_watts
    with np.errstate(invalid="ignore"):
        valid = (watts >= 0.0) & (watts <= _CREDIBLE_OVER_RATING * load.rating_watts)
    return np.asarray(valid & (tick.observations.meter_time_ns <= tick.now_ns))


@dataclass(frozen=True, slots=True)
class Taken:
    """This tick's readings, each (n_domains,).

    Attributes:
        watts: Readings that can be used, coarse ones at the upper edge of their step; NaN for the
            others.
        usable: Meters whose newest reading can be used.
        new: Those of them that said something new.
    """

    watts: FloatArray
    usable: BoolArray
    new: BoolArray


def take_meters(
    tick: Tick, load: LoadTree, memory: MeterMemory, valid: BoolArray, read_watts: FloatArray
) -> tuple[MeterMemory, Taken]:
    """Take in this tick's readings: the memory, and what can be used of them.

    Five identical readings in a row are a stuck meter; so is one without a new reading. A coarse
    meter is stuck when the sum of what is read below it has left the step since.

    Args:
        tick: For the readings.
        load: Ratings.
        memory: So far.
        valid: Readings that can be of a meter at all, (n_domains,).
        read_watts: Boards and servers at the times of the readings, AC, NaN where not all of them
            can be read, (n_domains,).
    """
    watts, stamp = tick.observations.meter_watts, tick.observations.meter_time_ns
    new = valid & (stamp > memory.last_time_ns)
    same = np.where(new, np.where(watts == memory.last_watts, memory.same_count + 1, 1), 0)
    same_count = np.where(new, same, memory.same_count)
    moved = new & (memory.last_time_ns >= 0) & (same == 1)
    change = np.where(moved, np.abs(watts - memory.last_watts), 0.0)
    taken = replace(
        memory,
        last_watts=np.where(new, watts, memory.last_watts),
        last_time_ns=np.where(new, stamp, memory.last_time_ns),
        same_count=same_count,
        step_watts=np.gcd(memory.step_watts, np.rint(change).astype(np.int64)),
        changes=memory.changes + moved,
        read_watts=np.where(new & (same == 1), read_watts, memory.read_watts),
    )
    coarse = taken.changes >= _CHANGES_TO_KNOW_STEP
    coarse &= taken.step_watts > _COARSE_FROM_SHARE * load.rating_watts
    fits = taken.step_watts <= _COARSE_UP_TO_SHARE * load.rating_watts
    room = taken.step_watts + _LEFT_STEP_SHARE * load.rating_watts
    inside = np.abs(read_watts - taken.read_watts) <= room
    usable = valid & ((same_count < STALE_AFTER_SAME) | (coarse & fits & inside))
    edge = np.where(coarse, taken.step_watts, 0.0)
    shown = np.where(usable, watts + edge, np.nan)
    return taken, Taken(shown, np.asarray(usable), np.asarray(new & usable))


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a domain's meter says about the rest of its load, each (n_domains,).

    Attributes:
        usable: Meters that can be used and show what is read below them at least.
        new: Those with a new reading, of domains whose boards can all be read.
        steady: Domains whose draws have not moved since the reading.
        meter_watts: Readings, AC.
        known_watts: Boards and metered servers at the time of the reading, AC, with external load.
        unknown_worst_watts: Declared worst of the servers that nobody meters, AC.
    """

    usable: BoolArray
    new: BoolArray
    steady: BoolArray
    meter_watts: FloatArray
    known_watts: FloatArray
    unknown_worst_watts: FloatArray


def learned(memory: MeterMemory, lesson: Lesson, seconds: float) -> MeterMemory:
    """The memory after a tick.

    Args:
        memory: So far.
        lesson: Of this tick.
        seconds: Since the last tick.
    """
    unused = np.where(lesson.usable, 0.0, memory.unused_seconds + seconds)
    memory = replace(memory, unused_seconds=unused)
    if not some(lesson.new):
        return memory
    hidden = lesson.unknown_worst_watts > 1.0
    # The gain is what is left when servers already count at their worst.
    modelled = lesson.known_watts + np.where(hidden, lesson.unknown_worst_watts, 0.0)
    teaches = lesson.new & lesson.steady & (modelled > 0.0)
    ratio = np.divide(lesson.meter_watts, modelled, out=np.ones_like(modelled), where=teaches)
    gain = np.where(teaches, memory.gain + _GAIN_RATE * (ratio - memory.gain), memory.gain)
    return replace(
        memory,
        gain=np.minimum(np.maximum(gain, _GAIN_BOUNDS[0]), _GAIN_BOUNDS[1]),
        lessons=memory.lessons + (lesson.new & hidden),
    )
