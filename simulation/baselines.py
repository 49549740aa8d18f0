"""What the same site does without wattpack: two plain rows on the same twin, same arrivals.

    unshared     only as many servers as the breaker was sized for, every GPU at its default limit
    static caps  all servers, every GPU at one share of its default limit for good, so that the
                 breakers carry everything at its cap at once

Pods are placed first by class and then by age, on the server with the least room that has enough;
gangs whole or not at all. CPU and memory are not counted, which favours these rows. Scripted faults
are left out. Breakers count their trips and carry on, so that a row that trips is seen to the end.
Clients of an inference row and jobs of a training fleet are as many as its servers make them: there
the smaller row is asked for less (``grows_with_servers``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simulation.placed import IDLE
from simulation.pod_work import Work
from simulation.results import (
    Comparison,
    plant_figures,
    pods_placed,
    ran_seconds,
    tokens,
    work_gpu_seconds,
)
from simulation.scenario import Scenario
from simulation.world import World
from wattpack.power.domain_tree import OVERSHOOT_RATIO
from wattpack.units import seconds_to_ns

Floats = NDArray[np.float64]


def figures_of(world: World, limit_watts: float) -> Comparison:
    """The figures of a world after a run."""
    plant = plant_figures(world)
    return Comparison(
        servers=len(world.node_names),
        limit_watts=round(limit_watts, 1),
        tokens_served=sum(tokens(world).values()),
        job_gpu_seconds=round(sum(work_gpu_seconds(world).values()), 1),
        energy_joules=plant["energy_joules"],
        peak_draw_ratio=plant["peak_draw_ratio"],
        trips=plant["trips"],
        pods_placed=pods_placed(world.record),
    )


def compare(scenario: Scenario, world: World) -> dict[str, Comparison]:
    """Wattpack's run beside the two plain rows over the same time.

    Args:
        scenario: Of all three.
        world: After wattpack's run.
    """
    seconds = ran_seconds(world)
    if seconds <= scenario.warmup_seconds:
        return {}
    default = float(world.bank.default_limit_watts.mean())
    return {
        "wattpack": figures_of(world, default),
        "unshared": run_plain(unshared(scenario), seconds, lambda w: w.bank.default_limit_watts),
        "static_caps": run_plain(scenario, seconds, static_limit_watts),
    }


def grows_with_servers(scenario: Scenario) -> bool:
    """Whether a row of fewer servers is asked for less, so that ``unshared`` has other arrivals."""
    return scenario.inference_row is not None or scenario.training_fleet is not None


def unshared(scenario: Scenario) -> Scenario:
    """The row with only the servers that its breaker was sized for, in the same mix of types."""
    row = scenario.row
    wanted = max(1, min(row.servers, int(row.rated_servers)))
    shares = [group.count * wanted / row.servers for group in row.groups]
    counts = [int(share) for share in shares]
    rest = sorted(range(len(counts)), key=lambda i: counts[i] - shares[i])
    for i in rest[: wanted - sum(counts)]:
        counts[i] += 1
    groups = tuple(
        group.model_copy(update={"count": count})
        for group, count in zip(row.groups, counts, strict=True)
        if count
    )
    smaller = row.model_copy(update={"groups": groups, "racks": min(row.racks, wanted)})
    return scenario.model_copy(update={"row": smaller, "faults": ()})


def static_limit_watts(world: World) -> Floats:
    """One share of every default limit at which no breaker can be exceeded, (n_gpus,)."""
    scenario, bank = world.scenario, world.bank
    plant, rack = scenario.plant, world.rack_of_node[world.node_of_gpu]
    racks = scenario.row.racks
    servers = np.bincount(world.rack_of_node, minlength=racks).astype(np.float64)
    fixed = servers * plant.worst_host_watts / plant.supply_efficiency
    boards: Floats = np.bincount(rack, bank.default_limit_watts, racks).astype(np.float64)
    full = boards * OVERSHOOT_RATIO / plant.supply_efficiency
    row_room = scenario.row_rating_watts - scenario.row.external_watts - float(fixed.sum())
    rack_room = scenario.rack_rating_watts - fixed
    share = min(1.0, row_room / float(full.sum()), float((rack_room / full).min()))
    limits: Floats = np.maximum(bank.min_limit_watts, share * bank.default_limit_watts)
    return limits


def run_plain(scenario: Scenario, seconds: float, limits: Callable[[World], Floats]) -> Comparison:
    """A row without wattpack, for so long."""
    world = World(scenario.model_copy(update={"faults": ()}), ignore_trips=True)
    caps = limits(world)
    world.bank.set_limits(caps)
    priority = {c.name: c.value for c in scenario.priority_classes}
    waiting: list[Work] = []
    for second in range(int(seconds) + 1):
        now_ns = seconds_to_ns(float(second))
        world.advance(now_ns)
        if second == int(scenario.warmup_seconds):
            world.reset_accounts()
        done = world.take_finished()
        for name in done:
            world.stop(name)
        came = world.due(now_ns)
        if came or done:
            waiting = sorted([*waiting, *came], key=lambda work: -priority[work.priority_class])
            waiting = _place(world, waiting)
    return figures_of(world, float(caps.mean()))


def _place(world: World, waiting: list[Work]) -> list[Work]:
    """Start what fits; what does not, in the order in which it waits."""
    node_of_gpu = world.node_of_gpu
    idle = (world.assignment.kind == IDLE).astype(np.float64)
    free: Floats = np.bincount(node_of_gpu, idle, len(world.node_names)).astype(np.float64)
    left: list[Work] = []
    units: dict[str, list[Work]] = {}
    for work in waiting:
        units.setdefault(work.gang or work.name, []).append(work)
    for members in units.values():
        nodes = _nodes_for(free, members)
        if nodes is None:
            left.extend(members)
            continue
        for work, node in zip(members, nodes, strict=True):
            world.start(work, node, world.assignment.choose(work, node))
            free[node] -= work.gpus
    return left


def _nodes_for(free: Floats, members: list[Work]) -> list[int] | None:
    """The fullest server with room for each member, or None if they do not all fit."""
    room, nodes = free.copy(), []
    for work in members:
        fits = np.flatnonzero(room >= work.gpus)
        if not fits.size:
            return None
        node = int(fits[np.argmin(room[fits])])
        room[node] -= work.gpus
        nodes.append(node)
    return nodes
