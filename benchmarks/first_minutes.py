"""The demo's first minutes: does power stand idle while work waits, and does the feed repeat?

The whole demo runs headless in this process; a judge of its own (``_idle_judge``) looks at the
twin's truth once a simulated second, while time stands still.

Two judges: one leaves room for what the published forecast expects beyond its present, as plans
do; the other does not (``under_limit``): a GPU may idle only where draw, what recent starts have
yet to draw and the waiting job come to more than the published limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._idle_judge import IdleJudge, Limits, RepeatJudge
from benchmarks.runner import Options, Result, Target
from controller.app.tick_loop import TickOutcome
from simulation.app.demo_command import run_until
from simulation.app.running_demo import DemoRow
from simulation.scenario import load_scenario
from wattpack.api import DemandForecast, PowerDomain
from wattpack.clock import SystemClock
from wattpack.errors import PermanentError
from wattpack.kube.port import PODS
from wattpack.units import NS_PER_SECOND

NAME = "first_minutes"
SUMMARY = "demo: longest idle GPU while a waiting pod fits, repeated decision lines"
DURATION_SECONDS = {False: 300, True: 40}
SPEED = 60.0
TARGETS = {
    "idle_while_a_pod_fits_seconds_max": Target(at_most=30),
    "idle_under_limit_seconds_max": Target(at_most=30),
    "decision_lines_repeated_in_a_minute_max": Target(at_most=3),
    "trips": Target(at_most=0),
    "invariant_violations": Target(at_most=0),
}


class Observer:
    """Looks at the row once a simulated second and at every decision.

    Args:
        row: The demo.
    """

    def __init__(self, row: DemoRow) -> None:
        self._row = row
        self.idle, self.repeats = IdleJudge(row.world), RepeatJudge()
        self.under_limit = IdleJudge(row.world)
        self.seconds = 0

    def second(self, now_ns: int) -> None:
        """Judge the second that begins."""
        self.seconds += 1
        pods = self._row.api.list(PODS).items
        limits, number = self._limits(), now_ns // NS_PER_SECOND
        self.idle.second(number, pods, limits)
        nothing_expected = np.zeros_like(limits.rise_watts)
        self.under_limit.second(number, pods, replace(limits, rise_watts=nothing_expected))

    def decided(self, outcome: TickOutcome) -> None:
        """Take the lines that the leader added to its feed."""
        for transition in outcome.decisions.transitions:
            seconds = outcome.wall_time_ns / NS_PER_SECOND
            self.repeats.line(seconds, transition.domain, transition.kind)

    def _limits(self) -> Limits:
        names = self._row.world.domain_names
        domains = _statuses(self._row.api.list(PowerDomain.meta.resource).items)
        rise = dict.fromkeys(names, 0.0)
        for body in self._row.api.list(DemandForecast.meta.resource).items:
            target = body["spec"]["target"].get("powerDomain")
            status = body.get("status") or {}
            if target in rise and "p99" in status and "now" in status:
                rise[target] = max(0.0, status["p99"] - status["now"])
        band = [domains.get(name, {}).get("capBandWatts", np.nan) for name in names]
        return Limits(np.array(band, dtype=np.float64), np.array([rise[name] for name in names]))


def _statuses(bodies: Any) -> dict[str, Mapping[str, Any]]:  # noqa: ANN401 - API objects
    return {body["metadata"]["name"]: body.get("status") or {} for body in bodies}


def run(options: Options) -> Result:
    """Run the demo and judge it.

    Raises:
        PermanentError: when simulated time stopped.
    """
    seconds = DURATION_SECONDS[options.quick]
    row = DemoRow(load_scenario(seed=options.seed), SPEED, None, replicas=1)
    observer = Observer(row)
    row.watch.observe(observer.second, observer.decided)
    try:
        row.start()
        run_until(row, seconds, SystemClock(), options.progress)
    finally:
        row.stop()
    if row.failure is not None:
        raise PermanentError(f"simulated time stopped: {row.failure}")
    idle, repeats, under_limit = observer.idle, observer.repeats, observer.under_limit
    options.progress(f"longest idle: {idle.worst or 'none'}; most repeated: {repeats.worst}")
    options.progress(f"longest idle under the limit: {under_limit.worst or 'none'}")
    for line in row.watch.violations[:5]:
        options.progress(line)
    figures: dict[str, float | int | str] = {
        "simulated_seconds": observer.seconds,
        "idle_while_a_pod_fits_seconds_max": idle.longest_seconds,
        "idle_while_a_pod_fits_gpu_seconds": idle.gpu_seconds,
        "idle_under_limit_seconds_max": under_limit.longest_seconds,
        "idle_under_limit_gpu_seconds": under_limit.gpu_seconds,
        "idle_gpu_seconds": idle.free_gpu_seconds,
        "decision_lines": sum(repeats.lines.values()),
        "decision_lines_repeated_in_a_minute_max": repeats.most_in_a_minute,
        "trips": row.world.trips,
        "invariant_violations": row.watch.violation_count,
    }
    return Result(figures=figures, targets=TARGETS)
