"""Clock locks: the other actuator, for work that a power limit does not reach."""

from __future__ import annotations

import numpy as np

from controller.controller_state import State
from controller.tick_values import Topology
from wattpack.power.clock_power import CLOCK_POWER_EXPONENT
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray

__all__ = ["lock_clocks", "lockable"]

_CLOCK_STEP_MHZ = 15  # step of the clock lists that A100 and H100 drivers offer
_LOWEST_SHARE = 0.25


def lockable(topology: Topology) -> BoolArray:
    """GPUs whose power is reduced by locks and whose clocks are known, (n_gpus,)."""
    if topology.max_clock_mhz.size == 0:
        return np.zeros(topology.n_gpus, dtype=np.bool_)
    return topology.clock_lock & (topology.max_clock_mhz > 0)


def lock_clocks(
    topology: Topology,
    state: State,
    wanted_watts: FloatArray,
    held_watts: FloatArray,
    may_raise: BoolArray,
) -> tuple[IntArray, FloatArray]:
    """Highest clocks to command, 0 for none, and the power that each stands for, (n_gpus,) each.

    A lock is only loosened when no lower limit in its domains still waits for read-back (I6).
    """
    locks = lockable(topology)
    if not locks.any():
        return np.zeros(topology.n_gpus, dtype=np.int64), np.full(topology.n_gpus, np.inf)
    load = state.load
    pending = ~locks & (held_watts > wanted_watts + 1.0)
    open_domains = load.sum_gpus(pending.astype(np.float64)) > 0
    may = may_raise & ~load.any_above_gpu(open_domains)
    watts = np.where(may, wanted_watts, np.minimum(wanted_watts, state.lock_watts))
    share = np.clip(watts / topology.default_limit_watts, 0.0, 1.0) ** (1 / CLOCK_POWER_EXPONENT)
    clocks = topology.max_clock_mhz * np.maximum(share, _LOWEST_SHARE)
    needed = locks & (watts < topology.request_watts - 1.0)
    mhz = np.where(needed, np.floor(clocks / _CLOCK_STEP_MHZ) * _CLOCK_STEP_MHZ, 0.0)
    return mhz.astype(np.int64), np.where(needed, watts, np.inf)
