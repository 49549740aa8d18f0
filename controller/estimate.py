"""What every domain draws now, when meters lag, reports are missing and devices lie (I7).

    by nodes   sum of nodes * learned gain + declared rest; what cannot be read counts at its most
    by meter   meter + change of the readable nodes since its time stamp, and 8 % on top
    draw       by nodes, but never below the meter and never above its upper bound

Meters of other levels bound a domain as well: what its children's meters show together, and what is
left of its parent's when everything else below that is taken off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.meters import MeterMemory
from controller.tick_values import Topology
from wattpack.masks import every, some
from wattpack.power.domain_tree import OVERSHOOT_RATIO, BoolArray, FloatArray
from wattpack.power.feasibility import LoadTree

__all__ = [
    "CROSS_CHECK_SHARE",
    "Bounds",
    "Hosts",
    "Metered",
    "NodeDraw",
    "NodeReadings",
    "bounds_of",
    "lost_margin_watts",
    "node_draw",
    "readable_gpu_watts",
    "readable_host_watts",
    "readings_of",
    "sum_of_nodes",
    "unconfirmed_watts",
]

# No board draws more than this over its default limit, even for 100 ms (Acme A100: 600 of 400 W);
# a larger reading is in another unit or of another thing.
_CREDIBLE_OVER_DEFAULT = 2.0
# Assumed: board sensors are good to 5 % (arXiv 2312.02741).
_METER_LOST_MARGIN = 0.05
# A minute's differences and the newest of them (docs/power-estimates.md, BMCs). Assumed.
_SHOWN_BY_SERVERS_SECONDS = 90.0

# As much more may be drawn than boards say: all sensors of a batch may be off the same way.
_UNREAD_SHARE = 1.0 / (1.0 - 0.05) - 1.0
# Of what servers are declared to draw at worst, a whole row never draws the last part. Assumed.
_WORST_NEVER_TOGETHER = 0.2

CROSS_CHECK_SHARE = 0.08
"""Meter and nodes may differ by this; research page on power, "Leases"."""

# A reading that is seconds old bounds what cannot be read less and less: POLCA's production row
# (arXiv 2308.12908) rose by at most 9 % of its rating in 2 s and by 11.8 % in 40 s.
_RISE_SHARE_PER_SECOND = 0.001

# A reading this old is overdue (POLCA's meters are 2 s late, and ours are asked each second): over
# the next seconds what cannot be read counts more and more at its most again, whatever the last
# reading bounded. Until then a frozen row could step to full power unseen. Assumed.
_OVERDUE_SECONDS = 5.0
_OVERDUE_WHOLLY_SECONDS = 7.0

# A server that is heard draws this much of its declared idle draw; what it was learned to draw may
# be over by now. Assumed.
_LEAST_OF_IDLE = 0.8


def readable_gpu_watts(topology: Topology, watts: FloatArray, fresh_gpu: BoolArray) -> FloatArray:
    """The readings that can be believed at all, NaN for the others, (n_gpus,).

    Refused: negative, non-finite, of a silent node, or more than any board draws (milliwatts).
    """
    with np.errstate(invalid="ignore"):
        credible = (watts >= 0.0) & (watts <= _CREDIBLE_OVER_DEFAULT * topology.default_limit_watts)
    return np.asarray(np.where(credible & fresh_gpu, watts, np.nan), dtype=np.float64)


def readable_host_watts(
    topology: Topology, host_watts: FloatArray, fresh_node: BoolArray
) -> FloatArray:
    """Metered draws of servers that can be believed, NaN for the others, (n_nodes,)."""
    with np.errstate(invalid="ignore"):
        credible = fresh_node & (host_watts >= 0.0)
        credible &= host_watts <= _CREDIBLE_OVER_DEFAULT * topology.node_worst_watts + 1000.0
    return np.where(credible, host_watts, np.nan)


@dataclass(frozen=True, slots=True)
class NodeReadings:
    """What is read of the servers, and in sums over each domain.

    Attributes:
        gpu_watts: Readable draws, NaN for the others, (n_gpus,).
        host_watts: Readable draws of servers without GPUs, NaN for the others, (n_nodes,).
        known_watts: Sum of both, AC, (n_domains,).
        unmetered_worst_watts: Declared worst of the servers without a reading of their own, AC,
            (n_domains,).
    """

    gpu_watts: FloatArray
    host_watts: FloatArray
    known_watts: FloatArray
    unmetered_worst_watts: FloatArray


def readings_of(
    topology: Topology, load: LoadTree, gpu_watts: FloatArray, host_watts: FloatArray
) -> NodeReadings:
    """Sums of what is read; shapes as in ``NodeReadings``."""
    known = load.sum_gpus(np.where(np.isnan(gpu_watts), 0.0, gpu_watts))
    unmetered = np.isnan(host_watts)
    if not every(unmetered):
        known = known + load.sum_nodes(np.where(unmetered, 0.0, host_watts))
    worst = np.where(unmetered, topology.node_worst_watts, 0.0)
    worst_ac = load.sum_nodes(worst) / load.efficiency
    return NodeReadings(gpu_watts, host_watts, known / load.efficiency, worst_ac)


@dataclass(frozen=True, slots=True)
class Hosts:
    """What servers count at beside their boards, (n_nodes,) each.

    Attributes:
        watts: DC.
        told: Those that do not count at their declared worst.
        heard: Those that are.
        unwatched: Told ones that no meter watches any more.
    """

    watts: FloatArray
    told: BoolArray
    heard: BoolArray
    unwatched: BoolArray


@dataclass(frozen=True, slots=True)
class NodeDraw:
    """What the servers draw, in sums over each domain, (n_domains,) each.

    Attributes:
        most_watts: With everything that cannot be read at the most it could draw, AC.
        known_watts: Only what is read, AC.
        least_watts: That and what servers that are heard draw beside it at rest, DC.
        hidden_watts: Boards that cannot be read, at the most they could draw, AC.
        at_worst_watts: Servers beside their boards that count at their declared worst, AC.
    """

    most_watts: FloatArray
    known_watts: FloatArray
    least_watts: FloatArray
    hidden_watts: FloatArray
    at_worst_watts: FloatArray


def node_draw(
    topology: Topology,
    load: LoadTree,
    read: NodeReadings,
    highest_cap_watts: FloatArray,
    hosts: Hosts,
) -> NodeDraw:
    """Sums over the servers below each domain.

    Args:
        topology: For the declared worsts.
        load: Tree and members.
        read: What is known.
        highest_cap_watts: What each GPU may hold, (n_gpus,).
        hosts: What servers count at beside their boards.
    """
    hidden = np.isnan(read.gpu_watts)
    boards = np.where(hidden, highest_cap_watts * OVERSHOOT_RATIO, 0.0)
    unmetered = np.isnan(read.host_watts)
    counted = np.where(unmetered, hosts.watts, 0.0)
    least = read.known_watts * load.efficiency
    if topology.node_idle_watts.size and len(load.tree) > 1:
        at_rest = np.where(unmetered & hosts.heard, topology.node_idle_watts, 0.0)
        least = least + _LEAST_OF_IDLE * load.sum_nodes(at_rest)
    hidden_watts = load.sum_gpus(boards) if some(hidden) else np.zeros(len(load.tree))
    unread = load.sum_nodes(counted) + hidden_watts
    at_worst = load.sum_nodes(np.where(hosts.told, 0.0, counted))
    return NodeDraw(
        read.known_watts + unread / load.efficiency,
        read.known_watts,
        least,
        hidden_watts / load.efficiency,
        at_worst / load.efficiency,
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between what each domain's draw lies, AC, (n_domains,) each.

    Attributes:
        lower_watts: By meters, 0 without one.
        upper_watts: By meters, infinite without one.
    """

    lower_watts: FloatArray
    upper_watts: FloatArray

    def applied_to(self, watts: FloatArray) -> FloatArray:
        """Watts within the bounds; where they contradict each other the lower one holds."""
        return np.maximum(np.minimum(watts, self.upper_watts), self.lower_watts)


