"""What power domains may still take, and whom each of them counts.

Axes: ``n`` nodes, ``c`` pod classes, ``d`` power domains plus one without limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

__all__ = ["UNLIMITED_WATTS", "PowerRows"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Stands for "no limit" and still adds up without overflow.
UNLIMITED_WATTS = 2**50


@dataclass(frozen=True)
class PowerRows:
    """The power tree of a problem.

    Attributes:
        headroom: Watts that each domain may still take, shape (d + 1,), the last unlimited.
        spared: Domains that do not count the pods of a class, by their priority, shape (c, d + 1);
            None if all count all.
        domain: Directly above each node, the unlimited one for none, shape (n,).
        above: Each domain and those above it, padded with the unlimited one, shape (d + 1, depth).
    """

    headroom: IntArray
    spared: BoolArray | None
    domain: IntArray
    above: IntArray

    @cached_property
    def path(self) -> IntArray:
        """Domains above each node, padded with the unlimited one, shape (n, depth)."""
        found: IntArray = self.above[self.domain]
        return found

    def headroom_for(self, class_index: int, headroom: IntArray) -> IntArray:
        """Of watts by domain those that bind a class: domains that spare it have no limit."""
        if self.spared is None:
            return headroom
        found: IntArray = np.where(self.spared[class_index], UNLIMITED_WATTS, headroom)
        return found

    def least_above(self, class_index: int, headroom: IntArray) -> IntArray:
        """Of watts by domain, shape (d + 1,), the least that binds a class above nodes, (n,)."""
        least: IntArray = self.headroom_for(class_index, headroom)[self.above].min(axis=1)
        return least[self.domain]

    def counting(self, class_index: int, node: int) -> IntArray:
        """Domains above a node that count pods of a class, padded with the unlimited one."""
        above: IntArray = self.path[node]
        return above if self.spared is None else above[~self.spared[class_index, above]]

    @cached_property
    def risk_of_class(self) -> tuple[int, ...]:
        """Alike for classes that the same domains count, shape (c,); empty if all count all."""
        if self.spared is None:
            return ()
        _, found = np.unique(self.spared, axis=0, return_inverse=True)
        return tuple(found.reshape(-1).tolist())
