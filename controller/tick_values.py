"""The values that the controller core works on: arrays by GPU, node and domain index.

``step(tick, state) -> (state, commands, decisions)`` in ``controller.step`` is the only place where
they meet; a ``Tick`` holds topology, observations, settings and the time. Its callers are the gRPC
server's tick (``controller.app``) and the twin (``simulation.app.twin_run``): both fill these.

    reports, meters, forecasts ──> Observations ──┐
    PowerDomain/Policy objects ──> Topology ──────┼──> step() ──> Commands ──> lease batches
    last tick ───────────────────> State ─────────┘        └────> Decisions ─> events, audit

Shapes: n_gpus, n_nodes, n_domains as in the topology. Watts at a GPU are DC board watts; watts at a
domain are AC watts at its breaker. NaN stands for "not known" in float observations, never for 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from controller.cap_reason import CapReason
from controller.lock_law import LockLaw
from wattpack.fencing import EPOCH_ROOM
from wattpack.power.domain_tree import BoolArray, DomainTree, FloatArray, IntArray
from wattpack.power.host_line import HostLines
from wattpack.units import NS_PER_MS


class Band(IntEnum):
    """Where a domain's predicted draw stands, from calm to emergency."""

    NORMAL = 0
    RELEASING = 1
    CAPPING = 2
    BRAKE = 3


