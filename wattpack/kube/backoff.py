"""How long to wait after the n-th failure in a row."""

from __future__ import annotations

import random

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0


def backoff_seconds(
    failures: int, rng: random.Random, retry_after_seconds: float | None = None
) -> float:
    """Doubling from 1 to 30 s, the upper half of it random; never before the server's wish.

    Args:
        failures: Failures in a row, at least 1.
        rng: Spreads clients that failed together.
        retry_after_seconds: What the server asked for, or None.
    """
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures - 1, 10))
    return max(longest * rng.uniform(0.5, 1.0), retry_after_seconds or 0.0)
