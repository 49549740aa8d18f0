"""From decided caps to commands: lower at once, raise only into confirmed room (I4, I6).

Asking a GPU for no more than it may hold already raises nothing. Everything above that is given
class by class into the room that is left when every GPU counts at the highest cap it may hold, and
no faster than the domain's raise rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation import even_gangs, fill_stage
from controller.decide import Situation
from controller.tick_values import CapReason, Topology
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

__all__ = ["RAISE_DEADBAND", "Grants", "Permit", "grant"]

# A board's regulation is no finer than this; smaller raises would only wear the stream.
RAISE_DEADBAND = 0.02


@dataclass(frozen=True, slots=True)
class Permit:
    """Whether and how fast power may be raised now.

    Attributes:
        gpus: Which GPUs may be raised at all, (n_gpus,).
        watts: Raise of the sum of caps that each domain bears in this tick, AC, (n_domains,).
        refused: ``CapReason`` where raising is not permitted.
    """

    gpus: BoolArray
    watts: FloatArray
    refused: CapReason


@dataclass(frozen=True, slots=True)
class Grants:
    """What to command.

    Attributes:
        cap_watts: (n_gpus,).
        reason: Why a GPU gets less than was decided, NOT_CAPPED where it does not, (n_gpus,).
    """

    cap_watts: FloatArray
    reason: IntArray


def grant(
    load: LoadTree,
    topology: Topology,
    gang_kind: IntArray,
    wanted_watts: FloatArray,
    held_watts: FloatArray,
    now: Situation,
    permit: Permit,
) -> Grants:
    """Commands that never let the worst case or the bands be exceeded by a raise.

    Args:
        load: Tree and members.
        topology: For priorities and gangs.
        gang_kind: Members of one number get one cap, (n_gpus,).
        wanted_watts: Decided caps, (n_gpus,).
        held_watts: Highest cap by command or read-back, (n_gpus,).
        now: Limits and what counts against them.
        permit: Whether and how fast to raise.
    """
    caps = np.where(now.active, np.minimum(wanted_watts, held_watts), wanted_watts)
    gap = wanted_watts - caps
    small = (gap < RAISE_DEADBAND * topology.default_limit_watts) & (
        wanted_watts < topology.request_watts
    )
    raising = now.active & (gap > 0.5) & ~small
    reason = np.where(gap > 0.5, int(CapReason.RAISE_RATE), int(CapReason.NOT_CAPPED))
    if not raising.any():
        return Grants(even_gangs(caps, gang_kind, now.active), reason.astype(np.int64))
    reason = np.where(raising & ~permit.gpus, int(permit.refused), reason)
    raising &= permit.gpus
    rate_dc = permit.watts / load.gpu_factor
    jump_dc = (now.survivable_watts - now.worst_rest_watts) / load.gpu_factor - load.sum_gpus(
        now.highest_watts
    )
    held_back = np.full(load.n_gpus, -1, dtype=np.int64)
    room = np.maximum(np.minimum(rate_dc, jump_dc), 0.0)
    goal = _raise(load, topology, caps, wanted_watts, raising, None, room, held_back)
    if np.isfinite(now.load_limit_watts).any():
        possible = np.minimum(now.highest_watts, now.expected_watts)
        counted = np.where(now.doubtful, now.highest_watts, possible)
        used = load.sum_gpus(counted) + now.rest_watts / load.gpu_factor
        room = np.maximum(now.load_limit_watts / load.gpu_factor - used, 0.0)
        goal = _raise(load, topology, caps, goal, raising, now.expected_watts, room, held_back)
    waits = raising & (wanted_watts - goal > 0.5) & (held_back >= 0)
    slow = np.append(rate_dc < jump_dc, False)[held_back]
    why = np.where(slow, int(CapReason.RAISE_RATE), int(CapReason.WAITING_FOR_READ_BACK))
    reason = np.where(waits, why, np.where(raising, int(CapReason.NOT_CAPPED), reason))
    caps = np.maximum(np.floor(goal + 1e-6), caps)
    return Grants(even_gangs(caps, gang_kind, now.active), reason.astype(np.int64))


def _raise(
    load: LoadTree,
    topology: Topology,
    start: FloatArray,
    goal: FloatArray,
    raising: BoolArray,
    expected: FloatArray | None,
    room: FloatArray,
    held_back: IntArray,
) -> FloatArray:
    """Caps after one filling from start towards the goal, most important class first, (n_gpus,)."""
    caps = np.array(start, copy=True)
    binding = np.full(load.n_gpus, -1, dtype=np.int64)
    counted = np.full(load.n_gpus, np.inf) if expected is None else expected
    closed = np.zeros(len(load.tree), dtype=np.bool_)
    members = np.flatnonzero(raising)
    priority = topology.priority[members]
    for level in np.unique(priority)[::-1]:
        room = fill_stage(
            load,
            members[priority == level],
            caps,
            goal,
            counted,
            room,
            closed,
            topology.gang,
            binding,
        )
    np.copyto(held_back, binding, where=binding >= 0)
    return caps
