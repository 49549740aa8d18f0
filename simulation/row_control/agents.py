"""The agents of a row: once a second each node says what its boards draw and its actuator holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulation.row_control.actuators import RowActuators
from simulation.row_control.faults import RowFaultKind, RowFaults
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
        host_meter: Whether a BMC tells the server's draw without its GPUs, whatever the scenario
            says; how late and coarse it does is the scenario's ``row.bmc_meter``.
        counters: Whether the boards have energy counters.
        rise_ratio: A node reports at once when its boards draw more than at its last report by
            this share of their default limits, as the product's agents do; 0: it never does.
        rest_seconds: Between such a report and the one before it.
    """

    report_seconds: float = 1.0
    delay_seconds: tuple[float, float] = (0.02, 0.08)
    loss: float = 0.0
    host_meter: bool = False
    counters: bool = True
    rise_ratio: float = 0.10
    rest_seconds: float = 0.25


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
        self._batches: list[tuple[Integers, LeaseBatches]] = []
        self._frozen_watts: Floats = np.full(self._shape, np.nan)
        self._frozen_joules: Floats = np.full(self._shape, np.nan)
        self._told_watts: Floats = np.full(n, np.inf)
        self._told_ns = np.full(n, plant.start_ns)
        self._now_ns = plant.start_ns
        self._risen: Bools = np.zeros(n, dtype=np.bool_)
        self._largest_watts = plant.bank.default_limit_watts.reshape(self._shape).sum(axis=1)
        self._host_meter = settings.host_meter or plant.scenario.row.bmc == "simulated"
        self.sent = self.lost = 0

    def due_ns(self, end_ns: int) -> Integers:
        """When each node reports next if that is before a time, else that time, (n_nodes,)."""
        return np.where(self._risen, self._now_ns, np.minimum(self._next_ns, end_ns))

    def look(self, now_ns: int) -> None:
        """Before each window: which nodes have risen so much that they report at once."""
        self._now_ns = now_ns
        ratio = self._settings.rise_ratio
        if ratio > 0.0:
            draws = self._plant.bank.sensed_draw_watts().reshape(self._shape).sum(axis=1)
            rested = now_ns - self._told_ns >= self._settings.rest_seconds * NS_PER_SECOND
            self._risen = (draws - self._told_watts > ratio * self._largest_watts) & rested

    def report(self, end_ns: int, faults: RowFaults, seconds: float) -> None:
        """Send every report that is due before a time.

        Args:
            end_ns: End of the window.
            faults: What is lost or frozen.
            seconds: The window's begin since the run began.
        """
        regular = self._next_ns < end_ns
        nodes = np.flatnonzero(regular | self._risen)
        if not nodes.size:
            return
        # One in between leaves the rhythm as it is, so that servers that rose together do not
        # report in step from then on.
        at_ns = self.due_ns(end_ns)[nodes]
        self._next_ns = np.where(regular, self._next_ns + self._period_ns, self._next_ns)
        ready = self._plant.up[nodes] & (self._actuators.ready_ns[nodes] <= at_ns)
        nodes, at_ns = nodes[ready], at_ns[ready]
        if not nodes.size:
            return
        draws, joules = self._sensed(faults, seconds)
        reports = self._made(nodes, at_ns, draws, joules)
        loss = faults.chance(K.MESSAGE_LOSS, seconds, self._shape[0])[nodes]
        arrives = self._network.arrive(loss)
        self._told_watts[nodes] = draws[nodes].sum(axis=1)
        self._told_ns[nodes] = at_ns
        self.sent += len(arrives)
        self.lost += int((~arrives).sum())
        if arrives.any():
            self._reports.append(reports if arrives.all() else reports.rows(arrives))

    def _sensed(self, faults: RowFaults, seconds: float) -> tuple[Floats, Floats]:
        """Draws and counters as the sensors show them, (n_nodes, g) each."""
        bank, shape = self._plant.bank, self._shape
        draws = bank.sensed_draw_watts().reshape(shape)
        joules = bank.counter_joules().reshape(shape)
        frozen = faults.struck(K.READINGS_FROZEN, seconds, draws.size).reshape(shape)
        self._frozen_watts = _kept(self._frozen_watts, draws, frozen)
        stuck = faults.struck(K.COUNTERS_FROZEN, seconds, draws.size).reshape(shape)
        self._frozen_joules = _kept(self._frozen_joules, joules, stuck)
        return (
            np.where(frozen, self._frozen_watts, draws),
            np.where(stuck, self._frozen_joules, joules),
        )

    def _made(self, nodes: Integers, at_ns: Integers, draws: Floats, joules: Floats) -> Reports:
        actuators, settings = self._actuators, self._settings
        told = self._plant.bmcs.watts[nodes]
        hosts = told if self._host_meter else np.full(len(nodes), np.nan)
        counters = joules[nodes] if settings.counters else np.full(joules[nodes].shape, np.nan)
        return Reports(
            node=nodes,
            arrival_ns=self._network.arrivals_ns(at_ns),
            nonce=actuators.new_nonces(nodes, at_ns),
            boot=actuators.boot[nodes],
            clock_ns=actuators.local_ns(at_ns, nodes),
            epoch=actuators.epoch[nodes],
            host_watts=hosts,
            draw_watts=draws[nodes],
            energy_joules=counters,
            limit_watts=actuators.seen_watts[nodes],
            guaranteed_watts=actuators.guaranteed_watts[nodes],
            confirmed_sequence=actuators.confirmed_sequence[nodes],
            controlled=actuators.controlled(nodes),
            leased=actuators.leased(nodes, at_ns),
        )

    def arrived(self, until_ns: int) -> Reports | None:
        """Reports that have arrived by then and were not taken yet, in order of arrival."""
        ready = []
        for i, reports in enumerate(self._reports):
            here = reports.arrival_ns <= until_ns
            if here.any():
                ready.append(reports.rows(here))
                self._reports[i] = reports.rows(~here)
        if not ready:
            return None
        self._reports = [reports for reports in self._reports if len(reports)]
        together = joined(ready)
        return together.rows(np.argsort(together.arrival_ns, kind="stable"))

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
        if through.any():
            self._batches.append((arrival[through], batches.rows(through)))

    def deliver(self, until_ns: Integers) -> None:
        """Hand every batch that arrives by then to its actuator, in order of sending.

        Args:
            until_ns: By node, (n_nodes,).
        """
        waiting = []
        for arrival, batches in self._batches:
            here = arrival <= until_ns[batches.node]
            if here.any():
                self._actuators.apply(batches.rows(here), batches.node[here], arrival[here])
            if not here.all():
                waiting.append((arrival[~here], batches.rows(~here)))
        self._batches = waiting


def _kept(kept: Floats, now: Floats, frozen: Bools) -> Floats:
    """What a frozen sensor goes on saying: its value when it froze, NaN while it moves."""
    return np.where(frozen, np.where(np.isnan(kept), now, kept), np.nan)