@dataclass(frozen=True, slots=True)
class Metered:
    """What meters and nodes say together, each (n_domains,).

    Attributes:
        draw_watts: AC draw by all that is known.
        by_nodes_watts: AC draw without the meters of this moment.
        meter_watts: Usable readings, NaN for the others.
        followed_watts: The same with the change of the boards that have followed since.
        modelled_watts: Nodes and declared load at the time of each reading.
        bounds: What meters say of the draw now.
        at_worst_watts: Of that, servers beside their boards that count at their declared worst, AC.
        unconfirmed_watts: What may be drawn beyond it if every board says too little, AC.
        unbounded_watts: All of that as servers and boards say it, above any bound of a meter, AC.
    """

    draw_watts: FloatArray
    by_nodes_watts: FloatArray
    meter_watts: FloatArray
    followed_watts: FloatArray
    modelled_watts: FloatArray
    bounds: Bounds
    at_worst_watts: FloatArray
    unconfirmed_watts: FloatArray
    unbounded_watts: FloatArray


def sum_of_nodes(
    load: LoadTree, nodes: NodeDraw, lost_margin_watts: FloatArray, memory: MeterMemory
) -> FloatArray:
    """AC draw of each domain without its meter, (n_domains,)."""
    return (nodes.most_watts + lost_margin_watts) * memory.gain + load.external_watts


