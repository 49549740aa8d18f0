"""What each consumer of forecasts loses when its forecast is gone, halved, or half as high again.

The four totals at the 20 origins of the forecast benchmarks. The forecaster process with its state
carried over writes the status of a DemandForecast; the product's own readers take it from there:
``ForecastBook``, the controller's promises, the planner with its power view and its solver, the
forecaster's replicas, a CapacityPlan's demand. What was provided for is held against what came:
surplus at 1 and shortfall at 19 a unit (assumed), as a share of the ten days' record. Without the
object each does what it does without one: the last day's maximum and a fifth for domains, the
newest demand for replicas, the stated demand for a GPU mix (yesterday's mean, assumed).

A domain's draw is taken as proportional to the demand (assumed), its limit as 1.3 times the record.
Contradiction is left out: a halved forecast loses its authority within ten minutes, not at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.forecast_sets import DAY, totals
from benchmarks.runner import Options, Result, Target
from capacity.mix.mix_question import demand_of
from controller.app.promisable_room import promisable_now
from forecasting.decisions import FORECAST_CHANGES, risk_bands
from forecasting.forecast_book import ForecastBook, Outlook, Question
from forecasting.forecast_status import status_of
from forecasting.lead_time import StepWindow
from forecasting.memory_source import MemorySource
from forecasting.plan_due import outlooks_of
from forecasting.prewarming.replica_need import ExpectedDemand, needed_replicas
from forecasting.prewarming.start_times import StartTimes
from forecasting.round.forecast_round import step
from forecasting.round.round_state import ForecasterState
from forecasting.series_source import BIN_SECONDS, SeriesId
from forecasting.targets import Target as ForecastTarget
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.kube_objects.power_view import PowerView
from scheduler_plugin.solve import plan
from wattpack.api.capacity_plan import CapacityPlan
from wattpack.api.forecast_replicas import ReplicaRule
from wattpack.object_names import SYSTEM_NAMESPACE
from wattpack.units import require_number

NAME = "consumer_losses"
SUMMARY = "loss of each consumer with its forecast as it is, removed, halved and raised by half"

Floats = npt.NDArray[np.float64]

HORIZON: Final = 36
LEVELS: Final = (0.5, 0.9, 0.95, 0.99)

SURPLUS, SHORTFALL, RISK = 1.0, 19.0, 0.05
LIMIT_OF_RECORD: Final = 1.3
LIMIT_WATTS: Final = 100_000.0
"""Of each domain, whatever its demand's unit."""

POD_WATTS: Final = 700
PODS: Final = 96
"""That wait, one board each, of a priority that may be placed at the risk; twelve servers."""

REPLICAS_OF_RECORD: Final = 20.0
"""Of replicas that serve the record together, so that a whole one is a small unit."""

START_SECONDS, ROUND_SECONDS = 244.0, 600.0
"""p95 of a small decoder's start (docs/workloads.md, mostly assumed), and a round."""

CONSUMERS: Final = ("oversubscription", "planner", "pre_warming", "gpu_mix")

TARGETS: Final = {
    f"{consumer}_{change}_over_as_is_ratio": Target(at_least=1.0)
    for consumer in CONSUMERS
    for change in ("removed", "halved", "raised_half")
}
"""A consumer that loses nothing by a forecast that is wrong does not use it."""


@dataclass(frozen=True)
class Window:
    """One window of one series, in the series' unit.

    Attributes:
        now_seconds: Unix time of its start.
        status: Of the DemandForecast, as written.
        came: By bin.
        last_day: By bin.
        record: Highest of the ten days before.
    """

    now_seconds: float
    status: Mapping[str, Any]
    came: Floats
    last_day: Floats
    record: float

    @cached_property
    def watts(self) -> float:
        """Of one unit."""
        return LIMIT_WATTS / (LIMIT_OF_RECORD * self.record)

    def book(self, factor: float | None, unit_watts: float | None) -> ForecastBook:
        """With the forecast as it is, changed, or none; of a domain if a unit has watts."""
        if factor is None:
            return ForecastBook(SYSTEM_NAMESPACE)
        changed = changed_status(self.status, factor, unit_watts or 1.0)
        target = {"series": "s", "unit": "requests"}
        if unit_watts is not None:
            target = {"powerDomain": "row", "series": "s", "unit": "watts"}
        metadata = {"name": "row", "namespace": SYSTEM_NAMESPACE, "generation": 1}
        body = {"metadata": metadata, "spec": {"target": target}, "status": changed}
        return ForecastBook.of(SYSTEM_NAMESPACE, [body])

    def outlook(self, factor: float | None) -> Outlook:
        """What the controller expects of the domain."""
        day = float(self.last_day.max()) * self.watts
        question = Question(self.now_seconds, 2 * LIMIT_WATTS, day)
        return self.book(factor, self.watts).of_domain("row", question)


