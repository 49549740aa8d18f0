"""Server-sent frames: the fleet once and then its differences, and one small frame a tick.

Every view is encoded once, however many browsers watch; a stream is a cursor into what was made.

    topology         all columns; a browser that is new or too far behind
    topology-change  rows that came or went, and single values that changed
    domains          what of the domains stands still: names, ratings, bands, forecasts
    tick             what moves each second, and the first line; one byte a GPU for its draw
    caps             one byte a GPU for its limit and one for the reason; only when they changed
    decisions        the newest lines; only when there are new ones
    forecasts        the steps of each domain's forecast; only when one was issued

A byte is a share of the request: 250 = at it, 255 = unknown. A tick of 10,000 GPUs: 14 kB.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from console.decision_feed import feed
from console.freshness import Age
from console.overview import overview
from wattpack.live_view import LiveGpus, LiveView

FULL = 250
UNKNOWN = 255
#: A browser further behind than this gets the whole fleet again.
KEPT_CHANGES = 64

Event = tuple[str, str]
_COLUMNS = {
    "uuid": "uuid",
    "node": "node",
    "rack": "rack",
    "model": "model",
    "requestWatts": "request_watts",
    "priority": "priority",
    "pod": "pod",
}


_MOVING = (
    "draw_watts", "worst_watts", "survivable_watts", "heat", "band", "capped_gpus",
    "would_be_capped_gpus",
)  # fmt: skip
_NOT_STANDING = {*_MOVING, "forecast_window", "jump_limit_watts"}


@dataclass(frozen=True, slots=True)
class Cursor:
    """What one browser has been given; versions count up from 1."""

    topology: int = 0
    tick: int = 0
    caps: int = 0
    temperature: int = 0
    decisions: int = 0
    forecasts: int = 0
    domains: int = 0


@dataclass(slots=True)
class FrameBook:
    """The newest frame of each kind, and the last differences of the fleet."""

    columns: dict[str, list[object]] = field(default_factory=dict)
    changes: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=KEPT_CHANGES))
    bodies: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((kind.name for kind in fields(Cursor)), 0)
    )
    _temperature: bytes = b""

    def take(self, view: LiveView, age: Age) -> None:
        """Encode a new view."""
        self._take_topology(view.gpus)
        self._put("domains", [d.model_dump(exclude=_NOT_STANDING) for d in view.domains])
        self._put("tick", _tick(view, age), always=True)
        limits = shares(view.gpus.limit_watts, view.gpus.request_watts)
        reasons = bytes(min(UNKNOWN, max(0, reason)) for reason in view.gpus.reason)
        self._put("caps", {"limits": _base64(limits), "reasons": _base64(reasons)})
        degrees = bytes(
            UNKNOWN if value is None else min(FULL, max(0, round(value)))
            for value in view.gpus.temperature_celsius
        )
        if degrees:
            self._take_temperature(degrees)
        self._put("decisions", feed(view.decisions))
        self._put(
            "forecasts",
            {d.name: d.forecast_window.model_dump() for d in view.domains if d.forecast_window},
        )

    def since(self, cursor: Cursor) -> tuple[list[Event], Cursor]:
        """Event names and JSON bodies that bring a browser up to now, and its new cursor."""
        events = self._topology_since(cursor.topology)
        for name in ("caps", "temperature", "decisions", "forecasts", "domains", "tick"):
            if name in self.bodies and self.versions[name] != getattr(cursor, name):
                events.append((name, self.bodies[name]))
        return events, Cursor(**self.versions)

    def _topology_since(self, version: int) -> list[Event]:
        now = self.versions["topology"]
        if version == now:
            return []
        missed = [(number, body) for number, body in self.changes if number > version]
        if version and missed and missed[0][0] == version + 1:
            return [("topology-change", body) for _, body in missed]
        return [("topology", _json(self.columns))]

    def _take_topology(self, gpus: LiveGpus) -> None:
        columns: dict[str, list[object]] = {
            name: list(getattr(gpus, attribute)) for name, attribute in _COLUMNS.items()
        }
        if columns == self.columns:
            return
        self.versions["topology"] += 1
        if self.columns:
            body = _json(difference(self.columns, columns))
            self.changes.append((self.versions["topology"], body))
        self.columns = columns

    def _take_temperature(self, degrees: bytes) -> None:
        """A degree more or less is noise: it would be sent every second."""
        before = self._temperature
        if len(before) == len(degrees) and not any(
            abs(a - b) > 1 for a, b in zip(before, degrees, strict=True)
        ):
            return
        self._temperature = degrees
        self._put("temperature", _base64(degrees))

    def _put(self, name: str, body: object, *, always: bool = False) -> None:
        text = _json(body)
        if always or text != self.bodies.get(name):
            self.bodies[name] = text
            self.versions[name] += 1


def difference(
    before: dict[str, list[object]], after: dict[str, list[object]]
) -> dict[str, object]:
    """How the columns changed: one run of rows replaced, then single values set.

    ``{"start": row, "remove": count, "rows": {column: values}, "set": {column: [[row, value]]}}``
    """
    old, new = before["uuid"], after["uuid"]
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    removed, added = len(old) - start - end, len(new) - start - end
    rows = {name: values[start : start + added] for name, values in after.items()}
    changed: dict[str, list[list[object]]] = {}
    for name, values in after.items():
        kept = [*before[name][:start], *rows[name], *before[name][start + removed :]]
        pairs = [[i, b] for i, (a, b) in enumerate(zip(kept, values, strict=True)) if a != b]
        if pairs:
            changed[name] = pairs
    return {"start": start, "remove": removed, "rows": rows if added else {}, "set": changed}


def _common(a: Sequence[object], b: Sequence[object]) -> int:
    """Length of the common beginning."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def shares(watts: Sequence[float | None], request: Sequence[float]) -> bytes:
    """Watts over request as one byte a GPU."""
    return bytes(
        UNKNOWN if value is None or base <= 0.0 else max(0, min(FULL, round(FULL * value / base)))
        for value, base in zip(watts, request, strict=True)
    )


def _tick(view: LiveView, age: Age) -> dict[str, object]:
    return {
        "tick": view.tick,
        "wallTimeMs": view.wall_time_ns // 1_000_000,
        "epoch": view.epoch,
        "leading": view.leading,
        "label": view.label,
        "simulated": view.simulated,
        "overview": overview(view, age).to_json(),
        "domains": {name: [getattr(domain, name) for domain in view.domains] for name in _MOVING},
        "draws": _base64(shares(view.gpus.draw_watts, view.gpus.request_watts)),
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _json(body: object) -> str:
    return json.dumps(body, separators=(",", ":"))
