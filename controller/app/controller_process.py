"""One controller replica, composed: informers, elector, gateway, tick, status, HTTP.

informers ──> ObjectStore ──> DesiredState ─┐
agents ──> gateway ──> Fleet ───────────────┼──> Ticker ──> gateway ──> agents
Lease ──> elector ──────────────────────────┘       └──> status thread, audit, /v1/live, /metrics
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from capacity.profile_library import ProfileLibrary
from controller.app.agent_gateway import AgentGateway, TickSide
from controller.app.agent_identity import NodeAuthenticator
from controller.app.classified_profiles import ClassifiedProfiles
from controller.app.controller_metrics import ControllerMetrics
from controller.app.controller_settings import ControllerSettings
from controller.app.dcgm_units import NoUnits, UnitsSource
from controller.app.decision_log import DecisionLog
from controller.app.desired_state import ObjectStore
from controller.app.domain_status import StatusThread
from controller.app.draw_history import DrawHistory
from controller.app.elected_leadership import ElectedLeadership
from controller.app.fleet import Fleet
from controller.app.forecast_reader import ForecastReader
from controller.app.live_view_builder import shown_to, with_promisable
from controller.app.promisable_room import PromisableRoom
from controller.app.risk_account import RiskAccount
from controller.app.running_topology import DesiredTopology
from controller.app.server_power import NoServerPower, ServerPowerSource
from controller.app.stream_server import StreamServer
from controller.app.taint_writer import TaintThread
from controller.app.tick_loop import (
    MeterSource,
    NoMeters,
    Ticker,
    TickIdentity,
    TickOutcome,
    TickPorts,
)
from controller.app.workload_watch import WorkloadWatch
from forecasting.decisions.priority_risks import risk_bands
from wattpack.api import (
    DemandForecast,
    GPUProfile,
    PowerDomain,
    PowerOverride,
    PowerPolicy,
    WorkloadProfile,
)
from wattpack.clock import Clock
from wattpack.hosts import is_address
from wattpack.http_access import LIVE_VIEW, Caller, HttpAccess, pods_in
from wattpack.http_port import HttpAnswer, HttpPort, Route
from wattpack.kube.election import Bid, ElectionSettings, LeaderElector
from wattpack.kube.informer import Informer
from wattpack.kube.port import NODES, PODS, PRIORITY_CLASSES, KubeApi
from wattpack.kube.write_budget import TokenBucket, write_budget
from wattpack.metrics_port import RefusalCollector, health_route, metrics_route
from wattpack.sqlite_retention import kept
from wattpack.units import NS_PER_MS, seconds_to_ns
from wattpack.wire.certificates import Identity, expires_at_seconds

log = logging.getLogger(__name__)
LEASE_NAME = "wattpack-controller"
# A tick that is this many periods late means that the loop hangs.
HEALTHY_PERIODS = 3
_NEVER_NS = 2**63 - 1
FOLLOWED = (
    PowerDomain.meta.resource,
    PowerPolicy.meta.resource,
    PowerOverride.meta.resource,
    DemandForecast.meta.resource,
    GPUProfile.meta.resource,
    WorkloadProfile.meta.resource,
    PRIORITY_CLASSES,
    NODES,
    PODS,
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a replica is given.

    Attributes:
        api: The Kubernetes API.
        clock: Time.
        identity: Certificate and key that agents are shown.
        meters: Domain meters.
        feeds: The busiest feed's share of a domain's load, where reserve feeds are used.
        profiles: GPU types.
        election: Durations of the election.
        seed: Of jitter.
        holder: Of the Lease, other at every start of a process; empty for the replica's name.
        on_tick: Told of every tick after it was sent; the twin's monitor listens here.
        units: What units of boards did, by dcgm-exporter.
        servers: What BMCs say of whole servers.
    """

    api: KubeApi
    clock: Clock
    identity: Identity
    meters: MeterSource
    profiles: ProfileLibrary
    election: ElectionSettings
    seed: int = 0
    holder: str = ""
    on_tick: Callable[[TickOutcome], None] = lambda outcome: None
    feeds: MeterSource = field(default_factory=NoMeters)
    units: UnitsSource = field(default_factory=NoUnits)
    servers: ServerPowerSource = field(default_factory=NoServerPower)