def changed_status(status: Mapping[str, Any], factor: float, unit: float) -> dict[str, Any]:
    """The status with every promise times the factor, in another unit; what is measured stays."""
    made = dict(status) | {name: status[name] * factor * unit for name in ("p50", "p95", "p99")}
    made["now"] = status["now"] * unit
    made["quantiles"] = [
        path | {"values": [value * factor * unit for value in path["values"]]}
        for path in status["quantiles"]
    ]
    return made


def run(options: Options) -> Result:
    """All consumers on all windows; ``--quick`` takes every fifth origin."""
    windows = list(judged_windows(5 if options.quick else 1))
    figures: dict[str, float | int | str] = {"windows": len(windows)}
    for name, consumer in consumers().items():
        losses = losses_of(windows, consumer)
        figures |= {f"{name}_loss_share_{change}": losses[change] for change in FORECAST_CHANGES}
        figures |= {
            f"{name}_{change}_over_as_is_ratio": losses[change] / losses["as_is"]
            for change in FORECAST_CHANGES
            if change != "as_is"
        }
    return Result(figures | _placements(windows), TARGETS)


def _placements(windows: Sequence[Window]) -> dict[str, int]:
    """Pods placed, and of these the ones for which the peak that came left no room."""
    room = [max(0.0, LIMIT_WATTS - w.came.max() * w.watts) // POD_WATTS for w in windows]
    possible = [min(PODS, int(count)) for count in room]
    placed = {
        change: [placed_pods(window, factor) for window in windows]
        for change, factor in FORECAST_CHANGES.items()
    }
    placed["as_is_at_p99"] = [placed_pods(window, 1.0, 0.01) for window in windows]
    placed["nothing_known"] = [placed_pods(window, None, known=False) for window in windows]
    beyond = {
        name: sum(max(0, pods - most) for pods, most in zip(counts, possible, strict=True))
        for name, counts in placed.items()
    }
    return (
        {f"placements_{name}": sum(counts) for name, counts in placed.items()}
        | {f"placements_beyond_{name}": count for name, count in beyond.items()}
        | {"placements_possible": sum(possible)}
    )


def judged_windows(every: int) -> Iterator[Window]:
    """Of every so many-th origin, in the order of origins, all series at each."""
    given = totals()
    names = [SeriesId(name) for name in given.series]
    source = MemorySource(dict(zip(names, given.values, strict=True)))
    targets = [
        ForecastTarget(_owner(name), name, name, "series", HORIZON, BIN_SECONDS, LEVELS, None, 1)
        for name in names
    ]
    state = ForecasterState()
    for origin in given.origins[::every]:
        now_seconds = float(origin * BIN_SECONDS)
        state, answers = step(state, now_seconds, source, targets)
        for row, answer in zip(given.values, answers, strict=True):
            past = row[origin - 10 * DAY : origin]
            yield Window(
                now_seconds,
                status_of(answer, now_seconds, ROUND_SECONDS),
                np.asarray(row[origin : origin + HORIZON], dtype=np.float64),
                np.asarray(past[-DAY:], dtype=np.float64),
                float(past.max()),
            )


def _owner(name: str) -> str:
    """GPUs of a cluster and requests of services belong to different people: calibrated apart."""
    return "cluster" if name == "helios" else "services"


@dataclass(frozen=True, slots=True)
class Consumer:
    """One of the product's decisions.

    Attributes:
        provided: Demand that it provided for, in the series' unit, by window and factor.
        came: Demand that it had to provide for.
    """

    provided: Callable[[Window, float | None], float]
    came: Callable[[Window], float] = lambda window: float(window.came.max())


def consumers() -> dict[str, Consumer]:
    """By name; each asks what the product asks."""
    starts = StartTimes(START_SECONDS, ROUND_SECONDS)
    within = starts.steps(BIN_SECONDS)
    return {
        "oversubscription": Consumer(_promised),
        "planner": Consumer(_left_by_placements),
        "pre_warming": Consumer(
            lambda window, factor: _warm(window, factor, starts),
            lambda window: float(window.came[:within].max()),
        ),
        "gpu_mix": Consumer(_bought),
    }


def _promised(window: Window, factor: float | None) -> float:
    """The peak of what is promised now with which all that may be promised still fits."""
    promised = window.record * window.watts
    made = promisable_now(window.outlook(factor), LIMIT_WATTS, promised, RISK)
    return LIMIT_WATTS * promised / (promised + made.amount) / window.watts


def _left_by_placements(window: Window, factor: float | None) -> float:
    return (LIMIT_WATTS - placed_pods(window, factor) * POD_WATTS) / window.watts


def placed_pods(
    window: Window, factor: float | None, risk: float = RISK, *, known: bool = True
) -> int:
    """How many of the waiting pods the planner places, one solve.

    Args:
        window: With the forecast.
        factor: On it; None for no object.
        risk: Of their priority.
        known: Whether the controller has seen a day of draws to fall back to.
    """
    outlook = window.outlook(factor)
    status: dict[str, Any] = {"budgetWatts": LIMIT_WATTS, "capBandWatts": LIMIT_WATTS}
    if known:
        status["forecastP99Watts"] = outlook.p99_watts
    spec = {"ratingWatts": 2 * LIMIT_WATTS}
    domain = {"metadata": {"name": "row"}, "spec": spec, "status": status | {"acceptedSpec": spec}}
    # What stands there could draw the whole limit: only a forecast, or a fall-back, says less.
    view = PowerView([domain], window.book(factor, window.watts))
    bands = risk_bands({1: risk})
    rows = view.snapshot_domains({"row": LIMIT_WATTS}, (), window.now_seconds, bands)
    nodes = tuple(
        Node(name=f"n{i:02d}", domain="row", gpu_model="H200", gpu_milli=8_000, milli_cpu=96_000,
             memory_bytes=2**40, watts_per_gpu=POD_WATTS)
        for i in range(PODS // 8)
    )  # fmt: skip
    pods = tuple(Pod(uid=f"p{i:02d}", gpu_milli=1_000, milli_cpu=1_000) for i in range(PODS))
    made = plan(Snapshot(nodes=nodes, pods=pods, domains=rows), deadline_seconds=0.0)
    return len(made.placements)


def _warm(window: Window, factor: float | None, starts: StartTimes) -> float:
    rate = window.record / REPLICAS_OF_RECORD
    newest = require_number("status.now", window.status["now"], minimum=0)
    if factor is None:
        # Nothing is said any more: what follows the newest demand alone has its replicas.
        return math.ceil(newest / rate) * rate
    changed = changed_status(window.status, factor, 1.0)
    paths = np.array([path["values"] for path in changed["quantiles"]]).T
    levels = [path["level"] for path in changed["quantiles"]]
    demand = ExpectedDemand(StepWindow(window.now_seconds, BIN_SECONDS), levels, paths, newest)
    made = needed_replicas(ReplicaRule(rate=rate, risk=RISK), demand, window.now_seconds, starts)
    assert made is not None
    return made.amount * rate


def _bought(window: Window, factor: float | None) -> float:
    forecast = {"name": "row", "prices": {"capacity": SURPLUS, "unserved": SHORTFALL}}
    stated = float(window.last_day.mean())
    bucket = {"name": "chat", "requestsPerSecond": stated, "forecast": forecast}
    offer = {"name": "h200", "gpuModel": "H200-SXM", "gpus": 1, "dollarsPerGpuHour": 1.0}
    body = {
        "apiVersion": CapacityPlan.meta.resource.api_version, "kind": "CapacityPlan",
        "metadata": {"name": "mix", "namespace": SYSTEM_NAMESPACE},
        "spec": {"buckets": [bucket], "offers": [offer]},
    }  # fmt: skip
    asked = CapacityPlan.read(body)
    known = outlooks_of(asked, window.book(factor, None), window.now_seconds)
    return demand_of(asked.spec, known.rates)["chat"]


def losses_of(windows: Sequence[Window], consumer: Consumer) -> dict[str, float]:
    """By change, the mean over windows, each as a share of its record."""
    total = dict.fromkeys(FORECAST_CHANGES, 0.0)
    for window in windows:
        for change, factor in FORECAST_CHANGES.items():
            over = consumer.provided(window, factor) - consumer.came(window)
            loss = SURPLUS * over if over >= 0 else -SHORTFALL * over
            total[change] += loss / window.record / len(windows)
    return total
