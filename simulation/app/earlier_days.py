"""Earlier days for the forecasters: simulated by a coarse model, and later bins of the run itself.

The day's shape is an assumption (a raised cosine with noise that persists for an hour); rates,
lengths, iteration times and watts are those of the run. Request rates follow

    rate(t) = rate of the trace * (trough + (1 - trough) * (1 + cos(2 pi (hour - peak) / 24)) / 2)

and each service draws what its share of prompt and decode time gives; the tokens that it served
are told, too, as in the run. An inference row's clients have days of their own (``ClassLoad``).
Services and training jobs ran on those days; the batch pods of the run are new, so a forecast shows
the room that they may fill. Caps of those days are coarse too: no domain draws more than 98 % of
its rating, and where they held, all did.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capacity.step_library import shipped_step_tables
from controller.app.draw_history import HELD_SERIES
from forecasting.series_source import BIN_SECONDS
from forecasting.sqlite import HistoryStore
from simulation.app.inference_loads import ClassLoad
from simulation.app.served_tokens import TokenMeter, token_series, usual_tokens_per_second
from simulation.plant import domain_names
from simulation.row_objects import domain_series, workload_series
from simulation.scenario import Scenario, ServiceSettings
from simulation.serving_steps import steady_state
from simulation.traces import shipped_trace
from simulation.world import World
from wattpack.units import NS_PER_SECOND, seconds_to_ns

Floats = NDArray[np.float64]

HIGHEST_DRAW_RATIO = 0.98
BIN_PEAK_RATIO = 1.05
"""Highest second of a bin over its mean. Assumed; the run's own bins are measured."""

RECORD_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class EarlierDays:
    """Bin means and maxima by series name.

    Attributes:
        start_seconds: Unix time of the first bin.
        means: By series, (n_bins,).
        maxima: By series, (n_bins,).
    """

    start_seconds: int
    means: dict[str, Floats]
    maxima: dict[str, Floats]


def day_shape(scenario: Scenario, unix_seconds: Floats, start_hour: float) -> Floats:
    """Request rate over the trace's rate at each time, (n,)."""
    settings = scenario.history
    peak = start_hour if settings.peak_hour is None else settings.peak_hour
    hour = unix_seconds / 3600.0 % 24.0
    wave = 0.5 * (1.0 + np.cos(2.0 * np.pi * (hour - peak) / 24.0))
    return np.asarray(settings.trough_ratio + (1.0 - settings.trough_ratio) * wave)


def earlier_days(world: World, wall_time_ns: int) -> EarlierDays:
    """The days before a time, from the coarse model.

    Args:
        world: Its scenario, types and constants.
        wall_time_ns: Start of the run.
    """
    scenario = world.scenario
    n_bins = round(scenario.history.days * 86400 / BIN_SECONDS)
    end = wall_time_ns // NS_PER_SECOND // BIN_SECONDS * BIN_SECONDS
    start = end - n_bins * BIN_SECONDS
    times = start + BIN_SECONDS * np.arange(n_bins, dtype=np.float64)
    generator = np.random.default_rng((scenario.seed, 7))
    shape = day_shape(scenario, times, wall_time_ns / NS_PER_SECOND / 3600.0 % 24.0)
    means: dict[str, Floats] = {}
    gpu_watts = np.zeros(n_bins)
    since_start = times - wall_time_ns / NS_PER_SECOND
    for k, workload in enumerate(world.workloads):
        noise = _lasting_noise(generator, n_bins, scenario.history.noise_ratio)
        if scenario.inference_row is not None:
            asked = ClassLoad(scenario, k, workload.replicas)
            rates = asked.rates(since_start) * noise
            watts, tokens = asked.gpu_watts(rates, since_start), asked.tokens_per_second(rates)
        else:
            service = scenario.services[k]
            watts = service_watts(world, service, shape * noise)
            tokens = usual_tokens_per_second(scenario, service) * shape * noise
        means[workload_series(workload.name)] = watts
        means[token_series(workload.name)] = tokens
        gpu_watts += watts
    gpu_watts += _standing_watts(world)
    gpu_watts += _idle_watts(world)
    shares = [1.0, *([1.0 / scenario.row.racks] * scenario.row.racks)]
    ratings = [scenario.row_rating_watts, *([scenario.rack_rating_watts] * scenario.row.racks)]
    row = _ac_watts(world, gpu_watts)
    for i, name in enumerate(domain_names(scenario)):
        load = row * shares[i] + (scenario.row.external_watts if i == 0 else 0.0)
        most = HIGHEST_DRAW_RATIO * ratings[i]
        means[domain_series(name)] = np.minimum(load, most)
        means[f"{HELD_SERIES}{name}"] = (load > most).astype(np.float64)
    maxima = {name: values * BIN_PEAK_RATIO for name, values in means.items()}
    return EarlierDays(int(start), means, maxima)


