"""What other GPU types teach about a kernel: how far each strays from its own roofline, where.

A library's choice of tiles, a wave that is not full, a cache that just holds the weights: such
residuals recur from type to type, most among types with like memory and like compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from capacity.model.kernel_features import kernel_group, kernel_table
from capacity.model.kernel_samples import TimeSamples
from capacity.model.residual_trees import SEED, ResidualTrees, TreeFeatures, grow_trees
from capacity.model.roofline import RooflineConstants, fit_constants
from capacity.roofs import Roofs, require_roofs

Floats = npt.NDArray[np.float64]

TREES: Final = 20
"""Of each type. Ten are half as slow to ask; their held-out errors are 1 % larger."""

MOST_ROWS: Final = 8_000
"""Rows that a type's trees grow on, drawn evenly: 20,000 change
held-out errors by less than one design of 60 shapes differs from the next."""

LEAST_GAIN: Final = 1e-6
"""Squared log units of a type's residuals that a leaf has to explain. A third of the leaves is
left, trees answer in two thirds of the time, and errors inside the training rows (fold 1, with fold
0 removed; H200, B200) fall: products 4.58 to 4.53, 8.17 to 8.14 %; decode 3.70 to 3.58, 8.89 and
8.89 %; prefill 5.01 to 4.99, 7.84 to 7.83 %. 3e-7 and 3e-6 are no better, 1e-5 is worse."""

BLOCK: Final = 20_000
"""Kernels at a time: their features stay in the cache while all trees pass over them."""

KINSHIP: Final = 0.5
"""Difference of log bandwidth and log compute over which types stop being alike. H200 and H100
are 0.4 apart, H200 and B200 0.9, B200 and RTX PRO 6000 2.1 although one architecture names both."""

CONSTANTS_SPREAD: Final = np.array([0.15, 0.075, 0.075])
"""How far a type's logs of constants lie from the mean of its kin."""

TRUST: Final = 0.6
"""Weight of kinship beside the own rows when the shares of the neighbours are found."""

PROBES: Final = 400
LEAST_SHARE: Final = 0.05
"""Neighbours below it are not worth asking: errors inside the training rows are no larger than from
0.02 on (decode of the H200 3.50 %, was 3.58), and products of the H200 ask two types, not four."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One other type's lesson for one group of kernels.

    Attributes:
        probes: Some of its kernels, to judge forecasts of it from the others.
    """

    roofs: Roofs
    constants: RooflineConstants
    trees: ResidualTrees
    probes: TimeSamples

    def residuals(self, features: TreeFeatures) -> Floats:
        """Log of time over roofline that this type would show at such places, shape (n,).

        Args:
            features: Of kernels of the type asked about, on its own roofline.
        """
        return self.trees.predict(features)


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The neighbours of one type with their shares; empty where nothing else is known."""

    members: tuple[Neighbour, ...]
    shares: Floats

    def residuals(self, features: TreeFeatures) -> Floats:
        """Sum over the members by share, shape (n,).

        Kernels are asked in the order of their size: like kernels take like ways through a tree,
        and a processor that guesses its branches rightly is half again as fast.
        """
        total = np.zeros(len(features))
        order = np.argsort(features[:, -1])
        for start in range(0, len(features), BLOCK):
            rows = order[start : start + BLOCK]
            part = features[rows]
            for member, share in zip(self.members, self.shares.tolist(), strict=True):
                total[rows] += share * member.residuals(part)
        return total

    def typical_logs(self) -> Floats:
        """Logs of the constants, mean by share, shape (3,)."""
        logs = np.array([member.constants.logs() for member in self.members])
        return np.asarray(self.shares @ logs / self.shares.sum())

    def weighed(self, lessons: Floats, values: Floats) -> Neighbourhood:
        """The shares that explain own residuals best, drawn to kinship.

        Args:
            lessons: What each member says of the own kernels, shape (n, n_members).
            values: What they showed, shape (n,).
        """
        from scipy.optimize import nnls

        root = np.sqrt(TRUST)
        sides = np.vstack([lessons, root * np.eye(len(self.members))])
        shares, _ = nnls(sides, np.concatenate([values, root * self.shares]))
        return _kept(self.members, np.asarray(shares))

    def nearest(self) -> Neighbourhood:
        """Without the members whose kinship says that they have nothing to tell."""
        return _kept(self.members, self.shares)


def neighbourhood(group: str, roofs: Roofs, others: tuple[TimeSamples, ...]) -> Neighbourhood:
    """The types that hold kernels of the group, shared out by kinship."""
    members = tuple(m for samples in others if (m := _learned(samples, group)) is not None)
    return kinship(roofs, members)


def kinship(roofs: Roofs, members: tuple[Neighbour, ...]) -> Neighbourhood:
    """These members, shared out by how like the type they are."""
    gaps = np.array([distance(member.roofs, roofs) for member in members])
    # From the least gap on, so that a type unlike all others still leans on the least unlike.
    kin = np.exp(-(gaps**2 - (gaps**2).min(initial=np.inf)) / 2 / KINSHIP**2)
    return Neighbourhood(members, kin / kin.sum() if members else kin)


def distance(left: Roofs, right: Roofs) -> float:
    """Of two types, in log units of bandwidth and compute."""
    gaps = [
        np.log(left.bytes_per_second / right.bytes_per_second),
        np.log(left.flops_per_second("bf16") / right.flops_per_second("bf16")),
    ]
    return float(np.hypot(*gaps))


@lru_cache(maxsize=128)
def _learned(samples: TimeSamples, group: str) -> Neighbour | None:
    """The lesson of one table; kept, since many fits ask the same tables."""
    rows = [i for i, kernel in enumerate(samples.kernels) if kernel_group(kernel) == group]
    if not rows:
        return None
    draw = np.random.default_rng(SEED)
    if len(rows) > MOST_ROWS:
        rows = np.sort(draw.choice(rows, MOST_ROWS, replace=False)).tolist()
    chosen = samples.take(rows)
    roofs = require_roofs(samples.gpu)
    table = kernel_table(group, chosen.kernels, roofs)
    constants = fit_constants(table.roofs, chosen.seconds)
    residuals = np.log(chosen.seconds / constants.seconds(table.roofs))
    trees = grow_trees(table.tree_features(constants), residuals, TREES, least_gain=LEAST_GAIN)
    probes = chosen.take(np.sort(draw.permutation(len(chosen))[:PROBES]))
    return Neighbour(roofs, constants, trees, probes)


def _kept(members: tuple[Neighbour, ...], shares: Floats) -> Neighbourhood:
    kept = np.flatnonzero(shares >= LEAST_SHARE)
    return Neighbourhood(tuple(members[i] for i in kept.tolist()), shares[kept])
