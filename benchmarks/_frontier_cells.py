"""One cell of the frontier: so many servers under a policy in the hottest hours of a seed.

Every cell is simulated from nothing and depends on its names alone, so that cells may be run in any
order, on any machine, and kept. ``PLAIN`` is the row whose breaker never opens: losses are held
against it, and it is the static row, which is never held back and must never reach its rating.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks._row_days import hottest_windows
from benchmarks._row_slos import losses, quantiles
from controller.tick_values import PowerSettings
from simulation.inference_row.client_arrivals import ClientArrivals
from simulation.inference_row.latency_accounts import RequestTimes
from simulation.inference_row.row_power import GPU_SHARE
from simulation.inference_row.row_under_policy import (
    UNCAPPED,
    WATTPACK,
    WATTPACK_LIMITS,
    PolicyRun,
    Window,
    polca_scenario,
    run_policy,
)
from simulation.inference_row.served_rows import ServedRow, served_row, served_row_of
from simulation.plant_constants import PlantConstants
from simulation.row_control.work import HIGH, LOW
from simulation.scenario import Scenario, load_scenario
from wattpack.errors import SafetyError

PLAIN: Final = UNCAPPED
STATIC: Final = "static"
WATTPACK_SLOW: Final = "wattpack_40s"
HEAT_BUDGET: Final = "wattpack_heat_budget"
RESERVE: Final = "wattpack_reserve"
HOST_LINE: Final = "wattpack_host_line"
LOW_FLOOR: Final = "wattpack_host_line_low_floor"
OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    HEAT_BUDGET: {"heat_budget_ratio": 0.1},
    RESERVE: {"redundancy": "KofN", "feeds": 4, "required_feeds": 3, "use_reserve": True},
    HOST_LINE: {"host_line": True},
    LOW_FLOOR: {"host_line": True},
}
"""wattpack with what is off by default, of a site that has the curves for it: bands from a heat
budget; four feeds of which three carry the rating, and UPSes (``row.overload_points``, assumed);
what servers draw beside GPUs that are held down, for I1, alone and with a lower floor."""

LOW_FLOORS: Final[Mapping[str, float]] = {LOW_FLOOR: 0.5}
"""Floor of the lowest class over the default limit, in place of the knee (0.54 to 0.62)."""

ARMS: Final = (
    STATIC,
    "no_cap",
    "one_threshold_low",
    "one_threshold_all",
    "polca",
    WATTPACK_LIMITS,
    WATTPACK,
    WATTPACK_SLOW,
    *OPTIONS,
)
SLOW_SECONDS: Final = 40.0
"""POLCA's out-of-band actuator."""

SLOW_RISE: Final = 0.118
"""Largest rise in 40 s of the published row: what a band at such an actuator has to leave."""

UNREACHED: Final = 100.0
"""Ratings times this are never reached."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What differs between frontiers, besides the policy.

    Attributes:
        row: One of ``served_rows.ROWS``.
        gpu_share: Of the published row's servers.
        hotter: Share by which the load is raised.
        scenario: A file with row, meter, plant and faults instead, or None.
    """

    row: str = "a100"
    gpu_share: float = GPU_SHARE
    hotter: float = 0.0
    scenario: Path | None = None


class Cell(NamedTuple):
    """Names of a cell."""

    variant: str
    arm: str
    servers: int
    seed: int


@dataclass(frozen=True, slots=True)
class Hours:
    """Which hours are run, and how finely.

    Attributes:
        days: The hottest so many.
        hours: Of each day, from 13:00 on.
        step_seconds: Of the plant.
        lead_seconds: Before each, not counted, while the empty row fills.
        tail_seconds: After each, in which what arrived before may end.
    """

    days: int = 3
    hours: float = 1.0
    step_seconds: float = 0.25
    lead_seconds: float = 300.0
    tail_seconds: float = 200.0

    def windows(self, arrivals: ClientArrivals) -> list[Window]:
        """Of a row's six weeks."""
        hottest = hottest_windows(arrivals, self.days, self.hours)
        lead, tail = self.lead_seconds, self.tail_seconds
        return [Window(one.counted[0] - lead, lead, one.seconds, tail) for one in hottest]


def run_cell(cell: Cell, variant: Variant, hours: Hours) -> dict[str, Any]:
    """Figures that JSON can hold; times are quantiles in seconds."""
    row = served_row(variant.row, variant.gpu_share)
    scenario = _scenario(cell, variant, row, hours)
    if variant.scenario is not None:
        row = served_row_of(scenario.row.groups[0].gpu_model)
    arrivals = row.arrivals(cell.servers, seed=cell.seed, hotter=variant.hotter)
    windows = hours.windows(arrivals)
    policy, settings = cell.arm, None
    if cell.arm in (WATTPACK_SLOW, *OPTIONS):
        policy = WATTPACK
    if cell.arm == WATTPACK_SLOW:
        settings = slow_settings(scenario)
    try:
        runs = [run_policy(policy, arrivals, window, scenario, settings) for window in windows]
    except SafetyError as error:
        return {"refused": str(error)}
    scale = UNREACHED if cell.arm == PLAIN else 1.0
    if cell.arm == RESERVE:
        scale = scenario.row.fed_by / scenario.row.carried_by
    return _figures(runs, windows, scale)


