"""Clocks that shed a domain's load beside its limits, before anybody more important pays.

    draw over the target ──> clocks of the boards that allow it fall, by how much it is over
    draw under it ─────────> they rise, slowly
    clocks have room ──────> limits leave a little more: they guard, clocks regulate

A limit takes nothing from a board that draws less than it. Where a policy allows both actuators and
the work does not prefer one of them (``actuator_choice``), the board has its limit, which alone
carries I1 and I2, and its clock is lowered as well while a domain above it holds its load down: to
the speed, at the least, that its floor promises work which waits for its clock.
"""

from __future__ import annotations

import numpy as np

from controller.tick_values import Topology
from wattpack.masks import some
from wattpack.power.domain_tree import FloatArray
from wattpack.power.feasibility import LoadTree

__all__ = ["clocks_unseen", "limit_room", "shed_clocks"]

_DEAD_SHARE = 0.005
"""Of the rating, on both sides of the target: a second's draw of a row moves by as much."""

_GAIN_PER_SECOND = 2.0
"""Clock over excess of the rating. A hundredth of the clock of half a row's boards sheds about a
third of one of the rating, so an excess is gone in about two seconds."""

_DEEPEST_PER_SECOND = 0.06
_OPEN_PER_SECOND = 0.004
"""Slow, so that clocks do not swing with a load that moves within seconds."""

_LONGEST_STEP_SECONDS = 1.0

_LIMIT_ROOM = 0.02
"""Expected load goes by the highest of a minute, about two hundredths above the mean, and so would
hold limits down first; with this they stay open until clocks are down."""

_ROOM_UNTIL = 0.02
"""Of the rating above the target: with more than that drawn, limits aim at the target at once."""

_ROOM_TAPER = 0.1
"""Clock above the lowest from which the whole room is left: near the lowest, limits that let go and
came back with every step of a clock would swing."""


def shed_clocks(
    share: FloatArray, topology: Topology, load: LoadTree, excess: FloatArray, seconds: float
) -> FloatArray:
    """Clock over the highest after a tick, 1 where none is lowered, (n_gpus,).

    Args:
        share: Before it, (n_gpus,).
        topology: For how far each clock may be lowered.
        load: The tree.
        excess: Draw less target over the rating, minus infinity where no load is held,
            (n_domains,).
        seconds: Since the last tick.
    """
    mine = topology.sheddable_gpu
    if not some(mine):
        return np.ones(topology.n_gpus)
    step = min(max(seconds, 0.0), _LONGEST_STEP_SECONDS)
    fall = np.zeros(topology.n_gpus)
    for over in np.unique(excess[excess > _DEAD_SHARE]):
        rate = min(_GAIN_PER_SECOND * float(over), _DEEPEST_PER_SECOND)
        fall = np.where(load.any_above_gpu(excess >= over), rate, fall)
    rises = ~load.any_above_gpu(excess >= -_DEAD_SHARE)
    moved = share - step * np.where(rises, -_OPEN_PER_SECOND, fall)
    return np.clip(moved, np.where(mine, topology.shed_clock_share, 1.0), 1.0)


def clocks_unseen(topology: Topology, load: LoadTree, excess: FloatArray) -> FloatArray:
    """The same while another leads: a leader's clocks hide the excess that they shed, (n_gpus,).

    Who takes over must not open them all at once, so they count as lowest wherever load is held.

    Args:
        topology: For how far each clock may be lowered.
        load: The tree.
        excess: As for ``shed_clocks``, (n_domains,).
    """
    held = topology.sheddable_gpu & load.any_above_gpu(np.isfinite(excess))
    share = np.ones(topology.n_gpus)
    if some(held):
        share[held] = topology.shed_clock_share[held]
    return share


def limit_room(
    share: FloatArray, topology: Topology, load: LoadTree, excess: FloatArray
) -> FloatArray:
    """Share of the rating that limits may leave above the target, (n_domains,).

    Args:
        share: Clock over the highest, (n_gpus,).
        topology: For how far each clock may be lowered.
        load: The tree.
        excess: As for ``shed_clocks``, (n_domains,).
    """
    mine = topology.sheddable_gpu
    if not some(mine):
        return np.zeros(topology.n_domains)
    travel = np.where(mine, share - topology.shed_clock_share, 0.0)
    boards = np.maximum(load.sum_gpus(mine.astype(np.float64)), 1.0)
    left = np.clip(load.sum_gpus(travel) / boards / _ROOM_TAPER, 0.0, 1.0)
    return np.where(excess <= _ROOM_UNTIL, _LIMIT_ROOM * left, 0.0)
