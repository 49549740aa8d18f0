"""What changes back and forth is told a few times a minute, then once with a count.

    Brake Capping Brake Capping Brake Capping . . . . . . . . . Brake (9 changes in 41 s)
    |------- each told at once, three of a kind a minute ------| as soon as a minute has room

The newest change of a subject is what is told in the end, so the last line is always the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.tick_values import Transition
from wattpack.units import NS_PER_SECOND

__all__ = ["MOST_IN_A_MINUTE", "Held", "PacedLines", "paced"]

MOST_IN_A_MINUTE = 3
"""Lines of one kind and subject: nobody reads the same line more often."""

_MINUTE_NS = 60 * NS_PER_SECOND
_Subject = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Held:
    """Changes of one subject that were not told yet.

    Attributes:
        newest: The last of them.
        count: How many.
        since_ns: When the first came.
    """

    newest: Transition
    count: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class PacedLines:
    """What was told in the last minute, and what waits.

    Attributes:
        told_ns: When each kind of line was told, by domain, subject and kind.
        held: By domain and subject.
    """

    told_ns: Mapping[tuple[str, str, str], tuple[int, ...]] = field(default_factory=dict)
    held: Mapping[_Subject, Held] = field(default_factory=dict)


def paced(
    before: PacedLines, changes: Iterable[Transition], now_ns: int
) -> tuple[PacedLines, tuple[Transition, ...]]:
    """The memory after these changes, and the lines to tell now.

    Args:
        before: After the last call.
        changes: Of now, in their order.
        now_ns: Monotonic, not before the last call.
    """
    told = {
        key: kept
        for key, times in before.told_ns.items()
        if (kept := tuple(t for t in times if now_ns - t < _MINUTE_NS))
    }
    held, lines = dict(before.held), list[Transition]()

    def tell(line: Transition) -> None:
        lines.append(line)
        key = (line.domain, line.subject, line.kind)
        told[key] = (*told.get(key, ()), now_ns)

    def has_room(change: Transition) -> bool:
        times = told.get((change.domain, change.subject, change.kind), ())
        return len(times) < MOST_IN_A_MINUTE

    for change in changes:
        subject = (change.domain, change.subject)
        waits = held.get(subject)
        if waits is not None:
            held[subject] = Held(change, waits.count + 1, waits.since_ns)
        elif has_room(change):
            tell(change)
        else:
            held[subject] = Held(change, 1, now_ns)
    for subject, waits in tuple(held.items()):
        if has_room(waits.newest):
            tell(_summed(waits, now_ns))
            del held[subject]
    return PacedLines(told, held), tuple(lines)


def _summed(held: Held, now_ns: int) -> Transition:
    """The newest of the changes, with their count."""
    seconds = (now_ns - held.since_ns) / NS_PER_SECOND
    changes = "1 change" if held.count == 1 else f"{held.count} changes"
    message = f"{held.newest.message} ({changes} in {seconds:.0f} s, told in one line)"
    return replace(held.newest, message=message)
