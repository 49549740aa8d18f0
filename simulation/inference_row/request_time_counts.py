"""Times of millions of requests as counts in narrow bins, so that days can be added up.

Bins are a thousandth wide; quantiles are interpolated inside a bin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SHORTEST_SECONDS: Final = 1e-3
LONGEST_SECONDS: Final = 1e5
BIN_RATIO: Final = 1.001
N_BINS: Final = int(np.ceil(np.log(LONGEST_SECONDS / SHORTEST_SECONDS) / np.log(BIN_RATIO)))


def time_counts(seconds: Floats) -> Integers:
    """How many times fall into each bin, (N_BINS,); those that are NaN are left out."""
    known = seconds[np.isfinite(seconds)]
    inside = np.clip(known, SHORTEST_SECONDS, LONGEST_SECONDS * (1.0 - 1e-9))
    which = np.floor(np.log(inside / SHORTEST_SECONDS) / np.log(BIN_RATIO)).astype(np.int64)
    return np.bincount(np.clip(which, 0, N_BINS - 1), minlength=N_BINS).astype(np.int64)


def quantile_seconds(counts: Integers, quantile: float) -> float:
    """A quantile in per cent; NaN of nothing."""
    total = int(counts.sum())
    if not total:
        return float("nan")
    below = np.concatenate([[0], np.cumsum(counts)])
    wanted = quantile / 100.0 * total
    which = int(np.searchsorted(below, wanted, side="left")) - 1
    which = min(max(which, int(np.flatnonzero(counts)[0])), int(np.flatnonzero(counts)[-1]))
    inside = min(1.0, max(0.0, (wanted - below[which]) / max(1, counts[which])))
    return float(SHORTEST_SECONDS * BIN_RATIO ** (which + inside))


def sparse(counts: Integers) -> Mapping[str, list[int]]:
    """Counts as JSON can hold them: bins that are not empty, and what is in them."""
    which = np.flatnonzero(counts)
    return {"bins": which.tolist(), "counts": counts[which].tolist()}


def dense(kept: Mapping[str, list[int]]) -> Integers:
    """What ``sparse`` was made of, (N_BINS,)."""
    counts = np.zeros(N_BINS, dtype=np.int64)
    counts[np.array(kept["bins"], dtype=np.int64)] = kept["counts"]
    return counts
