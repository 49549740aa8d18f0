"""Joint paths that add up."""

from __future__ import annotations

from dataclasses import dataclass

from forecasting.domains.series_tree import Integers, SeriesTree
from forecasting.series_source import Floats


@dataclass(frozen=True, slots=True)
class CoherentPaths:
    """Joint paths of a power tree, before calibration.

    Attributes:
        tree: Names and parents; own parts behind the series.
        rows: Place of each node but the own parts among the series of the round, (n_rows,).
        values: Each parent is the sum of its leaves on every path, (n_nodes, n_paths, horizon); NaN
            for what nobody knows.
    """

    tree: SeriesTree
    rows: Integers
    values: Floats
