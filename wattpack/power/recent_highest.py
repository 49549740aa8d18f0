"""The highest of the last seconds, for many boards at once, in a few buckets of time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattpack.power.domain_tree import FloatArray, IntArray

__all__ = ["RecentHighest", "nothing_yet"]


@dataclass(frozen=True, slots=True)
class RecentHighest:
    """Highest watts of each bucket, newest last.

    Attributes:
        bucket_ns: Length of a bucket; what is asked for is exact to this.
        begins_ns: When each bucket began, -1 for an empty one, (n_buckets,).
        watts: 0 where nothing was known, (n_buckets, n).
    """

    bucket_ns: int
    begins_ns: IntArray
    watts: FloatArray

    def with_watts(self, watts: FloatArray, now_ns: int) -> RecentHighest:
        """After one more look; NaN adds nothing, (n,)."""
        newest = int(self.begins_ns[-1])
        if newest >= 0 and now_ns - newest < self.bucket_ns:
            kept = self.watts.copy()
            kept[-1] = np.fmax(kept[-1], watts)
            return replace(self, watts=kept)
        row = np.fmax(watts, 0.0)[None, :]
        return replace(
            self,
            begins_ns=np.append(self.begins_ns[1:], now_ns),
            watts=np.concatenate((self.watts[1:], row)),
        )

    def highest(self) -> FloatArray:
        """Over all buckets, (n,)."""
        return np.asarray(self.watts.max(axis=0), dtype=np.float64)

    def since(self, then_ns: int) -> FloatArray:
        """Over the buckets that reach to a time or beyond it, (n,)."""
        reaches = (self.begins_ns >= 0) & (self.begins_ns + self.bucket_ns > then_ns)
        return np.asarray(self.watts[reaches].max(axis=0, initial=0.0), dtype=np.float64)


def nothing_yet(n: int, bucket_ns: int, span_ns: int) -> RecentHighest:
    """Empty buckets that hold at least a span."""
    buckets = -(-span_ns // bucket_ns) + 1
    return RecentHighest(bucket_ns, np.full(buckets, -1, dtype=np.int64), np.zeros((buckets, n)))
