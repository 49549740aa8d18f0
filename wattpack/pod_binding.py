"""When a pod got its node, for how long its draw is still on the way up, and when it let go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from wattpack.times import parse_rfc3339

#: By then a new pod draws what it will draw, and the meter shows it (assumed: image and weights).
RAMP_SECONDS: Final = 120.0

_FINISHED: Final = ("Succeeded", "Failed")


def is_finished(pod: Mapping[str, Any]) -> bool:
    """The pod holds nothing any more."""
    return (pod.get("status") or {}).get("phase") in _FINISHED


def bound_at_seconds(pod: Mapping[str, Any]) -> float:
    """When the pod got its node (Unix seconds); infinity, the careful answer, if nobody says."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
            try:
                return parse_rfc3339(str(condition.get("lastTransitionTime"))).timestamp()
            except ValueError:
                return math.inf
    return math.inf
