"""The decisions feed for people: newest first, words for kinds, kilowatts, repetitions folded.

A condition that came and went and came again is one line with a count, not twenty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattpack.live_view import LiveDecision

#: What a kind is about, what it says, and how urgent it is: calm, note, alarm.
KINDS: Mapping[str, tuple[str, str, str]] = {
    "Normal": ("band", "is calm", "calm"),
    "Releasing": ("band", "gives power back", "calm"),
    "Capping": ("band", "caps", "note"),
    "Brake": ("band", "brakes", "alarm"),
    "ForecastAboveBand": ("forecast", "will exceed its cap band", "note"),
    "ForecastBelowBand": ("forecast", "will stay below its cap band", "calm"),
    "Degraded": ("guarantee", "cannot keep its guarantee", "alarm"),
    "Recovered": ("guarantee", "keeps its guarantee again", "calm"),
    "MeterMismatch": ("meter", "meter and nodes disagree", "alarm"),
    "MeterAgrees": ("meter", "meter and nodes agree", "calm"),
    "MeterUnused": ("reading", "has a meter that is not read, or not believed", "alarm"),
    "MeterUsed": ("reading", "counts on its meter again", "calm"),
    "NodesSilent": ("nodes", "many nodes are silent", "alarm"),
    "NodesHeard": ("nodes", "the nodes are heard again", "calm"),
    "ServersCountedAside": ("servers", "counts servers of a refused domain", "alarm"),
    "ServersUncounted": ("servers", "has servers that nobody counts", "alarm"),
    "ServersCountedBack": ("servers", "servers are back where they belong", "calm"),
    "DeviceUntrusted": ("device", "a GPU is no longer trusted", "alarm"),
    "DeviceTrusted": ("device", "a GPU is trusted again", "calm"),
}
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WATTS = re.compile(r"(-?\d[\d,]*(?:\.\d+)?) W\b")


@dataclass(slots=True)
class _Line:
    newest: LiveDecision
    subject: str
    count: int = 1
    since_ns: int = 0


def feed(decisions: Sequence[LiveDecision]) -> list[dict[str, object]]:
    """The lines of the feed.

    Args:
        decisions: Newest first.
    """
    lines: list[_Line] = []
    open_lines: dict[tuple[str, str], _Line] = {}
    for decision in decisions:
        subject = KINDS.get(decision.kind, (decision.kind, "", ""))[0]
        key = (decision.domain, subject)
        line = open_lines.get(key)
        if line is not None and subject not in {"band", "device", "servers"}:
            line.count += 1
            line.since_ns = decision.wall_time_ns
            continue
        open_lines[key] = _Line(decision, subject, 1, decision.wall_time_ns)
        lines.append(open_lines[key])
    return [_row(line) for line in lines]


def _row(line: _Line) -> dict[str, object]:
    decision = line.newest
    _, words, tone = KINDS.get(decision.kind, ("", _spelled(decision.kind), "note"))
    return {
        "id": decision.id,
        "timeMs": decision.wall_time_ns // 1_000_000,
        "sinceMs": line.since_ns // 1_000_000,
        "count": line.count,
        "domain": decision.domain,
        "kind": decision.kind,
        "words": words,
        "tone": tone,
        "message": in_kilowatts(decision.message),
    }


def _spelled(kind: str) -> str:
    return _CAMEL.sub(" ", kind).lower()


def in_kilowatts(text: str) -> str:
    """The text with every power of a kilowatt or more in kilowatts."""

    def convert(found: re.Match[str]) -> str:
        watts = float(found.group(1).replace(",", ""))
        return f"{watts / 1000:,.1f} kW" if abs(watts) >= 1000 else found.group(0)

    return _WATTS.sub(convert, text)
