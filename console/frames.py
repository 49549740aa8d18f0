"""Server-sent frames: one topology frame when the fleet changes, then one small frame a tick.

A tick frame carries two base64 byte strings, one byte a GPU: its draw as share of its request
(250 = at request, 255 = unknown) and why it is capped. 10,000 GPUs are 27 kB a second raw, and half
of it is left out while no reason changes.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from wattpack.live_view import LiveView

FULL = 250
UNKNOWN = 255


@dataclass(slots=True)
class FrameMaker:
    """Remembers what one browser has seen. One instance a stream."""

    topology_key: tuple[object, ...] = ()
    reasons: bytes = b""
    last_decision: str = ""

    def frames(self, view: LiveView) -> list[tuple[str, str]]:
        """Event names and JSON bodies that bring the browser up to this view."""
        events: list[tuple[str, str]] = []
        key = (len(view.gpus.uuid), hash(tuple(view.gpus.uuid)), hash(tuple(view.gpus.pod)))
        if key != self.topology_key:
            self.topology_key, self.reasons = key, b""
            events.append(("topology", _json(_topology(view))))
        events.append(("tick", _json(self._tick(view))))
        return events

    def _tick(self, view: LiveView) -> dict[str, object]:
        body: dict[str, object] = {
            "tick": view.tick,
            "wallTimeMs": view.wall_time_ns // 1_000_000,
            "epoch": view.epoch,
            "leading": view.leading,
            "label": view.label,
            "simulated": view.simulated,
            "domains": [domain.model_dump() for domain in view.domains],
            "levels": base64.b64encode(levels(view)).decode(),
        }
        reasons = bytes(view.gpus.reason)
        if reasons != self.reasons:
            self.reasons = reasons
            body["reasons"] = base64.b64encode(reasons).decode()
        newest = view.decisions[0].id if view.decisions else ""
        if newest != self.last_decision:
            self.last_decision = newest
            body["decisions"] = [decision.model_dump() for decision in view.decisions]
        return body


def levels(view: LiveView) -> bytes:
    """Draw over request as one byte a GPU."""
    return bytes(
        UNKNOWN if watts is None else max(0, min(FULL, round(FULL * watts / request)))
        for watts, request in zip(view.gpus.draw_watts, view.gpus.request_watts, strict=True)
    )


def _topology(view: LiveView) -> dict[str, object]:
    gpus = view.gpus
    return {
        "uuid": gpus.uuid,
        "node": gpus.node,
        "rack": gpus.rack,
        "model": gpus.model,
        "requestWatts": gpus.request_watts,
        "priority": gpus.priority,
        "pod": gpus.pod,
    }


def _json(body: object) -> str:
    return json.dumps(body, separators=(",", ":"))
