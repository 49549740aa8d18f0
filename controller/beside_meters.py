"""What meters show beyond what servers count at, for the domains that have no meter of their own.

    meter of a row ──┐  less what the racks' meters show, less what the other servers count at
    meters of racks ─┴─> drawn by servers of no nearer meter, by how far each is below its worst

What meters tell of servers follows within a minute (``controller.server_hosts``). A rack without a
meter may trip in that time: what its servers begin to draw beside their boards is shown by meters
above it or beside it at once.
"""

from __future__ import annotations

import numpy as np

from wattpack.masks import every, some
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

__all__ = ["beside_meters_watts", "nearest_of_nodes"]


def beside_meters_watts(
    load: LoadTree,
    by_nodes_watts: FloatArray,
    shown_watts: FloatArray,
    room_watts: FloatArray,
    usable: BoolArray,
    nearest: IntArray,
) -> FloatArray:
    """AC watts that domains without a meter draw beyond the sum of their servers, (n_domains,).

    Args:
        load: Tree and members.
        by_nodes_watts: Draw of each domain without the meters of this moment, AC, (n_domains,).
        shown_watts: Readings brought to this moment, NaN for those not believed, (n_domains,).
        room_watts: What each server may draw beyond what it counts at, DC, (n_nodes,).
        usable: Domains with a reading of their own, which get nothing, (n_domains,).
        nearest: Of each server the nearest domain above with a believed reading, -1 without,
            (n_nodes,).
    """
    none = np.zeros(len(load.tree))
    believed = ~np.isnan(shown_watts)
    if every(usable) or not some(believed) or not some(room_watts > 0.0):
        return none
    excess_dc = np.where(believed, (shown_watts - by_nodes_watts) * load.efficiency, 0.0)
    above = _nearest_above(load, believed)
    below = believed & (above >= 0)
    taken = np.bincount(above[below], excess_dc[below], minlength=len(none))
    own_dc = np.maximum(excess_dc - taken, 0.0)
    told = nearest >= 0
    room = np.bincount(nearest[told], room_watts[told], minlength=len(none))
    share = np.divide(own_dc, room, out=np.zeros_like(own_dc), where=room > 0.0)
    drawn = np.where(told, np.minimum(share, 1.0)[nearest] * room_watts, 0.0)
    return np.where(usable, 0.0, load.sum_nodes(drawn) / load.efficiency)


def _nearest_above(load: LoadTree, believed: BoolArray) -> IntArray:
    """The nearest domain above each whose meter is believed, -1 for none, (n_domains,)."""
    above = np.full(len(believed), -1, dtype=np.int64)
    for parents, children, owner in load.families_upwards[::-1]:
        above[children] = np.where(believed[parents], parents, above[parents])[owner]
    return above


def nearest_of_nodes(load: LoadTree, believed: BoolArray) -> IntArray:
    """The nearest domain above each server whose meter is believed, -1 for none, (n_nodes,)."""
    position = np.append(np.where(believed, np.arange(len(believed)), -1), -1)
    nearest = np.full(load.n_nodes, -1, dtype=np.int64)
    for domains in load.node_domains:
        here = position.take(domains)
        nearest = np.where(here >= 0, here, nearest)
    return nearest
