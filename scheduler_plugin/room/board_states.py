"""One board's state as an integer, what parts of boards do to it, and the search for places.

A state is what is left of an uncut board in thousandths, 1000 for an idle one; or, of a board that
is cut into MIG instances, ``CUT - taken`` with the bits of its taken slices. A part is a size in
thousandths (1000 is a whole board) or the name of a MIG profile. Its place is the number of the
board, or ``place_of(board, start)`` for an instance.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence, Sequence
from typing import Final

from scheduler_plugin.documents.mig_geometry import MigGeometry, best_start, free_starts
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU

__all__ = [
    "CUT",
    "NO_BOARD",
    "Boards",
    "Part",
    "board_of",
    "packed",
    "place_of",
    "put_part",
    "room_at",
    "start_of",
    "take_part",
    "taken_slices",
]

Boards = tuple[int, ...]
Part = int | str

NO_BOARD: Final = -(2**40)
CUT: Final = -(2**30)
"""Further from zero than any board is overbooked."""

PACKING_LOOKS: Final = 20_000
"""Of the search for another arrangement of one node: about 50 ms; then none counts as found."""

_STARTS: Final = 16


def place_of(board: int, start: int) -> int:
    """Of a MIG instance."""
    return board * _STARTS + start


def board_of(part: Part, place: int) -> int:
    """The board of a place."""
    return place if isinstance(part, int) else place // _STARTS


def start_of(place: int) -> int:
    """The first memory slice of a MIG instance's place."""
    return place % _STARTS


def taken_slices(state: int) -> int | None:
    """Bits of a board's taken slices; None where it cannot be cut (further)."""
    if state == MILLI_PER_GPU:
        return 0
    return CUT - state if NO_BOARD < state < CUT else None


def _state(part: Part, state: int, place: int, geometry: MigGeometry | None, sign: int) -> int:
    if isinstance(part, int):
        return state - sign * part
    assert geometry is not None
    slices = geometry.profiles[part].slices(start_of(place))
    taken = (taken_slices(state) or 0) | slices if sign > 0 else (CUT - state) & ~slices
    return CUT - taken if taken else MILLI_PER_GPU


def put_part(
    part: Part, states: MutableSequence[int], place: int, geometry: MigGeometry | None
) -> None:
    """Take a part of a board."""
    board = board_of(part, place)
    states[board] = _state(part, int(states[board]), place, geometry, 1)


def take_part(
    part: Part, states: MutableSequence[int], place: int, geometry: MigGeometry | None
) -> None:
    """Give it back."""
    board = board_of(part, place)
    states[board] = _state(part, int(states[board]), place, geometry, -1)


def room_at(part: Part, state: int, place: int, geometry: MigGeometry | None) -> bool:
    """Whether a board in this state has the part, an instance from its start on."""
    if isinstance(part, int):
        return state >= part
    taken = taken_slices(state)
    profile = None if geometry is None else geometry.profiles.get(part)
    if profile is None or taken is None:
        return False
    return start_of(place) in free_starts(profile, taken)


def _places(part: Part, board: int, state: int, geometry: MigGeometry | None) -> Iterator[int]:
    """Of a part on one board, the best one first."""
    if isinstance(part, int):
        if state >= part:
            yield board
        return
    taken = taken_slices(state)
    profile = None if geometry is None else geometry.profiles.get(part)
    if profile is None or taken is None or geometry is None:
        return
    best = best_start(geometry, profile, taken)
    if best >= 0:
        yield place_of(board, best)
        yield from (place_of(board, s) for s in free_starts(profile, taken) if s != best)


def _choices(part: Part, states: Sequence[int], geometry: MigGeometry | None) -> list[int]:
    """Places on boards of different states, the best last: cut ones, then the fullest."""
    seen: set[int] = set()
    ranked: list[tuple[tuple[bool, int], list[int]]] = []
    for board, state in enumerate(states):
        if state not in seen:
            seen.add(state)
            places = list(_places(part, board, state, geometry))
            if places:
                ranked.append(((state > CUT, state), places))
    ranked.sort(key=lambda each: each[0], reverse=True)
    return [place for _, places in ranked for place in reversed(places)]


def packed(
    parts: Sequence[Part], states: Sequence[int], geometry: MigGeometry | None = None
) -> list[int] | None:
    """A place for each part; None if there is no way or none was found.

    Args:
        parts: The hardest first.
        states: Of each board.
        geometry: How boards may be cut.
    """
    boards, looks = list(states), 0
    chosen: list[int] = []
    tries = [_choices(parts[0], boards, geometry)] if parts else []
    while tries:
        looks += 1
        if looks > PACKING_LOOKS:
            return None
        if not tries[-1]:
            tries.pop()
            if chosen:
                take_part(parts[len(chosen) - 1], boards, chosen.pop(), geometry)
            continue
        place = tries[-1].pop()
        put_part(parts[len(chosen)], boards, place, geometry)
        chosen.append(place)
        if len(chosen) == len(parts):
            return chosen
        rest = sum(part for part in parts[len(chosen) :] if isinstance(part, int))
        enough = rest <= sum(state for state in boards if state > 0)
        tries.append(_choices(parts[len(chosen)], boards, geometry) if enough else [])
    return None if parts else []
