"""How long one allocation takes at 10,000 and 40,000 GPUs in 4 levels, one tick at 10,000 and 416.

The plant is synthetic (site, halls, rows, racks; servers of 8 GPUs; six classes; a tenth of
the servers in gangs); every state draws new demands, limits, silent nodes and heat. One core, one
thread; nothing but ``allocate`` or ``step`` is timed. Of a scenario file: servers and boards, how
many share a rack and the row, ratings, external load, classes, lease; sites are as large as ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from benchmarks._allocation_oracle import loop_allocate
from benchmarks._given_scenario import USAGE as GIVEN_USAGE
from benchmarks._given_scenario import Given, given_scenario
from benchmarks.runner import Options, Result, Target
from controller.allocation import Limit, Wants, allocate, gang_kinds
from controller.step import initial_state, step
from controller.tick_values import Observations, PowerSettings, Tick, Topology
from wattpack.power.domain_tree import DomainTree, FloatArray
from wattpack.power.feasibility import LoadTree, worst_watts
from wattpack.power.trip_curves import RACK_THERMAL, SWITCHBOARD_THERMAL
from wattpack.units import NS_PER_SECOND

NAME = "allocation_scale"
SUMMARY = "seconds for one allocation and one whole tick, 416 to 40,000 GPUs in 4 levels"
TAKES_ARGUMENTS = True
USAGE: Final = GIVEN_USAGE

TARGETS = {
    "allocation_seconds_p99": Target(at_most=0.2),
    "large_allocation_seconds_p99": Target(at_most=0.8),
    "step_seconds_p99": Target(at_most=1.0),
    "row_step_seconds_p50": Target(at_most=0.0015),
}

_SITE_GPUS: Final = 10_000
_LARGE_SITE_GPUS: Final = 40_000
_LOOP_GPUS: Final = 1_000
_CALLS = 20_000
READS: Final = (
    "row.groups", "row.gpus_per_server", "row.racks", "row.rated_servers", "row.rated_server_watts",
    "row.external_watts", "priority_classes[].value", "control.lease_ttl_ms",
    "plant.supply_efficiency", "plant.host_base_watts", "plant.fan_range_watts",
    "plant.host_burst_watts",
)  # fmt: skip


BREAKER_CURVES: Final = "site, halls and rows SwitchboardThermal, racks RackThermal"
"""Of ``synthetic_topology``."""


@dataclass(frozen=True, slots=True)
class SiteKind:
    """Of what a site is made.

    Attributes:
        limits: Lowest, default limit and floor of the boards of each server of a row, watts.
        gpus_per_node: Boards of a server.
        rack_nodes: Servers of a rack.
        host_watts: A server without GPUs at worst, DC.
        external_watts: Of a row.
        classes: Priorities.
        oversubscription: Worst load over rating.
        efficiency: DC over AC watts.
        settings: The controller's.
    """

    limits: tuple[tuple[float, float, float], ...] = ((200.0, 700.0, 400.0),) * 52
    gpus_per_node: int = 8
    rack_nodes: int = 10
    host_watts: float = 2000.0
    external_watts: float = 0.0
    classes: tuple[int, ...] = tuple(range(0, 600, 100))
    oversubscription: float = 1.3
    efficiency: float = 0.94
    settings: PowerSettings = field(default_factory=PowerSettings)

    @classmethod
    def of(cls, given: Given) -> SiteKind:
        """As somebody's row has it."""
        scenario, plant = given.scenario, given.scenario.plant
        row = scenario.row
        limits = tuple(
            (one.min_limit_watts, one.default_limit_watts, one.knee_watts)
            for one in given.profiles()
        )
        boards = sum(default for _, default, _ in limits) * row.gpus_per_server
        worst = boards + plant.worst_host_watts * row.servers
        worst = worst / plant.supply_efficiency + row.external_watts
        return cls(
            limits,
            row.gpus_per_server,
            -(-row.servers // row.racks),
            plant.worst_host_watts,
            row.external_watts,
            tuple(one.value for one in scenario.priority_classes),
            worst / scenario.row_rating_watts,
            plant.supply_efficiency,
            PowerSettings(lease_ttl_ms=scenario.control.lease_ttl_ms),
        )

    def nodes_for(self, gpus: int) -> int:
        """Servers with so many boards."""
        return -(-gpus // self.gpus_per_node)


def synthetic_topology(
    n_nodes: int, rng: np.random.Generator, kind: SiteKind | None = None
) -> Topology:
    """A site of 2 halls, 5 rows each, racks of 10 servers or of as many as told: 4 levels."""
    kind = kind or SiteKind()
    n_racks = max(10, n_nodes // kind.rack_nodes)
    parents = [-1, 0, 0, *[1 + i % 2 for i in range(10)], *[3 + i % 10 for i in range(n_racks)]]
    n_domains, n_gpus = len(parents), n_nodes * kind.gpus_per_node
    domain_of_node = 13 + np.arange(n_nodes) % n_racks
    node_of_gpu = np.repeat(np.arange(n_nodes), kind.gpus_per_node)
    worst = np.full(n_nodes, kind.host_watts)
    of_node = np.arange(n_nodes) % len(kind.limits)
    lowest, default, floor = np.array(kind.limits)[of_node[node_of_gpu]].T
    is_row = (np.arange(n_domains) >= 3) & (np.arange(n_domains) < 13)
    external = np.where(is_row, kind.external_watts, 0.0)

    def tree(rating: FloatArray) -> DomainTree:
        is_rack = np.arange(n_domains) >= 13
        return DomainTree(
            names=tuple(f"domain-{i}" for i in range(n_domains)),
            parent=np.array(parents),
            rating_watts=rating,
            external_watts=external,
            curves=tuple(RACK_THERMAL if r else SWITCHBOARD_THERMAL for r in is_rack),
            max_load_ratio=np.full(n_domains, 1.5),
            cooling_seconds=np.full(n_domains, 600.0),
            phase_imbalance=np.ones(n_domains),
            supply_efficiency=np.full(n_domains, kind.efficiency),
            max_raise_watts_per_second=0.02 * rating,
            enforce=np.ones(n_domains, dtype=np.bool_),
        )

    load = LoadTree(tree(np.ones(n_domains)), domain_of_node, node_of_gpu)
    # A row of few servers leaves racks empty.
    full = np.maximum(worst_watts(load, default, worst), 1.0)
    in_gang = rng.random(n_nodes) < 0.1
    gang = np.where(in_gang, np.arange(n_nodes) // 4, -1)[node_of_gpu]
    node_class = rng.integers(0, len(kind.classes), n_nodes)
    node_class = np.where(in_gang, (np.arange(n_nodes) // 4) % len(kind.classes), node_class)
    return Topology(
        gpu_uuids=tuple(f"gpu-{i}" for i in range(n_gpus)),
        node_names=tuple(f"node-{i}" for i in range(n_nodes)),
        tree=tree(full / (kind.oversubscription * rng.uniform(0.95, 1.05, n_domains))),
        node_of_gpu=node_of_gpu,
        domain_of_node=domain_of_node,
        min_limit_watts=lowest,
        default_limit_watts=default,
        guaranteed_watts=0.5 * (lowest + floor),
        floor_watts=floor,
        request_watts=default.copy(),
        priority=np.array(kind.classes)[node_class][node_of_gpu],
        gang=gang,
        value_per_watt=rng.random(n_gpus),
        clock_lock=np.zeros(n_gpus, dtype=np.bool_),
        node_worst_watts=worst,
        node_host_unit=np.ones(n_nodes, dtype=np.bool_),
    )


def _wants(topology: Topology, request_watts: FloatArray) -> Wants:
    low, default = topology.min_limit_watts, topology.default_limit_watts
    return Wants(
        minimum_watts=low,
        guaranteed_watts=topology.guaranteed_watts,
        floor_watts=topology.floor_watts,
        request_watts=request_watts,
        slack_watts=default,
        priority=topology.priority,
        gang=topology.gang,
        gang_kinds=gang_kinds(topology.gang, default, low),
        value_per_watt=topology.value_per_watt,
        fixed=np.zeros(topology.n_gpus, dtype=np.bool_),
    )


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_allocations(topology: Topology, count: int, rng: np.random.Generator) -> list[float]:
    """Seconds of each allocation of a random state."""
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    seconds = []
    for _ in range(count):
        default = topology.default_limit_watts
        request = rng.choice([0.86, 0.93, 1.0], topology.n_gpus) * default
        wants = _wants(topology, request)
        expected = rng.uniform(0.11, 1.0, topology.n_gpus) * default
        full = load.sum_gpus(expected) * load.gpu_factor
        room = full * rng.uniform(0.55, 1.05, topology.n_domains)
        seconds.append(_timed(partial(allocate, load, wants, Limit(room, expected))))
    return seconds


def time_steps(
    topology: Topology, count: int, rng: np.random.Generator, settings: PowerSettings
) -> list[float]:
    """Seconds of each tick of a running controller under changing load."""
    default = topology.default_limit_watts
    state = initial_state(topology, settings)
    caps = topology.guaranteed_watts.copy()
    confirmed = np.zeros(topology.n_gpus, dtype=np.int64)
    seconds = []
    for tick in range(count):
        now_ns = tick * NS_PER_SECOND
        demand = rng.uniform(0.14, 1.0, topology.n_gpus) * default
        watts = np.minimum(demand + 0.29 * default * (tick % 40 > 20), caps * 1.02)
        observed = _observations(topology, now_ns, watts, caps, confirmed, rng)
        start = time.perf_counter()
        state, commands, _ = step(Tick(topology, observed, settings, now_ns), state)
        seconds.append(time.perf_counter() - start)
        reached = commands.send[topology.node_of_gpu]
        caps = np.where(reached, commands.cap_watts, caps)
        confirmed = np.where(reached, commands.sequence, confirmed)
    return seconds


def _observations(
    topology: Topology,
    now_ns: int,
    watts: FloatArray,
    caps: FloatArray,
    confirmed: np.ndarray[tuple[int], np.dtype[np.int64]],
    rng: np.random.Generator,
) -> Observations:
    n_gpus, n_nodes, n_domains = topology.n_gpus, topology.n_nodes, topology.n_domains
    late = np.where(rng.random(n_nodes) < 0.02, 4 * NS_PER_SECOND, 0)
    return Observations(
        node_received_ns=np.maximum(now_ns - late, 0),
        node_nonce=np.full(n_nodes, 1, dtype=np.uint64),
        node_rebooted=np.zeros(n_nodes, dtype=np.bool_),
        host_watts=1200.0 + rng.uniform(0.0, 5.0, n_nodes),
        gpu_draw_watts=watts,
        gpu_energy_mean_watts=watts,
        gpu_limit_watts=caps.copy(),
        gpu_guaranteed_watts=topology.guaranteed_watts,
        gpu_confirmed_sequence=confirmed.copy(),
        gpu_leased=np.ones(n_gpus, dtype=np.bool_),
        gpu_controlled=np.ones(n_gpus, dtype=np.bool_),
        meter_watts=np.full(n_domains, np.nan),
        meter_time_ns=np.full(n_domains, -1, dtype=np.int64),
        forecast_p99_watts=np.full(n_domains, np.nan),
        budget_watts=topology.tree.rating_watts.copy(),
        override_cap_watts=np.full(n_gpus, np.nan),
        epoch=1,
        leading=True,
        may_raise=True,
        node_epoch=np.zeros(topology.n_nodes, dtype=np.int64),
    )


def loop_ratio(rng: np.random.Generator, repeats: int, kind: SiteKind) -> float:
    """Median seconds of the plain loop over those of the vectorised form, 1,000 GPUs, no gangs."""
    topology = synthetic_topology(kind.nodes_for(_LOOP_GPUS), rng, kind)
    topology = replace(topology, gang=np.full(topology.n_gpus, -1, dtype=np.int64))
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    wants = _wants(topology, topology.request_watts)
    fast, slow = [], []
    for _ in range(repeats):
        expected = rng.uniform(0.11, 1.0, topology.n_gpus) * topology.default_limit_watts
        room = load.sum_gpus(expected) * load.gpu_factor * 0.8
        fast.append(_timed(partial(allocate, load, wants, Limit(room, expected))))
        slow.append(_timed(partial(loop_allocate, load, wants, room, expected)))
    return float(np.median(slow) / np.median(fast))


def _array_call_seconds(n: int) -> float:
    """Seconds of one ``numpy.maximum`` of n numbers: a tick of a row is mostly such calls."""
    numbers = np.linspace(0.0, 1.0, n)

    def many() -> None:
        for _ in range(_CALLS):
            np.maximum(numbers, 0.5)

    return _timed(many) / _CALLS


def run(options: Options) -> Result:
    """Measure; ``--quick`` repeats less, at the same size."""
    rng = np.random.default_rng(options.seed)
    given = given_scenario(NAME, options, READS)
    kind = SiteKind() if given is None else SiteKind.of(given)
    topology = synthetic_topology(kind.nodes_for(_SITE_GPUS), rng, kind)
    count = 40 if options.quick else 300
    options.progress(f"{topology.n_gpus} GPUs, {topology.n_domains} domains, {count} states")
    allocations = time_allocations(topology, count, rng)
    options.progress(f"allocation p99 {np.quantile(allocations, 0.99):.4f} s; now whole ticks")
    steps = time_steps(topology, count, rng, kind.settings)
    ratio = loop_ratio(rng, 2 if options.quick else 7, kind)
    row = synthetic_topology(len(kind.limits), rng, kind)
    row_step = float(np.median(time_steps(row, count, rng, kind.settings)))
    options.progress("40,000 GPUs")
    large = synthetic_topology(kind.nodes_for(_LARGE_SITE_GPUS), rng, kind)
    large_allocations = time_allocations(large, 10 if options.quick else 100, rng)
    figures: dict[str, float | int | str] = {
        "breaker_curves": BREAKER_CURVES,
        "gpus": topology.n_gpus,
        "domains": topology.n_domains,
        "levels": int(topology.tree.depths().max()) + 1,
        "classes": int(np.unique(topology.priority).size),
        "states": count,
        "allocation_seconds_p50": float(np.quantile(allocations, 0.5)),
        "allocation_seconds_p99": float(np.quantile(allocations, 0.99)),
        "allocation_seconds_max": float(np.max(allocations)),
        "step_seconds_p50": float(np.quantile(steps, 0.5)),
        "step_seconds_p99": float(np.quantile(steps, 0.99)),
        "step_seconds_max": float(np.max(steps)),
        "row_gpus": row.n_gpus,
        "row_step_seconds_p50": row_step,
        "row_step_array_calls": row_step / _array_call_seconds(row.n_gpus),
        "loop_over_vectorised_ratio_1000_gpus": ratio,
        "large_gpus": large.n_gpus,
        "large_domains": large.n_domains,
        "large_allocation_seconds_p50": float(np.quantile(large_allocations, 0.5)),
        "large_allocation_seconds_p99": float(np.quantile(large_allocations, 0.99)),
    }
    return Result(figures | ({} if given is None else given.figures()), TARGETS)
