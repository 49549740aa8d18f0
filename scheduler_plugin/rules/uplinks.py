"""Groups of nodes that share uplinks, what was measured between them, and what gangs put on them.

A gang's load on a group's uplink is the smaller of what its members inside and outside send at peak
(the hose model, ADR 38). Axes: ``n`` nodes in name order, ``g`` link groups, ``c`` pod classes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.link_groups import LinkPair
from scheduler_plugin.documents.snapshot import Pod, PodState, Snapshot

__all__ = [
    "GangFlows",
    "LinkedGangs",
    "Links",
    "Short",
    "Spread",
    "linked_gangs",
]

IntArray = npt.NDArray[np.int64]

NO_LIMIT: Final = 2**62
UNMEASURED_INSIDE: Final = 2**41
"""Within a group that nobody measured: faster than every measured pair."""


class Measured(NamedTuple):
    """Pairs of one group: with which others, megabits a second and microseconds."""

    others: IntArray
    megabits: IntArray
    microseconds: IntArray


@dataclass(frozen=True, slots=True)
class Links:
    """What is known of links.

    Attributes:
        names: Of groups, those of nodes and those above them, (g,); empty for all nodes without the
            label.
        above: Groups above each node, the nearest first, padded with g, shape (n, depth).
        room: Megabits a second that gangs may put on each uplink, shape (g,).
        measured: By group.
        inside: Megabits and microseconds between nodes of each group, shape (2, g).
    """

    names: tuple[str, ...]
    above: IntArray
    room: IntArray
    measured: Mapping[int, Measured]
    inside: IntArray

    @property
    def nearest(self) -> IntArray:
        """The group of each node, shape (n,)."""
        return self.above[:, 0]

    def sums(self, of_nodes: IntArray) -> IntArray:
        """Of each group the sum over its nodes, shape (g,)."""
        count = len(self.names)
        levels = [
            np.bincount(level, weights=of_nodes, minlength=count + 1)[:count]
            for level in self.above.T
        ]
        found: IntArray = np.sum(levels, axis=0).astype(np.int64)
        return found


class Short(NamedTuple):
    """An uplink that does not carry a gang: what the gang would put on it, and what is left."""

    group: int
    needs_megabits: int
    left_megabits: int


class Spread(NamedTuple):
    """What members of one gang send at peak, megabits a second.

    Attributes:
        total: All of them.
        inside: Those in each group where some are.
    """

    total: int = 0
    inside: Mapping[int, int] = {}

    def plus(self, flow: int, groups: Iterable[int]) -> Spread:
        """With more, or less, in a group and those above it."""
        inside = dict(self.inside)
        for group in groups:
            inside[group] = inside.get(group, 0) + flow
        return Spread(self.total + flow, inside)

    @property
    def crossing(self) -> dict[int, int]:
        """What they put on each uplink."""
        sides = {group: min(sent, self.total - sent) for group, sent in self.inside.items()}
        return {group: load for group, load in sides.items() if load}


@dataclass(frozen=True, slots=True)
class LinkedGangs:
    """Gangs for which links matter.

    Attributes:
        links: Between nodes.
        number: Of each gang that waits and sends, or may choose by measured pairs.
        of_class: Gang of each class, -1 for none, shape (c,).
        flow: Megabits a second that a pod of each class sends at peak, shape (c,).
        held: Of members that hold places, by gang.
        load: What all gangs put on each uplink by members that hold places, shape (g,).
    """

    links: Links
    number: Mapping[str, int]
    of_class: IntArray
    flow: IntArray
    held: Mapping[int, Spread]
    load: IntArray

    def flows(self) -> GangFlows:
        """Before anybody who waits has a place."""
        return GangFlows(self)


class GangFlows:
    """What gangs put on uplinks while an assignment grows or shrinks.

    Attributes:
        room: What each uplink carries, shape (g,).
    """

    def __init__(self, gangs: LinkedGangs) -> None:
        self.gangs = gangs
        self.room: IntArray = gangs.links.room.copy()
        self._load: IntArray = gangs.load.copy()
        self._spread = dict(gangs.held)

    def add(self, class_index: int, node: int, count: int) -> None:
        """Pods of a class arrive on a node; negative for leaving."""
        gang = int(self.gangs.of_class[class_index])
        flow = int(self.gangs.flow[class_index]) * count
        if gang < 0 or not flow:
            return
        links, before = self.gangs.links, self.spread(gang)
        groups = (g for g in links.above[node].tolist() if g < len(links.names))
        after = before.plus(flow, groups)
        for sign, crossing in ((-1, before.crossing), (1, after.crossing)):
            for group, load in crossing.items():
                self._load[group] += sign * load
        self._spread[gang] = after

    def spread(self, gang: int) -> Spread:
        """Of a gang's members that have places."""
        return self._spread.get(gang, _NOWHERE)

    def left_beside(self, gang: int) -> IntArray:
        """What each uplink carries beside all other gangs, below 0 where it cannot, shape (g,)."""
        left: IntArray = self.room - self._load
        for group, load in self.spread(gang).crossing.items():
            left[group] += load
        return left

    def short(self, gang: int, before: Spread) -> list[Short]:
        """Uplinks on which a gang puts more than before, and that do not carry it."""
        had, left = before.crossing, self.left_beside(gang)
        return [
            Short(group, load, int(left[group]))
            for group, load in sorted(self.spread(gang).crossing.items())
            if load > had.get(group, 0) and load > left[group]
        ]


