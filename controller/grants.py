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
from controller.decide import Situation, below_bands
from controller.filling import Filling, Room
from controller.raise_rate import RaiseRate
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray

__all__ = ["RAISE_DEADBAND", "Grants", "Permit", "grant", "paced"]

# A board's regulation is no finer than this; smaller raises would only wear the stream. What I2
# alone leaves is given to the watt: no reading moves it, so it comes once and stays.
RAISE_DEADBAND = 0.02


@dataclass(frozen=True, slots=True)
class Permit:
    """Whether and how fast power may be raised now.

    Attributes:
        gpus: Which GPUs may be raised at all, (n_gpus,).
        rate: How fast the sum of caps that each domain bears may rise.
        near_watts: What a capping domain expects below its target from here on is near: only
            ``near_share`` of that room is given in this tick. All room is near while the domain
            draws more than it may, AC, (n_domains,).
        near_share: In 0..1.
        restore_watts: Caps that come back in one step after a change of leader, 0 for none,
            (n_gpus,).
        refused: ``CapReason`` where raising is not permitted, (n_gpus,).
        stopped: What keeps the whole replica from raising, NOT_CAPPED for nothing.
    """

    gpus: BoolArray
    rate: RaiseRate
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
        saved_seconds: For how much time the rates have raised nothing, (n_domains,).
    """

    cap_watts: FloatArray
    reason: IntArray
    binding_domain: IntArray
    saved_seconds: FloatArray


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
    raised = np.zeros(topology.n_gpus)
    if not some(gap > 0.5):
        nothing = np.full(topology.n_gpus, int(CapReason.NOT_CAPPED), dtype=np.int64)
        saved_seconds = permit.rate.saved_after(state.load, raised)
        return Grants(even_gangs(caps, kinds, now.active), nothing, nothing - 1, saved_seconds)
    small = (gap < RAISE_DEADBAND * topology.default_limit_watts) & (
        wanted_watts < topology.request_watts
    )
    # A floor is promised, so nobody rests a little below it.
    small &= caps >= np.minimum(topology.floor_watts, wanted_watts)
    small &= below_bands(state.load, now)
    raising = now.active & (gap > 0.5) & ~small
    # What is too small to be raised waits for nothing: it stays.
    waits_for_rate = (gap > 0.5) & ~small
    reason = np.where(waits_for_rate, int(CapReason.RAISE_RATE), int(CapReason.NOT_CAPPED))
    reason = np.where(raising & ~permit.gpus, permit.refused, reason)
    raising &= permit.gpus
    binding = np.full(topology.n_gpus, -1, dtype=np.int64)
    if some(raising):
        steps = _Raise(state, raising)
        start, goal, binding, by_rate = _raised(steps, caps, wanted_watts, now, permit)
        why = np.where(by_rate, int(CapReason.RAISE_RATE), int(CapReason.WAITING_FOR_READ_BACK))
        caps = np.maximum(np.floor(goal + 1e-6), caps)
        raised = np.maximum(caps - start, 0.0)
        waits = raising & (wanted_watts - caps > 0.5) & (binding >= 0)
        reason = np.where(waits, why, np.where(raising, int(CapReason.NOT_CAPPED), reason))
    saved_seconds = permit.rate.saved_after(state.load, raised)
    caps = even_gangs(caps, kinds, now.active)
    return Grants(caps, reason.astype(np.int64), binding, saved_seconds)


def _raised(
    steps: _Raise, caps: FloatArray, wanted: FloatArray, now: Situation, permit: Permit
) -> tuple[FloatArray, FloatArray, IntArray, BoolArray]:
    """Caps from which the rate counts, raised ones, who held back whom, whether by a rate.

    (n_gpus,) each; -1 where no domain held a GPU back.

    What was held before a change of leader comes back first and in one step, the rest at the rate;
    both only into room that the worst case leaves, and then only as the bands allow.
    """
    load = steps.state.load
    jump_dc = (now.jump_limit_watts - now.worst_rest_watts) / load.gpu_factor - load.sum_gpus(
        now.highest_watts
    )
    # Boards take whole watts: of less than one each nobody would rise, for ever.
    one_each = load.sum_gpus(steps.raising.astype(np.float64))
    rate_dc = permit.rate.in_whole_watts(load, one_each)
    restored, held_back = caps, np.full(load.n_gpus, -1, dtype=np.int64)
    if np.any(permit.restore_watts > caps):
        to = np.clip(permit.restore_watts, caps, wanted)
        restored, held_back = steps.fill(caps, to, None, jump_dc)
        jump_dc = jump_dc - load.sum_gpus(restored - caps)
    room_dc = np.minimum(rate_dc, jump_dc)
    goal, by_room = steps.fill(restored, wanted, None, room_dc)
    held_back = np.where(by_room >= 0, by_room, held_back)
    slow = np.append(rate_dc < jump_dc, False)[held_back]
    if some(np.isfinite(now.load_limit_watts)):
        possible = np.minimum(now.highest_watts, now.expected_watts)
        counted = np.where(now.doubtful, now.highest_watts, possible)
        factor = load.gpu_factor * now.coincidence
        band_dc = (now.load_limit_watts - now.rest_watts) / factor - load.sum_gpus(counted)
        paced_dc = paced(band_dc, permit.near_watts / factor, permit.near_share)
        paced_dc = np.maximum(paced_dc, np.minimum(band_dc, one_each))
        goal, by_band = steps.fill(caps, goal, now.expected_watts, paced_dc)
        held_back = np.where(by_band >= 0, by_band, held_back)
        slow = np.where(by_band >= 0, np.append(paced_dc < band_dc, False)[by_band], slow)
    return restored, goal, held_back, slow


def paced(room: FloatArray, near: FloatArray, share: float) -> FloatArray:
    """How much of the room below a target is given now: all beyond ``near``, else a share of it.

    Args:
        room: Below the target, negative above it, infinite without one, (n_domains,).
        near: From which room on it is closed slowly, (n_domains,).
        share: Of what is near, in 0..1.
    """
    given = np.maximum(share * np.minimum(room, near), room - near)
    return np.where(room > 0.0, given, room)
