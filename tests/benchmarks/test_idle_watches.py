"""The count of broken watches: what the processes tell, and what the server saw."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.idle_watches import breaks_told, figures, watches


def stamp(second: float) -> str:
    return f"1970-01-01T00:{int(second) // 60:02}:{second % 60:09.6f}Z"


def watch(name: str, began: float, ended: float | None, code: int = 200) -> list[dict[str, Any]]:
    """The audit events of a watch that was asked to last 100 s."""
    event = {
        "auditID": name,
        "verb": "watch",
        "requestURI": f"/api/v1/{name}?timeoutSeconds=100&watch=1",
        "requestReceivedTimestamp": stamp(began),
        "responseStatus": {"code": code},
    }
    begun = event | {"stage": "ResponseStarted", "stageTimestamp": stamp(began)}
    if ended is None:
        return [begun]
    return [begun, event | {"stage": "ResponseComplete", "stageTimestamp": stamp(ended)}]


def test_a_watch_that_ends_before_its_time_is_cut_short() -> None:
    whole = watch("pods", 100, 200.01)
    standing = watch("nodes", 150, None)
    cut = watch("leases", 150, 190)
    refused = watch("secrets", 150, 150.1, code=403)
    counted = figures(watches([*whole, *standing, *cut, *refused]), [], 0.0, 600.0)
    assert counted["watches_followed"] == counted["kinds_watched"] == 4
    assert counted["watches_ended"] == 3
    assert counted["watches_cut_short"] == 2
    assert counted["watches_refused"] == 1


def test_what_was_over_before_or_began_after_the_idle_minutes_does_not_count() -> None:
    events = [*watch("a", 10, 50), *watch("b", 610, 620), *watch("c", 590, 640)]
    counted = figures(watches(events), [], 60.0, 600.0)
    assert (counted["watches_followed"], counted["watches_cut_short"]) == (1, 0)
    assert counted["idle_minutes"] == 9.0


def test_a_process_tells_a_break_by_a_warning_and_ageing_is_none() -> None:
    def line(level: str, message: str) -> str:
        return json.dumps({"level": level, "message": message})

    told = breaks_told(
        [
            line("warning", "informer of pods: no answer; again in 1.0 s"),
            line("info", "informer of pods: too old; again in 0.0 s"),
            line("warning", "something else"),
            "Traceback, in no JSON",
        ]
    )
    assert told == ["informer of pods: no answer; again in 1.0 s"]
