"""The highest of the last seconds, for many boards at once, in a few buckets of time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from wattpack.power.domain_tree import FloatArray

__all__ = ["RecentHighest", "nothing_yet"]


@dataclass(frozen=True, slots=True)
class RecentHighest:
    """Highest watts of each bucket; a look adds one row and leaves the others as they are.

    Attributes:
        bucket_ns: Length of a bucket; what is asked for is exact to this.
        n_buckets: So many are kept.
        nothing: 0 for everybody, (n,).
        begins_ns: When each bucket that is not empty began, newest last.
        rows: Their watts, 0 where nothing was known, (n,) each.
    """

    bucket_ns: int
    n_buckets: int
    nothing: FloatArray
    begins_ns: tuple[int, ...] = ()
    rows: tuple[FloatArray, ...] = ()

    def with_watts(self, watts: FloatArray, now_ns: int) -> RecentHighest:
        """After one more look; NaN adds nothing, (n,)."""
        if self.begins_ns and now_ns - self.begins_ns[-1] < self.bucket_ns:
            newest = np.fmax(self.rows[-1], watts)
            return self._holding(self.begins_ns, (*self.rows[:-1], newest))
        kept = self.n_buckets - 1
        begins_ns = (*self.begins_ns[-kept:], now_ns)
        return self._holding(begins_ns, (*self.rows[-kept:], np.fmax(watts, 0.0)))

    def spanning(self, span_ns: int) -> RecentHighest:
        """The same, with buckets for at least a span from now on."""
        needed = _buckets(self.bucket_ns, span_ns)
        return self if needed <= self.n_buckets else replace(self, n_buckets=needed)

    def _holding(self, begins_ns: tuple[int, ...], rows: tuple[FloatArray, ...]) -> RecentHighest:
        return RecentHighest(self.bucket_ns, self.n_buckets, self.nothing, begins_ns, rows)

    def highest(self) -> FloatArray:
        """Over all buckets, (n,)."""
        return reduce(np.maximum, self.rows, self.nothing)

    def since(self, then_ns: int) -> FloatArray:
        """Over the buckets that reach to a time or beyond it, (n,)."""
        ended = bisect_right(self.begins_ns, then_ns - self.bucket_ns)
        return reduce(np.maximum, self.rows[ended:], self.nothing)


def nothing_yet(n: int, bucket_ns: int, span_ns: int) -> RecentHighest:
    """Empty buckets that hold at least a span."""
    return RecentHighest(bucket_ns, _buckets(bucket_ns, span_ns), np.zeros(n))


def _buckets(bucket_ns: int, span_ns: int) -> int:
    return -(-span_ns // bucket_ns) + 1
