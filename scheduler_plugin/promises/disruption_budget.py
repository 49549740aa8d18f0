"""How many pods were disturbed within the last hour, of the cluster and of each owner. Pure.

An hour of time that passes, not a number of cycles. The count has to survive this process: it is
written with each PlacementPlan and read by the next leader. What is planned counts at once, at the
latest moment at which it may happen, so that no later reading of the record allows more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from wattpack.units import NS_PER_SECOND

__all__ = ["Disruption", "DisruptionBudget"]

HOUR_NS = 3600 * NS_PER_SECOND


class Disruption(NamedTuple):
    """One pod that lost its node to us, or may still do so; ``at_ns`` is monotonic."""

    uid: str
    owner: str
    at_ns: int


@dataclass(slots=True)
class DisruptionBudget:
    """What is left of the hour.

    Attributes:
        per_hour: Of the cluster.
        per_owner_per_hour: Of one owner.
    """

    per_hour: int
    per_owner_per_hour: int
    _spent: dict[str, Disruption] = field(default_factory=dict)

    def spend(self, disruption: Disruption) -> None:
        """Count one; the same pod counts once, at its newest time."""
        self._spent[disruption.uid] = disruption

    def refund(self, uid: str) -> None:
        """It did not happen, or somebody else did it."""
        self._spent.pop(uid, None)

    def entries(self, now_ns: int) -> tuple[Disruption, ...]:
        """All that still count, by pod."""
        self._spent = {u: d for u, d in self._spent.items() if d.at_ns > now_ns - HOUR_NS}
        return tuple(self._spent[uid] for uid in sorted(self._spent))

    def left(self, now_ns: int) -> int:
        """How many more pods may be disturbed now."""
        return max(0, self.per_hour - len(self.entries(now_ns)))

    def spent_owners(self, now_ns: int) -> frozenset[str]:
        """Owners of whom no further pod may be disturbed now."""
        spent = Counter(one.owner for one in self.entries(now_ns))
        if not self.per_owner_per_hour:
            return frozenset(spent)
        return frozenset(o for o, count in spent.items() if count >= self.per_owner_per_hour)

    def affords(self, owners: Iterable[str], now_ns: int) -> bool:
        """Whether a pod of each of these owners (with repetition) may be disturbed now."""
        more = Counter(owners)
        spent = Counter(one.owner for one in self.entries(now_ns))
        return more.total() <= self.left(now_ns) and all(
            spent[owner] + count <= self.per_owner_per_hour for owner, count in more.items()
        )
