"""What a state keeps when the membership of its domains changes: pods, servers, specs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.alarms import Alarms
from controller.bands import BandMemory, HeldMemory, RiseMemory
from controller.changes import ChangeMemory
from controller.commitments import Commitments
from controller.controller_state import State, initial_state
from controller.felt_heat import FeltMemory
from controller.meters import MeterMemory
from controller.readings import ReadingMemory
from controller.reserve_feeds import FeedMemory
from controller.server_hosts import ServerHosts
from controller.standing import Standing
from controller.tick_values import PowerSettings, Topology
from wattpack.errors import InputError
from wattpack.power.board_trust import BoardTrust
from wattpack.power.domain_tree import BoolArray, IntArray
from wattpack.power.feasibility import LoadTree
from wattpack.power.recent_highest import RecentHighest

__all__ = ["carry_over"]

Array = NDArray[Any]


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
    moved = _with_boards(_with_domains(fresh, state, domains), state, gpus, nodes)
    same = _same_members(state, new_topology, moved.load, domains, gpus, nodes)
    return _with_sums(moved, state, np.where(same, domains, -1), gpus, nodes)


def _same_members(
    old: State,
    new: Topology,
    load: LoadTree,
    domains: IntArray,
    gpus: IntArray,
    nodes: IntArray,
) -> BoolArray:
    """Domains that feed the same servers and boards as before, (n_domains,)."""
    nowhere = np.full(new.n_nodes, -1, dtype=np.int64)
    was_below = _moved(nowhere, old.topology.domain_of_node, nodes)
    came = (nodes < 0) | (domains[new.domain_of_node] != was_below)
    touched = load.sum_nodes(came.astype(np.float64))
    touched = touched + load.sum_gpus((gpus < 0).astype(np.float64))
    had = old.load.nodes_below + old.load.gpus_below
    has = load.nodes_below + load.gpus_below
    return np.asarray((domains >= 0) & (touched == 0.0) & (has == had[domains]))


def _with_sums(
    fresh: State, old: State, domains: IntArray, gpus: IntArray, nodes: IntArray
) -> State:
    """The new state with what is remembered of sums over boards, of the same boards only."""
    nobody = np.zeros(len(domains))
    changes = ChangeMemory(
        _moved(fresh.changes.gpu_watts, old.changes.gpu_watts, gpus),
        _moved(fresh.changes.gpu_seen, old.changes.gpu_seen, gpus),
        _moved(fresh.changes.host_watts, old.changes.host_watts, nodes),
        _moved(fresh.changes.host_seen, old.changes.host_seen, nodes),
        _moved(nobody, old.changes.total_watts, domains),
        old.changes.times_ns,
        _moved(fresh.changes.totals_watts, old.changes.totals_watts, domains, 1),
    )
    # Of others everything is expected at once until they have been seen for half a minute: their
    # buckets say 1 until they are over.
    everything = np.ones(len(domains))
    rows = tuple(_moved(everything, row, domains) for row in old.together.rows)
    together = replace(old.together, nothing=fresh.together.nothing, rows=rows)
    return replace(
        fresh,
        changes=changes,
        meters=replace(
            fresh.meters,
            read_watts=_moved(fresh.meters.read_watts, old.meters.read_watts, domains),
        ),
        together=together,
        together_now=_moved(fresh.together_now, old.together_now, domains),
        beyond_nodes_watts=_moved(nobody, old.beyond_nodes_watts, domains),
    )


def _with_domains(fresh: State, old: State, domains: IntArray) -> State:
    """The new state with what domains that stay remember."""

    def moved(new: Array, old: Array, axis: int = 0) -> Array:
        return _moved(new, old, domains, axis)

    budget = moved(fresh.budget_watts, old.budget_watts)
    return replace(
        fresh,
        heat=moved(fresh.heat, old.heat),
        told_heat=moved(fresh.told_heat, old.told_heat),
        draw_watts=moved(fresh.draw_watts, old.draw_watts),
        budget_watts=np.minimum(budget, fresh.budget_watts),
        heard=moved(fresh.heard, old.heard),
        recovering=moved(fresh.recovering, old.recovering),
        fresh_ticks=moved(fresh.fresh_ticks, old.fresh_ticks),
        seamless=moved(fresh.seamless, old.seamless),
        saved_raise_seconds=moved(fresh.saved_raise_seconds, old.saved_raise_seconds),
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
        felt=FeltMemory(
            old.felt.begins_ns,
            old.felt.ends_ns,
            moved(fresh.felt.watts, old.felt.watts, 1),
            moved(fresh.felt.settled_ns, old.felt.settled_ns),
        ),
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
    sheddable = fresh.topology.sheddable_gpu
    return replace(
        fresh,
        unanswered_ns=_moved(fresh.unanswered_ns, old.unanswered_ns, nodes),
        decided_watts=_moved(fresh.decided_watts, old.decided_watts, gpus),
        lock_watts=_moved(fresh.lock_watts, old.lock_watts, gpus),
        clock_share=np.where(sheddable, _moved(fresh.clock_share, old.clock_share, gpus), 1.0),
        demand=_moved_highest(fresh.demand, old.demand, gpus),
        trust=_moved_trust(fresh.trust, old.trust, gpus),
        readings=_moved_readings(fresh.readings, old.readings, gpus, nodes),
        server_hosts=ServerHosts(
            _moved(fresh.server_hosts.watts, old.server_hosts.watts, nodes),
            _moved(fresh.server_hosts.boards_watts, old.server_hosts.boards_watts, nodes),
            _moved(fresh.server_hosts.tellings, old.server_hosts.tellings, nodes),
            _moved(fresh.server_hosts.untold_seconds, old.server_hosts.untold_seconds, nodes),
        ),
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
        _moved(fresh.contradicted_ns, old.contradicted_ns, gpus),
        _moved(fresh.host_watts, old.host_watts, nodes),
        _moved(fresh.host_same, old.host_same, nodes),
        _moved(fresh.host_time_ns, old.host_time_ns, nodes),
        _moved_highest(fresh.highest, old.highest, gpus),
    )


def _moved_meters(fresh: MeterMemory, old: MeterMemory, domains: IntArray) -> MeterMemory:
    """The gain is of other members, but nearer to the truth than nothing."""
    return replace(
        fresh,
        last_watts=_moved(fresh.last_watts, old.last_watts, domains),
        last_time_ns=_moved(fresh.last_time_ns, old.last_time_ns, domains),
        same_count=_moved(fresh.same_count, old.same_count, domains),
        step_watts=_moved(fresh.step_watts, old.step_watts, domains),
        changes=_moved(fresh.changes, old.changes, domains),
        gain=_moved(fresh.gain, old.gain, domains),
        lessons=_moved(fresh.lessons, old.lessons, domains),
        unused_seconds=_moved(fresh.unused_seconds, old.unused_seconds, domains),
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
