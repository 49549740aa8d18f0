"""How many pods with MIG instances boards in given states hold, and how many boards they lack."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.mig_geometry import MigGeometry, instances_left, milli_left
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU
from scheduler_plugin.documents.snapshot_limits import MAX_PODS
from scheduler_plugin.room.board_states import CUT, NO_BOARD, packed, put_part

__all__ = ["boards_lacking", "milli_left_on", "pods_held"]

IntArray = npt.NDArray[np.int64]

_ALL_TAKEN: Final = 2**9 - 1


def pods_held(
    profiles: tuple[str, ...], states: IntArray, geometry: MigGeometry, at_most: int = MAX_PODS
) -> IntArray:
    """How many pods with these instances each node's boards hold, shape (k,).

    Args:
        profiles: Of one pod, all known to the geometry.
        states: Of each board of each node, shape (k, b).
        geometry: How all of them may be cut.
        at_most: Of pods with instances of several profiles.
    """
    if len(set(profiles)) == 1:
        taken = np.where(states == MILLI_PER_GPU, 0, _taken(states))
        left = _instance_table(geometry, profiles[0])[taken].sum(axis=1)
        held: IntArray = left // len(profiles)
        return held
    return np.array(
        [_by_trying(profiles, each, geometry, at_most) for each in states.tolist()], dtype=np.int64
    )


def milli_left_on(states: IntArray, geometry: MigGeometry) -> IntArray:
    """Thousandths that instances could still add to the cut boards of each node, shape (k,)."""
    left: IntArray = _milli_table(geometry)[_taken(states)].sum(axis=1)
    return left


def boards_lacking(
    profiles: tuple[str, ...], states: IntArray, geometry: MigGeometry, pods: int
) -> int:
    """The fewest empty boards beside those of one node with which it holds so many pods.

    Args:
        profiles: Of one pod, all known to the geometry.
        states: Of each board of the node, shape (b,).
        geometry: How they may be cut.
        pods: Wanted there.
    """
    enough = (pods - int(pods_held(profiles, states[None], geometry, pods)[0])) * len(profiles)
    least = min(1, enough)
    while least < enough:
        tried = (least + enough) // 2
        beside = np.append(states, [MILLI_PER_GPU] * tried)
        if int(pods_held(profiles, beside[None], geometry, pods)[0]) < pods:
            least = tried + 1
        else:
            enough = tried
    return enough


def _taken(states: IntArray) -> IntArray:
    """Bits of the taken slices of cut boards; of others all."""
    return np.where((states < CUT) & (states > NO_BOARD), CUT - states, _ALL_TAKEN)


def _by_trying(
    profiles: tuple[str, ...], states: list[int], geometry: MigGeometry, at_most: int
) -> int:
    """How many pods with instances of several profiles fit, one put after the other."""
    count = 0
    while count < at_most and (places := packed(profiles, states, geometry)) is not None:
        for part, place in zip(profiles, places, strict=True):
            put_part(part, states, place, geometry)
        count += 1
    return count


@cache
def _instance_table(geometry: MigGeometry, profile: str) -> IntArray:
    """Instances left by taken slices."""
    of = geometry.profiles[profile]
    return np.array([instances_left(of, taken) for taken in range(_ALL_TAKEN + 1)], dtype=np.int64)


@cache
def _milli_table(geometry: MigGeometry) -> IntArray:
    """Thousandths that instances could still add, by taken slices."""
    return np.array([milli_left(geometry, t) for t in range(_ALL_TAKEN + 1)], dtype=np.int64)
