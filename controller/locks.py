"""Clock locks beside the limits: they shed at less loss where the work does not wait for the clock.

A locked GPU has its limit like any other, so a lock may be loosened at any time: what it then
draws was counted already (I1, I2, I6).
"""

from __future__ import annotations

import numpy as np

from controller.lock_law import LockLaw, unknown_work
from controller.tick_values import Topology
from wattpack.masks import some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

__all__ = ["law_of", "lock_clocks", "most_drawn", "unlocked_draw"]

_CLOCK_STEP_MHZ = 15  # step of the clock lists that A100 and H100 drivers offer


def law_of(topology: Topology) -> LockLaw:
    """What a lock stands for on each GPU."""
    return topology.lock_law or unknown_work(topology.default_limit_watts)


def lock_clocks(
    topology: Topology,
    load: LoadTree,
    cap_watts: FloatArray,
    held: BoolArray,
    clock_share: FloatArray,
) -> tuple[IntArray, FloatArray]:
    """Highest clocks to command, 0 for none, and the caps they follow, (n_gpus,) each.

    Where watts are short a GPU first gives up what costs it nothing, then follows its cap.

    Args:
        topology: Who may be locked.
        load: The tree.
        cap_watts: Limits as commanded, (n_gpus,).
        held: Domains that hold their load down: watts are short below them, (n_domains,).
        clock_share: Clocks that shed load beside limits over the highest, 1 for none, (n_gpus,).

    Returns:
        Clocks, and the cap that each lock stands for, infinite where it only gives up what costs
        nothing.
    """
    sheds = topology.sheddable_gpu & (clock_share < 1.0)
    locks = (topology.lockable_gpu & topology.enforced_gpu) | sheds
    if not some(locks):
        return np.zeros(topology.n_gpus, dtype=np.int64), np.full(topology.n_gpus, np.inf)
    law, short = law_of(topology), load.any_above_gpu(held)
    for_cap = np.where(cap_watts < law.open_watts - 1.0, law.share_for(cap_watts), 1.0)
    share = np.minimum(for_cap, np.where(short, law.free_share, 1.0))
    share = np.where(sheds, clock_share, share)
    steps = np.ceil(topology.max_clock_mhz * share / _CLOCK_STEP_MHZ)
    mhz = np.where(locks & (share < 1.0), steps * _CLOCK_STEP_MHZ, 0.0)
    mhz = np.where(mhz < topology.max_clock_mhz, mhz, 0.0)
    follows = (mhz > 0.0) & ((for_cap <= share) | sheds)
    return mhz.astype(np.int64), np.where(follows, cap_watts, np.inf)


def most_drawn(topology: Topology) -> FloatArray:
    """What held GPUs count at: their requests, or their work at the full clock, (n_gpus,)."""
    locks = topology.lockable_gpu
    if not some(locks):
        return topology.request_watts
    most = np.minimum(topology.request_watts, law_of(topology).open_watts)
    return np.where(locks, most, topology.request_watts)


def unlocked_draw(topology: Topology, draw_watts: FloatArray, short: BoolArray) -> FloatArray:
    """Draws as they would be without the locks that cost nothing, (n_gpus,).

    A domain that counted the locked draw as demand would lift its caps, see the draw rise and cap
    again.
    """
    held = topology.lockable_gpu & short & topology.enforced_gpu
    if not some(held):
        return draw_watts
    law = law_of(topology)
    return np.where(held, draw_watts / law.draw_share(law.free_share), draw_watts)
