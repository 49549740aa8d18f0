"""The product's controller as a policy: reports to Observations, ``step()``, Commands to batches.

What the product's fleet does with messages is done here with arrays; the decision is the product's
own code.
"""

from __future__ import annotations

import numpy as np

from controller.step import State, initial_state, step
from controller.tick_values import (
    Band,
    Commands,
    Decisions,
    Observations,
    PowerSettings,
    Tick,
    Topology,
)
from simulation.row_control.answers import Answers
from simulation.row_control.messages import NO_ORDERS, LeaseBatches, Orders, Reports, joined
from simulation.row_control.row_policy import Answer, Known
from simulation.row_control.work import Bools, Floats, Integers
from wattpack.units import NS_PER_SECOND

LARGE_RISE_SHARE = 0.02
"""Boards that rose together by this share of the largest rating since the last tick make the next
one due at once, as in the product's fleet."""

_ENERGY_NS = 3 * NS_PER_SECOND
_RING = 16


class _EnergyMeans:
    """Each board's mean draw over at least 3 s by its counter, of nodes that report."""

    def __init__(self, n_nodes: int, g: int) -> None:
        self._clock_ns = np.full((n_nodes, _RING), -1, dtype=np.int64)
        self._joules = np.full((n_nodes, _RING, g), np.nan)
        self._next = np.zeros(n_nodes, dtype=np.int64)

    def forget(self, nodes: Integers) -> None:
        """These nodes' counters began anew."""
        self._clock_ns[nodes] = -1

    def take(self, nodes: Integers, clock_ns: Integers, joules: Floats) -> Floats:
        """Means after a reading of each of the nodes, NaN where one is too little, (k, g)."""
        last = (self._next[nodes] - 1) % _RING
        known = self._clock_ns[nodes, last] >= 0
        before: Floats = self._joules[nodes, last]
        again = known & np.asarray(joules < before).any(axis=1)
        self.forget(nodes[again])
        at = self._next[nodes]
        self._clock_ns[nodes, at] = clock_ns
        self._joules[nodes, at] = joules
        self._next[nodes] = (at + 1) % _RING
        stamps = self._clock_ns[nodes]
        age = clock_ns[:, None] - stamps
        usable = (stamps >= 0) & (age > 0)
        old = usable & (age >= _ENERGY_NS)
        # The youngest of those that are old enough, else the oldest there is.
        rank = np.where(old, -age, np.where(usable, age - (1 << 60), -(1 << 61)))
        begin = rank.argmax(axis=1)
        rows = np.arange(len(nodes))
        seconds = age[rows, begin] / NS_PER_SECOND
        with np.errstate(invalid="ignore", divide="ignore"):
            means = (joules - self._joules[nodes, begin]) / seconds[:, None]
        return np.where(usable[rows, begin][:, None], means, np.nan)


