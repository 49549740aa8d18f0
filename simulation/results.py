"""What a run is summed up to, and the uncapped run that it is compared with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from capacity.step_library import shipped_step_tables
from simulation.cap_effects import URGENT, EffectFigures
from simulation.inference_row.latency_accounts import latency_losses
from simulation.inference_row.published_limits import KINDS, broken
from simulation.placed import PlacementEvent
from simulation.plant_hash import plant_sha256
from simulation.pod_work import WorkKind
from simulation.scenario import Scenario
from simulation.slo import LEAD_OUT_SECONDS, quantile_ratio
from simulation.world import World
from wattpack.units import NS_PER_SECOND, seconds_to_ns

Floats = NDArray[np.float64]


class Comparison(BaseModel):
    """One run's figures that people compare; every one is simulated.

    ``limit_watts`` is the mean limit at the start; wattpack moves it, a plain row does not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    servers: int
    limit_watts: float
    tokens_served: float
    job_gpu_seconds: float
    energy_joules: float
    peak_draw_ratio: float
    trips: int
    pods_placed: int


class RequestFigures(BaseModel):
    """Times of one class's finished requests, seconds; those of warm-up and run-out left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first_token_p50: float
    first_token_p99: float
    per_token_p50: float
    per_token_p99: float


class TwinResult(BaseModel):
    """The summary of one run; every figure is simulated.

    ``*_by_workload`` keys are services, or the classes of an inference row. ``request_losses`` are
    of an inference row alone: by priority, class, kind of time and quantile, against the uncapped
    run; ``request_slos_broken`` names those not known to be within POLCA's limits for peak hours.
    ``*_by_class`` keys are priority classes for services' requests and ``training`` and ``batch``
    for jobs. Slowdowns are against an uncapped run of the same seed and placements; see
    ``simulation.slo`` for their definition, ``simulation.cap_effects`` for that of cap to effect.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    scenario: str
    policy: str
    seed: int
    simulated: bool = True
    simulated_seconds: float
    plant_sha256: str
    plant_frozen: bool
    step_tables_sha256: str
    trips: int
    brakes: int
    invariant_violations: int
    max_breaker_heat: float
    peak_draw_ratio: float
    seconds_above_rating: float
    energy_joules: float
    trace_rate_factor: float
    tokens_served: dict[str, float]
    work_gpu_seconds: dict[str, float] = Field(default_factory=dict)
    slowdown_p50: dict[str, float]
    slowdown_p99: dict[str, float]
    first_token_p99_seconds: dict[str, float] = Field(default_factory=dict)
    uncapped_first_token_p99_seconds: dict[str, float] = Field(default_factory=dict)
    request_seconds: dict[str, RequestFigures] = Field(default_factory=dict)
    uncapped_request_seconds: dict[str, RequestFigures] = Field(default_factory=dict)
    request_seconds_by_workload: dict[str, RequestFigures] = Field(default_factory=dict)
    uncapped_request_seconds_by_workload: dict[str, RequestFigures] = Field(default_factory=dict)
    request_losses: dict[str, float] = Field(default_factory=dict)
    request_slos_broken: list[str] = Field(default_factory=list)
    pods_placed: int
    pods_pending: int
    pods_moved: int
    forecast_coverage_p99: float | None
    forecast_coverage_n: int
    cap_to_effect_seconds_p99: float | None
    cap_to_effect_n: int
    caps_without_effect: int
    cap_to_effect_urgent: EffectFigures
    urgent_caps_late: int
    cap_to_effect_by_cause: dict[str, EffectFigures]
    uncapped_trips: int
    uncapped_peak_draw_ratio: float
    uncapped_seconds_above_rating: float
    uncapped_max_breaker_heat: float
    uncapped_energy_joules: float
    uncapped_tokens_served: dict[str, float]
    comparisons: dict[str, Comparison] = Field(default_factory=dict)
    violations: list[str] = Field(default_factory=list)
    digest: str = ""
    wall_seconds: float = 0.0

    def with_digest(self) -> TwinResult:
        """The result with a hash over everything but wall time."""
        values = self.model_dump(exclude={"digest", "wall_seconds"})
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return self.model_copy(update={"digest": hashlib.sha256(text.encode()).hexdigest()})


