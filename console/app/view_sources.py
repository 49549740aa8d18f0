"""Where the console gets what it shows: the controllers' live view and the placement objects.

Both are read in the background and kept; a browser never causes a request to either.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from wattpack.api import PlacementPlan
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.gpu_resources import gpu_demand
from wattpack.kube.port import PODS, KubeApi, KubeError
from wattpack.live_view import LiveView
from wattpack.quantities import pod_requests
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)
HISTORY_POINTS = 1800
#: Ten thousand GPUs take 2 MiB.
MAX_VIEW_BYTES = 64 * 1024 * 1024
REQUEST_SECONDS = 3.0


class LiveSource(Protocol):
    """Gives the newest live view."""

    def latest(self) -> LiveView | None:
        """The newest view of the leader, or None before the first."""
        ...


@dataclass(slots=True)
class DomainHistory:
    """The last half hour of one domain, parallel columns."""

    time_ms: deque[int] = field(default_factory=lambda: deque(maxlen=HISTORY_POINTS))
    draw_watts: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_POINTS))
    cap_band_watts: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_POINTS))


class HttpLiveSource:
    """Polls ``/v1/live`` of every controller replica and keeps the leader's view."""

    def __init__(self, urls: Sequence[str], clock: Clock) -> None:
        self._urls, self._clock = tuple(urls), clock
        self._lock = threading.Lock()
        self._view: LiveView | None = None
        self._histories: dict[str, DomainHistory] = {}
        self.failures = 0

    def latest(self) -> LiveView | None:
        """The newest view of the leader."""
        with self._lock:
            return self._view

    def history(self, domain: str) -> dict[str, list[float]]:
        """The kept columns of a domain."""
        with self._lock:
            kept = self._histories.get(domain, DomainHistory())
            return {
                "timeMs": [float(t) for t in kept.time_ms],
                "drawWatts": list(kept.draw_watts),
                "capBandWatts": list(kept.cap_band_watts),
            }

    def poll(self) -> None:
        """Read every replica once."""
        views = [view for url in self._urls if (view := self._read(url)) is not None]
        if not views:
            return
        newest = max(views, key=lambda view: (view.leading, view.epoch, view.tick))
        with self._lock:
            if self._view is not None and newest.tick == self._view.tick:
                return
            self._view = newest
            for domain in newest.domains:
                kept = self._histories.setdefault(domain.name, DomainHistory())
                kept.time_ms.append(newest.wall_time_ns // 1_000_000)
                kept.draw_watts.append(domain.draw_watts)
                kept.cap_band_watts.append(domain.cap_band_watts)

    def _read(self, url: str) -> LiveView | None:
        try:
            with urllib.request.urlopen(url, timeout=REQUEST_SECONDS) as answer:
                return _parse(answer.read(MAX_VIEW_BYTES + 1))
        except (OSError, http.client.HTTPException, InputError, ValueError) as error:
            self.failures += 1
            log.debug("no live view from %s: %s", url, error)
            return None


def _parse(body: bytes) -> LiveView:
    """The view of an answer that came whole; ``ValidationError`` is a ``ValueError``."""
    if len(body) > MAX_VIEW_BYTES:
        raise InputError("live", f"at most {MAX_VIEW_BYTES} bytes", "more")
    return LiveView.model_validate_json(body, extra="ignore")


class PlacementSource:
    """Reads pods and the newest PlacementPlans every few seconds."""

    def __init__(self, api: KubeApi, clock: Clock, period_seconds: float = 2.0) -> None:
        self._api, self._clock = api, clock
        self._period_ns = round(period_seconds * NS_PER_SECOND)
        self._next_ns = -1
        self._lock = threading.Lock()
        self._view: dict[str, Any] = {"pods": [], "pending": [], "plans": []}

    def latest(self) -> dict[str, Any]:
        """Pods with GPUs, pending pods with reasons, the newest plans."""
        with self._lock:
            return self._view

    def poll(self) -> None:
        """Read once if the period has passed."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + self._period_ns
        try:
            pods = self._api.list(PODS).items
            plans = self._api.list(PlacementPlan.meta.resource).items
        except KubeError as error:
            log.warning("placement not read: %s", error)
            return
        view = placement_view(pods, plans)
        with self._lock:
            self._view = view


def placement_view(
    pods: Sequence[dict[str, Any]], plans: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What the placement page shows, from plain API objects."""
    newest = sorted(plans, key=lambda p: str(p["spec"].get("createdAt", "")), reverse=True)
    reasons: dict[str, dict[str, Any]] = {}
    for plan in newest[:1]:
        for entry in plan["spec"].get("pending", []):
            reasons.setdefault(str(entry["podUid"]), entry)
    rows = [_pod_row(pod, reasons, gpus) for pod in pods if (gpus := gpus_of(pod))]
    return {
        "pods": [row for row in rows if row["node"]],
        "pending": [row for row in rows if not row["node"]],
        "plans": [_plan_row(plan) for plan in newest[:10]],
    }


def gpus_of(pod: dict[str, Any]) -> int:
    """GPUs, or parts of them, that the pod asks for; 0, and a word in the log, if unreadable."""
    try:
        return gpu_demand(pod_requests(pod)).most_boards
    except InputError as error:
        log.warning("pod %s is not shown: %s", pod["metadata"]["name"], error)
        return 0


def _pod_row(pod: dict[str, Any], reasons: dict[str, dict[str, Any]], gpus: int) -> dict[str, Any]:
    metadata, spec = pod["metadata"], pod["spec"]
    gated = bool(spec.get("schedulingGates"))
    entry = reasons.get(str(metadata.get("uid")), {})
    return {
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "gpus": gpus,
        "priorityClass": spec.get("priorityClassName", ""),
        "node": spec.get("nodeName", ""),
        "phase": pod.get("status", {}).get("phase", "Pending"),
        "gated": gated,
        "reason": entry.get("reason", "WaitingForPlan" if gated else "WaitingForBinder"),
        "message": entry.get("message", ""),
    }


def _plan_row(plan: dict[str, Any]) -> dict[str, Any]:
    spec, status = plan["spec"], plan.get("status", {})
    return {
        "name": plan["metadata"]["name"],
        "pods": len(spec.get("promises", [])),
        "pending": len(spec.get("pending", [])),
        "moves": spec.get("moves", 0),
        "gap": spec.get("gap"),
        "method": spec.get("method", ""),
        "state": status.get("state", ""),
        "createdAt": spec.get("createdAt", ""),
    }


def dump(value: object) -> str:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"))
