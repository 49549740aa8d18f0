"""Which actuator sheds at less loss on each GPU, by what is measured of its work.

PowerPolicy.allowedActuators (permission) ─┐
work on the GPU (label, classifier) ───────┴─> locked or not, and by which law
"""

from __future__ import annotations

from capacity.model.clock_map import STANDING_SHARE
from controller.lock_law import LockLaw, unknown_work
from controller.work_curves import HeldWork, Works
from wattpack.power.domain_tree import BoolArray, FloatArray

__all__ = ["choose_actuators"]

# Work that hardly any clock lowers: shares of the rest stay numbers.
_MOST_STANDING = 0.95


def choose_actuators(
    works: Works, limits_allowed: BoolArray, locks_allowed: BoolArray, default_watts: FloatArray
) -> tuple[BoolArray, LockLaw]:
    """Which GPUs are locked, (n_gpus,), and by which law.

    A policy that allows locks only has them; where both are allowed, what is measured of the work
    decides, and unknown work counts as bound by the clock: it is not locked.

    Args:
        works: On GPUs all of whose tenants are known.
        limits_allowed: By policy, (n_gpus,).
        locks_allowed: By policy, (n_gpus,).
        default_watts: Default limits, (n_gpus,).
    """
    locked = locks_allowed & ~limits_allowed
    law = unknown_work(default_watts)
    open_watts, standing = law.open_watts.copy(), law.standing_share.copy()
    free = law.free_share.copy()
    for i, tenants in works.items():
        if not locks_allowed[i] or not all(work.lock_is_better for work in tenants):
            continue
        locked[i] = True
        open_watts[i] = min(default_watts[i], max(work.open_watts for work in tenants))
        standing[i] = max(_standing(work) for work in tenants)
        free[i] = max(work.free_share for work in tenants)
    return locked, LockLaw(open_watts, standing, free)


def _standing(work: HeldWork) -> float:
    return STANDING_SHARE if work.clock is None else min(work.clock.standing_share, _MOST_STANDING)
