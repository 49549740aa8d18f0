"""The controller's metrics, in base units; the list in docs/metrics.md is generated from here.

One registry a controller, so that several can live in one process (the demo, tests).
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from controller.app.desired_state import Refusal
from controller.app.live_view_builder import capped_by_domain, would_be_capped_by_domain
from controller.app.metric_makers import RisingCounters, makers
from controller.app.odd_servers import odd_servers
from controller.app.outlook_metrics import OutlookMetrics
from controller.cap_reason import RAISES_STOPPED
from controller.servers_aside import Aside
from controller.tick_values import Band, Decisions, Observations, Topology
from forecasting.forecast_book import Outlook
from wattpack.replaced_gauge import ReplacedGauge


class _Told(NamedTuple):
    """What is known of the domains at one tick."""

    topology: Topology
    seen: Observations
    decisions: Decisions


_DOMAIN_FIGURES: Final[Mapping[tuple[str, str], Callable[[_Told], ArrayLike]]] = {
    ("draw_watts", "Estimated AC draw of a domain"): lambda t: t.decisions.draw_watts,
    ("limit_watts", "What a domain may draw now"): lambda t: t.seen.budget_watts,
    ("rating_watts", "Continuous rating"): lambda t: t.topology.tree.rating_watts,
    (
        "available_watts",
        "What the feeds that carry may do for long; the rating without useReserve",
    ): lambda t: t.decisions.available_watts * t.topology.tree.phase_imbalance,
    (
        "reserve_missing",
        "1 if load may use reserve feeds and cannot: one is lost, or nobody tells",
    ): lambda t: t.decisions.reserve_missing,
    ("cap_band_watts", "Draw at which caps begin"): lambda t: t.decisions.cap_band_watts,
    (
        "worst_watts",
        "AC draw if every GPU reached the cap that it may hold",
    ): lambda t: t.decisions.worst_watts,
    (
        "survivable_watts",
        "The most that the breaker survives until leases end: limit of the worst case (I2)",
    ): lambda t: t.decisions.survivable_watts,
    (
        "guaranteed_case_watts",
        "AC draw with GPUs at guaranteed caps, the largest servers and those that nothing "
        "holds at default limits (I1)",
    ): lambda t: t.decisions.guaranteed_watts,
    (
        "guaranteed_limit_watts",
        "Limit of the guaranteed case: the rating over phase imbalance (I1)",
    ): lambda t: t.decisions.guaranteed_limit_watts,
    ("enforced", "1 if caps are written, 0 in DryRun"): lambda t: t.topology.tree.enforce,
    (
        "recovering",
        "1 while nothing is raised above guaranteed caps, until servers were heard and the "
        "breaker is cool (I6)",
    ): lambda t: t.topology.tree.enforce & t.decisions.recovering,
    ("breaker_heat_ratio", "Breaker heat; 1 trips"): lambda t: t.decisions.heat,
    (
        "host_share_ratio",
        "What servers count at beside their GPUs over their declared worst",
    ): lambda t: t.decisions.host_share,
    (
        "coincidence_ratio",
        "Share of its boards' summed draws that a domain expects at one time",
    ): lambda t: t.decisions.coincidence,
    ("band", "0 normal, 1 releasing, 2 capping, 3 brake"): lambda t: t.decisions.band,
    (
        "capped_gpus",
        "GPUs held below their request, without those that only DryRun lets be",
    ): lambda t: capped_by_domain(t.topology, t.decisions),
    (
        "would_be_capped_gpus",
        "GPUs that caps would hold below their request, were it not for DryRun; nothing holds them",
    ): lambda t: would_be_capped_by_domain(t.topology, t.decisions),
}
"""Name, text and values of each figure that every domain has, (n_domains,)."""


class DomainMetrics:
    """What a power domain draws, may draw and is expected to draw."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge, counter = makers(registry)
        self._figures = {
            gauge(f"domain_{name}", text, "domain"): values_of
            for (name, text), values_of in _DOMAIN_FIGURES.items()
        }
        self.measured = ReplacedGauge(
            gauge(
                "domain_measured_watts",
                "AC draw that rests on readings; absent while some of it is assumed (I7)",
                "domain",
            )
        )
        self.brakes = counter("domain_brakes_total", "Times a domain entered the brake", "domain")
        self.aside = ReplacedGauge(
            gauge(
                "servers_counted_aside",
                "Servers of a domain whose newest spec is refused that count in the next one above",
                "domain",
            )
        )
        self.uncounted = ReplacedGauge(
            gauge(
                "servers_uncounted",
                "Servers of a refused domain above which no accepted one is known: in no sum (I1)",
                "domain",
            )
        )
        self._bands: dict[str, int] = {}

    def show(self, topology: Topology, seen: Observations, decisions: Decisions) -> None:
        """Export the domains of one tick; of one that is gone no alert reads a last figure."""
        names, told = topology.tree.names, _Told(topology, seen, decisions)
        self._forget(set(self._bands) - set(names))
        for gauge, values_of in self._figures.items():
            for name, value in zip(names, np.asarray(values_of(told)).tolist(), strict=True):
                gauge.labels(name).set(value)
        for name, band in zip(names, decisions.band.tolist(), strict=True):
            brakes = self.brakes.labels(name)
            if band == Band.BRAKE and self._bands.get(name) != Band.BRAKE:
                brakes.inc()
            self._bands[name] = band

    def _forget(self, gone: Collection[str]) -> None:
        for name in gone:
            del self._bands[name]
            for gauge in self._figures:
                gauge.remove(name)


