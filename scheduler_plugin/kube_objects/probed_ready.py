"""Since when a pod serves, by its own probes: the start is over, whatever it draws."""

from __future__ import annotations

import math

from wattpack.gpu_resources import gpu_kind
from wattpack.kube.port import JsonObject
from wattpack.times import parse_rfc3339

__all__ = ["probed_ready_at_seconds"]

_PROBES = ("readinessProbe", "startupProbe")


def probed_ready_at_seconds(pod: JsonObject) -> float:
    """When the pod became ready (Unix seconds); infinity where that says nothing.

    A container without a probe is ready as soon as it runs, long before its weights are there. So
    every container with GPUs needs a readiness or startup probe for the word to count.
    """
    with_gpus = [c for c in pod["spec"].get("containers") or () if _has_gpus(c)]
    if not with_gpus or not all(any(c.get(p) for p in _PROBES) for c in with_gpus):
        return math.inf
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            try:
                return parse_rfc3339(str(condition.get("lastTransitionTime"))).timestamp()
            except ValueError:
                return math.inf
    return math.inf


def _has_gpus(container: JsonObject) -> bool:
    limits = (container.get("resources") or {}).get("limits") or {}
    return any(gpu_kind(str(name)) is not None for name in limits)
