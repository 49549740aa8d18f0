"""Sums up a power tree, compiled where numba is there: a tick makes dozens of them.

``LoadTree`` has them in numpy, to read and as oracle. Both add one number after the other in the
same order, so they give the same bits.
"""

from __future__ import annotations

import numpy as np

from wattpack.compiled import compiled
from wattpack.power.domain_tree import FloatArray, IntArray

__all__ = ["sums_below", "sums_below_some"]


@compiled
def sums_below(
    bins: IntArray, values: FloatArray, above_all: IntArray, n_domains: int
) -> FloatArray:
    """Per domain the sum over all members below it, (n_domains,).

    Args:
        bins: Domain of each depth above each member, ``n_domains`` for none, (n_depths, n).
        values: (n,).
        above_all: Domains above everybody, which are not among ``bins``.
        n_domains: How many there are.
    """
    if bins.shape[1] != len(values):
        raise ValueError("a value for each member")
    total = np.zeros(n_domains + 1)
    for depth in range(len(bins)):
        for i in range(len(values)):
            total[bins[depth, i]] += values[i]
    return _with_whole(total, values, above_all)


@compiled
def sums_below_some(
    bins: IntArray, members: IntArray, values: FloatArray, above_all: IntArray, n_domains: int
) -> FloatArray:
    """The same of some members, (k,), with values of theirs, (k,)."""
    if len(members) != len(values):
        raise ValueError("a value for each of the members")
    total = np.zeros(n_domains + 1)
    for depth in range(len(bins)):
        for k in range(len(values)):
            total[bins[depth, members[k]]] += values[k]
    return _with_whole(total, values, above_all)


@compiled
def _with_whole(total: FloatArray, values: FloatArray, above_all: IntArray) -> FloatArray:
    """The sums of all domains, those above everybody with all values; what is below none is left.

    Shape: (n_domains + 1,) -> (n_domains,).
    """
    whole = 0.0
    for value in values:
        whole += value
    for domain in above_all:
        total[domain] = whole
    return total[:-1]
