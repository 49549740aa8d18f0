"""The agents of a row: once a second each node says what its boards draw and its actuator holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulation.row_control.actuators import RowActuators
from simulation.row_control.compiled_post import fastest_post
from simulation.row_control.faults import RowFaultKind, RowFaults
from simulation.row_control.heard_highest import HighestReadings
from simulation.row_control.messages import LeaseBatches, Network, Reports, joined
from simulation.row_control.row_plant import RowPlant
from simulation.row_control.work import Bools, Floats, Integers
from wattpack.units import NS_PER_SECOND

K = RowFaultKind


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How agents report and how the network carries it; the defaults are assumed.

    Attributes:
        report_seconds: Between two reports of a node.
        delay_seconds: Lowest and highest one-way delay of a message.
        loss: Chance of each message, both ways.
        counters: Whether the boards have energy counters.
        rise_ratio: A node reports at once when its boards draw more than at its last report by
            this share of their default limits, as the product's agents do; 0: it never does.
        rest_seconds: Between such a report and the one before it.
    """

    report_seconds: float = 1.0
    delay_seconds: tuple[float, float] = (0.02, 0.08)
    loss: float = 0.0
    counters: bool = True
    rise_ratio: float = 0.10
    rest_seconds: float = 0.25


@dataclass(frozen=True, slots=True)
class _Sent:
    """Reports on their way, in order of arrival, (k,) each."""

    nodes: Integers
    at_ns: Integers
    arrival_ns: Integers
    nonces: Integers
    highest_watts: Floats
    highest_since_ns: Integers