def lost_margin_watts(
    load: LoadTree,
    read: NodeReadings,
    nodes: NodeDraw,
    hosts: Hosts,
    shown_node: BoolArray,
    lost_seconds: FloatArray,
) -> FloatArray:
    """What is counted beyond readings while a meter that has spoken says nothing, AC, (n_domains,).

    What counts at the most that it can draw needs no margin, nor do, after a while, servers with a
    meter of their own: by then it has shown what boards may have begun to hide.

    Args:
        load: Tree and members.
        read: What is read.
        nodes: Sums over the servers.
        hosts: What servers count at beside their boards.
        shown_node: Servers whose own meter shows them now, (n_nodes,).
        lost_seconds: How long each lost meter was not used, NaN for the others, (n_domains,).
    """
    lost = ~np.isnan(lost_seconds)
    if not some(lost) and not some(hosts.unwatched):
        return np.zeros(len(load.tree))
    unwatched = _METER_LOST_MARGIN * _unwatched_watts(load, read, hosts)
    fully = nodes.hidden_watts + nodes.at_worst_watts
    long_lost = lost_seconds >= _SHOWN_BY_SERVERS_SECONDS
    if some(long_lost):
        fully = fully + np.where(long_lost, _shown_watts(load, read, shown_node), 0.0)
    # A meter of another level watched these: nothing confirms them below or above it either.
    return np.where(lost, _METER_LOST_MARGIN * (nodes.most_watts - fully), unwatched)


def _unwatched_watts(load: LoadTree, read: NodeReadings, hosts: Hosts) -> FloatArray:
    """Boards and the rest of servers that a lost meter watched, AC, (n_domains,)."""
    if not some(hosts.unwatched):
        return np.zeros(len(load.tree))
    boards = hosts.unwatched.take(load.node_of_gpu) & ~np.isnan(read.gpu_watts)
    watts = load.sum_nodes(np.where(hosts.unwatched, hosts.watts, 0.0))
    watts = watts + load.sum_gpus(np.where(boards, read.gpu_watts, 0.0))
    return watts / load.efficiency


def _shown_watts(load: LoadTree, read: NodeReadings, shown_node: BoolArray) -> FloatArray:
    """Boards and the rest of servers that a meter of their own shows, AC, (n_domains,)."""
    shown = shown_node & ~np.isnan(read.host_watts)
    boards = shown.take(load.node_of_gpu) & ~np.isnan(read.gpu_watts)
    watts = load.sum_nodes(np.where(shown, read.host_watts, 0.0))
    watts = watts + load.sum_gpus(np.where(boards, read.gpu_watts, 0.0))
    return watts / load.efficiency


