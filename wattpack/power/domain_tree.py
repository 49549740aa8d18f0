"""The power tree as arrays. All sums are AC watts at the breaker.

A tree is immutable; a change of PowerDomain objects builds a new one. Domains are sorted so that a
parent always stands before its children, which lets one pass over depths aggregate the tree.

The arithmetic of I1 and I2 lives in ``wattpack.power.feasibility``, which only needs this tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wattpack.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Board-gain spread over n boards and measured steady overshoot above a cap, docs/architecture.md
# (A40 at its lowest limit: median 1.02, Zeus sweeps; sensors +-5 % a board, arXiv 2312.02741).
OVERSHOOT_RATIO = 1.05
BOARD_GAIN_SPREAD = 0.09


@dataclass(frozen=True, slots=True)
class BreakerCurve:
    """Trip time of a hot breaker: ``a * (r**2 - 1) ** -b`` seconds at load ratio r > 1, or points.

    With points the time is interpolated in log-log space and held at the last point beyond it.

    Attributes:
        feed: Points of UPS and transformer of a feed: whichever gives in first counts.
    """

    a_seconds: float
    b_exponent: float
    load_ratios: tuple[float, ...] = ()
    trip_seconds: tuple[float, ...] = ()
    feed: BreakerCurve | None = None


@dataclass(frozen=True, slots=True)
class ReserveFeeds:
    """Domains whose load may use the feeds that redundancy keeps in reserve, (n_domains,) each.

    Attributes:
        used: Whether it may.
        all_feeds_watts: Continuous rating while all feeds carry; ``rating_watts`` where not used.
        feed_watts: Continuous rating of one feed.
        max_age_seconds: A lost feed is known at the latest after this; 0 where not used.
    """

    used: BoolArray
    all_feeds_watts: FloatArray
    feed_watts: FloatArray
    max_age_seconds: FloatArray


@dataclass(frozen=True, slots=True)
class DomainTree:
    """The power tree in topological order (parents first).

    Attributes:
        names: Domain names, (n_domains,).
        parent: Index of the feeding domain, -1 for a root, (n_domains,).
        rating_watts: Continuous rating with one feed lost where redundancy says so, (n_domains,).
        external_watts: Worst declared external load directly below, (n_domains,).
        curves: Breaker curve, one a domain.
        max_load_ratio: r_max of I2, (n_domains,).
        cooling_seconds: Time constant of breaker cooling, (n_domains,).
        phase_imbalance: Worst phase over mean phase current, (n_domains,).
        supply_efficiency: DC over AC, (n_domains,).
        max_raise_watts_per_second: (n_domains,).
        enforce: Whether caps are written, (n_domains,).
        heat_budget: Heat that the bands may spend, 0 for none, (n_domains,); empty: nowhere any.
        reserve: Use of reserve feeds; None: nowhere.
    """

    names: tuple[str, ...]
    parent: IntArray
    rating_watts: FloatArray
    external_watts: FloatArray
    curves: tuple[BreakerCurve, ...]
    max_load_ratio: FloatArray
    cooling_seconds: FloatArray
    phase_imbalance: FloatArray
    supply_efficiency: FloatArray
    max_raise_watts_per_second: FloatArray
    enforce: BoolArray
    heat_budget: FloatArray = field(default_factory=lambda: np.zeros(0))
    reserve: ReserveFeeds | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def all_feeds_watts(self) -> FloatArray:
        """Continuous rating with every feed that load may use, (n_domains,)."""
        return self.rating_watts if self.reserve is None else self.reserve.all_feeds_watts

    def index(self, name: str) -> int:
        """The domain's position."""
        return self.names.index(name)

    def depths(self) -> IntArray:
        """Distance from the root, (n_domains,)."""
        depth = np.zeros(len(self), dtype=np.int64)
        for child, parent in enumerate(self.parent):
            depth[child] = 0 if parent < 0 else depth[parent] + 1
        return depth

    def sum_up(self, direct: FloatArray) -> FloatArray:
        """Per domain, the sum of its own and all its descendants' values, (..., n_domains)."""
        total = np.array(direct, dtype=np.float64, copy=True)
        for child in range(len(self) - 1, -1, -1):
            parent = self.parent[child]
            if parent >= 0:
                total[..., parent] += total[..., child]
        return total

    def ancestors(self, domain: int) -> list[int]:
        """The domain and everything that feeds it, nearest first."""
        chain = []
        while domain >= 0:
            chain.append(domain)
            domain = int(self.parent[domain])
        return chain


def efficiency_downstream(tree: DomainTree) -> FloatArray:
    """The lowest efficiency of a domain and everything below it, (n_domains,)."""
    efficiency = np.array(tree.supply_efficiency, dtype=np.float64, copy=True)
    for child in range(len(tree) - 1, -1, -1):
        parent = tree.parent[child]
        if parent >= 0:
            efficiency[parent] = min(efficiency[parent], efficiency[child])
    return efficiency


def topological_order(names: Sequence[str], parents: Sequence[str | None]) -> list[int]:
    """Positions such that each parent comes before its children, ties by name.

    Raises:
        InputError: for an unknown parent, a duplicate name or a cycle; names the domain.
    """
    position = {name: i for i, name in enumerate(names)}
    if len(position) != len(names):
        duplicate = next(n for n in names if list(names).count(n) > 1)
        raise InputError("metadata.name", "unique domain names", duplicate)
    for name, parent in zip(names, parents, strict=True):
        if parent is not None and parent not in position:
            raise InputError(f"{name}.spec.parent", "the name of a PowerDomain", parent)
    order: list[int] = []
    placed: set[str] = set()
    waiting = sorted(names)
    while waiting:
        ready = [n for n in waiting if (p := parents[position[n]]) is None or p in placed]
        if not ready:
            raise InputError(f"{waiting[0]}.spec.parent", "a tree without cycles", waiting)
        for name in ready:
            order.append(position[name])
            placed.add(name)
        waiting = [n for n in waiting if n not in placed]
    return order
