"""The power tree among the series of one round, and their paths made to add up on it.

    combined quantiles ─► joint paths ─┬─► of a tree: reconciled, leaves add up ─┬─► steps, peaks
    own parts: last value ─► paths ────┘   of no tree: as they are ──────────────┘

A parent is more than what is forecast below it: losses, hosts, servers without a forecast. That is
its own part, a leaf of its own: what the parent drew beyond its children, forecast by its last
value. Series of which history says that they do not add up are not made to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forecasting.domains.forecast_errors import ErrorCovariance, shrunken_covariance
from forecasting.domains.reconcile import reconcile
from forecasting.domains.series_tree import OWN, Booleans, Integers, SeriesTree
from forecasting.series_source import Floats, SeriesId

TOTAL_VARIANCE: Final = 0.1
"""Of its variance that a total counts with: paths tell how series stray, not how well they are
forecast, and totals are forecast better than what is summed up below them. Pinball loss over
that without reconciling, ridge, totals and leaves: 13 clusters and their sum (Helios, bins
0-1439) 1.01 and 0.94 with all of it, 0.99 and 0.92 with 0.1, 0.98 and 0.92 with 0.3; simulated
racks in three generations 1.03 and 1.02, 0.99 and 0.97, 0.99 and 0.99."""

EXACT_SHARE: Final = 0.001
"""Of a parent's mean draw over the last day: a smaller remainder is rounding, not an own part."""

OVER_SHARE: Final = 0.02
"""Of it by which children may exceed their parent: two meters of 1 % each (assumed). Beyond it they
are not its parts, whatever the objects say."""


@dataclass(frozen=True, slots=True)
class RoundTree:
    """A forest of some of a round's series, own parts behind them.

    Attributes:
        tree: Names and parents.
        rows: Place of each node but the own parts among the round's series, (n_nodes,).
        history: Of the own parts, (n_own, n_bins); NaN where unknown.
    """

    tree: SeriesTree
    rows: Integers
    history: Floats

    @classmethod
    def of(
        cls,
        series: Sequence[SeriesId],
        parents: Mapping[SeriesId, SeriesId],
        values: Floats,
        day_steps: int,
    ) -> RoundTree | None:
        """The tree, None without one.

        Args:
            series: Of the round.
            parents: Series of which others are a part; who is no series of the round is left out.
            values: What is known of them, NaN for gaps, (n_series, n_bins).
            day_steps: Bins in a day.
        """
        place = {name: i for i, name in enumerate(series)}
        above = {n: p for n, p in parents.items() if n in place and p in place and n != p}
        children: dict[SeriesId, list[SeriesId]] = {}
        for name in sorted(above, key=place.__getitem__):
            children.setdefault(above[name], []).append(name)
        own = []
        for whole, parts in children.items():
            share = _own_share(values, place[whole], [place[n] for n in parts], day_steps)
            if share < -OVER_SHARE:
                above = {n: p for n, p in above.items() if p != whole}
            elif not share <= EXACT_SHARE:
                own.append(str(whole))
        members = sorted({*above, *above.values()}, key=place.__getitem__)
        if not members:
            return None
        tree = SeriesTree.of({str(n): above.get(n) for n in members}, own)
        rows = np.array([place[name] for name in members], dtype=np.intp)
        return cls(tree, rows, tree.with_own_parts(values[rows])[len(rows) :])

    def coherent(
        self, paths: Floats, own_paths: Floats, known: Booleans, errors: ErrorCovariance
    ) -> Floats:
        """Paths of the tree's series of which each parent is the sum of its leaves.

        Args:
            paths: Joint paths of the tree's series, in the order of ``rows``, (n_rows, n, horizon).
            own_paths: Of the own parts, from the same past hours, (n_own, n, horizon); NaN rows for
                those that nobody knows.
            known: Series of the round with a forecast, (n_series,).
            errors: As ``spread`` tells.

        Returns:
            (n_nodes, n, horizon) in the order of ``tree``, own parts behind the others; NaN for a
            series without a forecast that no sum tells.
        """
        return reconcile(self.tree, self._base(paths, own_paths, known), errors)

    def spread(
        self, paths: Floats, own_paths: Floats, known: Booleans, apart: Booleans
    ) -> ErrorCovariance:
        """How the tree's series err together, as joint paths tell (``spread_of``).

        Args:
            paths: As ``coherent``, many of them.
            own_paths: Likewise.
            known: Likewise.
            apart: Series of the round that another model tells than the others, (n_series,).
        """
        alone = np.zeros(len(self.tree), dtype=np.bool_)
        alone[: len(self.rows)] = apart[self.rows]
        return spread_of(self._base(paths, own_paths, known), self.tree.is_leaf, alone)

    def _base(self, paths: Floats, own_paths: Floats, known: Booleans) -> Floats:
        base = np.concatenate([paths, own_paths])
        base[: len(self.rows)][~known[self.rows]] = np.nan
        return base


def spread_of(paths: Floats, is_leaf: Booleans, apart: Booleans) -> ErrorCovariance:
    """How series err together, as their joint paths tell: the same past hour in each path.

    What another model says errs by itself. Were its difference to the others put down to errors
    that all share, the sums would leave the range between them: a row told 22 kW by its load above
    racks that were told 40 kW together was published with 12.

    Args:
        paths: (n, n_paths, horizon).
        is_leaf: Nobody's sum, (n,).
        apart: Told by another model than the others, (n,).
    """
    middle = paths.mean(axis=2)
    told = shrunken_covariance(middle - middle.mean(axis=1, keepdims=True))
    believed = np.where(is_leaf, 1.0, TOTAL_VARIANCE)
    if told.shared is None:
        return ErrorCovariance(told.own * believed)
    shared = np.where(apart[:, None], 0.0, told.shared) * np.sqrt(believed)[:, None]
    return ErrorCovariance(np.where(apart, told.variances, told.own) * believed, shared)


def own_name(whole: SeriesId) -> SeriesId:
    """The series that is a parent's own part."""
    return SeriesId(whole + OWN)


def _own_share(values: Floats, whole: int, parts: Sequence[int], day_steps: int) -> float:
    """What a parent drew beyond its parts, as a share of it; NaN where too little is known."""
    day = values[[whole, *parts], -day_steps:]
    seen = np.isfinite(day).all(axis=0)
    if int(seen.sum()) * 24 < day_steps:
        return float("nan")
    drawn, below = day[0, seen].mean(), day[1:, seen].sum(axis=0).mean()
    return float((drawn - below) / drawn) if drawn > 0 else (0.0 if below <= 0 else -1.0)