@dataclass(frozen=True, slots=True)
class Topology:
    """What hangs where, and what each GPU is owed. Rebuilt when objects change.

    Attributes:
        gpu_uuids: (n_gpus,).
        node_names: (n_nodes,).
        tree: The domains.
        node_of_gpu: (n_gpus,).
        domain_of_node: The domain directly above each node, (n_nodes,).
        min_limit_watts: Lowest settable limit, (n_gpus,).
        default_limit_watts: What a board falls to on reboot, (n_gpus,).
        guaranteed_watts: What lease expiry falls to, sized by I1, (n_gpus,).
        floor_watts: Promised while control works, (n_gpus,).
        request_watts: What the work would like, at most the default limit, (n_gpus,).
        priority: Higher is capped later, (n_gpus,).
        gang: Gang number, -1 for none; members get one common cap, (n_gpus,).
        value_per_watt: Relative work that one more watt buys here, (n_gpus,).
        clock_lock: Whether clocks are locked beside the limit, because that sheds at less loss,
            (n_gpus,).
        node_worst_watts: Worst draw of each server without its GPUs, DC-equivalent, (n_nodes,).
        node_host_unit: Whether the host caps before kubelet starts (I10), (n_nodes,).
        node_idle_watts: What each draws so at rest, as declared, (n_nodes,); empty: unknown.
        host_lines: The same over what its GPUs hold, for I1; None: nobody declared it.
        max_clock_mhz: Highest SM clock, 0 = unknown: such a GPU is not clock-locked, (n_gpus,);
            empty if no clock is known.
        lock_law: What a lock stands for; None: every GPU's work is unknown.
        value_steps_watts: Caps up to which a watt still buys the work of each step, from the most
            valuable on and never falling, (n_steps, n_gpus); no step: all watts are alike.
        shed_clock_share: Lowest clock over the highest to which a GPU's clock may shed load beside
            its limit, 1 for none, (n_gpus,); empty: none.
        domain_of_gpu: The domain directly above each GPU's node, (n_gpus,).
        enforced_gpu: Whether that one enforces, (n_gpus,).
        lockable_gpu: Locked when watts are short, and of a known clock, (n_gpus,).
        sheddable_gpu: The clock may be lowered to shed load, (n_gpus,).
    """

    gpu_uuids: tuple[str, ...]
    node_names: tuple[str, ...]
    tree: DomainTree
    node_of_gpu: IntArray
    domain_of_node: IntArray
    min_limit_watts: FloatArray
    default_limit_watts: FloatArray
    guaranteed_watts: FloatArray
    floor_watts: FloatArray
    request_watts: FloatArray
    priority: IntArray
    gang: IntArray
    value_per_watt: FloatArray
    clock_lock: BoolArray
    node_worst_watts: FloatArray
    node_host_unit: BoolArray
    max_clock_mhz: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    lock_law: LockLaw | None = None
    value_steps_watts: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    shed_clock_share: FloatArray = field(default_factory=lambda: np.zeros(0))
    node_idle_watts: FloatArray = field(default_factory=lambda: np.zeros(0))
    host_lines: HostLines | None = None
    domain_of_gpu: IntArray = field(init=False, repr=False)
    enforced_gpu: BoolArray = field(init=False, repr=False)
    lockable_gpu: BoolArray = field(init=False, repr=False)
    sheddable_gpu: BoolArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Every tick asks for these several times."""
        object.__setattr__(self, "domain_of_gpu", self.domain_of_node[self.node_of_gpu])
        object.__setattr__(self, "enforced_gpu", self.tree.enforce[self.domain_of_gpu])
        lockable = sheddable = np.zeros(self.n_gpus, dtype=np.bool_)
        if self.max_clock_mhz.size:
            clocked = self.max_clock_mhz > 0
            lockable = self.clock_lock & clocked
            if self.shed_clock_share.size:
                sheddable = (self.shed_clock_share < 1.0) & clocked & self.enforced_gpu
        object.__setattr__(self, "lockable_gpu", lockable)
        object.__setattr__(self, "sheddable_gpu", sheddable)

    @property
    def n_gpus(self) -> int:
        """Number of GPUs."""
        return len(self.gpu_uuids)

    @property
    def n_nodes(self) -> int:
        """Number of servers."""
        return len(self.node_names)

    @property
    def n_domains(self) -> int:
        """Number of domains."""
        return len(self.tree)


@dataclass(frozen=True, slots=True)
class Observations:
    """What is known at a tick. Times are on the controller's clock.

    Attributes:
        node_received_ns: When the newest report came, -1 if never, (n_nodes,).
        node_nonce: Nonce of that report, 0 = none to answer, (n_nodes,).
        node_rebooted: The boot id changed since the last tick, (n_nodes,).
        host_watts: Server draw beside its boards' readings, as a BMC of the whole server shows it,
            NaN where none does, (n_nodes,). What boards hide of their draw is in it.
        gpu_draw_watts: 1 s average, NaN if unreadable, (n_gpus,).
        gpu_energy_mean_watts: Mean over 3 s by the energy counter, NaN if not offered, (n_gpus,).
        gpu_limit_watts: Limit as read back, NaN if unknown, (n_gpus,).
        gpu_guaranteed_watts: Guaranteed cap as read back, NaN if unknown, (n_gpus,).
        gpu_confirmed_sequence: Last command read back in this epoch, 0 = none, (n_gpus,).
        gpu_leased: A lease holds the limit: it was commanded, not fallen to, (n_gpus,).
        gpu_controlled: The actuator answers and holds a guaranteed cap, (n_gpus,).
        meter_watts: Domain meter, NaN if none or stale, (n_domains,).
        meter_time_ns: Time stamp of the meter reading, (n_domains,).
        forecast_p99_watts: Peak of the horizon, NaN if there is no usable forecast, (n_domains,).
        budget_watts: Rating, schedule and overrides taken together, (n_domains,).
        override_cap_watts: Manual cap per GPU, NaN if none, (n_gpus,).
        epoch: Fencing epoch of our Lease, 0 when not leading.
        leading: Whether we may command.
        may_raise: Whether the Lease was renewed recently enough to raise (I4).
        node_epoch: Highest epoch that each actuator reports, whatever it is, (n_nodes,).
        feed_share: The busiest feed's share of each domain's load, NaN if nobody tells,
            (n_domains,); empty: nobody tells any.
        feed_time_ns: Time stamp of that reading, (n_domains,).
        gpu_gap_watts: Highest reading since the report before, where a board's agent tells it and
            its counter does not contradict, NaN else, (n_gpus,); empty: nobody tells any.
        node_unanswered_ns: How long before its newest report each node's last answered one was, by
            its own clock, 0 if it does not tell, (n_nodes,); empty: nobody tells.
        host_time_ns: When each BMC was read, (n_nodes,); empty: with the server's report.
    """

    node_received_ns: IntArray
    node_nonce: NDArray[np.uint64]
    node_rebooted: BoolArray
    host_watts: FloatArray
    gpu_draw_watts: FloatArray
    gpu_energy_mean_watts: FloatArray
    gpu_limit_watts: FloatArray
    gpu_guaranteed_watts: FloatArray
    gpu_confirmed_sequence: IntArray
    gpu_leased: BoolArray
    gpu_controlled: BoolArray
    meter_watts: FloatArray
    meter_time_ns: IntArray
    forecast_p99_watts: FloatArray
    budget_watts: FloatArray
    override_cap_watts: FloatArray
    epoch: int
    leading: bool
    may_raise: bool
    node_epoch: IntArray
    feed_share: FloatArray = field(default_factory=lambda: np.zeros(0))
    feed_time_ns: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    gpu_gap_watts: FloatArray = field(default_factory=lambda: np.zeros(0))
    node_unanswered_ns: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    host_time_ns: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def poisoned_nodes(self) -> BoolArray:
        """Nodes whose epoch our Lease cannot have reached (I4); none while we do not lead."""
        if self.epoch <= 0:
            return np.zeros(len(self.node_epoch), dtype=np.bool_)
        return np.asarray(self.node_epoch > self.epoch + EPOCH_ROOM)

    @property
    def highest_epoch_seen(self) -> int:
        """Highest epoch of any actuator that can be real; 0 if none is known."""
        return int(self.node_epoch[~self.poisoned_nodes].max(initial=0))


@dataclass(frozen=True, slots=True)
class PowerSettings:
    """Constants of the power loop; defaults: docs/power-control.md.

    Attributes:
        lease_ttl_ms: Lease length (I3).
        report_stale_ns: A node is silent after this long without a report.
        nonce_max_age_ns: Reports older than this get no command (I4).
        settle_seconds: From a written limit to the draw that it allows, p99.9 (I2): as an H200
            settles after a *load* step, 0.9 s above its limit and 0.3 s below (recording
            ``capacity/reference/boards/h200_power_steps.csv.gz``, read in
            ``capacity/model/capping_loop.py``).
            How a *lowered* limit acts was not measured: assumed the same.
        actuation_seconds: From a command, or the end of a lease, to the written limit, p99.9: the
            actuator's deadline for all boards of a node (``actuator/app/board_writes.py``).
        capping_margin_seconds: While a band holds a domain, its worst case has to be survived for
            this much longer than T_fault: caps that may rise higher let a capped row swing more
            (docs/adr/0043-a-shorter-lease.md).
        brake_heat: Predicted heat above which everything brakes.
        parent_heat: The same for domains with children (selectivity).
        target_margin: Target = cap band - this share of L.
        release_margin: Release = target - this share of L.
        release_dwell_seconds: Below release for this long before caps are lifted.
        rise_quantile_prior: Share of L by which draw may rise within the reaction time until the
            domain's own history says more.
        held_rise_prior: Share of L that a capping domain keeps free above its target until its own
            capped history says more.
    """

    lease_ttl_ms: int = 3500
    report_stale_ns: int = 3_000_000_000
    nonce_max_age_ns: int = 2_000_000_000
    settle_seconds: float = 1.3
    actuation_seconds: float = 0.5
    capping_margin_seconds: float = 0.5
    brake_heat: float = 0.5
    parent_heat: float = 0.25
    target_margin: float = 0.02
    release_margin: float = 0.05
    release_dwell_seconds: float = 30.0
    rise_quantile_prior: float = 0.05
    held_rise_prior: float = 0.0225

    @property
    def reaction_seconds(self) -> float:
        """From a command to its effect at p99.9: actuation and settling."""
        return self.actuation_seconds + self.settle_seconds

    @property
    def fault_seconds(self) -> float:
        """T_fault of I2: how long a jump lasts at which the controller dies."""
        return self.lease_ttl_ms / 1000.0 + self.reaction_seconds


@dataclass(frozen=True, slots=True)
class Tick:
    """Everything that one step is told.

    Attributes:
        topology: What hangs where.
        observations: What is known now.
        settings: Constants.
        now_ns: The controller's monotonic clock.
    """

    topology: Topology
    observations: Observations
    settings: PowerSettings
    now_ns: int

    @property
    def lease_ns(self) -> int:
        """Lease length."""
        return self.settings.lease_ttl_ms * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Commands:
    """What to send now. A node whose ``send`` is False gets nothing (its lease runs on).

    Attributes:
        epoch: Fencing epoch.
        sequence: Of this tick, the same for every node.
        ttl_ms: Lease length.
        send: Which nodes get a batch, (n_nodes,).
        nonce: Which report each batch answers, (n_nodes,).
        cap_watts: Power limit, (n_gpus,).
        lock_max_mhz: Clock lock, 0 = none, (n_gpus,).
        guaranteed_watts: New guaranteed cap, 0 = leave, (n_gpus,).
        decided_ns: Time of the tick; 0 where nobody is to repeat them (``controller.renewals``).
    """

    epoch: int
    sequence: int
    ttl_ms: int
    send: BoolArray
    nonce: NDArray[np.uint64]
    cap_watts: FloatArray
    lock_max_mhz: IntArray
    guaranteed_watts: FloatArray
    decided_ns: int = 0


@dataclass(frozen=True, slots=True)
class Transition:
    """A domain changed its band or condition: one Event, one audit line.

    Attributes:
        subject: What of the domain changed: lines of one subject follow each other.
    """

    domain: str
    subject: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Decisions:
    """Why the commands are what they are; feeds metrics, status, console and the audit log.

    Attributes:
        draw_watts: Estimated AC draw (I7), (n_domains,).
        worst_watts: AC draw with every GPU at the highest cap it may hold (I2), (n_domains,).
        guaranteed_watts: AC draw of I1's worst case, (n_domains,).
        survivable_watts: The most that ``worst_watts`` may be (I2), (n_domains,).
        jump_limit_watts: The most that caps may make of it: the same, less while a band holds the
            domain, (n_domains,).
        guaranteed_limit_watts: The most that ``guaranteed_watts`` may be (I1), (n_domains,).
        base_watts: What bands are shares of: what the feeds carry, or a lower budget, (n_domains,).
        cap_band_watts: (n_domains,).
        calm_watts: At or below this a brake ends, (n_domains,).
        release_watts: Draw below which caps are lifted, if ``uncapped_watts`` is below
            ``calm_watts``, too, (n_domains,).
        uncapped_watts: What would be drawn if no band held anything, as the bands expect it: at
            full requests, or while any domain caps at what I2 alone leaves, (n_domains,).
        recovering: Nothing is raised above guaranteed caps until the domain was heard for long
            enough and is cool (I6), (n_domains,).
        raises_stopped: What keeps this replica from raising anything, NOT_CAPPED for nothing.
        heat: Breaker heat, 1 = trip, (n_domains,).
        band: ``Band`` values, (n_domains,).
        binding_domain: The domain that ``reason`` speaks of, -1 for none, (n_gpus,).
        reason: ``CapReason`` values, (n_gpus,).
        decided_cap_watts: What would be commanded, also in DryRun, (n_gpus,).
        highest_cap_watts: The highest cap each GPU may hold now, (n_gpus,).
        trusted: (n_gpus,).
        silent_nodes: (n_nodes,).
        stale_readings: GPUs whose readings are not of this moment (I7), (n_gpus,).
        host_share: What servers count at beside their GPUs over what they declare at worst,
            (n_domains,).
        coincidence: Share of its boards' summed draws that each domain expects at one time,
            (n_domains,).
        available_watts: What the feeds that carry may do for long, over phase imbalance,
            (n_domains,).
        reserve_missing: Load may use reserve feeds and cannot: one is lost, or nobody tells,
            (n_domains,).
        meter_unused_seconds: How long no reading of each domain's meter was used, (n_domains,).
        meter_mismatch: A meter shows more than all that is known of below it, (n_domains,).
        transitions: Changes in this tick.
        lock_max_mhz: Clock lock beside the limit, 0 for none, (n_gpus,); empty: no locks.
    """

    draw_watts: FloatArray
    worst_watts: FloatArray
    guaranteed_watts: FloatArray
    survivable_watts: FloatArray
    jump_limit_watts: FloatArray
    guaranteed_limit_watts: FloatArray
    base_watts: FloatArray
    cap_band_watts: FloatArray
    calm_watts: FloatArray
    release_watts: FloatArray
    uncapped_watts: FloatArray
    recovering: BoolArray
    raises_stopped: CapReason
    heat: FloatArray
    band: IntArray
    binding_domain: IntArray
    reason: IntArray
    decided_cap_watts: FloatArray
    highest_cap_watts: FloatArray
    trusted: BoolArray
    silent_nodes: BoolArray
    stale_readings: BoolArray
    host_share: FloatArray
    coincidence: FloatArray
    available_watts: FloatArray
    reserve_missing: BoolArray
    meter_unused_seconds: FloatArray
    meter_mismatch: BoolArray
    transitions: tuple[Transition, ...] = field(default=())
    lock_max_mhz: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
