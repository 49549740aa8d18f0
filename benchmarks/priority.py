"""I5 on random houses: order, floors and gangs of decided caps, judged by plain loops.

Trees of one to five levels with mixed GPU types, redundancy, losses, imbalance, points and formulas
as trip curves, subtrees that only watch; classes, gangs across racks, boards with several tenants.
Two kinds of cases:

- *moments*: one decision at random heat, demand, budgets, manual caps, silent and doubtful boards.
  Which breakers are full is worked out by the judge, and so is everything else.
- *ticks* of the whole controller in a loop that loses reports and batches, changes demand and
  budgets: order and floors below the domain that the controller names, gangs, survivable jump.

The judge (``_order_judge``, ``_power_house``) shares no code with what it judges. A scenario file
narrows what houses are drawn from: its GPU types, boards of a server, redundancy, external loads,
hosts, classes and lease; trees and demands stay random.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from benchmarks._given_scenario import USAGE as GIVEN_USAGE
from benchmarks._given_scenario import Given, given_scenario
from benchmarks._house_objects import topology_of
from benchmarks._order_cases import decided_caps, random_moment
from benchmarks._order_judge import Violation, judged
from benchmarks._order_ticks import run_ticks
from benchmarks._power_house import House
from benchmarks._random_houses import (
    ANY,
    HouseRanges,
    Owed,
    WorkClass,
    owed,
    random_house,
    random_work,
)
from benchmarks.runner import (
    OneCase,
    Options,
    Result,
    Row,
    Rows,
    Target,
    finished_rows,
)
from controller.tick_values import PowerSettings, Topology
from wattpack.power.feasibility import LoadTree

NAME = "priority"
SUMMARY = "I5 in random trees, classes and gangs: order, floors, gangs, judged by plain loops"
TAKES_ARGUMENTS = True
USAGE: Final = GIVEN_USAGE
TAKES_SCHEDULER = True

SHARDS: Final = 100
HOUSES: Final = 50
MOMENTS: Final = 20
RUNS: Final = 4
TICKS: Final = 20
KINDS: Final = (
    "order", "floor", "guaranteed", "gang", "jump", "load", "range", "slack", "idle_room",
)  # fmt: skip
READS: Final = (
    "row.groups", "row.gpus_per_server", "row.external_watts", "row.redundancy", "row.feeds",
    "row.required_feeds", "priority_classes[].name", "priority_classes[].value",
    "priority_classes[].floor_ratio", "control.lease_ttl_ms", "plant.host_base_watts",
    "plant.fan_range_watts", "plant.host_burst_watts",
)  # fmt: skip


BREAKER_CURVES: Final = "random: RackThermal, SwitchboardThermal, Points"
"""Of each breaker, as ``_random_houses`` draws it."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What cases are drawn from.

    Attributes:
        ranges: Of houses and work.
        settings: The controller's.
    """

    ranges: HouseRanges = ANY
    settings: PowerSettings = field(default_factory=PowerSettings)

    @classmethod
    def of(cls, given: Given) -> Drawn:
        """As somebody's row has it."""
        row, plant = given.scenario.row, given.scenario.plant
        types = {
            one.model: (one.min_limit_watts, one.default_limit_watts, one.knee_watts)
            for one in given.profiles()
        }
        base, worst = plant.host_base_watts, plant.worst_host_watts
        hosts = (base / plant.supply_efficiency, worst / plant.supply_efficiency)
        external = (row.external_watts, row.external_watts)
        feeds = (row.feeds, row.required_feeds) if row.redundancy == "KofN" else None
        classes = [
            WorkClass(one.name, one.value, one.floor_ratio, 1.0)
            for one in given.scenario.priority_classes
        ]
        ranges = HouseRanges(
            types, (row.gpus_per_server,), hosts, external, (row.redundancy,), feeds, classes
        )
        return cls(ranges, PowerSettings(lease_ttl_ms=given.scenario.control.lease_ttl_ms))


