"""How many copies of its operands a kernel takes in turn while it is timed."""

from __future__ import annotations

import math
from typing import Final

from capacity.bench.measurement_row import CacheState
from capacity.kernels import Kernel

COLD_FACTOR: Final = 3
"""Operand copies together fill the L2 cache this many times over: each run misses."""

PLACEMENTS: Final = 8
"""Where an allocation lies in memory decides by up to 8 % how fast it is read: 16 allocations of a
407 MB matrix, one token, took 104.5 to 113.7 us on an H200 (2026-11-22), each the same when asked
again; means of three lay within 2.6 %. So a kernel that waits for memory runs over several."""

WAITS_FOR_MEMORY_BELOW: Final = 100.0
"""Operations a byte. An H200's ridge is at 206 (989 TFLOP/s, 4.8 TB/s), an H100's at 295."""

MOST_PLACED_BYTES: Final = 2**33
MOST_COPIES: Final = 400
TWO_COPIES_BELOW_BYTES: Final = 2**32


def operand_copies(kernel: Kernel, l2_bytes: int, cache_state: CacheState) -> int:
    """Copies that the runs take in turn: one for a warm kernel, else enough to miss the cache."""
    if cache_state == "warm":
        return 1
    least = 2 if kernel.bytes_moved < TWO_COPIES_BELOW_BYTES else 1
    if kernel.flops < WAITS_FOR_MEMORY_BELOW * kernel.bytes_moved:
        least = max(least, min(PLACEMENTS, int(MOST_PLACED_BYTES // kernel.bytes_moved)))
    return min(MOST_COPIES, max(least, math.ceil(COLD_FACTOR * l2_bytes / kernel.bytes_moved)))
