"""Our policy as the forecaster process publishes it: the plant reads ``status.replicas``.

One DemandForecast a service and rule, each with a queue of its own. The process' thread is asked
every minute, by a clock that stands in between; it reads the demand of the minutes before, the
requests that wait, and writes statuses into an object store. The plant then does what they say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks._replica_demand import Service
from benchmarks._replica_fleet import DAY_MINUTES, WAIT_SECONDS, Fleet, Floats
from forecasting.app.forecast_metrics import ForecastMetrics
from forecasting.app.forecast_verdicts import VerdictThread
from forecasting.app.replica_minutes import MinuteAnswers, Outlets, Pace, ReplicaMinutes
from forecasting.memory_source import MemorySource
from simulation.kube import EmbeddedKube
from wattpack.api.demand_forecast import DemandForecast
from wattpack.clock import ManualClock
from wattpack.units import NS_PER_SECOND

NAMESPACE: Final = "services"
STEP_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Rule:
    """What an object asks: ``spec.replicas``, less what is the same for all."""

    violation_price: float
    keep_ratio: float
    hold_seconds: float
    clear_seconds: float


@dataclass(slots=True)
class _Object:
    name: str
    service: Service
    fleet: Fleet


def published(
    services: Sequence[Service],
    rules: Sequence[Sequence[Rule]],
    starts: np.ndarray,
    days: tuple[int, int],
    pace: Pace,
    start_seconds: float,
) -> list[tuple[Floats, Floats]]:
    """Violated minutes and replica hours of each service's rules, shape (n_rules,) each.

    Args:
        services: With demand from day 0 on.
        rules: Of each service.
        starts: Minutes that an order of each minute takes.
        days: First and last, from 0; what came before is history.
        pace: Of the process.
        start_seconds: That the objects say.
    """
    first = days[0] * DAY_MINUTES
    clock = ManualClock(wall_offset_ns=first * STEP_SECONDS * NS_PER_SECOND)
    kube = EmbeddedKube(clock)
    source = MemorySource({s.name: s.rates for s in services}, 0, STEP_SECONDS)
    objects = [
        _Object(f"{s.name}-{place}", s, Fleet(s.rates[first], s.replica_rate, starts, 1))
        for s, asked in zip(services, rules, strict=True)
        for place in range(len(asked))
    ]
    asked = [rule for found in rules for rule in found]
    for one, rule in zip(objects, asked, strict=True):
        kube.create(DemandForecast.meta.resource, _body(one, rule, start_seconds), NAMESPACE)
        source.values[_queue(one)] = np.zeros(len(one.service.rates))
    thread = _thread(clock, kube, source, pace)
    for minute in range(first, days[1] * DAY_MINUTES):
        thread()
        for one in objects:
            told = _count(kube, one.name)
            one.fleet.minute(minute, one.service.rates[minute], np.array([told]))
            source.values[_queue(one)][minute] = one.fleet.queued[0]
        clock.advance_seconds(STEP_SECONDS)
    ends = iter(objects)
    found = []
    for rows in rules:
        fleets = [next(ends).fleet for _ in rows]
        found.append((
            np.array([float(fleet.violated.sum()) for fleet in fleets]),
            np.array([float(fleet.hours.sum()) for fleet in fleets]),
        ))  # fmt: skip
    return found


def _thread(
    clock: ManualClock, kube: EmbeddedKube, source: MemorySource, pace: Pace
) -> Callable[[], None]:
    """The process' thread, one minute a call; verdicts come before its first."""
    metrics = ForecastMetrics()

    def objects() -> Sequence[dict[str, Any]]:
        return [dict(body) for body in kube.list(DemandForecast.meta.resource).items]

    VerdictThread(clock, kube, objects, metrics).run_once()
    outlets = Outlets(kube, MinuteAnswers(), metrics)
    return ReplicaMinutes(clock, objects, source, outlets, pace).run_once


def _body(one: _Object, rule: Rule, start_seconds: float) -> dict[str, Any]:
    replicas = {
        "rate": one.service.replica_rate,
        "startSeconds": start_seconds,
        "waitSeconds": WAIT_SECONDS,
        "queueSeries": _queue(one),
        "violationPrice": rule.violation_price,
        "keepRatio": rule.keep_ratio,
        "holdSeconds": rule.hold_seconds,
        "clearSeconds": rule.clear_seconds,
    }
    resource = DemandForecast.meta.resource
    target = {"workload": one.service.name, "series": one.service.name, "unit": "requests"}
    return {
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": one.name, "namespace": NAMESPACE},
        "spec": {"target": target, "replicas": replicas},
    }  # fmt: skip


def _queue(one: _Object) -> str:
    return f"queue:{one.name}"


def _count(kube: EmbeddedKube, name: str) -> float:
    """What the object says; whoever follows it has nothing else."""
    body = kube.get(DemandForecast.meta.resource, name, NAMESPACE)
    return float(body["status"]["replicas"]["count"])
