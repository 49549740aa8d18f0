"""On which boards of its node each running pod is, where anybody asks for a part of a board.

Pods that say so are there. Of the others, on each node, those that take most come first and of
equals the first by uid: whole boards are the first that nobody uses, a share is on the fullest
board that still has it, each MIG instance (by name) on the first board that has its slices, the
first of them. What a node cannot hold is on the uncut boards with most left, which are overfull;
MIG instances that nobody could have cut hold nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from scheduler_plugin.documents.mig_geometry import GEOMETRIES, MigGeometry
from scheduler_plugin.documents.snapshot import MILLI_PER_GPU, Node, Pod, PodState, Snapshot
from scheduler_plugin.room.board_shares import IntArray, board_for
from scheduler_plugin.room.board_states import (
    CUT,
    NO_BOARD,
    Boards,
    Part,
    place_of,
    put_part,
    room_at,
)
from scheduler_plugin.room.resource_columns import (
    asks_for_part,
    gpu_value_milli,
    mig_profiles,
    share_milli,
    whole_boards,
)

__all__ = [
    "boards_hold",
    "has_its_places",
    "overfull_nodes",
    "places_of_running",
    "states_beside",
]

_RUNS = (PodState.BOUND, PodState.PROMISED)


def places_of_running(snapshot: Snapshot) -> dict[str, Boards] | None:
    """Places by pod; None where nobody asks for a part, so that counting whole boards is enough."""
    # As ``asks_for_part``, without two calls for each of 35,000 pods.
    if not any(0 < p.gpu_milli < MILLI_PER_GPU or p.mig_profiles for p in snapshot.pods):
        return None
    there: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.state in _RUNS and (pod.gpu_milli or pod.mig_profiles):
            there[pod.node].append(pod)
    found: dict[str, Boards] = {}
    for node in snapshot.nodes:
        found |= _places_on(node, there[node.name])[0]
    return found


def _places_on(node: Node, pods: Iterable[Pod]) -> tuple[dict[str, Boards], list[int]]:
    """Places of a node's pods, and the state of each board."""
    states = [MILLI_PER_GPU] * (node.gpu_milli // MILLI_PER_GPU)
    geometry = GEOMETRIES.get(node.mig_geometry)
    found: dict[str, Boards] = {}
    for pod in sorted(pods, key=_rank):
        found[pod.uid] = _stated(pod) or _guessed(pod, states, geometry)
        _put(pod, states, found[pod.uid], geometry)
    return found, states


def boards_hold(node: Node, there: Sequence[Pod], pod: Pod) -> bool:
    """Whether a node's boards hold one more beside its pods, as those that run are counted."""
    if not any(asks_for_part(each) for each in (*there, pod)):
        return True  # Whole boards are an amount like others.
    everybody = [*there, pod]
    places, states = _places_on(node, everybody)
    before, before_states = _places_on(node, there)
    homeless = sum(not has_its_places(each, places) for each in everybody)
    homeless_before = sum(not has_its_places(each, before) for each in there)
    return homeless <= homeless_before and _overfull(states) <= _overfull(before_states)


def _overfull(states: Sequence[int]) -> int:
    return sum(-state for state in states if CUT < state < 0)


def overfull_nodes(snapshot: Snapshot, places: Mapping[str, Boards]) -> frozenset[str]:
    """Nodes whose boards do not hold what runs there: nothing comes to them, and nothing leaves."""
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    everybody = {pod.uid: index[pod.node] for pod in snapshot.pods if pod.node in index}
    states = states_beside(snapshot, places, everybody)
    full = np.flatnonzero(((states < 0) & (states > CUT)).any(axis=1))
    homeless = {
        pod.node
        for pod in snapshot.pods
        if pod.uid in places and pod.node in index and not has_its_places(pod, places)
    }
    return frozenset(homeless.union(snapshot.nodes[node].name for node in full.tolist()))


def has_its_places(pod: Pod, places: Mapping[str, Boards]) -> bool:
    """Whether a running pod has all that it asks for of boards, so that it could be elsewhere."""
    return len(places.get(pod.uid, ())) == len(_parts(pod))


def _rank(pod: Pod) -> tuple[bool, int, str]:
    """Who says where it is comes first."""
    return (not (pod.gpu_boards or pod.mig_placements), -gpu_value_milli(pod), pod.uid)


def _parts(pod: Pod) -> tuple[Part, ...]:
    share = share_milli(pod)
    return mig_profiles(pod) or ((share,) if share else (MILLI_PER_GPU,) * whole_boards(pod))


def _stated(pod: Pod) -> Boards:
    return pod.gpu_boards or tuple(place_of(at.board, at.start) for at in pod.mig_placements)


def _guessed(pod: Pod, states: list[int], geometry: MigGeometry | None) -> Boards:
    if pod.mig_profiles:
        return _first_slices(pod, states.copy(), geometry)
    boards = board_for(share_milli(pod), whole_boards(pod), np.array(states, dtype=np.int64))
    uncut = [board for board, state in enumerate(states) if state > CUT]
    emptiest = sorted(uncut, key=lambda board: (-states[board], board))
    return boards or tuple(sorted(emptiest[: whole_boards(pod) or 1]))


def _first_slices(pod: Pod, states: list[int], geometry: MigGeometry | None) -> Boards:
    found: list[int] = []
    for name in mig_profiles(pod):
        profile = None if geometry is None else geometry.profiles.get(name)
        starts = () if profile is None else profile.starts
        places = (place_of(board, start) for board in range(len(states)) for start in starts)
        able = (p for p in places if room_at(name, states[p // place_of(1, 0)], p, geometry))
        place = next(able, None)
        if place is None:
            return ()
        put_part(name, states, place, geometry)
        found.append(place)
    return tuple(found)


def _put(pod: Pod, states: list[int], places: Boards, geometry: MigGeometry | None) -> None:
    for part, place in zip(_parts(pod), places, strict=False):
        put_part(part, states, place, geometry)


def states_beside(
    snapshot: Snapshot,
    places: Mapping[str, Boards],
    fixed: Mapping[str, int],
    closed: Collection[str] = (),
) -> IntArray:
    """The state of each board beside the pods that stay as they are, shape (n, b).

    Args:
        snapshot: With the pods.
        places: Of those that run.
        fixed: Node by pod, of those that stay as they are.
        closed: Nodes of which no board has anything left.
    """
    counts = [node.gpu_milli // MILLI_PER_GPU for node in snapshot.nodes]
    most = max(counts, default=0)
    states = [[MILLI_PER_GPU] * count + [NO_BOARD] * (most - count) for count in counts]
    for pod in snapshot.pods:
        if pod.uid in fixed and pod.uid in places:
            node = fixed[pod.uid]
            geometry = GEOMETRIES.get(snapshot.nodes[node].mig_geometry)
            _put(pod, states[node], places[pod.uid], geometry)
    for at, there in zip(snapshot.nodes, states, strict=True):
        if at.name in closed:
            there[:] = [s if CUT < s < 0 or s == NO_BOARD else 0 for s in there]
    return np.array(states, dtype=np.int64).reshape(len(counts), most)
