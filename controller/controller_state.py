"""What the controller remembers from tick to tick."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.alarms import Alarms, no_alarms
from controller.allocation import Wants
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
from controller.decide import calm_wants
from controller.demand import no_demand_yet
from controller.felt_heat import FeltMemory, nothing_felt
from controller.gap_heat import GapRow
from controller.guaranteed_case import GuaranteedCase
from controller.meters import MeterMemory, initial_meters
from controller.readings import ReadingMemory, initial_readings
from controller.reserve_feeds import FeedMemory, initial_feeds
from controller.server_hosts import ServerHosts, no_hosts_yet
from controller.standing import Standing, nothing_stood
from controller.tick_values import PowerSettings, Topology
from wattpack.errors import InputError
from wattpack.power.board_trust import BoardTrust, all_trusted
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree
from wattpack.power.recent_highest import RecentHighest

__all__ = ["State", "base_watts", "initial_state"]


@dataclass(frozen=True, slots=True)
class State:
    """Everything that one tick hands to the next.

    Attributes:
        topology: What the arrays below belong to.
        load: The same as sums over the tree.
        calm_wants: What everybody is owed while nothing brakes and nobody caps by hand.
        now_ns: Time of the last tick, -1 before the first.
        first_ns: Time of the first tick, -1 before it.
        heat: Breaker heat, (n_domains,).
        told_heat: What of it was told at the begin, until the time without leader is taken off,
            (n_domains,).
        unanswered_ns: For how long nobody had answered each server then, (n_nodes,).
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
        saved_raise_seconds: For how much time raises at the rate have taken nothing, infinite
            before the first, (n_domains,).
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
        gap_rows: What silent servers counted, until they are heard.
        together: Measured over modelled draw of boards lately.
        together_now: The newest of it, NaN before the first, (n_domains,).
        server_hosts: What servers were told to draw beside their boards.
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
    calm_wants: Wants
    now_ns: int
    first_ns: int
    heat: FloatArray
    told_heat: FloatArray
    unanswered_ns: IntArray
    draw_watts: FloatArray
    budget_watts: FloatArray
    heard: BoolArray
    recovering: BoolArray
    fresh_ticks: IntArray
    seamless: BoolArray
    decided_watts: FloatArray
    lock_watts: FloatArray
    clock_share: FloatArray
    saved_raise_seconds: FloatArray
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
    gap_rows: tuple[GapRow, ...]
    together: RecentHighest
    together_now: FloatArray
    server_hosts: ServerHosts
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
        calm_wants=calm_wants(topology),
        now_ns=-1,
        first_ns=-1,
        heat=start,
        told_heat=start,
        unanswered_ns=np.zeros(n_nodes, dtype=np.int64),
        draw_watts=np.zeros(n_domains),
        budget_watts=load.tree.all_feeds_watts / load.tree.phase_imbalance,
        heard=no,
        recovering=~no,
        fresh_ticks=np.zeros(n_domains, dtype=np.int64),
        seamless=no,
        decided_watts=np.zeros(n_gpus),
        lock_watts=np.full(n_gpus, np.inf),
        clock_share=np.ones(n_gpus),
        saved_raise_seconds=np.full(n_domains, np.inf),
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
        gap_rows=(),
        together=no_coincidence_yet(n_domains),
        together_now=np.full(n_domains, np.nan),
        server_hosts=no_hosts_yet(n_nodes),
        beyond_nodes_watts=np.zeros(n_domains),
        commitments=initial_commitments(n_gpus, n_nodes, 0, 0),
        guaranteed=None,
        alarms=no_alarms(n_domains),
        feeds=initial_feeds(n_domains),
        available_watts=load.rating_watts,
    )


def base_watts(state: State) -> FloatArray:
    """What the bands are shares of: what the feeds carry or a lower budget, (n_domains,)."""
    return np.minimum(state.available_watts, state.budget_watts)


def _checked_heat(heat: FloatArray | None, n_domains: int) -> FloatArray:
    start = np.zeros(n_domains) if heat is None else np.asarray(heat, dtype=np.float64)
    if start.shape != (n_domains,) or not np.all((start >= 0.0) & (start <= 1.0)):
        raise InputError("heat", f"{n_domains} numbers from 0 to 1", heat)
    return start
