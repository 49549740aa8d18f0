"""I5 and the order of allocation (docs/architecture.md, 4 and 5), judged in plain loops.

Caps are right if, as far as full breakers allow,

    guaranteed caps first, floors next, then classes from the most to the least important, slack

so whoever is short of a goal has a full breaker above it below which nobody is favoured. Boards of
one gang rise together: a gang is short with good reason if one of its members is. Which breaker is
full is worked out here from the caps, never taken from what is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from benchmarks._power_house import Domain, House

__all__ = ["Due", "Limits", "Violation", "judged", "judged_between", "unfair_pairs"]

# Boards take whole watts.
ROUNDING_WATTS = 1.5


@dataclass(frozen=True)
class Violation:
    """What is wrong with which board, in which domain, for whose sake; -1 where none is to blame.

    Attributes:
        kind: ``order``, ``floor``, ``guaranteed``, ``slack``, ``gang``, ``jump``, ``load``,
            ``range`` or ``idle_room`` (short below no full breaker).
    """

    kind: str
    board: int = -1
    domain: int = -1
    favoured: int = -1


@dataclass
class Due:
    """What each board is owed at this moment, watts by board.

    Attributes:
        active: Boards whose caps are decided; the others take no part.
        most: Highest cap: the default limit, or a manual cap.
        gangs: Numbers of the boards that belong together.
    """

    active: list[bool]
    guaranteed: list[float]
    floor: list[float]
    request: list[float]
    most: list[float]
    priority: list[int]
    gangs: list[list[int]]

    def even(self, house: House) -> None:
        """Like boards of a gang are owed the least that one of them is: they get one cap."""
        for alike in self.alike(house):
            for goals in (self.guaranteed, self.floor, self.request, self.most):
                lowest = min(goals[number] for number in alike)
                for number in alike:
                    goals[number] = lowest

    def alike(self, house: House) -> Iterator[list[int]]:
        """Active boards of one type in one gang."""
        for gang in self.gangs:
            for model in {house.boards[number].model for number in gang}:
                alike = [n for n in gang if self.active[n] and house.boards[n].model == model]
                if len(alike) > 1:
                    yield alike


@dataclass
class Limits:
    """What the domains must keep to, AC watts by domain.

    Attributes:
        jump: The most that everything at its cap may come to (I2).
        load: The most that is expected to be drawn; infinite for a calm domain.
        rest: Drawn now beside the boards.
        expected: Draw expected of each board at an open cap, by board.
        idle_worst: What a board that takes no part counts in the jump, by board.
        idle_drawn: The same in the load, by board.
    """

    jump: list[float]
    load: list[float]
    rest: list[float]
    expected: list[float]
    idle_worst: list[float]
    idle_drawn: list[float]


@dataclass
class _Case:
    house: House
    due: Due
    limits: Limits
    caps: Sequence[float]
    found: list[Violation] = field(default_factory=list)
    known_full: Sequence[bool] | None = None

    @cached_property
    def full(self) -> Sequence[bool]:
        """Domains that cannot bear a watt more on each of their active boards."""
        if self.known_full is not None:
            return self.known_full
        return [self._is_full(domain) for domain in self.house.domains]

    def _is_full(self, domain: Domain) -> bool:
        active = [b for b in domain.all_boards if self.due.active[b.number]]
        if not active:
            return False
        rounding = domain.at_breaker(ROUNDING_WATTS * len(active))
        return (
            self.jump(domain) >= self.limits.jump[domain.number] - rounding
            or self.load(domain) >= self.limits.load[domain.number] - rounding
        )

    def jump(self, domain: Domain) -> float:
        """AC watts with everything at its cap."""
        caps, idle = self.caps, self.limits.idle_worst
        counted = [
            caps[b.number] if self.due.active[b.number] else idle[b.number]
            for b in domain.all_boards
        ]
        return domain.at_breaker(sum(counted)) + domain.hosts + domain.external

    def load(self, domain: Domain) -> float:
        """AC watts that are expected at these caps."""
        caps, limits = self.caps, self.limits
        counted = [
            min(caps[b.number], limits.expected[b.number])
            if self.due.active[b.number]
            else limits.idle_drawn[b.number]
            for b in domain.all_boards
        ]
        return domain.at_breaker(sum(counted)) + limits.rest[domain.number]

    @cached_property
    def units(self) -> list[list[int]]:
        """Active boards that rise together."""
        in_gangs = {number for gang in self.due.gangs for number in gang}
        units = [[n for n in gang if self.due.active[n]] for gang in self.due.gangs]
        numbers = range(len(self.caps))
        units += [[n] for n in numbers if self.due.active[n] and n not in in_gangs]
        return [unit for unit in units if unit]

    def holder(self, number: int) -> Domain | None:
        """The full breaker nearest above a board, or that a mate of its gang waits for."""
        above = self.house.paths[number]
        return next((domain for domain in above if self.full[domain.number]), None)


def judged(house: House, due: Due, limits: Limits, caps: Sequence[float]) -> list[Violation]:
    """Everything that is wrong with decided caps, watts by board; ``due`` is evened by gangs."""
    due.even(house)
    case = _Case(house, due, limits, caps)
    _judge_ranges(case)
    _judge_gangs(case)
    _judge_limits(case)
    _judge_goal(case, "guaranteed", due.guaranteed, due.guaranteed, _anybody)
    _judge_goal(case, "floor", due.floor, due.floor, _anybody)
    _judge_goal(case, "order", due.request, due.floor, _lesser(due))
    _judge_goal(case, "slack", due.request, due.request, _anybody)
    return case.found


def judged_between(
    house: House, due: Due, caps: Sequence[float], full: Sequence[bool]
) -> list[Violation]:
    """The same where limits are not known to the watt, only which domains may be full.

    Args:
        house: The breakers.
        due: Evened by gangs.
        caps: Decided watts, by board.
        full: By domain, worked out by whoever judges. One that is called full and is not hides a
            violation; one that is full and not called so makes one up.
    """
    due.even(house)
    nothing = Limits([], [], [], [], [], [])
    case = _Case(house, due, nothing, caps, known_full=full)
    _judge_ranges(case)
    _judge_gangs(case)
    _judge_goal(case, "floor", due.floor, due.floor, _anybody)
    _judge_goal(case, "order", due.request, due.floor, _lesser(due))
    return case.found


def unfair_pairs(
    house: House, due: Due, caps: Sequence[float], full: Sequence[bool]
) -> list[tuple[int, int]]:
    """I5: (held back, favoured) boards, the less important above its floor.

    A watt moved from the one to the other would pass no full breaker. Whom no full breaker holds
    back is short for no reason, and everybody less important in the same tree is favoured.
    """
    pairs = []
    for found in judged_between(house, due, caps, full):
        if found.kind == "order":
            pairs.append((found.board, found.favoured))
        elif found.kind == "idle_room":
            root = house.paths[found.board][-1].all_boards
            pairs += [
                (found.board, other.number)
                for other in root
                if due.active[other.number]
                and due.priority[other.number] < due.priority[found.board]
                and caps[other.number] > due.floor[other.number] + ROUNDING_WATTS
            ]
    return pairs


def _anybody(short: int, other: int) -> bool:
    return short != other


def _lesser(due: Due) -> Callable[[int, int], bool]:
    return lambda short, other: due.priority[other] < due.priority[short]


def _judge_ranges(case: _Case) -> None:
    for board in case.house.boards:
        most = max(case.due.most[board.number], board.minimum)
        if not board.minimum - 1e-6 <= case.caps[board.number] <= most + 1e-6:
            case.found.append(Violation("range", board.number))


def _judge_gangs(case: _Case) -> None:
    for alike in case.due.alike(case.house):
        caps = [case.caps[number] for number in alike]
        if max(caps) - min(caps) > 1e-6:
            case.found.append(Violation("gang", alike[0]))


def _judge_limits(case: _Case) -> None:
    """Over a limit only where every active board below is at its hardware minimum."""
    for domain in case.house.domains:
        above = [
            board.number
            for board in domain.all_boards
            if case.due.active[board.number] and case.caps[board.number] > board.minimum + 1e-6
        ]
        if not above:
            continue
        if case.jump(domain) > case.limits.jump[domain.number] + 1e-3:
            case.found.append(Violation("jump", above[0], domain.number))
        if case.load(domain) > case.limits.load[domain.number] + 1e-3:
            case.found.append(Violation("load", above[0], domain.number))


def _judge_goal(
    case: _Case,
    kind: str,
    goals: Sequence[float],
    ceilings: Sequence[float],
    favours: Callable[[int, int], bool],
) -> None:
    """Nobody is short of a goal while somebody below its full breaker is above a ceiling."""
    for unit in case.units:
        if all(case.caps[n] >= goals[n] - ROUNDING_WATTS for n in unit):
            continue
        # The whole gang waits for the member that lacks least, too.
        short = [n for n in unit if case.caps[n] < goals[n] - 1e-6]
        holders = [(n, case.holder(n)) for n in short]
        if all(domain is None for _, domain in holders):
            case.found.append(Violation("idle_room", short[0]))
            continue
        blamed = [_favoured(case, n, d, unit, ceilings, favours) for n, d in holders if d]
        if all(blamed):
            case.found.append(Violation(kind, *blamed[0]))


def _favoured(
    case: _Case,
    short: int,
    domain: Domain,
    unit: Sequence[int],
    ceilings: Sequence[float],
    favours: Callable[[int, int], bool],
) -> tuple[int, ...]:
    """A board below the domain that has what the short one lacks; empty if there is none."""
    for board in domain.all_boards:
        other = board.number
        if other in unit or not case.due.active[other] or not favours(short, other):
            continue
        if case.caps[other] > ceilings[other] + ROUNDING_WATTS:
            return short, domain.number, other
    return ()