def slow_settings(scenario: Scenario) -> PowerSettings:
    """Settings of the product where what is lowered acts 40 s late."""
    return PowerSettings(
        lease_ttl_ms=scenario.control.lease_ttl_ms,
        settle_seconds=SLOW_SECONDS,
        rise_quantile_prior=SLOW_RISE,
    )


def _scenario(cell: Cell, variant: Variant, row: ServedRow, hours: Hours) -> Scenario:
    if variant.scenario is None:
        model = row.times.gpu_model
        made = polca_scenario(cell.servers, cell.seed, row.power, hours.step_seconds, model)
    else:
        made = _of_file(variant.scenario, cell, hours)
    if cell.arm == PLAIN:
        ratings = {
            "rated_servers": UNREACHED * made.row.rated_servers,
            "rack_rated_servers": UNREACHED * made.row.rack_rated_servers,
        }
        made = made.model_copy(update={"row": made.row.model_copy(update=ratings)})
    if cell.arm == WATTPACK_SLOW:
        made = made.model_copy(update={"plant": slow_plant(made.plant)})
    if cell.arm in OPTIONS:
        made = made.model_copy(update={"row": made.row.model_copy(update=OPTIONS[cell.arm])})
    if cell.arm in LOW_FLOORS:
        lowest = min(one.value for one in made.priority_classes)
        classes = (
            one.model_copy(update={"floor_ratio": LOW_FLOORS[cell.arm]})
            if one.value == lowest
            else one
            for one in made.priority_classes
        )
        made = made.model_copy(update={"priority_classes": tuple(classes)})
    return made


def slow_plant(plant: PlantConstants) -> PlantConstants:
    """The plant with boards that take a lowered limit 40 s late; no other arm's."""
    return plant.model_copy(
        update={
            "cap_delay_min_seconds": SLOW_SECONDS - 1.0,
            "cap_delay_max_seconds": SLOW_SECONDS,
        }
    )


def _of_file(file: Path, cell: Cell, hours: Hours) -> Scenario:
    """Somebody's row with another number of the same servers behind the same breakers."""
    made = load_scenario(file, seed=cell.seed)
    group = made.row.groups[0].model_copy(update={"count": cell.servers})
    in_rack = 1.25 * -(-cell.servers // made.row.racks)
    row = {"groups": (group,), "rack_rated_servers": max(in_rack, made.row.rack_rated_servers)}
    changed = {"row": made.row.model_copy(update=row), "step_seconds": hours.step_seconds}
    return made.model_copy(update=changed)


def _figures(runs: list[PolicyRun], windows: list[Window], scale: float) -> dict[str, Any]:
    """Of all windows together; load ratios times ``scale`` are of the row's own rating."""
    times, of_class, loads, work = [], [], [], np.zeros(2)
    for run, window in zip(runs, windows, strict=True):
        asked = run.work.servers.requests
        begin, end = window.counted
        counted = (asked.arrival_seconds >= begin) & (asked.arrival_seconds < end)
        mine = RequestTimes.of(run.work.servers, window.begin_seconds + window.whole_seconds)
        times.append(mine.only(counted))
        of_class.append(asked.of_class[counted])
        inside = run.result.seconds > window.lead_seconds
        loads.append(scale * run.result.load_ratio[inside, 0])
        work += run.result.work_between(window.lead_seconds, window.lead_seconds + window.seconds)
    results = [run.result for run in runs]
    load = np.concatenate(loads)
    return {
        "days": [int(window.counted[0] // 86_400.0) for window in windows],
        "requests": int(sum(len(one) for one in of_class)),
        "mean_ratio": float(load.mean()),
        "peak_ratio": max(peak_reading(one) for one in loads),
        "above_seconds": sum(float(np.count_nonzero(one > 1.0)) for one in loads),
        "max_heat": max(float(one.max_heat[0]) for one in results),
        "brakes": sum(one.brakes for one in results),
        "trips": sum(one.trips for one in results),
        "violations": sum(sum(one.violations.values()) for one in results),
        "changes_per_gpu_hour": float(np.mean([r.cap_changes / r.gpu_hours for r in results])),
        "work_low": float(work[LOW]),
        "work_high": float(work[HIGH]),
        "guaranteed_watts": float(runs[0].guaranteed_watts.mean()),
        "floor_watts": float(runs[0].floor_watts.mean()),
        "quantiles": quantiles(times, of_class),
    }


def peak_reading(load_ratio: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Highest mean of two seconds, as the published row's meter reads."""
    whole = len(load_ratio) // 2 * 2
    return float(load_ratio[:whole].reshape(-1, 2).mean(axis=1).max())


def judged(mine: dict[str, Any], plain: dict[str, Any]) -> dict[str, float]:
    """Losses and work of a cell against the uncapped row of the same requests."""
    return {
        **losses(mine["quantiles"], plain["quantiles"]),
        "work_low": mine["work_low"] / plain["work_low"],
        "work_high": mine["work_high"] / plain["work_high"],
    }
