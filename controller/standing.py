"""What each GPU was last seen to hold under a lease: what a new leader may bring back (I6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.tick_values import Tick
from wattpack.power.domain_tree import FloatArray, IntArray

__all__ = ["Standing", "nothing_stood", "still_standing"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Limits read back while a lease held them.

    Attributes:
        watts: 0 before the first, (n_gpus,).
        seen_ns: When the report came, -1 before the first, (n_gpus,).
    """

    watts: FloatArray
    seen_ns: IntArray


def nothing_stood(n_gpus: int) -> Standing:
    """No lease was seen yet."""
    return Standing(np.zeros(n_gpus), np.full(n_gpus, -1, dtype=np.int64))


def still_standing(tick: Tick, before: Standing) -> Standing:
    """After this tick's reports.

    A limit without a lease was fallen to and says nothing; neither do our own leases, which hold
    what is left until we may raise.
    """
    observed = tick.observations
    if observed.leading:
        return before
    leased = observed.gpu_leased & observed.gpu_controlled & (observed.gpu_limit_watts > 0.0)
    received_ns = observed.node_received_ns[tick.topology.node_of_gpu]
    return Standing(
        np.where(leased, observed.gpu_limit_watts, before.watts),
        np.where(leased, received_ns, before.seen_ns),
    )
