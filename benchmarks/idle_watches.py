"""How often watches break while nothing happens, in real time on the test control plane.

Helm installs the chart; two controllers, the planner, the watchdog and the forecaster run under
their own accounts beside a few simulated nodes, and nobody asks them for anything. Two witnesses
that share nothing: the warnings in which a process tells that it lost a watch, and the server's
audit log, which says how long each watch was asked to last and how long it did.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.runner import Options, Result, Target
from wattpack.clock import SystemClock
from wattpack.flags import positive
from wattpack.scratch_folder import ScratchFolder
from wattpack.units import NS_PER_SECOND, seconds_to_ns

NAME = "idle_watches"
SUMMARY = "watches that break in idle minutes of real time: controllers, planner, forecaster"
TAKES_ARGUMENTS = True
USAGE = "--minutes N"
MINUTES = 30.0
QUICK_MINUTES = 0.05
#: Informers are listed before the idle minutes begin to count.
SETTLING_SECONDS = 5.0
#: Between what was asked and what an audit log's two time stamps tell of it.
EDGE_SECONDS = 2.0
TARGETS = {
    "breaks_told_by_processes": Target(at_most=0),
    "watches_cut_short": Target(at_most=0),
    "watches_refused": Target(at_most=0),
    "processes_ended": Target(at_most=0),
    "watches_followed": Target(at_least=10),
}
VALUES = {
    "placement": {"mode": "Manage"},
    "flowSchema": {"enabled": False},
    # The test server does not count volume claim templates among a pod's volumes.
    "controller": {"persistence": {"enabled": False}},
}
COMPONENTS = ("controller", "scheduler", "watchdog", "forecaster")


@dataclass(frozen=True, slots=True)
class Watched:
    """One watch as the server saw it.

    Attributes:
        resource: Of what.
        asked_seconds: How long it was asked to last.
        began_seconds: Unix time of the request.
        lasted_seconds: Until its end, None while it stands.
        code: HTTP status of the answer.
    """

    resource: str
    asked_seconds: float
    began_seconds: float
    lasted_seconds: float | None
    code: int

    @property
    def is_cut_short(self) -> bool:
        """Whether it ended before the time that was asked for."""
        ended = self.lasted_seconds
        return ended is not None and ended < self.asked_seconds - EDGE_SECONDS


def watches(events: Iterable[Mapping[str, Any]]) -> Iterator[Watched]:
    """The watches of an audit log, those that still stand as well."""
    latest: dict[str, Mapping[str, Any]] = {}
    for event in events:
        if event["verb"] == "watch":
            latest[event["auditID"]] = event
    for event in latest.values():
        url = urlsplit(event["requestURI"])
        began = _unix_seconds(event["requestReceivedTimestamp"])
        is_over = event["stage"] == "ResponseComplete"
        yield Watched(
            url.path,
            float(parse_qs(url.query).get("timeoutSeconds", ["0"])[0]),
            began,
            _unix_seconds(event["stageTimestamp"]) - began if is_over else None,
            int(event.get("responseStatus", {}).get("code", 0)),
        )


def breaks_told(lines: Iterable[str]) -> list[str]:
    """What processes wrote when a list or a watch failed."""
    told = []
    for line in lines:
        if line.startswith("{"):
            said = json.loads(line)
            if said["level"] in ("warning", "error") and "informer of" in said["message"]:
                told.append(str(said["message"]))
    return told


def _unix_seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def figures(
    seen: Iterable[Watched], told: Iterable[str], from_seconds: float, until_seconds: float
) -> dict[str, float | int | str]:
    """Counts of what began before the end and was not over at the beginning."""
    inside = [
        w
        for w in seen
        if w.began_seconds < until_seconds
        and (w.lasted_seconds is None or w.began_seconds + w.lasted_seconds > from_seconds)
    ]
    ended = [
        w
        for w in inside
        if w.lasted_seconds is not None and w.began_seconds + w.lasted_seconds < until_seconds
    ]
    return {
        "idle_minutes": round((until_seconds - from_seconds) / 60.0, 2),
        "breaks_told_by_processes": len(list(told)),
        "watches_followed": len(inside),
        "watches_ended": len(ended),
        "watches_cut_short": sum(w.is_cut_short for w in ended),
        "watches_refused": sum(w.code not in (0, 200) for w in inside),
        "kinds_watched": len({w.resource for w in inside}),
    }


def idle(minutes: float, folder: Path) -> dict[str, float | int | str]:
    """Install, start, wait, and read both witnesses before anything is ended."""
    release_module = importlib.import_module("tests.cluster.e2e_release")
    plane = importlib.import_module("tests.cluster.control_plane").start_control_plane(folder)
    release = release_module.LiveRelease(plane, folder, VALUES)
    clock = SystemClock()
    try:
        plane.start_kwok()
        plane.start_binder()
        release.install()
        release.add_servers([f"idle-{i}" for i in range(4)], 8, "NVIDIA-H200")
        _start(release, folder)
        _wait(clock, SETTLING_SECONDS)
        logs = [release.directory / f"{name}.log" for name in release.processes]
        known = [len(file.read_text(errors="replace")) for file in logs]
        began_seconds = clock.wall_time_ns() / NS_PER_SECOND
        _wait(clock, minutes * 60.0)
        until_seconds = clock.wall_time_ns() / NS_PER_SECOND
        written = [f.read_text(errors="replace")[n:] for f, n in zip(logs, known, strict=True)]
        told = breaks_told(line for text in written for line in text.splitlines())
        events = [event for c in COMPONENTS for event in release.requests_by(c)]
        counted = figures(watches(events), told, began_seconds, until_seconds)
        ended = sum(not process.running() for process in release.processes.values())
        return counted | {"processes_ended": ended}
    finally:
        release.stop()
        plane.stop()


def _start(release: Any, folder: Path) -> None:  # noqa: ANN401
    """Every process that follows kinds; the forecaster's Prometheus does not answer."""
    for index in range(2):
        release.start_controller(index)
    release.start_scheduler()
    release.start("watchdog", "watchdog", f"--beat-file={folder / 'watchdog.beat'}")
    release.start_forecaster("http://127.0.0.1:1")
    for component in COMPONENTS:
        process = release.processes.get(component, release.processes["wattpack-controller-0"])
        process.wait_ready(lambda c=component: bool(release.requests_by(c)), 60)


def _wait(clock: SystemClock, seconds: float) -> None:
    clock.wait_until(clock.monotonic_ns() + seconds_to_ns(seconds))


def run(options: Options) -> Result:
    """Idle minutes on the test control plane; without its programs it says why not."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {NAME}")
    parser.add_argument("--minutes", type=positive, default=MINUTES, help="idle real minutes (30)")
    minutes = parser.parse_args(options.arguments).minutes
    tools = importlib.import_module("tests.cluster.cluster_tools")
    helm = importlib.import_module("tests.cluster.e2e_release").has_helm()
    if why := tools.missing_control_plane_tool() or helm:
        options.progress(f"SKIPPED: {why}")
        return Result({"skipped": why})
    with ScratchFolder() as folder:
        counted = idle(QUICK_MINUTES if options.quick else minutes, folder)
    return Result(counted, TARGETS)
