"""The tick: observe, step, command, record. One thread; it waits for nothing but its clock.

fleet + desired + meters + leadership ──> Observations
                                           │ step()
lease batches <── Commands <───────────────┴──> Decisions ──> metrics, audit, live view, status
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from controller.app.controller_metrics import ControllerMetrics
from controller.app.decision_log import DecisionLog
from controller.app.fleet import DomainInputs, Fleet, Leadership
from controller.app.forecast_reader import Outlooks
from controller.app.live_view_builder import ViewContext, live_view
from controller.app.running_topology import DesiredTopology
from controller.app.server_power import NoServerPower, ServerPowerSource
from controller.budget import budget_watts, override_cap_watts
from controller.host_draws import HostDraws, readings_by_node
from controller.paced_lines import PacedLines, paced
from controller.step import State, carry_over, initial_state, step
from controller.tick_values import (
    Commands,
    Decisions,
    Observations,
    PowerSettings,
    Tick,
    Topology,
    Transition,
)
from controller.units_watch import SeenBoard
from controller.work_curves import Curves
from controller.work_seen import PodWork
from forecasting.forecast_book import Outlook
from wattpack.clock import Clock
from wattpack.live_view import LiveDecision, LiveView
from wattpack.power.domain_tree import FloatArray
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)
RECENT_DECISIONS = 100
METER_FRESH_NS = 10 * NS_PER_SECOND


class MeterSource(Protocol):
    """Domain meters: a reading is (AC watts or a share, time stamp on the controller's clock)."""

    def read(self) -> Mapping[str, tuple[float, int]]:
        """The newest reading of each metered domain."""
        ...


class NoMeters:
    """No domain has a meter: draw is the sum of the nodes."""

    def read(self) -> Mapping[str, tuple[float, int]]:
        """Nothing."""
        return {}


class LeadershipSource(Protocol):
    """The elector, as the tick sees it."""

    def leadership(self) -> Leadership:
        """Whether we lead, at which epoch, and whether we may raise."""
        ...

    def raise_epoch_above(self, epoch: int) -> None:
        """Ask for a fencing epoch beyond one that an actuator has seen (I4)."""
        ...


@dataclass(frozen=True, slots=True)
class TickOutcome:
    """What one tick did, for whoever writes status, Events and history.

    Attributes:
        outlooks: What is expected of each domain.
        measured_watts: Draws that rest on readings; a domain with assumed ones is not among them.
    """

    topology: Topology
    seen: Observations
    decisions: Decisions
    wall_time_ns: int
    outlooks: Mapping[str, Outlook] = field(default_factory=dict)
    measured_watts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Shown:
    """All that a view of one tick is made of: whoever asks may do so while the next one runs."""

    outcome: TickOutcome
    tick: int
    tick_seconds: float
    decisions: tuple[LiveDecision, ...]
    models: Sequence[str]
    pods: Sequence[str]
    curves: Curves
    boards: Mapping[str, SeenBoard]


@dataclass(frozen=True, slots=True)
class TickIdentity:
    """What marks the decisions of this replica."""

    replica: str
    simulated: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class TickPorts:
    """Where a tick takes from and gives to.

    Attributes:
        fleet: Reports by node.
        desired: Objects, and the topology built from them.
        leadership: Whether we lead.
        meters: Of domains.
        clock: Time.
        audit: Keeps every decision.
        metrics: Figures of each tick.
        send: Hands commands to the agents' streams; returns how many batches.
        works: What the work of pods looks like, by namespace/name.
        feeds: The busiest feed's share of each domain's load, and its time stamp.
        servers: What BMCs say of whole servers.
    """

    fleet: Fleet
    desired: DesiredTopology
    leadership: LeadershipSource
    meters: MeterSource
    clock: Clock
    audit: DecisionLog
    metrics: ControllerMetrics
    send: Callable[[Topology, Commands], int]
    works: Callable[[], Mapping[str, PodWork]] = dict
    feeds: MeterSource = field(default_factory=NoMeters)
    servers: ServerPowerSource = field(default_factory=NoServerPower)


class Ticker:
    """Owns the state of the controller core between ticks.

    Args:
        ports: What is around it.
        settings: Constants of the power loop.
        identity: What marks its decisions.
    """

    def __init__(self, ports: TickPorts, settings: PowerSettings, identity: TickIdentity) -> None:
        self._fleet, self._desired, self._leadership = ports.fleet, ports.desired, ports.leadership
        self._meters, self._clock, self._audit = ports.meters, ports.clock, ports.audit
        self._metrics, self._send = ports.metrics, ports.send
        self._works, self._feeds = ports.works, ports.feeds
        self._servers, self._hosts = ports.servers, HostDraws()
        self._settings, self._identity = settings, identity
        self._topology: Topology | None = None
        self._state: State | None = None
        self._recent: deque[LiveDecision] = deque(maxlen=RECENT_DECISIONS)
        self._lines = PacedLines()
        self._count = 0
        self._shown: _Shown | None = None
        self._view: LiveView | None = None

    def live(self) -> LiveView | None:
        """The newest tick as the console shows it; made when somebody asks, once a tick."""
        # One read: whoever asks does so from another thread, also while a tick is under way.
        shown = self._shown
        if shown is None:
            return None
        view = self._view
        if view is None or view.tick != shown.tick:
            self._view = view = self._make_view(shown)
        return view

    def tick(self) -> TickOutcome | None:
        """One decision; None while there is nothing to control yet."""
        started_ns = self._clock.monotonic_ns()
        self._desired.forget_gone(self._fleet, started_ns)
        topology = self._current_topology()
        if topology is None or self._state is None:
            return None
        wall_time_ns = self._clock.wall_time_ns()
        self._fleet.begin_tick(float(topology.tree.rating_watts.max()))
        outlooks = self._desired.outlooks(wall_time_ns)
        seen = self._observe(topology, outlooks, wall_time_ns)
        seen = self._with_servers(topology, seen, started_ns)
        if seen.leading and seen.highest_epoch_seen > seen.epoch:
            self._leadership.raise_epoch_above(seen.highest_epoch_seen)
        tick = Tick(topology, seen, self._settings, started_ns)
        self._state, commands, decisions = step(tick, self._state)
        self._metrics.streams.batches.inc(self._send(topology, commands))
        self._count += 1
        news = self._desired.take_moves()
        changes = (*decisions.transitions, *outlooks.transitions, *news)
        self._lines, lines = paced(self._lines, changes, started_ns)
        told = replace(decisions, transitions=lines)
        measured = _measured(topology, seen, decisions, started_ns)
        outcome = TickOutcome(topology, seen, told, wall_time_ns, outlooks.by_domain, measured)
        self._record(outcome, started_ns)
        return outcome

    def _current_topology(self) -> Topology | None:
        """The topology after the newest change; the state is carried over to it."""
        topology = self._desired.topology(self._fleet)
        if topology is self._topology:
            return topology
        if topology is not None:
            self._state = (
                initial_state(topology, self._settings, self._told_heat(topology))
                if self._state is None or self._topology is None
                else carry_over(self._state, self._topology, topology)
            )
        self._topology = topology
        return topology

    def _told_heat(self, topology: Topology) -> FloatArray:
        """Heat of the breakers as their status has it, (n_domains,), 0 where it says nothing.

        A process that has just begun has no memory. What breakers have cooled since is taken off
        as soon as servers tell for how long nobody has answered them (``unled_time``).
        """
        domains = self._desired.objects.domains
        told = [
            domains[name].status.breaker_heat_ratio if name in domains else None
            for name in topology.tree.names
        ]
        heat = np.nan_to_num(np.array([0.0 if one is None else one for one in told]))
        return np.asarray(np.clip(heat, 0.0, 1.0), dtype=np.float64)

    def _observe(self, topology: Topology, outlooks: Outlooks, wall_time_ns: int) -> Observations:
        names = topology.tree.names
        meters, feeds = self._meters.read(), self._feeds.read()
        forecasts = outlooks.p99_watts()
        objects = self._desired.objects
        unknown = (float("nan"), -1)
        domains = DomainInputs(
            meter_watts=np.array([meters.get(name, unknown)[0] for name in names]),
            meter_time_ns=np.array([meters.get(name, unknown)[1] for name in names], np.int64),
            forecast_p99_watts=np.array([forecasts.get(name, np.nan) for name in names]),
            budget_watts=budget_watts(
                topology, objects.domains, objects.overrides.values(), wall_time_ns
            ),
            feed_share=np.array([feeds.get(name, unknown)[0] for name in names]),
            feed_time_ns=np.array([feeds.get(name, unknown)[1] for name in names], np.int64),
        )
        overrides = override_cap_watts(topology, objects.overrides.values(), wall_time_ns)
        return self._fleet.observe(topology, self._leadership.leadership(), domains, overrides)

    def _with_servers(self, topology: Topology, seen: Observations, now_ns: int) -> Observations:
        """With what BMCs show of servers beside their boards."""
        readings = self._servers.read()
        if not readings:
            return seen
        ordered = readings_by_node(topology.node_names, readings, self._servers.max_age_ns)
        return self._hosts.told(topology, seen, ordered, now_ns)

    def _record(self, outcome: TickOutcome, started_ns: int) -> None:
        topology, seen, decisions = outcome.topology, outcome.seen, outcome.decisions
        self._desired.saw(outcome.measured_watts, outcome.wall_time_ns)
        fresh = self._decisions(decisions.transitions, outcome.wall_time_ns, seen.epoch)
        self._audit.append(fresh)
        self._recent.extendleft(fresh)
        seconds = (self._clock.monotonic_ns() - started_ns) / NS_PER_SECOND
        self._metrics.observe(topology, seen, decisions)
        self._metrics.observe_servers(seen, decisions, asked=self._servers.max_age_ns > 0)
        domains = self._desired.objects.domains
        metered = {
            name
            for name, domain in domains.items()
            if domain.spec.meter is not None and domain.spec.meter.prometheus_query
        }
        self._metrics.observe_meters(topology, decisions, metered)
        self._metrics.observe_outlooks(outcome.outlooks, outcome.measured_watts)
        self._metrics.nodes.set(len(self._fleet.records()))
        self._metrics.counters.raise_to(self._metrics.loop.audit_failures, self._audit.failures)
        self._metrics.observe_refusals(self._desired.refusals())
        self._metrics.observe_aside(self._desired.counted_aside())
        self._metrics.loop.tick_seconds.observe(seconds)
        self._shown = _Shown(
            outcome,
            self._count,
            seconds,
            decisions=tuple(self._recent),
            models=self._desired.models,
            pods=self._desired.pods_of_gpus,
            curves=self._desired.curves_of_gpus,
            boards=self._desired.seen_boards(),
        )

    def _make_view(self, shown: _Shown) -> LiveView:
        outcome = shown.outcome
        return live_view(
            outcome.topology,
            outcome.seen,
            outcome.decisions,
            shown.decisions,
            ViewContext(
                wall_time_ns=outcome.wall_time_ns,
                tick=shown.tick,
                tick_seconds=shown.tick_seconds,
                models=shown.models,
                pods=shown.pods,
                outlooks=outcome.outlooks,
                temperatures_celsius=self._fleet.temperatures_celsius(outcome.topology),
                works=self._works(),
                curves=shown.curves,
                boards=shown.boards,
                simulated=self._identity.simulated,
                label=self._identity.label,
            ),
        )

    def _decisions(
        self, transitions: Sequence[Transition], wall_time_ns: int, epoch: int
    ) -> list[LiveDecision]:
        return [
            LiveDecision(
                # By time, not by count: a replica that starts again, or has not led yet, counts
                # from the beginning, and its rows would take the place of those before.
                id=f"{self._identity.replica}-{epoch}-{wall_time_ns}-{position}",
                wall_time_ns=wall_time_ns,
                epoch=epoch,
                domain=transition.domain,
                kind=transition.kind,
                message=transition.message,
            )
            for position, transition in enumerate(transitions)
        ]


def _measured(
    topology: Topology, seen: Observations, decisions: Decisions, now_ns: int
) -> dict[str, float]:
    """Draws that rest on readings: of domains without silent nodes, or with a fresh meter.

    The draw of a silent node is the most that it could be (I7): no evidence of anything.
    """
    silent = np.bincount(
        topology.domain_of_node, weights=decisions.silent_nodes, minlength=topology.n_domains
    ).astype(np.float64)
    metered = np.isfinite(seen.meter_watts) & (now_ns - seen.meter_time_ns <= METER_FRESH_NS)
    measured = (topology.tree.sum_up(silent) == 0) | metered
    draws = zip(topology.tree.names, decisions.draw_watts.tolist(), measured.tolist(), strict=True)
    return {name: watts for name, watts, known in draws if known}
