"""What may be said again between two ticks: reports are answered on arrival, caps unchanged (I3).

A lease runs from the report that a batch answers, so a batch that waits for the next tick is born
old, and one lost message costs a second more than it must. What the last tick told a node is
therefore repeated in answer to the node's next report, *under the same sequence*: a sequence still
names one set of caps, so what ``controller.commitments`` counts and what actuators confirm stays
what the ticks decided. Only the time for which a command may be in force grows, by
``REPEATED_WITHIN_NS``.

A repetition is no decision. It never raises a board, and it ends with the term, with the ticks, at
a reboot, and where a newer leader was heard (I4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = ["REPEATED_WITHIN_NS", "Heard", "Word", "may_be_repeated", "repeatable", "says_the_same"]

REPEATED_WITHIN_NS = 2 * NS_PER_SECOND
"""A decision is repeated for no longer than a report may be answered (I4): a tick loop that hangs
beside a living stream ends the leases almost as a dead process does."""

_RAISES_NOTHING_WATTS = 0.5
"""Boards take whole watts; a cap that was read back may differ by its rounding."""


@dataclass(frozen=True, slots=True)
class Word:
    """What one tick told one node.

    Attributes:
        epoch: Fencing epoch of its leader.
        sequence: Of the tick's commands.
        decided_ns: When the tick looked, on the controller's clock.
        cap_watts: Power limits, (n_boards,).
        lock_max_mhz: Clock locks, 0 = none, (n_boards,).
    """

    epoch: int
    sequence: int
    decided_ns: int
    cap_watts: FloatArray
    lock_max_mhz: IntArray


@dataclass(frozen=True, slots=True)
class Heard:
    """What an answer depends on in a node's newest report.

    Attributes:
        nonce: To be echoed, 0 = none to answer.
        received_ns: On the controller's clock.
        highest_epoch: That the node's actuator has accepted.
        rebooted: The node has another boot id than at the last tick.
        calls_for_tick: It belongs to a large rise that the next tick, which comes at once, judges.
        limit_watts: As read back, NaN if unknown, (n_boards,).
        guaranteed_watts: As read back, NaN if unknown, (n_boards,).
    """

    nonce: int
    received_ns: int
    highest_epoch: int
    rebooted: bool
    calls_for_tick: bool
    limit_watts: FloatArray
    guaranteed_watts: FloatArray


def may_be_repeated(
    word: Word, heard: Heard, epoch: int, nonce_max_age_ns: int, now_ns: int
) -> bool:
    """Whether the report may be answered by the same caps now, for ``repeatable`` boards.

    Args:
        word: What the last tick told the node.
        heard: Its newest report.
        epoch: Of our present term, 0 while we do not lead.
        nonce_max_age_ns: Reports that are older are answered by nobody (I4).
        now_ns: On the controller's clock.
    """
    if heard.nonce == 0 or now_ns - heard.received_ns > nonce_max_age_ns:
        return False
    if epoch <= 0 or word.epoch != epoch or heard.highest_epoch > epoch:
        return False
    if heard.rebooted or heard.calls_for_tick or now_ns - word.decided_ns > REPEATED_WITHIN_NS:
        return False
    if len(heard.limit_watts) != len(word.cap_watts):
        return False
    again = repeatable(word, heard)
    raises = np.isfinite(heard.limit_watts) & ~again
    return some(again) and not some(raises)


def repeatable(word: Word, heard: Heard) -> BoolArray:
    """Boards that the caps of the word raise for certain not, (n_boards,).

    One whose limit nobody reads (lost, hung, without a name) is not among them unless its cap is
    within its guaranteed one: it keeps no other from an answer and waits for the ticks.
    """
    # Going up to the guaranteed cap is no raise: expiry falls to it, so every worst case has it.
    held = np.fmax(heard.limit_watts, heard.guaranteed_watts)
    return np.asarray(word.cap_watts <= held + _RAISES_NOTHING_WATTS)


def says_the_same(one: Word, other: Word) -> bool:
    """Whether two words of one term ask for the same limits and locks.

    A new term is news: until its first word comes, actuators take an earlier leader's (I4).
    """
    return (
        one.epoch == other.epoch
        and len(one.cap_watts) == len(other.cap_watts)
        and bool(np.all(np.abs(one.cap_watts - other.cap_watts) <= _RAISES_NOTHING_WATTS))
        and bool(np.array_equal(one.lock_max_mhz, other.lock_max_mhz))
    )
