"""Random houses and work on their boards, for judges: nested objects and nothing of the product.

Trees of one to five levels, one or two roots, servers also at inner breakers, mixed GPU types, each
redundancy, curves by formula and by points, losses, imbalance, external loads, subtrees that only
watch, servers without a host unit; classes of work, gangs across domains, boards with several
tenants.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks._power_house import Board, Domain, House, Server, Trip

# The two published fits that a domain can name, at 80 % of the quoted times.
RACK_TRIP = Trip(0.8 * 55.6, 1.864)
SWITCHBOARD_TRIP = Trip(0.8 * 30.3, 0.605)

# Lowest and default limit and knee of three types, watts, as their drivers and profiles give them.
GPU_TYPES = {
    "H200-SXM": (200.0, 700.0, 410.0),
    "A100-SXM": (100.0, 400.0, 235.0),
    "L40S": (100.0, 350.0, 205.0),
}


@dataclass(frozen=True)
class WorkClass:
    """What the operator says of a class of work; shares are of the default limit.

    Attributes:
        floor_share: None for the knee of the GPU type.
    """

    name: str
    priority: int
    floor_share: float | None
    request_share: float


@dataclass(frozen=True)
class Work:
    """One pod.

    Attributes:
        boards: Numbers of its boards.
        gang: Name of its gang, empty for none; the boards of one pod are a gang by themselves.
    """

    name: str
    work_class: WorkClass
    boards: tuple[int, ...]
    gang: str = ""


@dataclass
class Owed:
    """What the classes owe each board, watts by board.

    Attributes:
        gangs: Numbers of the boards that belong together.
    """

    priority: list[int]
    floor: list[float]
    request: list[float]
    gangs: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HouseRanges:
    """What houses and their work are drawn from.

    Attributes:
        types: Lowest and default limit and knee of each GPU type, watts.
        boards: Of a server, one of these.
        host_watts: A server without GPUs at worst, from and to.
        external_watts: On a domain that has any, from and to.
        redundancies: Modes, one of these.
        feeds: All and required ones of a domain with KofN; None draws them.
        classes: Of work; None draws up to six.
    """

    types: Mapping[str, tuple[float, float, float]] = field(default_factory=lambda: GPU_TYPES)
    boards: Sequence[int] = (1, 2, 4, 4, 8)
    host_watts: tuple[float, float] = (300.0, 2500.0)
    external_watts: tuple[float, float] = (100.0, 2000.0)
    redundancies: Sequence[str] = ("None", "None", "2N", "KofN")
    feeds: tuple[int, int] | None = None
    classes: Sequence[WorkClass] = ()


ANY: Final = HouseRanges()


def random_house(rng: random.Random, ranges: HouseRanges = ANY, *, may_watch: bool = True) -> House:
    """A house whose ratings leave room for little more than I1, or for less."""
    more = [rng.randint(2, 9)]
    roots = rng.choice([1, 1, 1, 2])
    house = House([_grown(rng, ranges, rng.randint(1, 5), more) for _ in range(roots)])
    level, number = house.roots, 0
    while level:
        for domain in level:
            domain.number, number = number, number + 1
        level = [child for domain in level for child in domain.children]
    _people(rng, ranges, house)
    if may_watch and rng.random() < 0.2:
        for domain in rng.choice(house.domains).walk():
            domain.enforces = False
    for domain in house.domains:
        _rate(rng, domain, house)
    return house


def _grown(rng: random.Random, ranges: HouseRanges, levels: int, more: list[int]) -> Domain:
    """A domain with what it feeds; ``more`` is how many more domains there may be."""
    more[0] -= 1
    domain = Domain(
        number=-1,
        imbalance=rng.choice([1.0, 1.0, rng.uniform(1.0, 1.2)]),
        own_efficiency=rng.uniform(0.85, 0.98),
        external_watts=rng.choice([0.0, 0.0, rng.uniform(*ranges.external_watts)]),
        trip=_random_trip(rng),
    )
    domain.redundancy = rng.choice(ranges.redundancies)
    if domain.redundancy == "KofN" and ranges.feeds is not None:
        domain.feeds, domain.required_feeds = ranges.feeds
    elif domain.redundancy == "KofN":
        domain.feeds = rng.randint(2, 5)
        domain.required_feeds = rng.randint(1, domain.feeds - 1)
    while levels > 1 and more[0] > 0 and len(domain.children) < rng.randint(1, 3):
        domain.children.append(_grown(rng, ranges, levels - 1, more))
    return domain


def _random_trip(rng: random.Random) -> Trip:
    if rng.random() < 0.6:
        return rng.choice([RACK_TRIP, SWITCHBOARD_TRIP])
    ratios = sorted(rng.uniform(1.05, 3.0) for _ in range(rng.randint(1, 4)))
    seconds = sorted((rng.uniform(5.0, 2000.0) for _ in ratios), reverse=True)
    return Trip(
        points=tuple(zip(ratios, seconds, strict=True)),
        cold=rng.random() < 0.5,
        pickup_ratio=rng.uniform(1.3, 5.0),
    )


def _people(rng: random.Random, ranges: HouseRanges, house: House) -> None:
    """Servers at every leaf and at some inner breakers, boards in them."""
    servers = boards = 0
    for domain in house.domains:
        # Declared once a domain, for each of its servers.
        host_watts = rng.uniform(*ranges.host_watts)
        few = 0 if domain.children and rng.random() < 0.8 else rng.randint(1, 4)
        for _ in range(few):
            model = rng.choice(list(ranges.types))
            minimum, default, _ = ranges.types[model]
            size = rng.choice(ranges.boards)
            mine = [Board(boards + i, default, minimum, model) for i in range(size)]
            domain.servers.append(Server(servers, mine, host_watts, rng.random() < 0.9))
            servers, boards = servers + 1, boards + size


def _rate(rng: random.Random, domain: Domain, house: House) -> None:
    """A rating between a little less than I1 needs at the hardware minimum and all at default."""
    most = domain.worst([board.default for board in house.boards])
    least = domain.floor_case([board.minimum for board in house.boards])
    wanted = max(most / rng.uniform(0.95, 1.7), least * rng.choice([1.002, 1.05, 0.9, 1.2]))
    domain.feed_watts = 1.0
    domain.feed_watts = wanted / domain.rating_watts


def _random_classes(rng: random.Random) -> list[WorkClass]:
    """Up to six."""
    priorities = rng.sample(range(-50, 200, 10), rng.randint(1, 6))
    found = []
    for i, priority in enumerate(priorities):
        floor, request = round(rng.uniform(0.3, 0.9), 3), round(rng.uniform(0.7, 1.0), 3)
        # A policy with a floor above its request is refused.
        found.append(WorkClass(f"class-{i}", priority, min(floor, request), request))
    return found


def random_work(rng: random.Random, house: House, ranges: HouseRanges = ANY) -> list[Work]:
    """Pods of some classes; some in gangs, some on boards that have a tenant already."""
    classes = ranges.classes or _random_classes(rng)
    free = [board.number for board in house.boards]
    rng.shuffle(free)
    works: list[Work] = []
    while free and rng.random() < 0.95:
        size = rng.choice([1, 1, 2, 4])
        mine, free = free[:size], free[size:]
        gang = rng.choice(["", "", "ring", "tree"])
        works.append(Work(f"pod-{len(works)}", rng.choice(classes), tuple(mine), gang))
    for _ in range(rng.choice([0, 0, 1, 2])):
        few = rng.sample(range(len(house.boards)), min(rng.choice([1, 2]), len(house.boards)))
        works.append(Work(f"pod-{len(works)}", rng.choice(classes), tuple(few)))
    return works


def owed(house: House, works: Sequence[Work], ranges: HouseRanges = ANY) -> Owed:
    """Every board's class, floor and request: its highest tenant's; a gang's its highest member's.

    Boards without work have the lowest priority that any class names, 0 at most, and their knee.
    """
    lowest = min([0, *(work.work_class.priority for work in works)])
    due = Owed(
        [lowest for _ in house.boards],
        [ranges.types[board.model][2] for board in house.boards],
        [board.default for board in house.boards],
    )
    for work in sorted(works, key=lambda work: work.work_class.priority):
        for number in work.boards:
            board, spoken = house.boards[number], work.work_class
            due.priority[number] = spoken.priority
            due.request[number] = max(spoken.request_share * board.default, board.minimum)
            floor = ranges.types[board.model][2]
            if spoken.floor_share is not None:
                floor = spoken.floor_share * board.default
            due.floor[number] = min(max(floor, board.minimum), due.request[number])
    due.gangs = _gangs(works)
    for gang in due.gangs:
        highest = max(due.priority[number] for number in gang)
        for number in gang:
            due.priority[number] = highest
    return due


def _gangs(works: Sequence[Work]) -> list[list[int]]:
    """Boards of one pod, and of pods of one gang and class, are one; a shared board joins two."""
    gangs: dict[tuple[str, ...], set[int]] = {}
    for work in works:
        key = (work.gang, work.work_class.name) if work.gang else ("", "", work.name)
        if work.gang or len(work.boards) > 1:
            gangs.setdefault(key, set()).update(work.boards)
    joined: list[set[int]] = []
    for gang in gangs.values():
        touching = [other for other in joined if other & gang]
        joined = [other for other in joined if not other & gang]
        joined.append(gang.union(*touching))
    return [sorted(gang) for gang in joined]