def unconfirmed_watts(
    load: LoadTree,
    read: NodeReadings,
    shown_node: BoolArray,
    at_worst_watts: FloatArray,
    confirmed: BoolArray,
) -> FloatArray:
    """What boards may draw beyond their readings where nothing confirms these, AC, (n_domains,).

    Cap, reading and energy counter of a board rest on one sensor, so nothing of it shows that it
    says 5 % too little; only a meter above it does. What a meter taught of servers, or showed of a
    whole one, less its boards holds what these hide, and declared worsts make up for boards.

    Args:
        load: Tree and members.
        read: What is read of the boards.
        shown_node: Servers whose rest is what a meter showed beyond their boards, (n_nodes,).
        at_worst_watts: As in ``Metered``.
        confirmed: Domains with a meter that shows what is read, or that lost one and count more
            already, (n_domains,).
    """
    if every(confirmed):
        return np.zeros(len(confirmed))
    left_out = np.isnan(read.gpu_watts) | shown_node.take(load.node_of_gpu)
    boards = load.sum_gpus(np.where(left_out, 0.0, read.gpu_watts)) / load.efficiency
    beyond = _UNREAD_SHARE * boards - _WORST_NEVER_TOGETHER * at_worst_watts
    return np.where(confirmed, 0.0, np.maximum(beyond, 0.0))


def bounds_of(
    load: LoadTree,
    nodes: NodeDraw,
    by_nodes_watts: FloatArray,
    meter_watts: FloatArray,
    age_seconds: FloatArray,
) -> Bounds:
    """What the meters of all levels say of each domain.

    A meter that shows less than what is read below it has lost its scale: it bounds nothing. One
    whose reading is overdue bounds boards that cannot be read less and less.

    Args:
        load: Tree and members.
        nodes: Sums over servers.
        by_nodes_watts: Draw without meters, (n_domains,).
        meter_watts: Readings brought to this moment, NaN for unusable ones, (n_domains,).
        age_seconds: How old each reading is, (n_domains,).
    """
    usable = ~np.isnan(meter_watts)
    lower = np.where(usable, np.maximum(meter_watts, 0.0), 0.0)
    above = lower * (1.0 + CROSS_CHECK_SHARE)
    bounds_above = usable & (nodes.known_watts <= above)
    risen = lower * _RISE_SHARE_PER_SECOND * age_seconds
    if some(nodes.hidden_watts):
        late = (age_seconds - _OVERDUE_SECONDS) / (_OVERDUE_WHOLLY_SECONDS - _OVERDUE_SECONDS)
        risen = risen + nodes.hidden_watts * np.minimum(np.maximum(late, 0.0), 1.0)
    upper = np.where(bounds_above, above + risen, np.inf)
    if len(load.tree) > 1 and some(usable):
        lower, upper = _with_children(load, nodes, by_nodes_watts, lower, upper)
        upper = _with_parents(load, nodes, lower, upper)
    return Bounds(lower, upper)


def _with_children(
    load: LoadTree,
    nodes: NodeDraw,
    by_nodes: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """From the leaves up: a domain draws what its children do and what hangs directly below it."""
    lower, upper = lower.copy(), upper.copy()
    for parents, children, owner in load.families_upwards:
        # Losses on the way only add, so the lower bound goes without them.
        below = np.bincount(owner, weights=lower[children], minlength=len(parents))
        lower[parents] = np.maximum(lower[parents], below)
        lossy = upper[children] * load.efficiency[children] / load.efficiency[parents][owner]
        most = np.bincount(owner, weights=lossy, minlength=len(parents))
        # Whatever no child accounts for hangs directly below and counts at its most.
        share = by_nodes[children] * load.efficiency[children] / load.efficiency[parents][owner]
        direct = by_nodes[parents] - np.bincount(owner, weights=share, minlength=len(parents))
        upper[parents] = np.minimum(upper[parents], most + np.maximum(direct, 0.0))
    return lower, np.maximum(upper, lower)


def _with_parents(
    load: LoadTree, nodes: NodeDraw, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """From the root down: a domain draws no more than its parent without all the others."""
    upper = upper.copy()
    # Of what no meter sees at least that is drawn which is read; without losses, as above.
    least = np.maximum(lower, nodes.least_watts)
    read = nodes.known_watts * load.efficiency
    for parents, children, owner in load.families_upwards[::-1]:
        others = np.bincount(owner, weights=least[children], minlength=len(parents))
        left = upper[parents][owner] - (others[owner] - least[children])
        # Less than what is read there cannot be right: it bounds nothing.
        left = np.where(left < read[children], np.inf, left)
        upper[children] = np.maximum(np.minimum(upper[children], left), lower[children])
    return upper