class WattpackPolicy:
    """``controller.step.step`` behind arrays of reports.

    Args:
        topology: Of the row; boards in order of nodes, the same number each.
        settings: Constants of the power loop.
        epoch: Fencing epoch of this term.

    Attributes:
        decisions: Of the last tick, None before the first.
    """

    uses_leases = True

    def __init__(self, topology: Topology, settings: PowerSettings, epoch: int) -> None:
        self.topology, self.settings, self._epoch = topology, settings, epoch
        self.state: State = initial_state(topology, settings)
        self.decisions: Decisions | None = None
        self.brakes = 0
        self._braking = np.zeros(topology.n_domains, dtype=np.bool_)
        n = topology.n_nodes
        shape = (n, topology.n_gpus // n)
        self._received_ns = np.full(n, -1, dtype=np.int64)
        self._nonce = np.zeros(n, dtype=np.uint64)
        self._boot = np.zeros(n, dtype=np.int64)
        self._rebooted = np.zeros(n, dtype=np.bool_)
        self._node_epoch = np.zeros(n, dtype=np.int64)
        self._host_watts = np.full(n, np.nan)
        self._draw, self._energy = np.full(shape, np.nan), np.full(shape, np.nan)
        self._limit, self._guaranteed = np.full(shape, np.nan), np.full(shape, np.nan)
        self._confirmed = np.zeros(shape, dtype=np.int64)
        self._controlled = np.zeros(shape, dtype=np.bool_)
        self._leased = np.zeros(shape, dtype=np.bool_)
        self._means = _EnergyMeans(*shape)
        self._answers = Answers(*shape, epoch)
        self._risen_watts = 0.0
        self._rise_watts = LARGE_RISE_SHARE * float(topology.tree.rating_watts.max())

    def initial_watts(self) -> Floats:
        """Guaranteed caps: a row on which nobody was in control yet."""
        return self.topology.guaranteed_watts

    def arrived(self, reports: Reports) -> Answer:
        """Take reports in until one completes a large rise."""
        before = np.nansum(self._draw[reports.node], axis=1)
        known = self._received_ns[reports.node] >= 0
        rise = np.where(known, np.nansum(reports.draw_watts, axis=1) - before, 0.0)
        risen = self._risen_watts + np.cumsum(rise)
        over = np.flatnonzero(risen > self._rise_watts)
        taken = int(over[0]) + 1 if over.size else len(reports)
        self._risen_watts = float(risen[taken - 1])
        judged = np.zeros(taken, dtype=np.bool_)
        judged[-1] = bool(over.size)
        answers = self._take(reports.rows(slice(0, taken)) if over.size else reports, judged)
        return Answer(taken, Orders(joined(answers)) if answers else NO_ORDERS)

    def _take(self, reports: Reports, judged: Bools) -> list[LeaseBatches]:
        """Remember reports; the answers that go out at once."""
        nodes = reports.node
        if len(np.unique(nodes)) < len(nodes):
            # Two of one node, as after a pause: one after the other.
            answers: list[LeaseBatches] = []
            for i in range(len(nodes)):
                answers += self._take(reports.rows(slice(i, i + 1)), judged[i : i + 1])
            return answers
        booted = (self._boot[nodes] != 0) & (self._boot[nodes] != reports.boot)
        self._rebooted[nodes] |= booted
        self._means.forget(nodes[booted])
        self._boot[nodes] = reports.boot
        self._received_ns[nodes] = reports.arrival_ns
        self._nonce[nodes] = reports.nonce.astype(np.uint64)
        self._node_epoch[nodes] = reports.epoch
        self._host_watts[nodes] = reports.host_watts
        self._draw[nodes] = reports.draw_watts
        self._energy[nodes] = self._means.take(nodes, reports.clock_ns, reports.energy_joules)
        self._limit[nodes] = reports.limit_watts
        self._guaranteed[nodes] = reports.guaranteed_watts
        # Sequences begin anew with each epoch: a confirmation counts only in the one it is of.
        ours = (reports.epoch == self._epoch)[:, None]
        self._confirmed[nodes] = np.where(ours, reports.confirmed_sequence, 0)
        self._controlled[nodes] = reports.controlled
        self._leased[nodes] = reports.leased
        answer = self._answers.arrived(reports, judged | self._rebooted[nodes])
        return [] if answer is None else [answer]

    def tick(self, known: Known) -> Orders:
        """One step of the product's controller."""
        seen = self._observed(known)
        self._rebooted[:] = False
        self._risen_watts = 0.0
        tick = Tick(self.topology, seen, self.settings, known.now_ns)
        self.state, commands, self.decisions = step(tick, self.state)
        braking = self.decisions.band == Band.BRAKE
        self.brakes += int((braking & ~self._braking).sum())
        self._braking = braking
        return self._orders(commands)

    def _observed(self, known: Known) -> Observations:
        n_gpus = self.topology.n_gpus
        return Observations(
            node_received_ns=self._received_ns.copy(),
            node_nonce=self._nonce.copy(),
            node_rebooted=self._rebooted.copy(),
            host_watts=self._host_watts.copy(),
            gpu_draw_watts=self._draw.ravel().copy(),
            gpu_energy_mean_watts=self._energy.ravel().copy(),
            gpu_limit_watts=self._limit.ravel().copy(),
            gpu_guaranteed_watts=self._guaranteed.ravel().copy(),
            gpu_confirmed_sequence=self._confirmed.ravel().copy(),
            gpu_leased=self._leased.ravel().copy(),
            gpu_controlled=self._controlled.ravel().copy(),
            meter_watts=known.meter_watts,
            meter_time_ns=known.meter_time_ns,
            forecast_p99_watts=np.full(self.topology.n_domains, np.nan),
            budget_watts=self.topology.tree.rating_watts.copy(),
            override_cap_watts=np.full(n_gpus, np.nan),
            epoch=self._epoch,
            leading=True,
            may_raise=known.may_raise,
            node_epoch=self._node_epoch.copy(),
        )

    def _orders(self, commands: Commands) -> Orders:
        leaves, nonce = self._answers.decided(commands)
        nodes = np.flatnonzero(leaves)
        if not nodes.size:
            return NO_ORDERS
        shape = self._draw.shape
        k = len(nodes)
        return Orders(
            LeaseBatches(
                node=nodes,
                epoch=np.full(k, commands.epoch, dtype=np.int64),
                sequence=np.full(k, commands.sequence, dtype=np.int64),
                nonce=nonce[nodes],
                ttl_ms=np.full(k, commands.ttl_ms, dtype=np.int64),
                cap_watts=commands.cap_watts.reshape(shape)[nodes],
                lock_max_mhz=commands.lock_max_mhz.reshape(shape)[nodes],
                guaranteed_watts=commands.guaranteed_watts.reshape(shape)[nodes],
            )
        )
