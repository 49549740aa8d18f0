"""The product's controller as a policy: reports to Observations, ``step()``, Commands to batches.

What the product's fleet does with messages is done here with arrays; the decision is the product's
own code.
"""

from __future__ import annotations

import numpy as np

from controller.gap_heat import believable_highest
from controller.host_draws import READINGS_MAX_AGE_SECONDS, HostDraws, ServerReadings
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
from simulation.row_control.row_policy import Answer, Doubted, Known
from simulation.row_control.work import Bools, Floats, Integers
from wattpack.units import NS_PER_SECOND, seconds_to_ns

LARGE_RISE_SHARE = 0.02
"""Boards that rose together by this share of the largest rating since the last tick make the next
one due at once, as in the product's fleet."""

_SERVERS_FRESH_NS = seconds_to_ns(READINGS_MAX_AGE_SECONDS)
_ENERGY_NS = 3 * NS_PER_SECOND
_RING = 16
_NO_READING_NS = 1 << 61
"""Later than every reading: of no age."""


class _EnergyMeans:
    """Each board's mean draw over at least 3 s by its counter, of nodes that report."""

    def __init__(self, n_nodes: int, g: int) -> None:
        self._clock_ns = np.full((n_nodes, _RING), _NO_READING_NS, dtype=np.int64)
        self._joules = np.full((n_nodes * _RING, g), np.nan)
        self._next = np.zeros(n_nodes, dtype=np.int64)
        self._rows = np.arange(n_nodes)

    def forget(self, nodes: Integers) -> None:
        """These nodes' counters began anew."""
        self._clock_ns[nodes] = _NO_READING_NS

    def take(self, nodes: Integers, clock_ns: Integers, joules: Floats) -> Floats:
        """Means after a reading of each of the nodes, NaN where one is too little, (k, g)."""
        first, at = nodes * _RING, self._next.take(nodes)
        fell = np.asarray(joules < self._joules.take(first + (at - 1) % _RING, axis=0))
        if fell.any():
            self.forget(nodes[fell.any(axis=1)])
        self._clock_ns[nodes, at] = clock_ns
        self._joules[first + at] = joules
        self._next[nodes] = (at + 1) % _RING
        age = clock_ns[:, None] - self._clock_ns.take(nodes, axis=0)
        # The youngest of those that are old enough, else the oldest there is.
        begin = np.where(age >= _ENERGY_NS, _NO_READING_NS - age, age).argmax(axis=1)
        age = age[self._rows[: len(nodes)], begin]
        none = age <= 0
        if none.any():
            age = np.where(none, 1, age)
        seconds = age / NS_PER_SECOND
        means = (joules - self._joules.take(first + begin, axis=0)) / seconds[:, None]
        if none.any():
            means[none] = np.nan
        return np.asarray(means)


