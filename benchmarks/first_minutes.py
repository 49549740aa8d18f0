"""The demo's first minutes: does power stand idle while work waits, and does the feed repeat?

The whole demo runs headless in this process; a judge of its own (``_idle_judge``) looks at the
twin's truth once a simulated second, while time stands still.

The planner runs at the product's pace (changes wait for at most 2 s; the demo's own is 10 s), and
servers have a readiness probe, as servers have: this benchmark plays their kubelet. The twin's
replicas serve as soon as they run.

Two judges: one leaves room for what the forecast expects of what runs beyond its present, as plans
do: at the p99, before batch work at the median (the demo's risk of one half); the other does not
(``under_limit``): a GPU may idle only where draw, what recent starts have yet to draw and the
waiting job come to more than the published limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._breaker_curves import row_marks
from benchmarks._idle_judge import IdleJudge, Limits, RepeatJudge
from benchmarks.runner import Options, Result, Target
from controller.app.tick_loop import TickOutcome
from simulation.app.demo_command import run_until
from simulation.app.demo_work import WebhookCaller
from simulation.app.running_demo import DemoRow
from simulation.scenario import Scenario, load_scenario
from wattpack.api import DemandForecast, PowerDomain
from wattpack.clock import SystemClock
from wattpack.errors import PermanentError
from wattpack.kube.port import PODS, ConflictError, JsonObject
from wattpack.kube.values import copy_json
from wattpack.object_names import WORKLOAD_LABEL
from wattpack.units import NS_PER_SECOND

NAME = "first_minutes"
SUMMARY = "demo: longest idle GPU while a waiting pod fits, repeated decision lines"
DURATION_SECONDS = {False: 300, True: 40}
SPEED = 60.0
#: ``batch_max_seconds`` of the product (docs/placement.md).
PLAN_SECONDS = 2.0
PROBE = {"httpGet": {"path": "/health", "port": 8000}}
TARGETS = {
    "idle_while_a_pod_fits_seconds_max": Target(at_most=30),
    "idle_under_limit_seconds_max": Target(at_most=30),
    "decision_lines_repeated_in_a_minute_max": Target(at_most=3),
    "trips": Target(at_most=0),
    "invariant_violations": Target(at_most=0),
}


def _at_products_pace(scenario: Scenario) -> Scenario:
    control = scenario.control.model_copy(update={"plan_seconds": PLAN_SECONDS})
    return scenario.model_copy(update={"control": control})


class _Probed(WebhookCaller):
    """Users who declare a readiness probe for their servers, before anybody reviews the pod."""

    def __init__(self, reviewed_by: WebhookCaller, services: Collection[str]) -> None:
        self._reviewed_by, self._services = reviewed_by, services
        self.failures = 0

    def admit(self, pod: JsonObject) -> JsonObject:
        """The pod with its probe after the webhook's patch."""
        if pod["metadata"]["labels"].get(WORKLOAD_LABEL) in self._services:
            pod["spec"]["containers"][0]["readinessProbe"] = PROBE
        return self._reviewed_by.admit(pod)


class ProbedRow(DemoRow):
    """The demo with servers that tell when they serve."""

    def _start_webhook(self) -> WebhookCaller:
        services = {service.name for service in self.world.scenario.services}
        return _Probed(super()._start_webhook(), services)

    def probe(self) -> None:
        """Say of each server that runs by now that it is ready, as a kubelet would."""
        for pod in self.api.list(PODS).items:
            conditions = pod["status"].get("conditions") or []
            probed = pod["spec"]["containers"][0].get("readinessProbe")
            is_told = any(c["type"] == "Ready" for c in conditions)
            if pod["status"].get("phase") != "Running" or not probed or is_told:
                continue
            at = next(c["lastTransitionTime"] for c in conditions if c["type"] == "PodScheduled")
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": at}
            told = copy_json(pod)
            told["status"]["conditions"] = [*conditions, ready]
            with suppress(ConflictError):  # then in the next second
                self.api.replace(PODS, told, pod["metadata"]["namespace"], subresource="status")


class Observer:
    """Looks at the row once a simulated second and at every decision.

    Args:
        row: The demo.
    """

    def __init__(self, row: ProbedRow) -> None:
        self._row = row
        self.idle, self.repeats = IdleJudge(row.world), RepeatJudge()
        self.under_limit = IdleJudge(row.world)
        classes = row.world.scenario.priority_classes
        self._waited_for = min((c.value for c in classes if c.interactive), default=0)
        self.seconds = 0

    def second(self, now_ns: int) -> None:
        """Judge the second that begins."""
        self.seconds += 1
        self._row.probe()
        pods = self._row.api.list(PODS).items
        limits, number = self._limits(), now_ns // NS_PER_SECOND
        self.idle.second(number, pods, limits)
        nothing = np.zeros_like(limits.rise_watts)
        at_once = replace(limits, rise_watts=nothing, low_rise_watts=nothing)
        self.under_limit.second(number, pods, at_once)

    def decided(self, outcome: TickOutcome) -> None:
        """Take the lines that the leader added to its feed."""
        for transition in outcome.decisions.transitions:
            seconds = outcome.wall_time_ns / NS_PER_SECOND
            self.repeats.line(seconds, transition.domain, transition.kind)

    def _limits(self) -> Limits:
        names = self._row.world.domain_names
        domains = _statuses(self._row.api.list(PowerDomain.meta.resource).items)
        rises = dict.fromkeys(names, (0.0, 0.0))
        for body in self._row.api.list(DemandForecast.meta.resource).items:
            target = body["spec"]["target"].get("powerDomain")
            if target in rises:
                rises[target] = rises_told(body.get("status") or {})
        band = [domains.get(name, {}).get("capBandWatts", np.nan) for name in names]
        rise, low_rise = np.array([rises[name] for name in names]).T
        return Limits(np.array(band, dtype=np.float64), rise, low_rise, self._waited_for)


def rises_told(forecast: Mapping[str, Any]) -> tuple[float, float]:
    """By how much what runs is expected to rise: at p99, at the median; 0 where nothing is told.

    Work that may start on free boards is in the forecast's own levels and not in these: plans start
    it themselves, so they leave no room for it beside it.

    Args:
        forecast: Status of a DemandForecast.
    """
    peaks, now = forecast.get("running") or forecast, forecast.get("now")
    if now is None or "p99" not in peaks:
        return 0.0, 0.0
    return max(0.0, peaks["p99"] - now), max(0.0, peaks["p50"] - now)


def _statuses(bodies: Any) -> dict[str, Mapping[str, Any]]:  # noqa: ANN401 - API objects
    return {body["metadata"]["name"]: body.get("status") or {} for body in bodies}


def run(options: Options) -> Result:
    """Run the demo and judge it.

    Raises:
        PermanentError: when simulated time stopped.
    """
    seconds = DURATION_SECONDS[options.quick]
    row = ProbedRow(_at_products_pace(load_scenario(seed=options.seed)), SPEED, None, replicas=1)
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
        **row_marks(row.world.scenario),
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