class StreamMetrics:
    """The streams to the node agents."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge, counter = makers(registry)
        self.open = gauge("agent_streams", "Nodes of which an agent stream is heard")
        self.waiting = gauge(
            "agent_streams_waiting", "Agents that wait beside another agent of their node"
        )
        self.handovers = counter(
            "agent_handovers_total",
            "Times that another agent of a node was heard: the one before ended, or was silent",
            "cause",
        )
        self.refused = counter("refused_reports_total", "Agent reports that were refused")
        self.refused_streams = counter(
            "refused_streams_total", "Agent streams that were refused, by gRPC status", "reason"
        )
        self.renewals = counter(
            "stream_certificate_renewals_total", "Certificates that streams changed to"
        )
        self.failed_renewals = counter(
            "stream_certificate_failed_renewals_total", "Certificates that could not be shown"
        )
        self.certificate_expires = gauge(
            "certificate_expires_timestamp_seconds",
            "When the certificate that is shown ends, Unix time",
            "server",
        )
        self.batches = counter("lease_batches_total", "Lease batches that ticks decided")
        self.answered = counter(
            "reports_answered_on_arrival_total", "Reports that renewed a lease at unchanged caps"
        )


class LoopMetrics:
    """The tick itself and the files that it writes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge, counter = makers(registry)
        self.failed_ticks = counter("failed_ticks_total", "Ticks that raised an error")
        self.tick_seconds = Histogram(
            "wattpack_tick_seconds",
            "Work of one tick",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0),
            registry=registry,
        )
        self.audit_failures = counter("audit_rows_lost_total", "Decision rows that were not kept")
        self.audit_bytes = gauge("audit_bytes", "Size of the decisions' file with its log")
        self.history_bytes = gauge("history_bytes", "Size of the draw history with its log")
        self.history_failures = counter("history_rows_lost_total", "Draw samples not kept")


class MeterMetrics:
    """Of those domains that declare a meter."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge, _ = makers(registry)
        self.unused = ReplacedGauge(
            gauge(
                "domain_meter_unused_seconds",
                "How long no reading of the domain's meter was used; absent without a meter",
                "domain",
            )
        )
        self.mismatch = ReplacedGauge(
            gauge(
                "domain_meter_mismatch",
                "1 while the meter shows over 8 % more than all that is known of; "
                "absent without one",
                "domain",
            )
        )


class ServerMetrics:
    """Of servers, how they are read and counted."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge, _ = makers(registry)
        self.metered = gauge(
            "metered_servers", "Servers whose draw beside their GPUs is read, by their BMC"
        )
        self.unread = gauge(
            "unread_servers",
            "Heard servers that no BMC speaks of although BMCs are asked; 0 if none is asked",
        )
        self.odd = ReplacedGauge(
            gauge(
                "odd_servers",
                "Servers that are counted otherwise than they say",
                "reason",
            )
        )


