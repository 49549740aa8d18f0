"""How old the last checkpoint of a running pod is, as the pod says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wattpack.times import parse_rfc3339

__all__ = ["LAST_CHECKPOINT_ANNOTATION", "checkpoint_age_seconds"]

#: On a running pod: RFC 3339, written by the job or its framework after each checkpoint.
LAST_CHECKPOINT_ANNOTATION = "wattpack.io/last-checkpoint"
#: Older is no checkpoint of this work (assumed).
_OLDEST_SECONDS: Final = 30 * 86400
_STEP_SECONDS: Final = 60


def checkpoint_age_seconds(pod: Mapping[str, Any], wall_seconds: float) -> int | None:
    """What a stop now would lose, rounded up; None if the pod does not say, or nothing sensible.

    Rounded to 1, 1.5, 2, 3, 4, 6, 8, 12 … minutes: an age that changed every second would make
    every cycle another question.
    """
    text = (pod["metadata"].get("annotations") or {}).get(LAST_CHECKPOINT_ANNOTATION)
    try:
        age = wall_seconds - parse_rfc3339(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None
    if age > _OLDEST_SECONDS:
        return None
    step = _STEP_SECONDS
    while age > 3 * step // 2:
        step *= 2
    return step if age <= step else 3 * step // 2