_NOWHERE: Final = Spread()


def linked_gangs(snapshot: Snapshot, classes: Sequence[Pod]) -> LinkedGangs | None:
    """Gangs among the classes for which links matter; None if there are none.

    Args:
        snapshot: What is known.
        classes: One pod of each class.
    """
    limited = any(group.uplink_megabits is not None for group in snapshot.link_groups)
    if not snapshot.link_label or not (limited or snapshot.link_pairs):
        return None
    sends = {pod.gang for pod in classes if pod.peak_flow_megabits and limited}
    waiting = {pod.gang for pod in classes} if snapshot.link_pairs else sends
    number = {gang: i for i, gang in enumerate(sorted(waiting - {""}))}
    if not number:
        return None
    links = _links(snapshot)
    held = _held(snapshot, links)
    load = np.zeros(len(links.names), dtype=np.int64)
    for spread in held.values():
        for group, crossing in spread.crossing.items():
            load[group] += crossing
    return LinkedGangs(
        links=links,
        number=number,
        of_class=np.array([number.get(pod.gang, -1) for pod in classes], dtype=np.int64),
        flow=np.array([pod.peak_flow_megabits for pod in classes], dtype=np.int64),
        held={number[gang]: spread for gang, spread in held.items() if gang in number},
        load=load,
    )


def _held(snapshot: Snapshot, links: Links) -> Mapping[str, Spread]:
    """Of gangs that send, members that hold places."""
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    total: Counter[str] = Counter()
    inside: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for pod in snapshot.pods:
        if pod.gang and pod.peak_flow_megabits and pod.state in _PLACED:
            total[pod.gang] += pod.peak_flow_megabits
            above = links.above[index[pod.node]].tolist() if pod.node in index else []
            for group in above:
                inside[pod.gang][group] += pod.peak_flow_megabits
    for groups in inside.values():
        del groups[len(links.names)]
    return {gang: Spread(sent, inside[gang]) for gang, sent in total.items()}


_PLACED: Final = (PodState.BOUND, PodState.PROMISED)


def _links(snapshot: Snapshot) -> Links:
    stated = {group.name: group for group in snapshot.link_groups}
    of_nodes = [node.labels.get(snapshot.link_label, "") for node in snapshot.nodes]
    names = tuple(sorted({*stated, *of_nodes} - {""}))
    if "" in of_nodes:
        # Nodes without the label share no uplink; together they are one more place for a gang.
        names = (*names, "")
    number = {name: i for i, name in enumerate(names)}
    paths: dict[str, list[int]] = {"": [number[""]]} if "" in number else {}
    for name in number.keys() - {""}:
        path, at = [], name
        while at:
            path.append(number[at])
            at = stated[at].parent if at in stated else ""
        paths[name] = path
    depth = max([1, *(len(path) for path in paths.values())])
    above = np.full((len(of_nodes), depth), len(names), dtype=np.int64)
    for i, name in enumerate(of_nodes):
        above[i, : len(paths[name])] = paths[name]
    room = np.full(len(names), NO_LIMIT, dtype=np.int64)
    for group in stated.values():
        if group.uplink_megabits is not None:
            room[number[group.name]] = group.uplink_megabits - group.used_megabits
    measured = _measured(snapshot.link_pairs, number)
    inside = np.array([[UNMEASURED_INSIDE], [0]], dtype=np.int64).repeat(len(names), axis=1)
    if "" in number:
        inside[0, number[""]] = 0  # As between groups that nobody measured.
    for place, row in measured.items():
        if (own := row.others == place).any():
            inside[:, place] = row.megabits[own][0], row.microseconds[own][0]
    return Links(names, above, room, measured, inside)


def _measured(pairs: Iterable[LinkPair], number: Mapping[str, int]) -> Mapping[int, Measured]:
    rows: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for pair in pairs:
        if pair.one in number and pair.other in number:
            one, other = number[pair.one], number[pair.other]
            rows[one][other] = rows[other][one] = (pair.megabits, pair.latency_microseconds)
    return {
        group: Measured(
            np.array(list(row), dtype=np.int64),
            np.array([megabits for megabits, _ in row.values()], dtype=np.int64),
            np.array([delay for _, delay in row.values()], dtype=np.int64),
        )
        for group, row in rows.items()
    }
