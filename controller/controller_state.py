"""What the controller remembers from tick to tick, and how it survives a change of membership."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.alarms import Alarms, no_alarms
from controller.allocation import GangKinds, gang_kinds
from controller.bands import (
    BandMemory,
    HeldMemory,
    RiseMemory,
    initial_bands,
    initial_held,
    initial_rises,
)
from controller.changes import ChangeMemory, no_changes_yet
from controller.coincidence import no_coincidence_yet
from controller.commitments import Commitments, initial_commitments
from controller.demand import no_demand_yet
from controller.felt_heat import FeltMemory, nothing_felt
from controller.guaranteed_case import GuaranteedCase
from controller.meters import MeterMemory, initial_meters
from controller.readings import ReadingMemory, initial_readings
from controller.reserve_feeds import FeedMemory, initial_feeds
from controller.standing import Standing, nothing_stood
from controller.tick_values import PowerSettings, Topology
from wattpack.errors import InputError
from wattpack.power.board_trust import BoardTrust, all_trusted
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree
from wattpack.power.recent_highest import RecentHighest

__all__ = ["State", "carry_over", "initial_state"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class State:
    """Everything that one tick hands to the next.

    Attributes:
        topology: What the arrays below belong to.
        load: The same as sums over the tree.
        gang_kinds: Boards of one kind in a gang get one cap.
        now_ns: Time of the last tick, -1 before the first.
        first_ns: Time of the first tick, -1 before it.
        heat: Breaker heat, (n_domains,).
        draw_watts: Last estimate, (n_domains,).
        budget_watts: Last good budget, (n_domains,).
        heard: Domains most of whose nodes reported at least once, (n_domains,).
        recovering: After a mass expiry: nothing is raised yet, (n_domains,).
        fresh_ticks: Ticks in a row with nearly all reports, (n_domains,).
        seamless: Fully known since before our term began, (n_domains,).
        decided_watts: Caps decided at the last tick, 0 before the first, (n_gpus,).
        lock_watts: Cap that each clock lock follows, infinite without one, (n_gpus,).
        clock_share: Clock over the highest where clocks shed load beside limits, 1 elsewhere,
            (n_gpus,).
        rises: Rise history of the bands.
        held: History of draws beyond the target while capping.
        bands: Present bands.
        demand: Recent draws.
        trust: Which devices obey.
        readings: Which readings move.
        standing: What was held under the last leases.
        meters: What meters taught.
        changes: How the readable draws moved lately.
        felt: By which draws heat was advanced lately.
        together: Measured over modelled draw of boards lately.
        together_now: The newest of it, NaN before the first, (n_domains,).
        beyond_nodes_watts: What meters showed beyond the nodes, smoothed, (n_domains,).
        commitments: What was sent.
        guaranteed: I1's worst case at the last tick, None before the first.
        alarms: Conditions that hold.
        feeds: How unevenly feeds carried.
        available_watts: What the feeds that carry may do for long, over phase imbalance: the rating
            where no reserve is used, (n_domains,).
    """

    topology: Topology
    load: LoadTree
    gang_kinds: GangKinds
    now_ns: int
    first_ns: int
    heat: FloatArray
    draw_watts: FloatArray
    budget_watts: FloatArray
    heard: BoolArray
    recovering: BoolArray
    fresh_ticks: IntArray
    seamless: BoolArray
    decided_watts: FloatArray
    lock_watts: FloatArray
    clock_share: FloatArray
    rises: RiseMemory
    held: HeldMemory
    bands: BandMemory
    demand: RecentHighest
    trust: BoardTrust
    readings: ReadingMemory
    standing: Standing
    meters: MeterMemory
    changes: ChangeMemory
    felt: FeltMemory
    together: RecentHighest
    together_now: FloatArray
    beyond_nodes_watts: FloatArray
    commitments: Commitments
    guaranteed: GuaranteedCase | None
    alarms: Alarms
    feeds: FeedMemory
    available_watts: FloatArray

    @property
    def rated_load(self) -> LoadTree:
        """The tree at what its feeds carry now: what heats breakers, and what bands are of."""
        if self.load.tree.reserve is None:
            return self.load
        return self.load.rated_at(self.available_watts)


def initial_state(
    topology: Topology, settings: PowerSettings, heat: FloatArray | None = None
) -> State:
    """A controller that knows nothing yet and therefore raises nothing at first.

    Args:
        topology: What hangs where.
        settings: Constants; only checked here.
        heat: Breaker heat kept from an earlier run, 0 without, (n_domains,).

    Raises:
        InputError: for a heat outside 0 to 1 or of another length.
    """
    n_gpus, n_nodes, n_domains = topology.n_gpus, topology.n_nodes, topology.n_domains
    if settings.lease_ttl_ms <= 0:
        raise InputError("lease_ttl_ms", "milliseconds > 0", settings.lease_ttl_ms)
    start = _checked_heat(heat, n_domains)
    load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
    no = np.zeros(n_domains, dtype=np.bool_)
    return State(
        topology=topology,
        load=load,
        gang_kinds=gang_kinds(
            topology.gang, topology.default_limit_watts, topology.min_limit_watts
        ),
        now_ns=-1,
        first_ns=-1,
        heat=start,
        draw_watts=np.zeros(n_domains),
        budget_watts=load.tree.all_feeds_watts / load.tree.phase_imbalance,
        heard=no,
        recovering=~no,
        fresh_ticks=np.zeros(n_domains, dtype=np.int64),
        seamless=no,
        decided_watts=np.zeros(n_gpus),
        lock_watts=np.full(n_gpus, np.inf),
        clock_share=np.ones(n_gpus),
        rises=initial_rises(n_domains),
        held=initial_held(n_domains),
        bands=initial_bands(n_domains),
        demand=no_demand_yet(n_gpus),
        trust=all_trusted(n_gpus),
        readings=initial_readings(n_gpus, n_nodes),
        standing=nothing_stood(n_gpus),
        meters=initial_meters(n_domains),
        changes=no_changes_yet(n_gpus, n_nodes, n_domains),
        felt=nothing_felt(n_domains),
        together=no_coincidence_yet(n_domains),
        together_now=np.full(n_domains, np.nan),
        beyond_nodes_watts=np.zeros(n_domains),
        commitments=initial_commitments(n_gpus, n_nodes, 0, 0),
        guaranteed=None,
        alarms=no_alarms(n_domains),
        feeds=initial_feeds(n_domains),
        available_watts=load.rating_watts,
    )


def _checked_heat(heat: FloatArray | None, n_domains: int) -> FloatArray:
    start = np.zeros(n_domains) if heat is None else np.asarray(heat, dtype=np.float64)
    if start.shape != (n_domains,) or not np.all((start >= 0.0) & (start <= 1.0)):
        raise InputError("heat", f"{n_domains} numbers from 0 to 1", heat)
    return start


def _moved(fresh: Array, old: Array, positions: IntArray, axis: int = 0) -> Array:
    """Fresh values, replaced by old ones along an axis where ``positions`` is not -1."""
    known = positions >= 0
    result = np.array(fresh, copy=True)
    if axis == 0:
        result[known] = old[positions[known]]
    else:
        result[:, known] = old[:, positions[known]]
    return result


def _positions(new: Sequence[str], old: Sequence[str]) -> IntArray:
    """For each new name its old position, -1 if it is new."""
    where = {name: i for i, name in enumerate(old)}
    return np.array([where.get(name, -1) for name in new], dtype=np.int64)


def carry_over(
    state: State,
    old_topology: Topology,
    new_topology: Topology,
    settings: PowerSettings | None = None,
) -> State:
    """The state for a changed membership: what stays keeps its memory, what is new starts afresh.

    The rise history is kept in shares of L, so it is scaled to the present members by itself.

    Raises:
        InputError: if the state does not belong to the old topology.
    """
    if state.topology is not old_topology:
        raise InputError("old_topology", "the topology of the state", "another one")
    fresh = initial_state(new_topology, settings or PowerSettings())
    fresh = replace(fresh, now_ns=state.now_ns, first_ns=state.first_ns)
    domains = _positions(new_topology.tree.names, old_topology.tree.names)
    gpus = _positions(new_topology.gpu_uuids, old_topology.gpu_uuids)
    nodes = _positions(new_topology.node_names, old_topology.node_names)
    return _with_boards(_with_domains(fresh, state, domains), state, gpus, nodes)


def _with_domains(fresh: State, old: State, domains: IntArray) -> State:
    """The new state with what domains that stay remember."""

    def moved(new: Array, old: Array, axis: int = 0) -> Array:
        return _moved(new, old, domains, axis)

    budget = moved(fresh.budget_watts, old.budget_watts)
    return replace(
        fresh,
        heat=moved(fresh.heat, old.heat),
        draw_watts=moved(fresh.draw_watts, old.draw_watts),
        budget_watts=np.minimum(budget, fresh.budget_watts),
        heard=moved(fresh.heard, old.heard),
        recovering=moved(fresh.recovering, old.recovering),
        fresh_ticks=moved(fresh.fresh_ticks, old.fresh_ticks),
        seamless=moved(fresh.seamless, old.seamless),
        rises=_moved_rises(fresh.rises, old.rises, domains),
        held=HeldMemory(
            moved(fresh.held.since_ns, old.held.since_ns),
            moved(fresh.held.counts, old.held.counts),
            moved(fresh.held.total, old.held.total),
        ),
        bands=BandMemory(
            moved(fresh.bands.band, old.bands.band),
            moved(fresh.bands.calm_since_ns, old.bands.calm_since_ns),
        ),
        meters=_moved_meters(fresh.meters, old.meters, domains),
        feeds=_moved_feeds(fresh.feeds, old.feeds, domains),
        available_watts=moved(fresh.available_watts, old.available_watts),
        alarms=Alarms(
            moved(fresh.alarms.on, old.alarms.on, 1),
            moved(fresh.alarms.seen_ns, old.alarms.seen_ns, 1),
        ),
    )


def _with_boards(fresh: State, old: State, gpus: IntArray, nodes: IntArray) -> State:
    """The new state with what boards and servers that stay remember."""
    standing = Standing(
        _moved(fresh.standing.watts, old.standing.watts, gpus),
        _moved(fresh.standing.seen_ns, old.standing.seen_ns, gpus),
    )
    return replace(
        fresh,
        decided_watts=_moved(fresh.decided_watts, old.decided_watts, gpus),
        lock_watts=_moved(fresh.lock_watts, old.lock_watts, gpus),
        clock_share=_moved(fresh.clock_share, old.clock_share, gpus),
        demand=_moved_highest(fresh.demand, old.demand, gpus),
        trust=_moved_trust(fresh.trust, old.trust, gpus),
        readings=_moved_readings(fresh.readings, old.readings, gpus, nodes),
        standing=standing,
        commitments=_moved_commitments(fresh.commitments, old.commitments, gpus, nodes),
    )


def _moved_rises(fresh: RiseMemory, old: RiseMemory, domains: IntArray) -> RiseMemory:
    return RiseMemory(
        old.times_ns,
        _moved(fresh.shares, old.shares, domains, 1),
        _moved(fresh.counts, old.counts, domains),
        _moved(fresh.total, old.total, domains),
    )


def _moved_highest(fresh: RecentHighest, old: RecentHighest, gpus: IntArray) -> RecentHighest:
    rows = tuple(_moved(fresh.nothing, row, gpus) for row in old.rows)
    return replace(old, nothing=fresh.nothing, rows=rows)


def _moved_trust(fresh: BoardTrust, old: BoardTrust, gpus: IntArray) -> BoardTrust:
    return BoardTrust(
        _moved(fresh.trusted, old.trusted, gpus),
        _moved(fresh.began_ns, old.began_ns, gpus),
        _moved(fresh.over_since_ns, old.over_since_ns, gpus),
        _moved(fresh.doubted_ns, old.doubted_ns, gpus),
        _moved_highest(fresh.caps, old.caps, gpus),
    )


def _moved_readings(
    fresh: ReadingMemory, old: ReadingMemory, gpus: IntArray, nodes: IntArray
) -> ReadingMemory:
    return ReadingMemory(
        _moved(fresh.received_ns, old.received_ns, nodes),
        _moved(fresh.gpu_draw_watts, old.gpu_draw_watts, gpus),
        _moved(fresh.gpu_same, old.gpu_same, gpus),
        _moved(fresh.host_watts, old.host_watts, nodes),
        _moved(fresh.host_same, old.host_same, nodes),
        _moved_highest(fresh.highest, old.highest, gpus),
    )


def _moved_meters(fresh: MeterMemory, old: MeterMemory, domains: IntArray) -> MeterMemory:
    """Gain and share are of other members, but nearer to the truth than nothing."""
    return replace(
        fresh,
        last_watts=_moved(fresh.last_watts, old.last_watts, domains),
        last_time_ns=_moved(fresh.last_time_ns, old.last_time_ns, domains),
        same_count=_moved(fresh.same_count, old.same_count, domains),
        gain=_moved(fresh.gain, old.gain, domains),
        host_share=_moved(fresh.host_share, old.host_share, domains),
        lessons=_moved(fresh.lessons, old.lessons, domains),
    )


def _moved_feeds(fresh: FeedMemory, old: FeedMemory, domains: IntArray) -> FeedMemory:
    return FeedMemory(
        _moved(fresh.last_share, old.last_share, domains),
        _moved(fresh.last_time_ns, old.last_time_ns, domains),
        _moved(fresh.same_count, old.same_count, domains),
        _moved_highest(fresh.highest, old.highest, domains),
    )


def _moved_commitments(
    fresh: Commitments, old: Commitments, gpus: IntArray, nodes: IntArray
) -> Commitments:
    return Commitments(
        epoch=old.epoch,
        since_ns=old.since_ns,
        next_sequence=old.next_sequence,
        last_sent_ns=old.last_sent_ns,
        sequence=old.sequence,
        sent_ns=old.sent_ns,
        caps_watts=_moved(fresh.caps_watts, old.caps_watts, gpus, 1),
        older_caps_watts=_moved(fresh.older_caps_watts, old.older_caps_watts, gpus),
        older_sequence=_moved(fresh.older_sequence, old.older_sequence, gpus),
        older_sent_ns=_moved(fresh.older_sent_ns, old.older_sent_ns, gpus),
        unproven_ns=_moved(fresh.unproven_ns, old.unproven_ns, nodes),
        # A new topology may hold another order of GPUs: every node hears of its caps again.
        node_sent_ns=fresh.node_sent_ns,
        node_sequence=fresh.node_sequence,
        node_caps_watts=fresh.node_caps_watts,
    )