def end_seconds(scenario: Scenario) -> float:
    """Simulated time at which a run ends, warm-up included."""
    return scenario.warmup_seconds + scenario.duration_seconds


def ran_seconds(world: World) -> float:
    """Simulated time that has passed, warm-up included; a run may be ended early or late."""
    return (world.now_ns - world.start_ns) / NS_PER_SECOND


def replay_uncapped(scenario: Scenario, record: list[PlacementEvent], end_ns: int) -> World:
    """The same arrivals and placements with every GPU at its default limit and no controller."""
    world = World(scenario, ignore_trips=True)
    warm_ns = seconds_to_ns(scenario.warmup_seconds)
    events = iter([*record, None])
    event = next(events)
    stops = sorted({e.time_ns for e in record} | {warm_ns, end_ns})
    for stop_ns in stops:
        world.advance(min(stop_ns, end_ns))
        while event is not None and event.time_ns <= stop_ns:
            if event.placed:
                world.start(event.work, event.node, event.gpus)
            else:
                world.stop(event.work.name)
            event = next(events)
        if stop_ns == warm_ns:
            world.reset_accounts()
    return world


def _judged_before(world: World) -> float:
    """Requests that arrived later had no time to finish."""
    end = ran_seconds(world)
    return end - min(LEAD_OUT_SECONDS, 0.1 * (end - world.ledger.begin_seconds))


def _latency(world: World, service: int) -> Floats:
    """Latencies of requests that had time to finish; those under way count with their age."""
    cut = _judged_before(world)
    done = world.ledger.latencies(service, cut)
    return np.concatenate([done, world.unfinished_ages(service, cut)])


def by_class(world: World) -> dict[str, list[int]]:
    """Workloads that answer requests, of each priority class."""
    found: dict[str, list[int]] = {}
    for i, workload in enumerate(world.workloads):
        found.setdefault(workload.priority_class, []).append(i)
    return dict(sorted(found.items()))


def slowdowns(world: World, uncapped: World, level: float) -> dict[str, float]:
    """Slowdown at a quantile by class."""
    result = {}
    for name, services in by_class(world).items():
        mine = np.concatenate([_latency(world, i) for i in services])
        theirs = np.concatenate([_latency(uncapped, i) for i in services])
        ratio = quantile_ratio(mine, theirs, level)
        if ratio is not None:
            result[name] = round(ratio, 6)
    for name, windows in world.ledger.job_slowdowns().items():
        result[name] = round(float(np.quantile(windows, level)), 6)
    return result


def first_token_p99(world: World) -> dict[str, float]:
    """Seconds to the first token at the 99th percentile by class."""
    result = {}
    for name, services in by_class(world).items():
        waited = np.concatenate([world.ledger.first_tokens(i) for i in services])
        if len(waited):
            result[name] = round(float(np.quantile(waited, 0.99)), 6)
    return result


def by_workload(world: World) -> dict[str, list[int]]:
    """Each workload that answers requests, by its name."""
    return {workload.name: [i] for i, workload in enumerate(world.workloads)}


def request_seconds(world: World, groups: Mapping[str, list[int]]) -> dict[str, RequestFigures]:
    """Times to the first token and between tokens by group of workloads."""
    before, result = _judged_before(world), {}
    for name, services in groups.items():
        pairs = [world.ledger.tokens_apart(i, before) for i in services]
        first, apart = (np.concatenate(column) for column in zip(*pairs, strict=True))
        if len(first) and len(apart):
            p50, p99 = (
                [round(float(np.quantile(values, level)), 6) for values in (first, apart)]
                for level in (0.5, 0.99)
            )
            result[name] = RequestFigures(
                first_token_p50=p50[0],
                first_token_p99=p99[0],
                per_token_p50=p50[1],
                per_token_p99=p99[1],
            )
    return result


