"""Gangs for which links matter are placed: the best set of link groups whose uplinks bear them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from scheduler_plugin.packing.fed_domains import domains_for
from scheduler_plugin.packing.whole_gangs import left_over
from scheduler_plugin.rules.gang_domains import GangDomain
from scheduler_plugin.rules.link_sets import Asked, link_sets

if TYPE_CHECKING:
    from scheduler_plugin.packing.greedy import Packing, Place

__all__ = ["asked_of_links", "place_linked", "placed_in"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


def place_linked(
    packing: Packing,
    gang: int,
    wanted: Mapping[int, int],
    place: Place,
    domain: GangDomain | None,
) -> bool:
    """Whether all waiting members of a gang have places now; otherwise none has.

    Args:
        packing: Where it is placed.
        gang: Its number among linked gangs.
        wanted: Members by class.
        place: How pods are placed.
        domain: That it should be in, or has to.
    """
    try:
        return any(
            _placed(packing, gang, wanted, place, nodes)
            for nodes in _topologies(packing, wanted, domain)
        )
    finally:
        packing.only = None


def _topologies(
    packing: Packing, wanted: Mapping[int, int], domain: GangDomain | None
) -> Iterator[BoolArray | None]:
    """Nodes that are asked first: each domain that may hold the gang, then all if it may."""
    if domain is not None:
        yield from domains_for(packing, wanted, domain)
    if domain is None or not domain.required:
        yield None


def _placed(
    packing: Packing, gang: int, wanted: Mapping[int, int], place: Place, nodes: BoolArray | None
) -> bool:
    """Within some nodes: by sets of link groups, then wherever there is room."""
    flows = packing.flows
    assert flows is not None
    packing.only = nodes
    rooms = packing.rooms_of_gang(wanted)
    if any(int(rooms[c].sum()) < count for c, count in wanted.items()):
        return False
    before, mark = flows.spread(gang), packing.mark()
    asked = asked_of_links(packing, gang, wanted, rooms)
    for portions in link_sets(asked):
        if placed_in(packing, portions, wanted, place, nodes) and not flows.short(gang, before):
            return True
        packing.undo_to(mark)
    packing.only = nodes
    left = left_over(place, wanted, packing.wants_others)
    if not left and not flows.short(gang, before):
        return True
    packing.undo_to(mark)
    return False


def placed_in(
    packing: Packing,
    portions: Sequence[tuple[int, int]],
    wanted: Mapping[int, int],
    place: Place,
    nodes: BoolArray | None,
) -> bool:
    """Whether all members have places, at most so many in each link group; some may have without.

    Args:
        packing: Where they are placed.
        portions: Group, and how many at most.
        wanted: Members by class.
        place: How pods are placed.
        nodes: That are looked at, shape (n,); None for all.
    """
    assert packing.flows is not None
    nearest, left = packing.flows.gangs.links.nearest, dict(wanted)
    for group, most in portions:
        inside: BoolArray = nearest == group
        packing.only = inside if nodes is None else inside & nodes
        for c in left:
            count = place(c, min(left[c], most))
            left[c], most = left[c] - count, most - count
    packing.only = nodes
    return not any(left.values())


def asked_of_links(
    packing: Packing, gang: int, wanted: Mapping[int, int], rooms: Mapping[int, IntArray]
) -> Asked:
    """What a gang asks of link groups.

    Args:
        packing: Where it is to be placed.
        gang: Its number among linked gangs.
        wanted: Members by class.
        rooms: Of each class, how many each node takes, shape (n,).
    """
    flows = packing.flows
    assert flows is not None
    links, flow = flows.gangs.links, flows.gangs.flow
    held = sum(np.minimum(links.sums(rooms[c]), count) for c, count in wanted.items())
    more = sum(int(flow[c]) * count for c, count in wanted.items())
    return Asked(
        links=links,
        rooms=np.asarray(held, dtype=np.int64),
        members=sum(wanted.values()),
        flow=max(int(flow[c]) for c in wanted),
        held=flows.spread(gang),
        total=flows.spread(gang).total + more,
        left=flows.left_beside(gang),
    )
