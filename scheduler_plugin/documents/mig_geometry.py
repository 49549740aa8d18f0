"""How NVIDIA boards can be cut: profiles, their slices, and where on a board they may lie.

A cut board has eight memory slices (four on an A30) and seven compute slices (four). A profile
takes a run of memory slices that may begin at a few of them only; runs never overlap, and then
compute slices are enough, too. At most one instance of a board has media extensions (``+me``).

Source: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles", and its listing of
placements by ``nvidia-smi mig -lgipp``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

__all__ = [
    "GEOMETRIES",
    "PARTS_PER_BOARD",
    "MigGeometry",
    "MigProfile",
    "geometry_of",
    "is_profile",
    "parts_of",
    "value_milli",
]

PARTS_PER_BOARD: Final = 28
"""A board's work in parts of which both a seventh and a quarter are whole numbers."""

_MEDIA: Final = 8
"""The bit behind the memory slices: media extensions of a board."""


MigGeometryName = Literal[
    "",
    "A30-24GB",
    "A100-40GB",
    "A100-80GB",
    "H100-80GB",
    "H100-96GB",
    "H200-141GB",
    "B200-180GB",
]
"""What a node may say; nothing where its boards are not cut."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One kind of instance on one kind of board.

    Attributes:
        name: As in ``nvidia.com/mig-<name>``.
        compute_slices: Of the board's seven, or four.
        memory_slices: That it takes, side by side.
        starts: Memory slices at which it may begin.
    """

    name: str
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]

    def slices(self, start: int) -> int:
        """Bits of what it takes from ``start`` on."""
        media = 1 << _MEDIA if self.name.endswith("+me") else 0
        return ((1 << self.memory_slices) - 1) << start | media


@dataclass(frozen=True, slots=True)
class MigGeometry:
    """One kind of board."""

    name: MigGeometryName
    compute_slices: int
    profiles: dict[str, MigProfile]

    def __hash__(self) -> int:
        """By name: there is one of each."""
        return hash(self.name)


def _seven(
    name: MigGeometryName, slice_gb: str, two_gb: str, half_gb: str, whole_gb: str
) -> MigGeometry:
    """Boards of eight memory and seven compute slices."""
    profiles = (
        MigProfile(f"1g.{slice_gb}gb", 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        MigProfile(f"1g.{slice_gb}gb+me", 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        MigProfile(f"1g.{two_gb}gb", 1, 2, (0, 2, 4, 6)),
        MigProfile(f"2g.{two_gb}gb", 2, 2, (0, 2, 4)),
        MigProfile(f"3g.{half_gb}gb", 3, 4, (0, 4)),
        MigProfile(f"4g.{half_gb}gb", 4, 4, (0,)),
        MigProfile(f"7g.{whole_gb}gb", 7, 8, (0,)),
    )
    return MigGeometry(name, 7, {profile.name: profile for profile in profiles})


def _four() -> MigGeometry:
    profiles = (
        MigProfile("1g.6gb", 1, 1, (0, 1, 2, 3)),
        MigProfile("1g.6gb+me", 1, 1, (0, 1, 2, 3)),
        MigProfile("2g.12gb", 2, 2, (0, 2)),
        MigProfile("2g.12gb+me", 2, 2, (0, 2)),
        MigProfile("4g.24gb", 4, 4, (0,)),
    )
    return MigGeometry("A30-24GB", 4, {profile.name: profile for profile in profiles})


GEOMETRIES: Final = {
    geometry.name: geometry
    for geometry in (
        _four(),
        _seven("A100-40GB", "5", "10", "20", "40"),
        _seven("A100-80GB", "10", "20", "40", "80"),
        _seven("H100-80GB", "10", "20", "40", "80"),
        _seven("H100-96GB", "12", "24", "48", "96"),
        _seven("H200-141GB", "18", "35", "71", "141"),
        _seven("B200-180GB", "23", "45", "90", "180"),
    )
}
"""By name, which a node's ``mig_geometry`` says."""

_COMPUTE_PARTS: Final = {
    name: profile.compute_slices * PARTS_PER_BOARD // geometry.compute_slices
    for geometry in GEOMETRIES.values()
    for name, profile in geometry.profiles.items()
}


def geometry_of(profiles: Iterable[str]) -> MigGeometryName:
    """Of boards that are cut into just these profiles, ``+me`` aside; nothing if none is known."""
    plain = {name for name in profiles if not name.endswith("+me")}
    for geometry in GEOMETRIES.values():
        if plain == {name for name in geometry.profiles if not name.endswith("+me")}:
            return geometry.name
    return ""


def is_profile(name: str) -> bool:
    """Whether boards of some kind have such instances."""
    return name in _COMPUTE_PARTS


def parts_of(profiles: Iterable[str]) -> int:
    """Of a board's compute, in ``PARTS_PER_BOARD``ths; the same on every board that has them."""
    return sum(_COMPUTE_PARTS[name] for name in profiles)


def value_milli(profiles: Iterable[str]) -> int:
    """The same in thousandths of a board, each rounded down: never more than a board's 1000."""
    return sum(_COMPUTE_PARTS[name] * 1000 // PARTS_PER_BOARD for name in profiles)


@cache
def free_starts(profile: MigProfile, taken: int) -> tuple[int, ...]:
    """Where the profile may still begin beside slices that are taken."""
    return tuple(start for start in profile.starts if not profile.slices(start) & taken)


@cache
def instances_left(profile: MigProfile, taken: int) -> int:
    """How many more of one profile a board takes; two with media extensions never fit."""
    starts = free_starts(profile, taken)
    return min(1, len(starts)) if profile.name.endswith("+me") else len(starts)


@cache
def best_start(geometry: MigGeometry, profile: MigProfile, taken: int) -> int:
    """The free start that leaves most to others: the most instances, weighed by compute; or -1."""

    def left(start: int) -> int:
        after = taken | profile.slices(start)
        return sum(p.compute_slices * instances_left(p, after) for p in geometry.profiles.values())

    return max(free_starts(profile, taken), key=left, default=-1)


@cache
def milli_left(geometry: MigGeometry, taken: int) -> int:
    """The most that instances could still add on a board, thousandths."""
    found = 0
    for profile in geometry.profiles.values():
        for start in free_starts(profile, taken):
            rest = milli_left(geometry, taken | profile.slices(start))
            found = max(found, value_milli([profile.name]) + rest)
    return found
