"""A small random plant: boards, actuators with leases, a network that loses and delays, a breaker.

It is written from the invariants, not from the controller: the breaker here integrates the true
draw, the actuator checks epoch, sequence and nonce age by itself and lets leases run out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from controller.tick_values import Commands, Observations, PowerSettings, Topology
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray
from wattpack.power.feasibility import LoadTree

NS = 1_000_000_000


@dataclass(frozen=True)
class Faults:
    """Chances, each a tick."""

    report_lost: float = 0.0
    batch_lost: float = 0.0
    batch_delay_seconds: int = 0
    silent_write_failure: float = 0.0
    ignores_cap_share: float = 0.0
    reboot: float = 0.0
    sensor_gain: float = 0.0
    leader_change: float = 0.0
    outage_start: int = -1
    outage_seconds: int = 0


class Plant:
    """Truth, one second a step.

    Args:
        topology: What hangs where.
        faults: What goes wrong.
        rng: All chance.
        settings: For the lease length.
    """

    def __init__(
        self,
        topology: Topology,
        faults: Faults,
        rng: np.random.Generator,
        settings: PowerSettings,
    ) -> None:
        self.topology, self.faults, self.rng, self.settings = topology, faults, rng, settings
        g, n = topology.n_gpus, topology.n_nodes
        self.load = LoadTree(topology.tree, topology.domain_of_node, topology.node_of_gpu)
        self.cap: FloatArray = topology.guaranteed_watts.copy()
        self.deadline: IntArray = np.full(g, -1, dtype=np.int64)
        self.confirmed: IntArray = np.zeros(g, dtype=np.int64)
        self.epoch = np.zeros(n, dtype=np.int64)
        self.boot: IntArray = np.zeros(n, dtype=np.int64)
        self.reported_boot: IntArray = np.zeros(n, dtype=np.int64)
        self.ignores: BoolArray = rng.random(g) < faults.ignores_cap_share
        self.gain: FloatArray = 1.0 + faults.sensor_gain * rng.uniform(-1, 1, g)
        self.demand: FloatArray = np.full(g, 100.0)
        self.draw: FloatArray = np.full(g, 100.0)
        self.energy: deque[FloatArray] = deque(maxlen=3)
        self.heat: FloatArray = np.zeros(topology.n_domains)
        self.in_flight: list[tuple[int, Commands]] = []
        self.received: IntArray = np.full(n, -1, dtype=np.int64)
        self.seen_draw_watts: FloatArray = np.full(g, np.nan)
        self.seen_energy: FloatArray = np.full(g, np.nan)
        self.seen_cap: FloatArray = np.full(g, np.nan)
        self.seen_confirmed: IntArray = np.zeros(g, dtype=np.int64)
        self.leader_epoch = 1
        self.commands_by_leader: deque[int] = deque()

    def host_watts(self) -> FloatArray:
        """Servers without GPUs: fans follow the GPUs, never above the declared worst."""
        by_node = np.bincount(
            self.topology.node_of_gpu, weights=self.draw, minlength=self.topology.n_nodes
        )
        gpus = np.maximum(np.bincount(self.topology.node_of_gpu), 1)
        share = np.minimum(by_node / gpus / 700.0, 1.0)
        idle, worst = self.topology.node_idle_watts, self.topology.node_worst_watts
        return np.asarray(idle + share * (worst - idle))

    def true_load_watts(self) -> FloatArray:
        """AC load of each domain, (n_domains,)."""
        dc = self.load.sum_gpus(self.draw) + self.load.sum_nodes(self.host_watts())
        return np.asarray(dc / self.load.efficiency + self.load.external_watts)

    def advance(self, tick: int) -> None:
        """One second passes."""
        now = tick * NS
        self._deliver(now)
        expired = (self.deadline >= 0) & (now >= self.deadline)
        self.cap[expired] = self.topology.guaranteed_watts[expired]
        self.deadline[expired] = -1
        reboots = self.rng.random(self.topology.n_nodes) < self.faults.reboot
        for node in np.flatnonzero(reboots):
            mine = self.topology.node_of_gpu == node
            fallback = self.topology.guaranteed_watts
            if not self.topology.node_host_unit[node]:
                fallback = self.topology.default_limit_watts
            self.cap[mine], self.deadline[mine], self.confirmed[mine] = fallback[mine], -1, 0
            self.boot[node] += 1
            self.epoch[node] = 0
        limited = np.where(self.ignores, 700.0, self.cap * 1.02)
        goal = np.minimum(self.demand, limited)
        # Two thirds of the way each second: settled within 3 s.
        self.draw = self.draw + 0.67 * (goal - self.draw)
        self.energy.append(self.draw.copy())
        ratio = self.true_load_watts() / self.load.rating_watts
        trip = self.load.curves.trip_seconds(ratio)
        cooled = self.heat * np.exp(-1.0 / self.topology.tree.cooling_seconds)
        self.heat = np.where(ratio > 1.0, self.heat + 1.0 / trip, cooled)

    def _deliver(self, now: int) -> None:
        arrived = [c for t, c in self.in_flight if t <= now]
        self.in_flight = [(t, c) for t, c in self.in_flight if t > now]
        for commands in arrived:
            self._apply(commands, now)

    def _apply(self, commands: Commands, now: int) -> None:
        lost = self.rng.random(self.topology.n_nodes) < self.faults.batch_lost
        nodes = commands.send & ~lost & (commands.epoch >= self.epoch)
        # The nonce is the second in which the report was made, plus one.
        issued = (commands.nonce.astype(np.int64) - 1) * NS
        nodes &= now - issued <= self.settings.nonce_max_age_ns
        nodes &= commands.nonce > 0
        newer = nodes & (commands.epoch > self.epoch)
        fresh_epoch = newer[self.topology.node_of_gpu]
        self.confirmed[fresh_epoch] = 0
        self.epoch[nodes] = commands.epoch
        gpus = nodes[self.topology.node_of_gpu] & (commands.sequence > self.confirmed)
        failed = self.rng.random(self.topology.n_gpus) < self.faults.silent_write_failure
        done = gpus & ~failed
        self.cap[done] = commands.cap_watts[done]
        self.confirmed[done] = commands.sequence
        deadline = issued + self.settings.lease_ttl_ms * 1_000_000
        self.deadline[done] = deadline[self.topology.node_of_gpu][done]

    def send(self, tick: int, commands: Commands) -> None:
        """Put a leader's batches on the wire."""
        if not commands.send.any():
            return
        delay = int(self.rng.integers(0, self.faults.batch_delay_seconds + 1))
        self.in_flight.append((tick * NS + delay * NS + 1, commands))

    def observe(self, tick: int) -> Observations:
        """What the controller sees at this second."""
        t, f, now = self.topology, self.faults, tick * NS
        out = f.outage_start <= tick < f.outage_start + f.outage_seconds
        lost = (self.rng.random(t.n_nodes) < f.report_lost) | out
        here = ~lost
        gpus = here[t.node_of_gpu]
        self.received[here] = now
        mean = np.mean(self.energy, axis=0) if self.energy else self.draw
        self.seen_draw_watts[gpus] = (self.draw * self.gain)[gpus]
        self.seen_energy[gpus] = mean[gpus]
        self.seen_cap[gpus] = self.cap[gpus]
        self.seen_confirmed[gpus] = np.where(
            self.epoch[t.node_of_gpu] == self.leader_epoch, self.confirmed, 0
        )[gpus]
        rebooted = here & (self.boot != self.reported_boot)
        self.reported_boot[here] = self.boot[here]
        return Observations(
            node_received_ns=self.received.copy(),
            node_nonce=np.where(self.received >= 0, self.received // NS + 1, 0).astype(np.uint64),
            node_rebooted=rebooted,
            host_watts=self.host_watts(),
            gpu_draw_watts=self.seen_draw_watts.copy(),
            gpu_energy_mean_watts=self.seen_energy.copy(),
            gpu_limit_watts=self.seen_cap.copy(),
            gpu_guaranteed_watts=np.where(np.isnan(self.seen_cap), np.nan, t.guaranteed_watts),
            gpu_confirmed_sequence=self.seen_confirmed.copy(),
            gpu_controlled=~np.isnan(self.seen_cap),
            meter_watts=np.full(t.n_domains, np.nan),
            meter_time_ns=np.full(t.n_domains, -1, dtype=np.int64),
            forecast_p99_watts=np.full(t.n_domains, np.nan),
            budget_watts=t.tree.rating_watts.copy(),
            override_cap_watts=np.full(t.n_gpus, np.nan),
            epoch=self.leader_epoch,
            leading=True,
            may_raise=True,
            highest_epoch_seen=int(self.epoch.max(initial=0)),
        )
