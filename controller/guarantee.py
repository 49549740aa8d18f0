"""Guaranteed caps at run time: I1 with what is really controlled, and who is owed less for it.

A node is uncontrolled until each of its GPUs' guaranteed caps was read back; it then counts at its
default limits, and if I1 fails for that, the other members of the domain are lowered.
"""

from __future__ import annotations

import numpy as np

from controller.controller_state import State
from controller.guaranteed_case import GuaranteedCase, case_watts
from controller.tick_values import Tick, Topology
from wattpack.masks import every, some
from wattpack.power.domain_tree import BoolArray, FloatArray
from wattpack.power.feasibility import LoadTree

__all__ = ["guaranteed_commands"]

# A way of 500 W is halved down to a quarter of a watt.
_HALVINGS = 11
_READ_BACK_TOLERANCE_WATTS = 1.0


def guaranteed_commands(
    tick: Tick, state: State, case: GuaranteedCase, may_raise: BoolArray
) -> FloatArray:
    """New guaranteed caps to write, 0 where the present one stays, (n_gpus,).

    Lowering goes at once; raising waits until every lower one in the tree was read back.
    """
    topology = tick.topology
    wanted = topology.guaranteed_watts
    if np.any((case.watts > state.load.rating_watts) & state.heard & topology.tree.enforce):
        wanted = _lowered(topology, state, case.fixed_nodes)
    held = tick.observations.gpu_guaranteed_watts
    if every(np.abs(held - wanted) < 0.5 * _READ_BACK_TOLERANCE_WATTS):
        return np.zeros(topology.n_gpus)
    with np.errstate(invalid="ignore"):
        lower = held > wanted + _READ_BACK_TOLERANCE_WATTS
        higher = (held < wanted - _READ_BACK_TOLERANCE_WATTS) & may_raise
        higher &= not some(lower)
    change = lower | higher | np.isnan(held)
    return np.where(change, wanted, 0.0)


def _lowered(topology: Topology, state: State, fixed_nodes: BoolArray) -> FloatArray:
    """Guaranteed caps brought towards the hardware minimum until I1 holds, if that helps at all.

    From the leaves up: what an overfull rack sheds may be all that its row lacks, so that only
    what is still missing there is taken from the rack's neighbours.
    """
    load, caps = state.load, topology.guaranteed_watts
    depths = topology.tree.depths()
    for depth in range(int(depths.max(initial=0)), -1, -1):
        here = topology.tree.enforce & (depths == depth)
        over = here & (case_watts(topology, load, caps, fixed_nodes) > load.rating_watts)
        if some(over):
            caps = _shed(topology, load, caps, over, fixed_nodes)
    return np.maximum(np.floor(caps), topology.min_limit_watts)


def _shed(
    topology: Topology, load: LoadTree, caps: FloatArray, over: BoolArray, fixed: BoolArray
) -> FloatArray:
    """Caps at the highest share of their way from the minimum at which each of these domains fits.

    By halving, for a sum over boards does not tell: what the largest servers give up, which count
    at their default limits in any case, helps nobody. Domains are of one depth: none feeds another.
    """
    low = topology.min_limit_watts

    def at(share: FloatArray) -> FloatArray:
        kept = np.append(np.where(over, share, 1.0), 1.0)[load.gpu_domains].min(axis=0)
        return np.asarray(low + (caps - low) * kept)

    fitting, too_much = np.zeros(len(over)), np.ones(len(over))
    for _ in range(_HALVINGS):
        middle = (fitting + too_much) / 2.0
        fits = case_watts(topology, load, at(middle), fixed) <= load.rating_watts
        fitting, too_much = np.where(fits, middle, fitting), np.where(fits, too_much, middle)
    return at(fitting)