class RowAgents:
    """All agents and the network between them and the controller.

    Args:
        plant: What they measure.
        actuators: What they ask, and hand batches to.
        settings: Periods, delays, sensors.
        generator: Of phases, delays, losses and noise.
    """

    def __init__(
        self,
        plant: RowPlant,
        actuators: RowActuators,
        settings: AgentSettings,
        generator: np.random.Generator,
    ) -> None:
        self._plant, self._actuators, self._settings = plant, actuators, settings
        self._generator = generator
        self._network = Network(settings.delay_seconds, settings.loss, generator)
        n = plant.n_nodes
        self._shape = (n, plant.gpus_per_node)
        self._period_ns = round(settings.report_seconds * NS_PER_SECOND)
        self._next_ns = plant.start_ns + generator.integers(0, self._period_ns, n)
        self._reports: list[Reports] = []
        self._post = fastest_post(actuators)
        self._frozen_watts, self._frozen_joules = _Frozen(self._shape), _Frozen(self._shape)
        self._highest = HighestReadings(self._shape)
        self._highest.began_anew(np.arange(n), plant.start_ns)
        self._told_watts: Floats = np.full(n, np.inf)
        self._told_ns = np.full(n, plant.start_ns)
        self._now_ns = plant.start_ns
        self._draws_watts: Floats = np.zeros(self._shape)
        self._risen: Bools = np.zeros(n, dtype=np.bool_)
        self._largest_watts = plant.bank.default_limit_watts.reshape(self._shape).sum(axis=1)
        self.sent = self.lost = 0

    @property
    def frozen_watts(self) -> Floats:
        """What readings say that stand still, NaN for those that move, (n_gpus,)."""
        return self._frozen_watts.kept.ravel()

    def _due_ns(self, end_ns: int) -> Integers:
        """When each node reports next if that is before a time, else that time, (n_nodes,)."""
        return np.where(self._risen, self._now_ns, np.minimum(self._next_ns, end_ns))

    def look(self, now_ns: int) -> None:
        """Before each window: which nodes have risen so much that they report at once."""
        self._now_ns = now_ns
        self._draws_watts = self._plant.bank.sensed_draw_watts().reshape(self._shape)
        kept = self._frozen_watts.kept
        self._highest.look(np.where(np.isnan(kept), self._draws_watts, kept))
        ratio = self._settings.rise_ratio
        if ratio > 0.0:
            draws = self._draws_watts.sum(axis=1)
            rested = now_ns - self._told_ns >= self._settings.rest_seconds * NS_PER_SECOND
            self._risen = (draws - self._told_watts > ratio * self._largest_watts) & rested

    def report(self, end_ns: int, faults: RowFaults, seconds: float) -> None:
        """Up to each node's report that is due before a time, and those reports.

        Args:
            end_ns: End of the window.
            faults: What is lost or frozen, and which writes fail.
            seconds: The window's begin since the run began.
        """
        self._post.serve(self._due_ns(end_ns), self._write_failures(faults, seconds))
        self._report(end_ns, faults, seconds)

    def finish(self, end_ns: int, faults: RowFaults, seconds: float) -> None:
        """The rest of the window, and the actuators' read-backs; see ``report``."""
        last_ns = np.full(self._shape[0], end_ns - 1)
        self._post.serve(last_ns, self._write_failures(faults, seconds))
        self._post.read_back(end_ns - 1)

    def _write_failures(self, faults: RowFaults, seconds: float) -> Floats:
        n, g = self._shape
        return faults.chance(K.WRITES_FAIL, seconds, n * g).reshape(n, g)

    def _report(self, end_ns: int, faults: RowFaults, seconds: float) -> None:
        regular = self._next_ns < end_ns
        nodes = (regular | self._risen).nonzero()[0]
        if not nodes.size:
            return
        # One in between leaves the rhythm as it is, so that servers that rose together do not
        # report in step from then on.
        at_ns = self._due_ns(end_ns)[nodes]
        self._next_ns = np.where(regular, self._next_ns + self._period_ns, self._next_ns)
        ready = self._plant.up[nodes] & (self._actuators.ready_ns[nodes] <= at_ns)
        if not ready.all():
            nodes, at_ns = nodes[ready], at_ns[ready]
        if not nodes.size:
            return
        draws, joules = self._sensed(faults, seconds)
        arrival_ns = self._network.arrivals_ns(at_ns)
        loss = faults.chance(K.MESSAGE_LOSS, seconds, self._shape[0])[nodes]
        arrives = self._network.arrive(loss)
        nonces = self._actuators.new_nonces(nodes, at_ns)
        highest = self._highest.told(nodes, at_ns, draws[nodes], joules[nodes])
        self._highest.reported(nodes, nonces)
        self._told_watts[nodes] = draws.take(nodes, axis=0).sum(axis=1)
        self._told_ns[nodes] = at_ns
        self.sent += len(arrives)
        # In order of arrival from here on, so that those of a time are a slice.
        order = arrival_ns.argsort(kind="stable")
        if not arrives.all():
            order = order[arrives[order]]
            self.lost += len(arrives) - len(order)
        if order.size:
            sent = _Sent(
                nodes[order], at_ns[order], arrival_ns[order], nonces[order],
                highest[0][order], highest[1][order],
            )  # fmt: skip
            self._reports.append(self._made(sent, draws, joules))

    def _sensed(self, faults: RowFaults, seconds: float) -> tuple[Floats, Floats]:
        """Draws and counters as the sensors show them, (n_nodes, g) each."""
        shape, draws = self._shape, self._draws_watts
        joules = self._plant.bank.counter_joules().reshape(shape)
        frozen = faults.struck(K.READINGS_FROZEN, seconds, draws.size).reshape(shape)
        stuck = faults.struck(K.COUNTERS_FROZEN, seconds, draws.size).reshape(shape)
        return self._frozen_watts.shown(draws, frozen), self._frozen_joules.shown(joules, stuck)

    def _made(self, sent: _Sent, draws: Floats, joules: Floats) -> Reports:
        actuators, nodes = self._actuators, sent.nodes
        shape = (len(nodes), self._shape[1])
        counters = joules.take(nodes, axis=0) if self._settings.counters else np.full(shape, np.nan)
        return Reports(
            node=nodes,
            arrival_ns=sent.arrival_ns,
            nonce=sent.nonces,
            boot=actuators.boot.take(nodes),
            clock_ns=actuators.local_ns(sent.at_ns, nodes),
            epoch=actuators.epoch.take(nodes),
            draw_watts=draws.take(nodes, axis=0),
            energy_joules=counters,
            limit_watts=actuators.seen_watts.take(nodes, axis=0),
            guaranteed_watts=actuators.guaranteed_watts.take(nodes, axis=0),
            confirmed_sequence=actuators.confirmed_sequence.take(nodes, axis=0),
            controlled=actuators.controlled(nodes),
            leased=actuators.leased(nodes, sent.at_ns),
            highest_watts=sent.highest_watts,
            highest_since_ns=actuators.local_ns(sent.highest_since_ns, nodes),
        )

    def arrived(self, until_ns: int) -> Reports | None:
        """Reports that have arrived by then and were not taken yet, in order of arrival."""
        ready, waiting = [], []
        for reports in self._reports:
            here = int(reports.arrival_ns.searchsorted(until_ns, side="right"))
            if here == len(reports):
                ready.append(reports)
                continue
            waiting.append(reports.rows(slice(here, None)))
            if here:
                ready.append(reports.rows(slice(0, here)))
        if not ready:
            return None
        self._reports = waiting
        together = joined(ready)
        if len(ready) == 1:
            return together
        return together.rows(together.arrival_ns.argsort(kind="stable"))

    def send(self, batches: LeaseBatches, sent_ns: Integers, loss: Floats) -> None:
        """Put batches on the way.

        Args:
            batches: To nodes.
            sent_ns: When, (k,).
            loss: Chance by a fault, (n_nodes,).
        """
        if not len(batches):
            return
        arrival = self._network.arrivals_ns(sent_ns)
        through = self._network.arrive(loss[batches.node])
        self.sent += len(through)
        self.lost += int((~through).sum())
        self._highest.answered(batches.node[through], batches.nonce[through], arrival[through])
        if through.all():
            self._post.send(batches, arrival)
        elif through.any():
            self._post.send(batches.rows(through), arrival[through])


class _Frozen:
    """Sensors of which some stand still: they go on saying what they said when they froze.

    Attributes:
        kept: What these say, NaN for those that move, (n_nodes, g).
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._moving: Floats = np.full(shape, np.nan)
        self.kept = self._moving

    def shown(self, now: Floats, frozen: Bools) -> Floats:
        """What they show, (n_nodes, g)."""
        if not frozen.any():
            self.kept = self._moving
            return now
        kept = self.kept
        self.kept = np.where(frozen, np.where(np.isnan(kept), now, kept), np.nan)
        return np.where(frozen, self.kept, now)
