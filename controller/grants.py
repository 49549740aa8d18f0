"""From decided caps to commands: lower at once, raise only into confirmed room (I4, I6).

Asking a GPU for no more than it may hold already raises nothing. Everything above that is given
class by class into the room that is left when every GPU counts at the highest cap it may hold, and
no faster than the domain's raise rate. What is left to a capping domain's target is closed slowly:
watts that come back at once find the next peak with caps that are too high for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation import even_gangs
from controller.cap_reason import CapReason
from controller.controller_state import State
from controller.decide import Situation
from controller.filling import Filling, Room
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.units import NS_PER_SECOND

__all__ = ["RAISE_DEADBAND", "Grants", "Permit", "grant", "paced"]

# A board's regulation is no finer than this; smaller raises would only wear the stream.
RAISE_DEADBAND = 0.02


@dataclass(frozen=True, slots=True)
class Permit:
    """Whether and how fast power may be raised now.

    Attributes:
        gpus: Which GPUs may be raised at all, (n_gpus,).
        watts: Raise of the sum of caps that each domain bears in this tick, AC, (n_domains,).
        watts_per_second: The same in a second, infinite where nothing limits it, (n_domains,).
        last_ns: Time of the last tick, -1 before the first.
        now_ns: Time of this one.
        near_watts: What a capping domain expects below its target from here on is near: only
            ``near_share`` of that room is given in this tick, AC, (n_domains,).
        near_share: In 0..1.
        restore_watts: Caps that come back in one step after a change of leader, 0 for none,
            (n_gpus,).
        refused: ``CapReason`` where raising is not permitted, (n_gpus,).
        stopped: What keeps the whole replica from raising, NOT_CAPPED for nothing.
    """

    gpus: BoolArray
    watts: FloatArray
    watts_per_second: FloatArray
    last_ns: int
    now_ns: int
    near_watts: FloatArray
    near_share: float
    restore_watts: FloatArray
    refused: IntArray
    stopped: CapReason = CapReason.NOT_CAPPED


@dataclass(frozen=True, slots=True)
class Grants:
    """What to command.

    Attributes:
        cap_watts: (n_gpus,).
        reason: Why a GPU gets less than was decided, NOT_CAPPED where it does not, (n_gpus,).
        binding_domain: Where the raise found too little room, -1 for nowhere, (n_gpus,).
    """

    cap_watts: FloatArray
    reason: IntArray
    binding_domain: IntArray


@dataclass(frozen=True, slots=True)
class _Raise:
    """One filling from some caps towards some goals within some room."""

    state: State
    raising: BoolArray

    def fill(
        self, start: FloatArray, goal: FloatArray, expected: FloatArray | None, room_dc: FloatArray
    ) -> tuple[FloatArray, IntArray]:
        """Caps, most important class first, and who held each GPU back, (n_gpus,) each."""
        load, topology = self.state.load, self.state.topology
        filling = Filling.begin(load, topology.gang, start, (Room(expected, room_dc),))
        members = np.flatnonzero(self.raising)
        priority = topology.priority[members]
        for level in np.unique(priority)[::-1]:
            filling.raise_to(goal, members[priority == level])
        return filling.caps, filling.binding


def grant(
    state: State,
    wanted_watts: FloatArray,
    free_watts: FloatArray,
    now: Situation,
    permit: Permit,
) -> Grants:
    """Commands that never let the worst case or the bands be exceeded by a raise.

    Args:
        state: For the tree, priorities and gangs.
        wanted_watts: Decided caps, (n_gpus,).
        free_watts: Caps that raise nothing, (n_gpus,).
        now: Limits and what counts against them.
        permit: Whether and how fast to raise.
    """
    topology = state.topology
    caps = np.where(now.active, np.minimum(wanted_watts, free_watts), wanted_watts)
    gap, kinds = wanted_watts - caps, state.calm_wants.gang_kinds
    if not (gap > 0.5).any():
        nothing = np.full(topology.n_gpus, int(CapReason.NOT_CAPPED), dtype=np.int64)
        return Grants(even_gangs(caps, kinds, now.active), nothing, nothing - 1)
    small = (gap < RAISE_DEADBAND * topology.default_limit_watts) & (
        wanted_watts < topology.request_watts
    )
    # A floor is promised, so nobody rests a little below it.
    small &= caps >= np.minimum(topology.floor_watts, wanted_watts)
    raising = now.active & (gap > 0.5) & ~small
    # What is too small to be raised waits for nothing: it stays.
    waits_for_rate = (gap > 0.5) & ~small
    reason = np.where(waits_for_rate, int(CapReason.RAISE_RATE), int(CapReason.NOT_CAPPED))
    reason = np.where(raising & ~permit.gpus, permit.refused, reason)
    raising &= permit.gpus
    binding = np.full(topology.n_gpus, -1, dtype=np.int64)
    if raising.any():
        goal, binding, by_rate = _raised(_Raise(state, raising), caps, wanted_watts, now, permit)
        why = np.where(by_rate, int(CapReason.RAISE_RATE), int(CapReason.WAITING_FOR_READ_BACK))
        caps = np.maximum(np.floor(goal + 1e-6), caps)
        waits = raising & (wanted_watts - caps > 0.5) & (binding >= 0)
        reason = np.where(waits, why, np.where(raising, int(CapReason.NOT_CAPPED), reason))
    return Grants(even_gangs(caps, kinds, now.active), reason.astype(np.int64), binding)


def _raised(
    steps: _Raise, caps: FloatArray, wanted: FloatArray, now: Situation, permit: Permit
) -> tuple[FloatArray, IntArray, BoolArray]:
    """Raised caps, which domain held back whom, -1 for none, and whether by a rate, (n_gpus,) each.

    What was held before a change of leader comes back first and in one step, the rest at the rate;
    both only into room that the worst case leaves, and then only as the bands allow.
    """
    load = steps.state.load
    jump_dc = (now.survivable_watts - now.worst_rest_watts) / load.gpu_factor - load.sum_gpus(
        now.highest_watts
    )
    # Boards take whole watts: of less than one each nobody would rise, for ever.
    one_each = load.sum_gpus(steps.raising.astype(np.float64))
    rate_dc = _in_whole_watts(permit, load.gpu_factor, one_each)
    restored, held_back = caps, np.full(load.n_gpus, -1, dtype=np.int64)
    if np.any(permit.restore_watts > caps):
        to = np.clip(permit.restore_watts, caps, wanted)
        restored, held_back = steps.fill(caps, to, None, jump_dc)
        jump_dc = jump_dc - load.sum_gpus(restored - caps)
    room_dc = np.minimum(rate_dc, jump_dc)
    goal, by_room = steps.fill(restored, wanted, None, room_dc)
    held_back = np.where(by_room >= 0, by_room, held_back)
    slow = np.append(rate_dc < jump_dc, False)[held_back]
    if np.isfinite(now.load_limit_watts).any():
        possible = np.minimum(now.highest_watts, now.expected_watts)
        counted = np.where(now.doubtful, now.highest_watts, possible)
        factor = load.gpu_factor * now.coincidence
        band_dc = (now.load_limit_watts - now.rest_watts) / factor - load.sum_gpus(counted)
        paced_dc = paced(band_dc, permit.near_watts / factor, permit.near_share)
        paced_dc = np.maximum(paced_dc, np.minimum(band_dc, one_each))
        goal, by_band = steps.fill(caps, goal, now.expected_watts, paced_dc)
        held_back = np.where(by_band >= 0, by_band, held_back)
        slow = np.where(by_band >= 0, np.append(paced_dc < band_dc, False)[by_band], slow)
    return goal, held_back, slow


def _in_whole_watts(permit: Permit, factor: FloatArray, one_each: FloatArray) -> FloatArray:
    """What the rates give in this tick, DC; where it is under a watt a board, a whole one at times.

    Then every board has its watt each 2^k seconds, so that domains below one another have it at the
    same ticks; k is the least at which that is no faster than the rate.

    Args:
        permit: With the rates, AC.
        factor: AC of a domain for each DC watt of its boards, (n_domains,).
        one_each: A watt for every board that is to be raised, DC, (n_domains,).
    """
    rate_dc = permit.watts / factor
    slow = rate_dc < one_each
    if not slow.any() or permit.last_ns < 0:
        return rate_dc
    needed_seconds = one_each[slow] * factor[slow] / permit.watts_per_second[slow]
    period_seconds = np.exp2(np.ceil(np.log2(needed_seconds)))
    begun = np.floor(permit.now_ns / NS_PER_SECOND / period_seconds)
    due = begun > np.floor(permit.last_ns / NS_PER_SECOND / period_seconds)
    given = rate_dc.copy()
    given[slow] = np.where(due, one_each[slow], 0.0)
    return given


def paced(room: FloatArray, near: FloatArray, share: float) -> FloatArray:
    """How much of the room below a target is given now: all beyond ``near``, else a share of it.

    Args:
        room: Below the target, negative above it, infinite without one, (n_domains,).
        near: From which room on it is closed slowly, (n_domains,).
        share: Of what is near, in 0..1.
    """
    given = np.maximum(share * np.minimum(room, near), room - near)
    return np.where(room > 0.0, given, room)
