"""Which series is the sum of which others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from forecasting.series_source import Floats
from wattpack.errors import InputError

Booleans = NDArray[np.bool_]
Integers = NDArray[np.intp]

OWN: Final = " (own)"
"""Ends the name of the leaf that stands for a parent's own part."""


@dataclass(frozen=True, slots=True)
class Families:
    """All nodes of one depth, brothers beside each other.

    Attributes:
        children: Nodes, those of one parent in a row, (n_children,).
        parents: The parent of each family, (n_families,).
        starts: Where each family begins in ``children``, (n_families,).
        family: Of each child, (n_children,).
    """

    children: Integers
    parents: Integers
    starts: Integers
    family: Integers

    def sums(self, of_children: Floats) -> Floats:
        """Sum of each family, (n_children, …) to (n_families, …)."""
        result: Floats = np.add.reduceat(of_children, self.starts, axis=0)
        return result


@dataclass(frozen=True)
class SeriesTree:
    """A forest: a parent is the sum of its children.

    Attributes:
        names: Of all nodes, each once.
        parents: Position of each node's parent, -1 for a root, (n,).

    Raises:
        InputError: for names that repeat, parents that are no nodes, and circles.
    """

    names: tuple[str, ...]
    parents: Integers

    def __post_init__(self) -> None:
        n = len(self.names)
        if len(set(self.names)) != n:
            raise InputError("names", "each series once", n)
        if self.parents.shape != (n,) or np.any((self.parents < -1) | (self.parents >= n)):
            raise InputError("parents", f"positions below {n}, or -1", self.parents.shape)
        if np.any(self.depth < 0):
            raise InputError("parents", "series without a circle", self.names[self._first_lost])

    @classmethod
    def of(cls, parent_of: Mapping[str, str | None], own: Collection[str] = ()) -> SeriesTree:
        """The tree of names.

        Args:
            parent_of: Each series with the one that it is a part of, None for a whole.
            own: Parents that are more than their children; a leaf named ``NAME (own)`` is added
                behind the others for what is left. Without a forecast it takes the remainder.

        Raises:
            InputError: as the class; for an own part of nobody.
        """
        names = [*parent_of, *(name + OWN for name in own)]
        place = {name: i for i, name in enumerate(names)}
        wholes = [*parent_of.values(), *own]
        for whole in wholes:
            if whole is not None and whole not in parent_of:
                raise InputError("parents", "a series of the tree", whole)
        parents = [-1 if whole is None else place[whole] for whole in wholes]
        return cls(tuple(names), np.array(parents, dtype=np.intp))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def depth(self) -> Integers:
        """Steps to the root, (n,); -1 where a circle keeps from it."""
        depth = np.where(self.parents < 0, 0, -1)
        for _ in range(len(self.names)):
            known = np.where(self.parents < 0, 0, depth[self.parents])
            found = (depth < 0) & (known >= 0)
            if not found.any():
                break
            depth[found] = known[found] + 1
        return depth

    @property
    def _first_lost(self) -> int:
        return int(np.argmin(self.depth))

    @cached_property
    def is_leaf(self) -> Booleans:
        """Nodes that are nobody's sum, (n,)."""
        leaf = np.ones(len(self), dtype=np.bool_)
        leaf[self.parents[self.parents >= 0]] = False
        return leaf

    @cached_property
    def levels(self) -> tuple[Families, ...]:
        """Families by the depth of their children, the roots' children first."""
        made = []
        for depth in range(1, int(self.depth.max(initial=0)) + 1):
            children = np.flatnonzero(self.depth == depth)
            children = children[np.argsort(self.parents[children], kind="stable")]
            parents, starts, counts = np.unique(
                self.parents[children], return_index=True, return_counts=True
            )
            family = np.repeat(np.arange(len(parents)), counts)
            made.append(Families(children, parents, starts, family))
        return tuple(made)

    @cached_property
    def constraints(self) -> csr_array:
        """One row a parent, ``parent - sum of its children``, shape (n_parents, n)."""
        child = np.flatnonzero(self.parents >= 0)
        wholes, row = np.unique(self.parents[child], return_inverse=True)
        rows = np.concatenate([np.arange(len(wholes)), row])
        columns = np.concatenate([wholes, child])
        signs = np.concatenate([np.ones(len(wholes)), -np.ones(len(child))])
        return csr_array((signs, (rows, columns)), shape=(len(wholes), len(self)))

    def with_own_parts(self, values: Floats) -> Floats:
        """A history of the parents' own parts beside that of the other series.

        Args:
            values: Of all but the own parts, in order, (n - n_own, n_bins).

        Returns:
            (n, n_bins): an own part is what its parent has beyond its other children, at least 0;
            NaN where one of them is.
        """
        given = len(values)
        made = np.concatenate([values, np.full((len(self) - given, values.shape[1]), np.nan)])
        for node in range(given, len(self)):
            parent = self.parents[node]
            brothers = np.flatnonzero(self.parents[:given] == parent)
            made[node] = np.maximum(values[parent] - values[brothers].sum(axis=0), 0.0)
        return made

    def summed(self, values: Floats) -> Floats:
        """The values with every parent the sum of its leaves, (n, …); NaN where one is unknown."""
        made = np.array(values, dtype=np.float64)
        for level in reversed(self.levels):
            made[level.parents] = level.sums(made[level.children])
        return made