def _lasting_noise(generator: np.random.Generator, n: int, spread: float) -> Floats:
    """Factors around 1 that drift over about an hour, (n,)."""
    raw = generator.standard_normal(n + 6)
    smooth = np.convolve(raw, np.full(6, 6**-0.5), mode="valid")[:n]
    return np.asarray(np.maximum(0.1, 1.0 + spread * smooth), dtype=np.float64)


def service_watts(world: World, service: ServiceSettings, rate_ratio: Floats) -> Floats:
    """GPU watts of a service at multiples of its usual request rate, (n,)."""
    if not service.replicas:
        return np.zeros(len(rate_ratio))
    trace = shipped_trace(service.trace)
    factor = world.scenario.trace_rate_factor * service.rate_weight
    mean_rate = len(trace.arrival_seconds) / trace.length_seconds * factor / service.replicas
    rate = mean_rate * rate_ratio
    profile = world.profiles[world.profile_of_node[0]]
    table = shipped_step_tables().find(
        profile.model, service.language_model, service.tensor_parallel
    )
    prompts, answers = float(trace.prompt_tokens.mean()), float(trace.output_tokens.mean())
    busy, watts = steady_state(table, rate, prompts, answers, service.prefill_chunk_tokens)
    per_gpu = watts + (1.0 - busy) * profile.context_watts
    return np.asarray(per_gpu * service.replicas * service.tensor_parallel, dtype=np.float64)


def _standing_watts(world: World) -> float:
    """Mean GPU watts of all training jobs."""
    plant = world.scenario.plant
    level = 1.0 - plant.training_dip_share * (1.0 - plant.training_dip_ratio)
    full = world.profiles[world.profile_of_node[0]].kernel_classes["training"].power_p50_watts
    return sum(job.pods * job.gpus_per_pod for job in world.scenario.training) * level * full


def _idle_watts(world: World) -> float:
    """Watts of the GPUs that services and training leave."""
    scenario = world.scenario
    taken = sum(one.replicas * one.gpus for one in world.workloads)
    taken += sum(job.pods * job.gpus_per_pod for job in scenario.training)
    idle = world.profiles[world.profile_of_node[0]].idle_watts
    return max(0, len(world.gpu_uuids) - taken) * idle


def _ac_watts(world: World, gpu_watts: Floats) -> Floats:
    """AC watts of all servers for the sum of their GPUs' watts, (n,)."""
    plant, servers = world.scenario.plant, world.scenario.row.servers
    heat = np.minimum(1.0, gpu_watts / servers / plant.fan_full_gpu_watts)
    host = plant.host_base_watts + plant.fan_range_watts * heat**plant.fan_exponent
    total = gpu_watts * (1.0 + plant.host_watts_per_gpu_watt) + servers * host
    return np.asarray(total / plant.supply_efficiency, dtype=np.float64)


def fill(store: HistoryStore, world: World, wall_time_ns: int) -> EarlierDays:
    """Put the earlier days into a history; what was put."""
    days = earlier_days(world, wall_time_ns)
    if world.scenario.history.days:
        for name, means in days.means.items():
            store.append_bins(name, days.start_seconds, means, days.maxima[name])
    return days


def preload(world: World, file: Path | str, wall_time_ns: int) -> EarlierDays:
    """Put the earlier days into a history file."""
    with HistoryStore(file) as store:
        return fill(store, world, wall_time_ns)


class DrawRecorder:
    """Adds the run's own power and load to a history, as meters and exporters would.

    Args:
        world: What is measured.
        store: Where it goes.
        domains: Also record domains (the demo's controller does that itself).
    """

    def __init__(self, world: World, store: HistoryStore, *, domains: bool = True) -> None:
        self._world = world
        self._store = store
        self._domains = domains
        self._tokens = TokenMeter(world)
        self._next_ns = 0

    def take(self, wall_time_ns: int) -> None:
        """Append a sample if one is due."""
        if wall_time_ns < self._next_ns:
            return
        self._next_ns = wall_time_ns + seconds_to_ns(RECORD_SECONDS)
        world, at = self._world, wall_time_ns / NS_PER_SECOND
        drawn = world.bank.drawn_watts
        watts = {one.name: 0.0 for one in world.workloads}
        for placed in world.assignment.pods.values():
            if placed.work.workload in watts:
                watts[placed.work.workload] += float(drawn[list(placed.gpus)].sum())
        rows = [(at, workload_series(name), value) for name, value in watts.items()]
        rows += [
            (at, token_series(name), rate)
            for name, rate in self._tokens.rates(wall_time_ns).items()
        ]
        if self._domains:
            pairs = zip(world.domain_names, world.servers.domain_watts, strict=True)
            rows += [(at, domain_series(name), float(value)) for name, value in pairs]
        self._store.append(rows)
