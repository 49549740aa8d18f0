"""What a count of misses says of the share behind it.

Source: Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of
the binomial", Biometrika 26 (1934).
"""

from __future__ import annotations


def share_bounds(hits: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Both ends of the interval of shares that ``hits`` do not contradict; (0, 1) of nothing.

    Args:
        hits: 0 to ``of``.
        of: Independent trials.
        confidence: That the interval holds the share, at least; half of the rest on each side.
    """
    # Loaded here: statistics take a third of a second, and most importers never ask.
    from scipy.special import betaincinv

    if of == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(betaincinv(hits, of - hits + 1, tail))
    high = 1.0 if hits == of else float(betaincinv(hits + 1, of - hits, 1 - tail))
    return low, high


def share_at_most(hits: int, of: int, confidence: float = 0.95) -> float:
    """The share is at most this, with that confidence; 1 of nothing."""
    return share_bounds(hits, of, 2 * confidence - 1)[1]
