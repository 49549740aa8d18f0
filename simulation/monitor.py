"""Watches the invariants from outside: boards, leases and what was told, never the core's code.

Each condition is worked out anew here from docs/architecture.md (Promises), with its own constants:
the product's may move, what a breaker bears does not. What a declared fault does to a board (a
silent write failure, a hung or just rebooted board) is no violation of the product's; what the
product makes of it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulation.scenario import FaultKind
from simulation.world import World
from wattpack.units import NS_PER_SECOND, GpuUuid

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

OVERSHOOT = 1.05
GAIN_SPREAD = 0.09
LEASE_SECONDS = 4.0
"""The longest lease, unless the scenario declares a longer one (I3)."""

REACTION_SECONDS = 0.5 + 1.3
"""Actuation and settling at p99.9, as measured on boards: what a jump lasts beyond a lease (I2)."""

HEAT_TOLERANCE = 0.03
"""Curves through the same published points differ by up to 4 % between and beside them."""

LIMIT_TOLERANCE_WATTS = 1.5
HELD_SECONDS = 2.5
"""A limit above what is held is undone within a read-back period, seen a tick later (I10)."""

JUMP_SECONDS = 3.0
"""I2 is restored by lowering caps when nodes fall silent; a command and its read-back take this."""

UNTRUSTED_SECONDS = 8.0
BOUND_REASONS = frozenset({"DOMAIN_BAND", "SURVIVABLE_JUMP"})
FREE_REASONS = frozenset(
    {
        "UNCONTROLLED",
        "UNTRUSTED",
        "STARTING",
        "RAISE_RATE",
        "RECOVERING",
        "LEASE_NOT_RENEWED",
        "EPOCH_BEHIND",
        "NOT_LEADING",
    }
)


class HeldBoard(Protocol):
    """A board's entry in its actuator's lease table."""

    @property
    def cap_watts(self) -> float:
        """What it shall hold."""
        ...

    @property
    def guaranteed_watts(self) -> float:
        """What expiry falls to."""
        ...

    @property
    def lease_deadline_ns(self) -> int | None:
        """When its lease ends; None without one."""
        ...


class LeaseBook(Protocol):
    """A node's lease table, as far as one may look into it."""

    boot_id: str

    @property
    def highest_epoch(self) -> int:
        """Newest epoch that was accepted."""
        ...

    @property
    def highest_sequence(self) -> int:
        """Newest sequence in it."""
        ...

    def entries(self) -> Mapping[str, HeldBoard]:
        """The boards by UUID."""
        ...


@dataclass(frozen=True, slots=True)
class Told:
    """What a tick said of every board, in one order, and of silent nodes.

    Attributes:
        gpu_uuids: The order.
        silent_nodes: Names.
        decided_watts: Caps that were decided.
        request_watts: What the work would like.
        floor_watts: What was promised.
        priority: Higher is capped later.
        reason: Why a board is below its request, by the reason's name.
        held_by: The domain that held it back, empty for none.
        controlled: Whether an actuator vouches for it.
        trusted: Whether it keeps its caps.
    """

    gpu_uuids: tuple[str, ...]
    silent_nodes: frozenset[str]
    decided_watts: tuple[float, ...]
    request_watts: tuple[float, ...]
    floor_watts: tuple[float, ...]
    priority: tuple[int, ...]
    reason: tuple[str, ...]
    held_by: tuple[str, ...]
    controlled: tuple[bool, ...]
    trusted: tuple[bool, ...]