class ControllerProcess:
    """Start, tick and stop one replica."""

    def __init__(self, settings: ControllerSettings, around: Surroundings) -> None:
        self.settings = settings
        self._clock = around.clock
        self._on_tick = around.on_tick
        self._wake = around.clock.new_wake()
        self._stopping = False
        self._last_tick_ns = around.clock.monotonic_ns()
        self.metrics = ControllerMetrics()
        self.store = ObjectStore(settings.namespace, around.profiles)
        self.fleet = Fleet()
        forecasts = ForecastReader(self.store)
        self.desired = DesiredTopology(self.store, forecasts)
        self.informers = _informers(around, self.store)
        self._term_begins = False
        self.elector = self._new_elector(around)
        self.gateway = AgentGateway(
            self.fleet,
            NodeAuthenticator(around.api, around.clock, settings.agent_username),
            around.clock,
            name=settings.replica,
            report_period_ms=settings.report_period_ms,
            tick=TickSide(self._wake.set, self.elector.epoch),
        )
        self.streams = StreamServer(self.gateway, settings.stream_address, around.identity)
        self.audit = DecisionLog(
            settings.audit_file,
            kept(settings.audit_retention_days, settings.audit_max_mebibytes),
        )
        self.works = WorkloadWatch(around.clock, self.fleet, self.desired, around.units)
        self.ticker = self._new_ticker(around)
        bucket = write_budget(around.clock)
        self.promisable = PromisableRoom(risk_bands(settings.risk_below_priority))
        self.status = StatusThread(
            around.api, around.clock, self.desired, settings.replica, bucket, self.elector.is_leader
        )
        self.status.promisable = self.promisable
        self.account = RiskAccount(risk_bands(settings.risk_below_priority))
        self.status.account = self.account
        self.classified = self._new_classified_profiles(around, bucket)
        self.taints = TaintThread(
            around.api, around.clock, self.store, self.desired, bucket, settings.replica
        )
        self.history = DrawHistory(
            settings.history_file,
            kept(settings.history_retention_days, settings.history_max_mebibytes),
        )
        forecasts.preload(self.history.hourly_maxima(around.clock.wall_time_ns()))
        self.access = self._new_http_access(around)
        self.metrics.registry.register(RefusalCollector(self.access.refused))
        self.http = self._new_http_port()
        self._thread = threading.Thread(target=self._run, name="tick", daemon=True)

    def _new_elector(self, around: Surroundings) -> LeaderElector:
        settings = self.settings
        identity = around.holder or settings.replica
        bid = Bid(
            LEASE_NAME,
            settings.namespace,
            identity,
            around.election,
            around.seed,
            won=self._won,
        )
        return LeaderElector(around.api, around.clock, bid)

    def _new_classified_profiles(
        self, around: Surroundings, bucket: TokenBucket
    ) -> ClassifiedProfiles:
        return ClassifiedProfiles(
            around.api,
            around.clock,
            self.desired,
            self.works.works,
            lambda: self.settings.write_workload_profiles and self.elector.is_leader(),
            bucket,
        )

    def _new_http_access(self, around: Surroundings) -> HttpAccess:
        settings = self.settings
        return HttpAccess(
            (*settings.http_names, *(n for n in settings.server_names if not is_address(n))),
            None if settings.http_insecure else around.api,
            around.clock,
        )

    def _new_ticker(self, around: Surroundings) -> Ticker:
        return Ticker(
            TickPorts(
                fleet=self.fleet,
                desired=self.desired,
                leadership=ElectedLeadership(
                    self.elector, around.election.renew_deadline_seconds / 2
                ),
                meters=around.meters,
                clock=around.clock,
                audit=self.audit,
                metrics=self.metrics,
                send=self.gateway.send,
                works=self.works.works,
                feeds=around.feeds,
                servers=around.servers,
            ),
            self.settings.power(),
            TickIdentity(self.settings.replica, self.settings.simulated, self.settings.label),
        )

    def _new_http_port(self) -> HttpPort:
        return HttpPort(
            self.settings.http_host,
            self.settings.http_port,
            {
                "/v1/live": Route(self._live, LIVE_VIEW),
                "/metrics": metrics_route(self._metrics_text),
                "/healthz": health_route(self._failure),
                "/readyz": health_route(lambda: "" if self.synced() else "not synced"),
            },
            self.access,
        )

    def start(self) -> None:
        """Listen, follow, stand for election, tick."""
        self.streams.start()
        self.http.start()
        for informer in self.informers:
            informer.start()
        self.elector.start()
        self.status.start()
        self.taints.start()
        self.works.start()
        self.classified.start()
        self._thread.start()

    def stop(self) -> None:
        """Release the Lease first, so that another replica takes over at once (I4).

        Ends whatever was started, also where ``start`` failed half way.
        """
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        self.elector.stop()
        self.status.stop()
        self.taints.stop()
        self.works.stop()
        self.classified.stop()
        for informer in self.informers:
            informer.stop()
        self.streams.stop()
        self.http.stop()
        self.audit.close()
        self.history.close()

    def tick_soon(self) -> None:
        """Tick at once, for what cannot wait; from any thread."""
        self._wake.set()

    def _won(self) -> None:
        """Tick at once: GPUs sit at guaranteed caps until one lease of the new term is over."""
        self._term_begins = True
        self._wake.set()

    def _run(self) -> None:
        period_ns = seconds_to_ns(self.settings.tick_seconds)
        lease_ns = self.settings.lease_ttl_ms * NS_PER_MS
        due_ns, first_lease_ends_ns = self._clock.monotonic_ns() + period_ns, _NEVER_NS
        while not self._stopping:
            self._clock.wait_until(min(due_ns, first_lease_ends_ns), self._wake)
            now_ns = self._clock.monotonic_ns()
            # Cleared only when seen: a term that begins between the two would be lost otherwise.
            if begins := self._term_begins:
                self._term_begins = False
            self.tick_once()
            # Raises wait for the end of a term's first lease: a tick falls on it.
            ends = now_ns >= first_lease_ends_ns
            if begins:
                first_lease_ends_ns = self._clock.monotonic_ns() + lease_ns
            elif ends:
                first_lease_ends_ns = _NEVER_NS
            if begins or ends or now_ns >= due_ns:
                due_ns = now_ns + period_ns

    def tick_once(self) -> None:
        """One tick and its records; a bug in it is logged and does not end the loop."""
        try:
            outcome = self.ticker.tick()
            self._last_tick_ns = self._clock.monotonic_ns()
            if outcome is not None:
                self.status.take(outcome)
                self.taints.take(outcome)
                self.works.take(outcome)
                self.history.take(outcome)
                self._on_tick(outcome)
        except Exception:
            # The lease protocol makes a missed tick safe; a dead loop would only be noticed later.
            log.exception("tick failed")
            self.metrics.loop.failed_ticks.inc()

    def _count(self) -> None:
        """Bring up to date what others count."""
        metrics, gateway, streams = self.metrics, self.gateway, self.streams
        metrics.streams.open.set(gateway.connected())
        metrics.streams.waiting.set(gateway.waiting())
        for cause, count in gateway.handovers.copy().items():
            metrics.counters.raise_to(metrics.streams.handovers.labels(cause), count)
        metrics.counters.raise_to(metrics.streams.refused, gateway.refused_reports)
        metrics.counters.raise_to(metrics.streams.answered, gateway.renewals)
        metrics.counters.raise_to(metrics.streams.renewals, streams.renewals)
        metrics.counters.raise_to(metrics.streams.failed_renewals, streams.failed_renewals)
        expires = expires_at_seconds(streams.certificate_pem)
        metrics.streams.certificate_expires.labels("stream").set(expires)
        metrics.loop.audit_bytes.set(self.audit.size_bytes)
        metrics.outlooks.show_promisable(self.promisable.by_domain)
        metrics.outlooks.count_risks(self.account.windows.copy(), self.account.violations.copy())
        for bound, pods in self.works.count_by_bound().items():
            metrics.pods_by_bound.labels(bound).set(pods)
        metrics.boards_by_units.clear()
        for (kind, source), boards in self.works.count_by_units().items():
            metrics.boards_by_units.labels(kind, source).set(boards)
        for outcome, writes in self.classified.outcomes.copy().items():
            metrics.counters.raise_to(metrics.profile_writes.labels(outcome), writes)
        metrics.loop.history_bytes.set(self.history.size_bytes)
        metrics.counters.raise_to(metrics.loop.history_failures, self.history.failures)
        for reason, count in gateway.refused_streams.copy().items():
            metrics.counters.raise_to(metrics.streams.refused_streams.labels(reason), count)

    def synced(self) -> bool:
        """Whether every informer has listed once."""
        return all(informer.synced() for informer in self.informers)

    def _live(self, caller: Caller) -> HttpAnswer:
        view = self.ticker.live()
        if view is None:
            return HttpAnswer(503, "text/plain", b"no tick yet\n")
        view = with_promisable(view, self.promisable.by_domain)
        if not self.access.allows(caller, pods_in("")):
            view = shown_to(view, partial(self.access.visible_namespaces, caller))
        return HttpAnswer(200, "application/json", view.model_dump_json().encode())

    def _metrics_text(self) -> bytes:
        self._count()
        return self.metrics.text()

    def _failure(self) -> str:
        late_ns = self._clock.monotonic_ns() - self._last_tick_ns
        healthy = late_ns <= HEALTHY_PERIODS * seconds_to_ns(self.settings.tick_seconds)
        broken = [i for i in self.informers if i.failure is not None]
        if healthy and not broken and self.elector.failure is None:
            return ""
        return "the tick, an informer or the election hangs"


def _informers(around: Surroundings, store: ObjectStore) -> list[Informer]:
    """One a followed kind, each telling the store."""
    informers = []
    for i, resource in enumerate(FOLLOWED):
        informer = Informer(around.api, around.clock, resource, seed=around.seed + i)
        informer.add_handler(partial(store.changed, resource))
        informers.append(informer)
    return informers
