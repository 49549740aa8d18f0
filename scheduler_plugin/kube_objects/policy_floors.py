"""Below which cap a plan never counts a pod: what PowerPolicies keep for it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from wattpack.api import PowerPolicy
from wattpack.api.policy import Actuator
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

__all__ = ["PolicyFloors"]

_NO_CAP = 1000


@dataclass(frozen=True, slots=True)
class PolicyFloors:
    """All policies; the most that any of those which match a pod keeps counts for it.

    The controller goes by the strongest of them alone, which never keeps more than this.

    Attributes:
        policies: Those that can be read.
        is_whole: All can be; otherwise no pod counts at a cap, since one may keep all for it.
    """

    policies: tuple[PowerPolicy, ...] = ()
    is_whole: bool = True

    @classmethod
    def of(cls, bodies: Iterable[JsonObject]) -> PolicyFloors:
        """From PowerPolicy objects."""
        found, whole = [], True
        for body in bodies:
            try:
                found.append(PowerPolicy.read(body))
            except InputError:
                whole = False
        return cls(tuple(found), whole)

    def least_cap_milli(self, pod: JsonObject) -> int:
        """Thousandths of a board's default limit; 0 where the profile's knee is all that is kept.

        Locks of the clock count as no reduction (I2), so that work which only they may slow runs
        without a cap.
        """
        if not self.is_whole:
            return _NO_CAP
        least = 0
        for policy in self.policies:
            spec = policy.spec
            if _selects(policy, pod):
                kept = math.ceil(1000 * (spec.floor_fraction or 0.0))
                limited = Actuator.POWER_LIMIT in spec.allowed_actuators
                least = max(least, min(_NO_CAP, kept) if limited else _NO_CAP)
        return least


def _selects(policy: PowerPolicy, pod: JsonObject) -> bool:
    selector, metadata = policy.spec.selector, pod["metadata"]
    of_class = (pod["spec"].get("priorityClassName") or "") in selector.priority_classes
    there = str(metadata.get("namespace", "default")) in selector.namespaces
    labels = metadata.get("labels") or {}
    return (
        (of_class or not selector.priority_classes)
        and (there or not selector.namespaces)
        and all(labels.get(key) == value for key, value in selector.labels.items())
    )