class InvariantMonitor:
    """Counts violations; each condition at most once a tick.

    Args:
        world: The plant.
        tables: Lease tables by node; a mapping that follows restarts.
    """

    def __init__(self, world: World, tables: Mapping[str, LeaseBook]) -> None:
        self._world = world
        self._tables = tables
        self.count = 0
        self.details: list[str] = []
        n = len(world.gpu_uuids)
        self._above_since_ns = np.full(n, -1, dtype=np.int64)
        self._hot_since_ns = np.full(n, -1, dtype=np.int64)
        self._jump_since_ns = np.full(len(world.domain_names), -1, dtype=np.int64)
        self._newest: dict[str, tuple[str, int, int]] = {}
        self._limit_watts = world.bank.limit_watts.copy()
        self._energy: list[tuple[int, Floats]] = []
        self._held_watts = np.zeros(n)
        self._guaranteed_watts = np.full(n, np.inf)
        declared = world.scenario.control.lease_ttl_ms / 1000.0
        self._lease_seconds = max(LEASE_SECONDS, declared)

    def _violated(self, name: str, now_ns: int, text: str) -> None:
        self.count += 1
        if len(self.details) < 1000:
            self.details.append(f"{name} at {now_ns / NS_PER_SECOND:.2f} s: {text}")

    # -- what the boards and leases show ---------------------------------------------------------

    def check(self, now_ns: int) -> None:
        """I1 to I4 and I10 on what is held and set now."""
        held, guaranteed, leased = self._held(now_ns)
        self._held_watts, self._guaranteed_watts = held, guaranteed
        self._check_range(held, guaranteed, now_ns)
        self._check_floor(guaranteed, now_ns)
        self._check_leases(held, guaranteed, leased, now_ns)

    def _held(self, now_ns: int) -> tuple[Floats, Floats, Bools]:
        """Caps and guaranteed caps of the lease tables, and whether a lease runs, (n_gpus,)."""
        world = self._world
        n = len(world.gpu_uuids)
        held, guaranteed = np.zeros(n), np.zeros(n)
        leased = np.zeros(n, dtype=np.bool_)
        for node, table in self._tables.items():
            newest = (table.boot_id, table.highest_epoch, table.highest_sequence)
            before = self._newest.get(node, newest)
            if before[0] == newest[0] and newest < before:
                self._violated("I4", now_ns, f"{node}: {newest} after {before}")
            self._newest[node] = newest
            for uuid, entry in table.entries().items():
                i = world.bank.index_of[GpuUuid(uuid)]
                held[i], guaranteed[i] = entry.cap_watts, entry.guaranteed_watts
                left_ns = (entry.lease_deadline_ns or 0) - now_ns
                # What ends at this very moment falls at it: in lockstep nobody has run in it yet.
                leased[i] = left_ns >= 0
                if left_ns > self._lease_seconds * NS_PER_SECOND:
                    self._violated("I3", now_ns, f"{uuid}: a lease of {left_ns} ns is left")
        return held, guaranteed, leased

    def _check_range(self, held: Floats, guaranteed: Floats, now_ns: int) -> None:
        bank = self._world.bank
        for caps in (held, guaranteed):
            ok = np.isfinite(caps) & (caps >= bank.min_limit_watts) & (caps <= bank.max_limit_watts)
            if not ok.all():
                self._violated("I8", now_ns, f"{(~ok).sum()} caps outside their board's range")

    def _domain_watts(self, caps: Floats, non_gpu: Floats, default: Bools) -> Floats:
        """AC watts at each domain with boards at caps, some servers at their default limits."""
        world, plant = self._world, self._world.scenario.plant
        caps = np.where(default[world.node_of_gpu], world.bank.default_limit_watts, caps)
        gpu = np.bincount(world.node_of_gpu, caps, minlength=len(world.node_names))
        per_domain = [np.ones(len(world.node_names), dtype=np.bool_)]
        per_domain += [world.rack_of_node == i for i in range(world.scenario.row.racks)]
        external = [world.scenario.row.external_watts, *([0.0] * world.scenario.row.racks)]
        total = []
        for members, more in zip(per_domain, external, strict=True):
            boards = int(members[world.node_of_gpu].sum())
            gain = 1.0 + GAIN_SPREAD / np.sqrt(boards)
            dc = gpu[members].sum() * OVERSHOOT * gain + non_gpu[members].sum()
            total.append(dc / plant.supply_efficiency + more)
        return np.array(total)

    def _ratings(self) -> Floats:
        """What one feed may carry when the other is lost."""
        return self._world.breakers.rating_watts

    def _check_floor(self, guaranteed: Floats, now_ns: int) -> None:
        """I1: guaranteed caps, worst servers, and the largest 5 % of a domain at default limits."""
        world = self._world
        n = len(world.node_names)
        worst, held = self._worst_hosts(guaranteed)
        jump = np.bincount(world.node_of_gpu, world.bank.default_limit_watts - guaranteed, n)
        for domain, rating in enumerate(self._ratings()):
            members = np.ones(n, dtype=np.bool_)
            if domain:
                members = world.rack_of_node == domain - 1
            count = max(1, int(np.ceil(0.05 * members.sum())))
            largest = np.argsort(-np.where(members, jump, -1.0), kind="stable")[:count]
            default = np.zeros(n, dtype=np.bool_)
            default[largest] = True
            hosts = np.where(default, worst, held)
            watts = self._domain_watts(guaranteed, hosts, default)[domain]
            if watts > rating + 1.0:
                self._violated(
                    "I1", now_ns, f"{world.domain_names[domain]}: {watts:.0f} of {rating:.0f} W"
                )

    def _worst_hosts(self, guaranteed: Floats) -> tuple[Floats, Floats]:
        """DC watts of servers without GPUs at worst, and with these held down, (n_nodes,) each."""
        world, plant = self._world, self._world.scenario.plant
        n = len(world.node_names)
        worst = np.full(n, plant.worst_host_watts)
        if not world.scenario.row.host_line:
            return worst, worst
        drawn = np.bincount(world.node_of_gpu, guaranteed * OVERSHOOT, n)
        brought = plant.host_watts_per_gpu_watt * np.minimum(drawn, plant.fan_full_gpu_watts)
        return worst, plant.worst_host_watts_at_rest + brought

    def _excused(self, now_ns: int) -> Bools:
        """Boards that a declared fault keeps from obeying, (n_gpus,)."""
        world, n = self._world, len(self._world.gpu_uuids)
        since_ns = now_ns - world.start_ns
        excused = np.zeros(n, dtype=np.bool_)
        for kind in (FaultKind.SILENT_WRITE_FAILURE, FaultKind.IGNORE_CAP, FaultKind.GPU_HUNG):
            excused |= world.faults.struck(kind, since_ns, n)
        down = np.array([not world.is_up(name) for name in world.node_names])
        return np.asarray(excused | down[world.node_of_gpu], dtype=np.bool_)

    def _check_leases(self, held: Floats, guaranteed: Floats, leased: Bools, now_ns: int) -> None:
        """I3 and I10: above guaranteed only under a lease, and no board above what is held."""
        limit = self._world.bank.limit_watts
        excused = self._excused(now_ns)
        without = (held > guaranteed + LIMIT_TOLERANCE_WATTS) & ~leased & ~excused
        if without.any():
            self._violated("I3", now_ns, f"{without.sum()} caps above guaranteed without a lease")
        above = (limit > held + LIMIT_TOLERANCE_WATTS) & ~excused
        self._above_since_ns = np.where(
            above, np.where(self._above_since_ns < 0, now_ns, self._above_since_ns), -1
        )
        seconds = (now_ns - self._above_since_ns) / NS_PER_SECOND
        late = above & (seconds > HELD_SECONDS)
        if late.any():
            self._violated("I10", now_ns, f"{late.sum()} boards above their held cap for too long")

    # -- what was decided ------------------------------------------------------------------------

    def decided(self, told: Told, now_ns: int) -> None:
        """I2, I5 and I7 on what a tick told."""
        self._check_jump(told, now_ns)
        self._check_order(told, now_ns)
        self._check_trust(told, now_ns)

    def _check_jump(self, told: Told, now_ns: int) -> None:
        """I2: everything at its highest cap at once, for as long as a dead controller allows."""
        world, plant = self._world, self._world.scenario.plant
        silent = np.array([name in told.silent_nodes for name in world.node_names])
        quiet = silent[world.node_of_gpu]
        caps = np.maximum(self._held_watts, world.bank.limit_watts)
        caps = np.where(quiet, world.bank.default_limit_watts, caps)
        no = np.zeros(len(world.node_names), dtype=np.bool_)
        worst = np.full(len(world.node_names), plant.worst_host_watts)
        ratio = self._domain_watts(caps, worst, no) / self._ratings()
        trip_seconds = world.breakers.earliest_seconds(ratio)
        fault = self._lease_seconds + REACTION_SECONDS
        heat = world.breakers.heat + fault / trip_seconds
        racks = world.scenario.row.racks
        allowed = np.array([0.25] + [0.5] * racks)
        # Silent nodes count at their default limits; once the others that can be written are at
        # guaranteed caps there is nothing left to lower: what is there cannot be refused (I1).
        lowerable = ~quiet & ~self._excused(now_ns)
        above = lowerable & (caps > self._guaranteed_watts + LIMIT_TOLERANCE_WATTS)
        rack_of_gpu = world.rack_of_node[world.node_of_gpu]
        left = [above.any(), *(above[rack_of_gpu == rack].any() for rack in range(racks))]
        bad = ((heat > allowed + HEAT_TOLERANCE) | (ratio > 1.5)) & np.array(left)
        since_ns = np.where(self._jump_since_ns < 0, now_ns, self._jump_since_ns)
        self._jump_since_ns = np.where(bad, since_ns, -1)
        late = bad & (now_ns - since_ns > JUMP_SECONDS * NS_PER_SECOND)
        for domain in np.flatnonzero(late):
            name = world.domain_names[int(domain)]
            text = f"{name}: load {ratio[domain]:.3f} would heat to {heat[domain]:.3f}"
            self._violated("I2", now_ns, text)

    def _check_order(self, told: Told, now_ns: int) -> None:
        """I5: no more important board below its request beside a less important above its floor."""
        for domain in sorted(set(told.held_by) - {""}):
            short, favoured = [], []
            for i, uuid in enumerate(told.gpu_uuids):
                if not told.trusted[i]:
                    continue
                below = told.decided_watts[i] < told.request_watts[i] - 1.0
                if below and told.reason[i] in BOUND_REASONS and told.held_by[i] == domain:
                    short.append(told.priority[i])
                above = told.decided_watts[i] > told.floor_watts[i] + 1.0
                free = told.reason[i] not in FREE_REASONS and told.controlled[i]
                if above and free and self._hangs_below(uuid, domain):
                    favoured.append(told.priority[i])
            lower = sum(priority < max(short, default=-(2**63)) for priority in favoured)
            if lower:
                text = f"{domain}: {len(short)} boards short, {lower} less important above floor"
                self._violated("I5", now_ns, text)

    def _hangs_below(self, uuid: str, domain: str) -> bool:
        """Whether a board is fed through a domain: the row feeds every rack."""
        world = self._world
        node = world.node_of_gpu[world.bank.index_of[GpuUuid(uuid)]]
        return domain in (world.domain_names[0], world.domain_names[1 + world.rack_of_node[node]])

    def _check_trust(self, told: Told, now_ns: int) -> None:
        """I7: whose counter shows 10 % above its cap over 3 s for long is no longer trusted."""
        bank = self._world.bank
        self._energy.append((now_ns, bank.counted_joules.copy()))
        while len(self._energy) > 1 and now_ns - self._energy[1][0] >= 3 * NS_PER_SECOND:
            self._energy.pop(0)
        then_ns, then = self._energy[0]
        changed = np.abs(bank.limit_watts - self._limit_watts) > 1.0
        self._limit_watts = bank.limit_watts.copy()
        if now_ns - then_ns < 3 * NS_PER_SECOND:
            return
        mean = (bank.counted_joules - then) / ((now_ns - then_ns) / NS_PER_SECOND)
        hot = (mean > 1.10 * bank.limit_watts + 1.0) & ~changed
        self._hot_since_ns = np.where(
            hot, np.where(self._hot_since_ns < 0, now_ns, self._hot_since_ns), -1
        )
        long = hot & ((now_ns - self._hot_since_ns) / NS_PER_SECOND > UNTRUSTED_SECONDS)
        trusted = np.ones(len(bank), dtype=np.bool_)
        order = [bank.index_of[GpuUuid(uuid)] for uuid in told.gpu_uuids]
        trusted[order] = told.trusted
        if (long & trusted).any():
            self._violated("I7", now_ns, f"{(long & trusted).sum()} hot boards are trusted")
