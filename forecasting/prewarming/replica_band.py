"""Replicas between two wishes: more are ordered up to the one, fewer are left down to the other.

A replica that starts costs its start and helps after it; one that works helps now, and whoever
lets it go pays a start to have it again. So the price at which one is kept lies above the price at
which one is ordered, and between the two nothing changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from forecasting.prewarming.priced_replicas import priced_replicas, risked_replicas
from forecasting.series_source import Floats

ALLOWED_QUEUE: Final = 0.5
"""Share of the allowed wait that a queue may take before somebody is ordered for it (days 7-10)."""


@dataclass(frozen=True, slots=True)
class BandRule:
    """What replicas are kept for.

    Attributes:
        rate: Served by one replica.
        price: Replica steps that a short step is worth; None goes by the risk.
        risk: Share of windows that may be short.
        keep_ratio: A replica is kept at the price times this, or the risk divided by it.
        hold_seconds: Fewer only as far as all of so long a time would have kept.
        wait_seconds: Longest wait that is within the objective.
        clear_seconds: In which a queue beyond that is worked off.
    """

    rate: float
    price: float | None
    risk: float
    keep_ratio: float
    hold_seconds: float
    wait_seconds: float
    clear_seconds: float


def wishes(
    rules: Sequence[BandRule], quantiles: Floats, levels: Sequence[float]
) -> tuple[Floats, Floats]:
    """Replicas to order up to, and to keep, of rules of one rate.

    None below one: whoever is at nothing has no answer to the first request.

    Args:
        rules: Shape (n_rules,).
        quantiles: Of the needed rate, shape (n, n_levels).
        levels: Rising.

    Returns:
        Both of shape (n, n_rules), what is kept never below what is ordered.
    """
    goals = [_goals(rule) for rule in rules]
    made: dict[tuple[bool, float], npt.NDArray[np.int64]] = {}
    prices = sorted({goal for pair in goals for priced, goal in pair if priced})
    if prices:
        columns = priced_replicas(quantiles, levels, rules[0].rate, prices)
        made |= {(True, price): columns[:, place] for place, price in enumerate(prices)}
    for risk in {goal for pair in goals for priced, goal in pair if not priced}:
        made[False, risk] = risked_replicas(quantiles, levels, rules[0].rate, risk)
    order, keep = (
        np.stack([made[pair[k]] for pair in goals], axis=1).astype(np.float64) for k in (0, 1)
    )
    return order, np.maximum(order, keep)


def _goals(rule: BandRule) -> tuple[tuple[bool, float], tuple[bool, float]]:
    """Whether it is a price, and which, to order and to keep."""
    if rule.price is None:
        return (False, rule.risk), (False, rule.risk / rule.keep_ratio)
    return (True, rule.price), (True, rule.price * rule.keep_ratio)


class ReplicaBand:
    """What is asked for, step by step, of several rules side by side.

    Args:
        rules: Shape (n_rules,).
        position: Replicas that were asked for last, shape (n_rules,).
    """

    def __init__(self, rules: Sequence[BandRule], position: Floats) -> None:
        self.position = np.asarray(position, dtype=np.float64)
        self._rates = np.array([rule.rate for rule in rules])
        self._holds = np.array([rule.hold_seconds for rule in rules])
        self._allowed = np.array([ALLOWED_QUEUE * rule.wait_seconds for rule in rules])
        self._clear = np.array([rule.clear_seconds for rule in rules])
        self._kept: deque[tuple[float, Floats]] = deque()

    def after(self, now_seconds: float, order: Floats, keep: Floats, queued: Floats) -> Floats:
        """Replicas to have from now on.

        Args:
            now_seconds: Monotonic.
            order: Wishes of now, shape (n_rules,).
            keep: Likewise, none below ``order``.
            queued: Requests that wait.

        Returns:
            Shape (n_rules,).
        """
        longest = float(self._holds.max(initial=0.0))
        while self._kept and self._kept[0][0] < now_seconds - longest:
            self._kept.popleft()
        held = keep
        for seconds, earlier in self._kept:
            held = np.where(seconds >= now_seconds - self._holds, np.maximum(held, earlier), held)
        self._kept.append((now_seconds, keep))
        level = np.clip(self.position, order, held)
        late = np.maximum(queued - level * self._rates * self._allowed, 0.0)
        extra = np.where(late > 0, np.ceil(late / (self._clear * self._rates)), 0.0)
        self.position = level + extra
        return self.position

    def hold_at(self, now_seconds: float, count: Floats) -> None:
        """Kept since just now by whoever was asked before: a restart drops no replica."""
        self._kept.append((now_seconds, count))