def request_losses(world: World, uncapped: World) -> dict[str, float]:
    """What an inference row's requests lost against the uncapped run; NaN where nobody is known.

    As benchmarks count: of all that arrived in the counted time, those under way with their age.
    """
    if world.inference is None or uncapped.inference is None:
        return {}
    begin = world.inference.begin_seconds
    counted = (begin + world.ledger.begin_seconds, begin + _judged_before(world))
    mine, plain = world.inference.work.servers, uncapped.inference.work.servers
    losses = latency_losses(mine, plain, counted, begin + ran_seconds(world))
    return {name: round(loss, 6) for name, loss in losses.items()}


def tokens(world: World) -> dict[str, float]:
    """Tokens of finished requests by class."""
    return {
        name: sum(world.ledger.tokens[i] for i in services)
        for name, services in by_class(world).items()
    }


def plant_figures(world: World) -> dict[str, Any]:
    """What the breakers and the ledger say of a run."""
    return {
        "trips": world.trips,
        "max_breaker_heat": float(world.breakers.max_heat.max()),
        "peak_draw_ratio": float(world.breakers.peak_ratio.max()),
        "seconds_above_rating": float(world.breakers.seconds_above_rating.max()),
        "energy_joules": world.ledger.energy_joules,
    }


def pods_placed(record: list[PlacementEvent]) -> int:
    """Pods that ran, each counted once."""
    return len({event.work.name for event in record if event.placed})


def work_gpu_seconds(world: World) -> dict[str, float]:
    """GPU-seconds of work done by jobs, by kind."""
    return {
        str(kind): world.ledger.gpu_seconds.get(str(kind), 0.0)
        for kind in (WorkKind.TRAINING, WorkKind.BATCH)
    }


def summarise(world: World, uncapped: World, policy: str, product: Mapping[str, Any]) -> TwinResult:
    """The result of a run.

    Args:
        world: After the run.
        uncapped: After ``replay_uncapped``.
        policy: Name of the policy.
        product: Figures that only the product's processes know.
    """
    scenario = world.scenario
    bare, effects = plant_figures(uncapped), world.effects.figures()
    losses = request_losses(world, uncapped)
    return TwinResult(
        scenario=scenario.name,
        policy=policy,
        seed=scenario.seed,
        simulated_seconds=round(max(0.0, ran_seconds(world) - scenario.warmup_seconds), 2),
        plant_sha256=plant_sha256(scenario.plant, scenario.row.power_sensor),
        plant_frozen=scenario.plant_frozen,
        step_tables_sha256=shipped_step_tables().content_sha256,
        trace_rate_factor=scenario.trace_rate_factor,
        tokens_served=tokens(world),
        work_gpu_seconds=work_gpu_seconds(world),
        slowdown_p50=slowdowns(world, uncapped, 0.5),
        slowdown_p99=slowdowns(world, uncapped, 0.99),
        first_token_p99_seconds=first_token_p99(world),
        uncapped_first_token_p99_seconds=first_token_p99(uncapped),
        request_seconds=request_seconds(world, by_class(world)),
        uncapped_request_seconds=request_seconds(uncapped, by_class(uncapped)),
        request_seconds_by_workload=request_seconds(world, by_workload(world)),
        uncapped_request_seconds_by_workload=request_seconds(uncapped, by_workload(uncapped)),
        request_losses={name: loss for name, loss in losses.items() if np.isfinite(loss)},
        request_slos_broken=broken(losses, KINDS) if losses else [],
        pods_placed=pods_placed(world.record),
        pods_moved=world.moved,
        cap_to_effect_seconds_p99=effects.p99_seconds,
        cap_to_effect_n=effects.n,
        caps_without_effect=effects.without_effect,
        cap_to_effect_urgent=world.effects.figures(URGENT),
        urgent_caps_late=world.effects.urgent_late(),
        cap_to_effect_by_cause=world.effects.by_cause(),
        uncapped_trips=bare["trips"],
        uncapped_peak_draw_ratio=bare["peak_draw_ratio"],
        uncapped_seconds_above_rating=bare["seconds_above_rating"],
        uncapped_max_breaker_heat=bare["max_breaker_heat"],
        uncapped_energy_joules=bare["energy_joules"],
        uncapped_tokens_served=tokens(uncapped),
        **plant_figures(world),
        **product,
    ).with_digest()