def one_shard(
    seed: int, number: int, houses: int = HOUSES, runs: int = RUNS, drawn: Drawn | None = None
) -> Row:
    """Counts of 1,000 moments and 80 ticks; every shard has houses of its own."""
    drawn = drawn or Drawn()
    ranges = drawn.ranges
    rng = random.Random(f"{seed}/{number}")
    seen: Counter[str] = Counter()
    first: list[str] = []
    for house_number in range(houses):
        house = random_house(rng, ranges)
        works = random_work(rng, house, ranges)
        topology, due = topology_of(house, works), owed(house, works, ranges)
        seen["houses"] += 1
        seen["domains"] += len(house.domains)
        seen["gpus"] += len(house.boards)
        for _ in range(MOMENTS):
            found = _moment(rng, house, topology, due, seen, drawn.settings)
            first += _named(found, f"moment of house {house_number} of shard {number}")
        if house_number < runs:
            for found in run_ticks(rng, house, topology, due, TICKS, drawn.settings):
                _count(seen, "ticks", found)
                first += _named(found, f"tick of house {house_number} of shard {number}")
    return {"counts": dict(seen), "first": first[:3]}


def _moment(
    rng: random.Random,
    house: House,
    topology: Topology,
    due: Owed,
    seen: Counter[str],
    settings: PowerSettings,
) -> list[Violation]:
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    guaranteed = topology.guaranteed_watts.tolist()
    moment = random_moment(rng, house, due, guaranteed, settings.fault_seconds)
    caps = decided_caps(topology, load, moment)
    found = judged(house, moment.due, moment.limits, caps)
    _count(seen, "moments", found)
    for name, goals in (("capped", moment.due.request), ("below_floor", moment.due.floor)):
        short = [a and c < g - 1.5 for a, c, g in zip(moment.due.active, caps, goals, strict=True)]
        seen[name] += any(short)
    return found


def _count(seen: Counter[str], what: str, found: list[Violation]) -> None:
    seen[what] += 1
    for kind in {violation.kind for violation in found}:
        seen[kind] += 1


def _named(found: list[Violation], where: str) -> Iterator[str]:
    for violation in found[:1]:
        yield f"{violation} in a {where}"


def run(options: Options) -> Result:
    """Count; ``--quick`` is one small shard."""
    began = time.perf_counter()
    given = given_scenario(NAME, options, READS)
    drawn = Drawn() if given is None else Drawn.of(given)
    rows: Rows
    if options.quick:
        rows = [one_shard(options.seed, 0, houses=30, runs=10, drawn=drawn)]
    else:
        kind = NAME if given is None else given.kind(NAME)
        rows = finished_rows(options, kind, _shard_told(options, drawn), SHARDS)
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row["counts"])
    for line in [line for row in rows for line in row["first"]][:10]:
        options.progress(line)
    figures = {} if given is None else given.figures()
    figures |= _figures(total, time.perf_counter() - began)
    return Result(figures, _targets(options))


def _shard_told(options: Options, drawn: Drawn) -> OneCase:
    def shard(seed: int, number: int) -> Row:
        if number % 10 == 0:
            options.progress(f"shard {number} of {SHARDS}")
        return one_shard(seed, number, drawn=drawn)

    return shard


def _figures(total: Counter[str], seconds: float) -> dict[str, float | int | str]:
    houses = max(total["houses"], 1)
    figures: dict[str, float | int | str] = {
        "breaker_curves": BREAKER_CURVES,
        "cases": total["moments"] + total["ticks"],
        "moments": total["moments"],
        "ticks": total["ticks"],
        "houses": total["houses"],
        "domains_per_house": total["domains"] / houses,
        "gpus_per_house": total["gpus"] / houses,
        "moments_capped_ratio": total["capped"] / max(total["moments"], 1),
        "moments_below_floor_ratio": total["below_floor"] / max(total["moments"], 1),
    }
    return figures | {f"{kind}_violations": total[kind] for kind in KINDS} | {"seconds": seconds}


def _targets(options: Options) -> dict[str, Target]:
    targets = {f"{kind}_violations": Target(at_most=0) for kind in KINDS}
    return targets if options.quick else {**targets, "cases": Target(at_least=100_000)}