class WattpackPolicy:
    """``controller.step.step`` behind arrays of reports.

    Args:
        topology: Of the row; boards in order of nodes, the same number each.
        settings: Constants of the power loop.
        epoch: Fencing epoch of this term.
        state: What it knows when it begins, None for nothing.

    Attributes:
        seen: What the last tick was told, None before the first.
        decisions: Of that tick.
    """

    uses_leases = True

    def __init__(
        self, topology: Topology, settings: PowerSettings, epoch: int, state: State | None = None
    ) -> None:
        self.topology, self.settings, self._epoch = topology, settings, epoch
        self.state = initial_state(topology, settings) if state is None else state
        self.seen: Observations | None = None
        self.decisions: Decisions | None = None
        self.brakes = 0
        self._braking = self.state.bands.band == Band.BRAKE
        n = topology.n_nodes
        shape = (n, topology.n_gpus // n)
        self._received_ns = np.full(n, -1, dtype=np.int64)
        self._nonce = np.zeros(n, dtype=np.uint64)
        self._boot = np.zeros(n, dtype=np.int64)
        self._rebooted = np.zeros(n, dtype=np.bool_)
        self._node_epoch = np.zeros(n, dtype=np.int64)
        self._hosts, self._no_host = HostDraws(), np.full(n, np.nan)
        self._draw, self._energy = np.full(shape, np.nan), np.full(shape, np.nan)
        self._drawn_watts = np.zeros(n)
        self._limit, self._guaranteed = np.full(shape, np.nan), np.full(shape, np.nan)
        self._confirmed = np.zeros(shape, dtype=np.int64)
        self._controlled = np.zeros(shape, dtype=np.bool_)
        self._leased = np.zeros(shape, dtype=np.bool_)
        self._no_forecast = np.full(topology.n_domains, np.nan)
        self._no_override = np.full(topology.n_gpus, np.nan)
        self._means = _EnergyMeans(*shape)
        self._gap_watts, self._gap_told = np.full(shape, np.nan), np.zeros(n, dtype=np.bool_)
        self._clock_ns = np.zeros(n, dtype=np.int64)
        self._unanswered_ns = np.zeros(n, dtype=np.int64)
        self._joules = np.full(shape, np.nan)
        self._answers = Answers(*shape, epoch)
        self._risen_watts = 0.0
        self._rise_watts = LARGE_RISE_SHARE * float(topology.tree.rating_watts.max())

    def initial_watts(self) -> Floats:
        """Guaranteed caps: a row on which nobody was in control yet."""
        return self.topology.guaranteed_watts

    def doubted(self) -> Doubted | None:
        """Boards and readings that the last tick did not trust, and its estimate."""
        told = self.decisions
        if told is None:
            return None
        return Doubted(~told.trusted, told.stale_readings, told.draw_watts, told.heat)

    def arrived(self, reports: Reports) -> Answer:
        """Take reports in until one completes a large rise."""
        before = self._drawn_watts.take(reports.node)
        known = self._received_ns.take(reports.node) >= 0
        rise = np.where(known, _sums(reports.draw_watts) - before, 0.0)
        risen = self._risen_watts + rise.cumsum()
        over = risen > self._rise_watts
        large = bool(over.any())
        taken = int(over.argmax()) + 1 if large else len(reports)
        self._risen_watts = float(risen[taken - 1])
        judged = np.zeros(taken, dtype=np.bool_)
        judged[-1] = large
        answers = self._take(reports.rows(slice(0, taken)) if large else reports, judged)
        return Answer(taken, Orders(joined(answers)) if answers else NO_ORDERS)

    def _take(self, reports: Reports, judged: Bools) -> list[LeaseBatches]:
        """Remember reports; the answers that go out at once."""
        nodes = reports.node
        if len(set(nodes.tolist())) < len(nodes):
            # Two of one node, as after a pause: one after the other.
            answers: list[LeaseBatches] = []
            for i in range(len(nodes)):
                answers += self._take(reports.rows(slice(i, i + 1)), judged[i : i + 1])
            return answers
        before = self._boot.take(nodes)
        booted = (before != 0) & (before != reports.boot)
        if booted.any():
            self._rebooted[nodes] |= booted
            self._means.forget(nodes[booted])
        self._take_highest(nodes, reports, same_boot=before == reports.boot)
        self._boot[nodes] = reports.boot
        self._received_ns[nodes] = reports.arrival_ns
        self._nonce[nodes] = reports.nonce
        self._node_epoch[nodes] = reports.epoch
        self._draw[nodes] = reports.draw_watts
        self._drawn_watts[nodes] = _sums(reports.draw_watts)
        self._energy[nodes] = self._means.take(nodes, reports.clock_ns, reports.energy_joules)
        self._limit[nodes] = reports.limit_watts
        self._guaranteed[nodes] = reports.guaranteed_watts
        # Sequences begin anew with each epoch: a confirmation counts only in the one it is of.
        ours, confirmed = reports.epoch == self._epoch, reports.confirmed_sequence
        if not ours.all():
            confirmed = np.where(ours[:, None], confirmed, 0)
        self._confirmed[nodes] = confirmed
        self._controlled[nodes] = reports.controlled
        self._leased[nodes] = reports.leased
        answer = self._answers.arrived(reports, judged | self._rebooted.take(nodes))
        return [] if answer is None else [answer]

    def _take_highest(self, nodes: Integers, reports: Reports, same_boot: Bools) -> None:
        """Highest readings since each node's report before, over all reports since the tick."""
        clock_ns = self._clock_ns[nodes]
        covers = same_boot & (clock_ns > 0) & (reports.highest_since_ns <= clock_ns)
        seconds = (reports.clock_ns - clock_ns)[:, None] / NS_PER_SECOND
        joules = (self._joules[nodes], reports.energy_joules)
        believed = believable_highest(reports.highest_watts, joules, seconds)
        told = np.where(covers[:, None], believed, np.nan)
        again = self._gap_told[nodes][:, None]
        self._gap_watts[nodes] = np.where(again, np.maximum(self._gap_watts[nodes], told), told)
        self._gap_told[nodes] = True
        self._clock_ns[nodes], self._joules[nodes] = reports.clock_ns, reports.energy_joules
        self._unanswered_ns[nodes] = reports.clock_ns - reports.highest_since_ns

    def tick(self, known: Known) -> Orders:
        """One step of the product's controller."""
        self.seen = seen = self._with_servers(known, self._observed(known))
        self._rebooted[:] = self._gap_told[:] = False
        self._risen_watts = 0.0
        tick = Tick(self.topology, seen, self.settings, known.now_ns)
        self.state, commands, self.decisions = step(tick, self.state)
        braking = self.decisions.band == Band.BRAKE
        self.brakes += int((braking & ~self._braking).sum())
        self._braking = braking
        return self._orders(commands)

    def _with_servers(self, known: Known, seen: Observations) -> Observations:
        """What the product makes of BMCs that are asked."""
        if not known.server_watts.size:
            return seen
        readings = ServerReadings(known.server_watts, known.server_time_ns, _SERVERS_FRESH_NS)
        return self._hosts.told(self.topology, seen, readings, known.now_ns)

    def _observed(self, known: Known) -> Observations:
        return Observations(
            node_received_ns=self._received_ns.copy(),
            node_nonce=self._nonce.copy(),
            node_rebooted=self._rebooted.copy(),
            host_watts=self._no_host,
            gpu_draw_watts=self._draw.flatten(),
            gpu_energy_mean_watts=self._energy.flatten(),
            gpu_limit_watts=self._limit.flatten(),
            gpu_guaranteed_watts=self._guaranteed.flatten(),
            gpu_confirmed_sequence=self._confirmed.flatten(),
            gpu_leased=self._leased.flatten(),
            gpu_controlled=self._controlled.flatten(),
            meter_watts=known.meter_watts,
            meter_time_ns=known.meter_time_ns,
            forecast_p99_watts=self._no_forecast,
            budget_watts=self.topology.tree.all_feeds_watts,
            override_cap_watts=self._no_override,
            epoch=self._epoch,
            leading=True,
            may_raise=known.may_raise,
            node_epoch=self._node_epoch.copy(),
            feed_share=known.feed_share,
            feed_time_ns=known.feed_time_ns,
            gpu_gap_watts=self._gap_watts.flatten(),
            node_unanswered_ns=self._unanswered_ns.copy(),
        )

    def _orders(self, commands: Commands) -> Orders:
        leaves, nonce = self._answers.decided(commands)
        nodes = leaves.nonzero()[0]
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
                cap_watts=commands.cap_watts.reshape(shape).take(nodes, axis=0),
                lock_max_mhz=commands.lock_max_mhz.reshape(shape).take(nodes, axis=0),
                guaranteed_watts=commands.guaranteed_watts.reshape(shape).take(nodes, axis=0),
            )
        )


def _sums(draw_watts: Floats) -> Floats:
    """Of each node's boards, those that cannot be read left out, (k,)."""
    sums: Floats = draw_watts.sum(axis=1)
    return np.asarray(np.nansum(draw_watts, axis=1) if np.isnan(sums).any() else sums)
