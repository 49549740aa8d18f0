"""Domains that have room for all of a gang, and whose feeds may bear it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from scheduler_plugin.rules.gang_domains import GangDomain

if TYPE_CHECKING:
    from scheduler_plugin.packing.greedy import Packing

__all__ = ["domains_for"]

BoolArray = npt.NDArray[np.bool_]


def domains_for(
    packing: Packing, wanted: Mapping[int, int], domain: GangDomain
) -> Iterator[BoolArray]:
    """Nodes of each domain that may hold a gang's waiting members, shape (n,), best first.

    Args:
        packing: As it is now.
        wanted: Members by class.
        domain: That the gang should be in, or has to.
    """
    problem, rooms = packing.problem, packing.rooms_of_gang(wanted)
    spared = problem.spared

    def feeds(nodes: BoolArray) -> bool:
        """By what is above all of these nodes, if each member goes where it adds least."""
        need = {c: count * int(problem.watts[c, nodes].min()) for c, count in wanted.items()}
        above = problem.path[nodes]
        common = [d for d in set(above[0].tolist()) if (above == d).any(axis=1).all()]
        return all(
            sum(watts for c, watts in need.items() if spared is None or not spared[c, d])
            <= max(0, int(packing.headroom[d]))
            for d in common
        )

    yield from domain.candidates(list(rooms.values()), list(wanted.values()), feeds)