class ControllerMetrics:
    """Everything that the tick exports."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counters = RisingCounters()
        self.domains = DomainMetrics(self.registry)
        self.outlooks = OutlookMetrics(self.registry, self.counters)
        self.streams = StreamMetrics(self.registry)
        self.loop = LoopMetrics(self.registry)
        gauge, counter = makers(self.registry)
        self.silent_nodes = gauge("silent_nodes", "Nodes without a fresh report")
        self.nodes = gauge("nodes", "Nodes that have said hello")
        self.pods_by_bound = gauge(
            "pods_by_bound",
            "Pods on GPUs by what binds their work, as telemetry shows it",
            "bound",
        )
        self.boards_by_units = gauge(
            "boards_by_units",
            "GPUs by what their work waits for, as their units show it to agent or dcgm-exporter",
            "waits_for",
            "source",
        )
        self.profile_writes = counter(
            "classified_profile_writes_total",
            "WorkloadProfiles written from telemetry; kept_by_people: left as somebody set them",
            "outcome",
        )
        self.meters = MeterMetrics(self.registry)
        self.servers = ServerMetrics(self.registry)
        self.untrusted = gauge("untrusted_gpus", "GPUs budgeted at their maximum (I7)")
        self.stale_readings = gauge(
            "stale_readings", "GPUs whose power readings stand still or hide energy (I7)"
        )
        self.ignored_epochs = gauge(
            "ignored_epochs", "Nodes that report an epoch no Lease of ours can have reached (I4)"
        )
        self.leading = gauge("leading", "1 if this replica leads")
        self.epoch = gauge("epoch", "Fencing epoch while leading, else 0")
        self.raises_stopped = gauge(
            "raises_stopped",
            "1 for what keeps this replica from raising any cap (I4): not_leading, "
            "lease_not_renewed, epoch_behind, starting; all 0: it may raise",
            "cause",
        )
        self.not_accepted = gauge("objects_not_accepted", "Objects whose newest spec is refused")

    def observe(self, topology: Topology, seen: Observations, decisions: Decisions) -> None:
        """Export one tick."""
        self.domains.show(topology, seen, decisions)
        self.silent_nodes.set(int(decisions.silent_nodes.sum()))
        self.untrusted.set(int((~decisions.trusted).sum()))
        self.stale_readings.set(int(decisions.stale_readings.sum()))
        self.ignored_epochs.set(int(seen.poisoned_nodes.sum()))
        self.leading.set(int(seen.leading))
        self.epoch.set(seen.epoch)
        for cause in RAISES_STOPPED:
            stops = int(decisions.raises_stopped is cause)
            self.raises_stopped.labels(cause.name.lower()).set(stops)

    def observe_outlooks(
        self, outlooks: Mapping[str, Outlook], measured_watts: Mapping[str, float]
    ) -> None:
        """Export what was measured and what is expected of each domain, on which authority."""
        self.domains.measured.show(measured_watts)
        self.outlooks.show(outlooks)

    def observe_servers(self, seen: Observations, decisions: Decisions, *, asked: bool) -> None:
        """Export whose draw beside GPUs is read; ``asked``: BMCs are."""
        read = np.isfinite(seen.host_watts)
        self.servers.metered.set(int(read.sum()))
        self.servers.unread.set(int((asked & ~read & ~decisions.silent_nodes).sum()))

    def observe_meters(
        self, topology: Topology, decisions: Decisions, metered: Collection[str]
    ) -> None:
        """Export how the meters do of those domains that declare one."""
        unused = dict(zip(topology.tree.names, decisions.meter_unused_seconds, strict=True))
        wrong = dict(zip(topology.tree.names, decisions.meter_mismatch, strict=True))
        known = [name for name in topology.tree.names if name in metered]
        self.meters.unused.show({name: float(unused[name]) for name in known})
        self.meters.mismatch.show({name: float(wrong[name]) for name in known})

    def observe_aside(self, aside: Sequence[Aside]) -> None:
        """Export which domains' servers count elsewhere, or nowhere."""
        counted: Tally[str] = Tally()
        for servers in aside:
            if servers.counted_in:
                counted[servers.claimed_by] += servers.servers
        self.domains.aside.show(counted)
        self.domains.uncounted.show({a.claimed_by: a.servers for a in aside if not a.counted_in})

    def observe_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Export what does not run, and which servers are odd."""
        self.not_accepted.set(len(refusals))
        reasons = Tally(refusal.reason for refusal in odd_servers(refusals))
        self.servers.odd.show({reason: float(n) for reason, n in reasons.items()})

    def text(self) -> bytes:
        """Prometheus exposition format."""
        return generate_latest(self.registry)
