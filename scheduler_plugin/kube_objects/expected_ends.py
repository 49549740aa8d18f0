"""When running pods are expected to end, as they say themselves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.kube.port import JsonObject
from wattpack.times import parse_rfc3339

__all__ = ["EXPECTED_END_ANNOTATION", "expected_ends"]

#: On a pod: RFC 3339, for example from who submitted it.
EXPECTED_END_ANNOTATION = "wattpack.io/expected-end"
#: Kueue's limit of a workload's execution, which it puts on its pods' owner and they carry.
KUEUE_LIMIT_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"
#: Longer is no expectation.
_LONGEST_SECONDS = 10**9


def expected_ends(pods: Iterable[JsonObject], wall_seconds: float) -> dict[str, int]:
    """Seconds from now by uid of bound pods that say when they end; 0 for those that are late.

    The annotation counts first, then the limits after which the pod is ended anyway:
    ``activeDeadlineSeconds`` and Kueue's. What cannot be read says nothing.
    """
    found: dict[str, int] = {}
    for pod in pods:
        if not pod_facts.node_name(pod) or pod_facts.is_finished(pod):
            continue
        end = _end(pod)
        if end is not None and end - wall_seconds <= _LONGEST_SECONDS:
            found[pod_facts.uid(pod)] = max(0, round(end - wall_seconds))
    return found


def _end(pod: Mapping[str, Any]) -> float | None:
    """Unix time."""
    metadata = pod["metadata"]
    annotated = _moment((metadata.get("annotations") or {}).get(EXPECTED_END_ANNOTATION))
    if annotated is not None:
        return annotated
    started = _moment((pod.get("status") or {}).get("startTime"))
    limits = [
        seconds
        for seconds in (
            _seconds(pod["spec"].get("activeDeadlineSeconds")),
            _seconds((metadata.get("labels") or {}).get(KUEUE_LIMIT_LABEL)),
        )
        if seconds is not None
    ]
    return None if started is None or not limits else started + min(limits)


def _moment(text: object) -> float | None:
    try:
        return parse_rfc3339(str(text)).timestamp() if text else None
    except ValueError:
        return None


def _seconds(value: object) -> int | None:
    digits = str(value)
    short = digits.isascii() and digits.isdigit() and len(digits) <= 10
    return int(digits) if short else None
