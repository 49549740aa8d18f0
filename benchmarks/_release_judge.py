"""What the API server's audit log says of releases: when, how often, and which writes beside.

It reads the log of the server (one line a finished request) and shares no code with the planner.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

__all__ = ["AuditTail", "Judge"]

WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
#: Over which the rate of a stretch is told, seconds.
STRETCH_SECONDS: Final = 10.0


def seconds_of(stamp: str) -> float:
    """Of an audit event's time of day, since 1970."""
    return datetime.fromisoformat(stamp).timestamp()


class AuditTail:
    """Reads what was appended to a log since the last call.

    Args:
        path: The log; lines that are not finished yet are left for the next call.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Events that came since."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


@dataclass(slots=True)
class Judge:
    """Counts one planner's requests.

    Attributes:
        planner: How its requests begin to name their sender (User-Agent).
        made: When each pod was answered as created, by name.
        released: When the one patch was answered that the server took, by pod name.
        writes: The planner's writes by kind, refused ones included.
        plans: Names of PlacementPlans without their part: cycles that wrote something down.
        leads_since: When the planner's Lease was first written.
        last: When its newest write was answered.
    """

    planner: str
    made: dict[str, float] = field(default_factory=dict)
    released: dict[str, float] = field(default_factory=dict)
    writes: Counter[str] = field(default_factory=Counter)
    plans: set[str] = field(default_factory=set)
    leads_since: float | None = None
    last: float = 0.0

    def see(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take more of the log."""
        for event in events:
            target = event.get("objectRef") or {}
            if event["verb"] not in WRITES:
                continue
            stored = 200 <= int((event.get("responseStatus") or {}).get("code", 0)) < 300
            ours = event.get("userAgent", "").startswith(self.planner)
            if ours:
                self._ours(event, target, stored)
            elif stored and _kind(event, target) == "create pods":
                self.made[target["name"]] = seconds_of(event["stageTimestamp"])

    def _ours(self, event: Mapping[str, Any], target: Mapping[str, Any], stored: bool) -> None:
        kind = _kind(event, target)
        self.writes[kind] += 1
        when = seconds_of(event["stageTimestamp"])
        self.last = max(self.last, when)
        if kind == "patch pods" and stored:
            self.released.setdefault(target["name"], when)
        elif kind == "create placementplans" and stored:
            self.plans.add(target["name"].partition(".")[0])
        elif target.get("resource") == "leases" and stored and self.leads_since is None:
            self.leads_since = when

    def count(self, *ends: str) -> int:
        """The planner's writes of these kinds."""
        return sum(count for kind, count in self.writes.items() if kind.endswith(ends))

    def burst(self) -> dict[str, float | int]:
        """How fast pods that waited were released, from the Lease on and while patches went."""
        times = sorted(self.released.values())
        since = self.leads_since
        if len(times) < 2 or since is None:
            return {"burst_released_per_second": 0.0, "burst_released": len(times)}
        return {
            "burst_released": len(times),
            "burst_released_per_second": round(len(times) / (times[-1] - since), 1),
            "burst_first_release_seconds": round(times[0] - since, 2),
            "burst_last_release_seconds": round(times[-1] - since, 2),
            "burst_slowest_stretch_per_second": round(slowest_stretch(times), 1),
        }

    def waits(self) -> list[float]:
        """Seconds from gated to pinned of each pod that was, sorted."""
        both = self.made.keys() & self.released.keys()
        return sorted(self.released[name] - self.made[name] for name in both)

    def surplus(self, plain: int, members: int) -> dict[str, float | int]:
        """Writes beside what a release needs: one patch a pod, and a dry run a gang member.

        The Lease is told apart: it is renewed by the clock, whether anybody is released or not.

        Args:
            plain: Pods without a gang that were to be released.
            members: Pods of gangs.
        """
        patches = self.count("patch pods", "dry run pods")
        events = self.count(" events")
        leases = self.count(" leases")
        plans = self.count(" placementplans", " placementplans/status")
        rest = sum(self.writes.values()) - patches - events - leases - plans
        cycles = max(1, len(self.plans))
        return {
            "pod_patches": self.count("patch pods"),
            "pod_dry_runs": self.count("dry run pods"),
            "pod_patches_beyond_need": patches - plain - 2 * members,
            "cycles": len(self.plans),
            "event_writes": events,
            "other_writes": rest,
            "writes_per_cycle": round((plans + rest) / cycles, 2),
            "lease_writes": leases,
            "seconds_of_leading": round(self.last - (self.leads_since or self.last), 1),
        }


def slowest_stretch(times: list[float]) -> float:
    """The lowest rate over any ``STRETCH_SECONDS`` between the first and the last, per second."""
    span = times[-1] - times[0]
    if span <= STRETCH_SECONDS:
        return len(times) / span if span else math.inf
    starts = [t for t in times if t + STRETCH_SECONDS <= times[-1]]
    counts = (bisect_right(times, t + STRETCH_SECONDS) - i for i, t in enumerate(starts))
    return min(counts) / STRETCH_SECONDS


def quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least this share does not exceed; NaN of nothing."""
    if not ordered:
        return math.nan
    return ordered[min(len(ordered), max(1, math.ceil(share * len(ordered)))) - 1]


def _kind(event: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """``patch pods``, ``update placementplans/status``, ``dry run pods``."""
    parts = (target.get("resource", event.get("requestURI", "")), target.get("subresource"))
    what = "/".join(part for part in parts if part)
    verb = "dry run" if "dryRun=All" in event.get("requestURI", "") else event["verb"]
    return f"{verb} {what}"
