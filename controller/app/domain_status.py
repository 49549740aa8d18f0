"""Writes what a tick found to the API: PowerDomain status under the write budget, Events.

Only the leader writes. Nothing here is on the tick's path: the tick hands its outcome over, and a
thread of its own takes the newest one every second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from pydantic import ValidationError

from controller.app.arrival_book import ArrivalBook, PodsOnGpus
from controller.app.desired_state import Refusal
from controller.app.live_view_builder import capped_by_domain, gpus_by_domain
from controller.app.odd_servers import members_understood, odd_by_domain, odd_servers
from controller.app.planning_verdicts import PLANNING_KINDS, PlanningVerdicts
from controller.app.promisable_room import PromisableRoom
from controller.app.risk_account import RiskAccount
from controller.app.running_topology import DesiredTopology
from controller.app.tick_loop import TickOutcome
from controller.app.verdicts import OWN_TYPES, VerdictBook
from controller.budget import budget_notice
from controller.guaranteed_case import unheld_nodes
from controller.servers_aside import told_where_they_count
from controller.tick_values import Band, Transition
from forecasting.forecast_book import FORECAST_TRUSTED
from wattpack.api import (
    ApiObject,
    Condition,
    GPUProfile,
    PowerDomain,
    PowerOverride,
    PowerPolicy,
)
from wattpack.api.conditions import Finding, own_conditions, set_condition
from wattpack.api.power_domain import PowerDomainSpec, PowerDomainStatus, PromisableWatts
from wattpack.clock import Clock
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.port import NODES, KubeApi
from wattpack.kube.write_budget import StatusWriter, TokenBucket
from wattpack.periodic import PeriodicThread
from wattpack.power.domain_tree import BoolArray
from wattpack.units import NS_PER_SECOND, ns_to_seconds

log = logging.getLogger(__name__)
FIELD_MANAGER = "wattpack-controller"

_KINDS: tuple[type[ApiObject], ...] = (PowerDomain, PowerPolicy, PowerOverride, GPUProfile)

_ROUNDING_WATTS = 1e-6
# Which transitions of the core become which Event; what is not here stays in the audit log only.
_REASONS: Mapping[str, tuple[EventReason, bool]] = {
    "Capping": (EventReason.CAPS_LOWERED, False),
    "Releasing": (EventReason.CAPS_RESTORED, False),
    "Normal": (EventReason.CAPS_RESTORED, False),
    "Brake": (EventReason.BRAKE_ENGAGED, True),
    "ForecastInUse": (EventReason.FORECAST_RESTORED, False),
    "ForecastFallback": (EventReason.FORECAST_FALLBACK, True),
    "ForecastContradicted": (EventReason.FORECAST_FALLBACK, True),
    "ForecastAboveBand": (EventReason.BUDGET_AT_RISK, True),
    "Degraded": (EventReason.DOMAIN_DEGRADED, True),
    "Recovered": (EventReason.DOMAIN_READY, False),
    "ServersCountedAside": (EventReason.SERVERS_COUNTED_ASIDE, True),
    "ServersUncounted": (EventReason.SERVERS_UNCOUNTED, True),
}


class StatusThread(PeriodicThread):
    """Takes the newest outcome every second and writes what changed.

    Args:
        api: Where status and Events go.
        clock: Paces the thread.
        desired: Objects and what runs of them.
        instance: Of Events.
        bucket: The write budget of the process.
        leading: Whether this replica leads, also before anything runs that could tick.

    Attributes:
        promisable: Judges what may be promised beyond what is; None: nobody is told.
        account: Counts windows that went wrong at the risks of decisions; None: nobody does.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        desired: DesiredTopology,
        instance: str,
        bucket: TokenBucket | None = None,
        leading: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(clock, "status", NS_PER_SECOND)
        self._clock, self._desired, self._leading = clock, desired, leading
        self.promisable: PromisableRoom | None = None
        self.account: RiskAccount | None = None
        self._verdicts, self._planning = VerdictBook(), PlanningVerdicts()
        self._writer = StatusWriter(api, clock, FIELD_MANAGER, bucket)
        self._events = EventRecorder(api, clock, "wattpack.io/controller", instance)
        self._lock = threading.Lock()
        self._outcome: TickOutcome | None = None
        self._transitions: list[Transition] = []
        self._arrivals = ArrivalBook()
        self._conditions: dict[str, list[Condition]] = {}
        self._odd: frozenset[tuple[str, str]] = frozenset()

    def take(self, outcome: TickOutcome) -> None:
        """Called by the tick; never blocks for long."""
        with self._lock:
            self._outcome = outcome
            self._transitions.extend(outcome.decisions.transitions)

    def stop(self, patience_seconds: float = 5.0) -> None:
        """End the thread and tell how often each Event was repeated."""
        super().stop(patience_seconds)
        self._events.close()

    def run_once(self) -> None:
        """Offer and write what the newest outcome says, and what is found of everything else."""
        with self._lock:
            outcome, transitions = self._outcome, self._transitions
            self._outcome, self._transitions = None, []
        self._forget_ended()
        leads = outcome.seen.leading if outcome is not None else self._leading()
        if not leads:
            self._stand_by()
            return
        if outcome is not None:
            self._count_windows(outcome)
            self._offer_running(outcome)
            self._emit(transitions)
            self._tell_odd_servers()
        self._offer_verdicts()
        report = self._writer.flush()
        for target, why in report.refused:
            log.error("status of %s refused: %s", target[2], why)
        self._events.flush()

    def _forget_ended(self) -> None:
        """What takes the place of an object that ended is told anew, be it word for word."""
        kinds = {k.meta.kind: k for k in (*_KINDS, *PLANNING_KINDS)}
        for kind, namespace, name in self._desired.take_ended():
            if kind in kinds:
                self._writer.forget(kinds[kind].meta.resource, name, namespace)
                self._verdicts.forget(kind, name)
                self._planning.forget((kind, namespace, name))
            if kind == PowerDomain.meta.kind:
                self._conditions.pop(name, None)

    def _stand_by(self) -> None:
        """Who leads may tell otherwise, so that our own words say nothing of what stands there."""
        self._writer.forget_all()
        self._verdicts, self._planning = VerdictBook(), PlanningVerdicts()
        self._conditions.clear()
        if self.promisable is not None:
            self.promisable.forget()
        if self.account is not None:
            self.account.forget()

    def _count_windows(self, outcome: TickOutcome) -> None:
        if self.account is None:
            return
        now_seconds = ns_to_seconds(self._clock.monotonic_ns())
        try:
            self.account.take(
                outcome.measured_watts,
                outcome.outlooks,
                now_seconds,
                ns_to_seconds(outcome.wall_time_ns),
                {} if self.promisable is None else self.promisable.promised_watts,
            )
        except Exception:
            self._go_on_without("the account of windows")

    def _go_on_without(self, advice: str) -> None:
        """Breaker heat and conditions are told whatever becomes of advice, or of one domain."""
        self.failures += 1
        log.exception("%s failed: statuses go without it", advice)

    def _offer_running(self, outcome: TickOutcome) -> None:
        kind, desired = PowerDomain.meta.kind, self._desired
        refusals = {r.name: r for r in desired.refusals() if r.kind == kind}
        odd = odd_by_domain(outcome.topology, desired.refusals())
        arrivals = self._arrivals.take(
            outcome,
            PodsOnGpus(desired.pods(), desired.pod_of_gpu, desired.idle_watts_of_gpu),
        )
        rooms = self._rooms(outcome)
        for index, name in enumerate(outcome.topology.tree.names):
            domain = desired.newest_domain(name)
            if domain is not None:
                found = (
                    *_findings(outcome, index, domain, refusals.get(name)),
                    members_understood(odd.get(name, ())),
                )
                try:
                    status = self._domain_status(outcome, index, domain, found)
                except ValidationError:
                    # A figure that is no number, say: one breaker's, and no other's.
                    self._go_on_without(f"the status of {name}")
                    continue
                news = {"arrivals": arrivals.get(name, []), "promisable": [*rooms.get(name, ())]}
                status = status.model_copy(update=news)
                self._writer.offer(PowerDomain.meta.resource, name, status)

    def _rooms(self, outcome: TickOutcome) -> Mapping[str, tuple[PromisableWatts, ...]]:
        if self.promisable is None:
            return {}
        desired, names = self._desired, outcome.topology.tree.names
        domains = {name: desired.newest_domain(name) for name in names}
        told = {name: domain.status for name, domain in domains.items() if domain is not None}
        now_seconds = ns_to_seconds(self._clock.monotonic_ns())
        try:
            return self.promisable.judge(outcome, desired.pods_of_gpus, told, now_seconds)
        except Exception:
            self._go_on_without("what may be promised")
            return {}

    def _offer_verdicts(self) -> None:
        desired = self._desired
        for resource, name, status in self._verdicts.statuses(
            desired.newest(),
            desired.profiles_in_use(),
            desired.refusals(),
            desired.running(),
            self._clock.wall_time_ns(),
        ):
            self._writer.offer(resource, name, status)
        for found in self._planning.statuses(
            desired.newest().planning, desired.works(), self._clock.wall_time_ns()
        ):
            self._writer.offer(found.resource, found.name, found.status, found.namespace)

    def _emit(self, transitions: Sequence[Transition]) -> None:
        for transition in transitions:
            known = _REASONS.get(transition.kind)
            domain = self._desired.newest_domain_object(transition.domain)
            if known is not None and domain is not None:
                reason, warning = known
                self._events.emit(
                    domain, reason, transition.message, action="Allocate", warning=warning
                )

    def _tell_odd_servers(self) -> None:
        """An Event on the Node of each server that began to be counted otherwise than it says."""
        odd = {(r.name, r.reason): r for r in odd_servers(self._desired.refusals())}
        nodes = self._desired.newest().nodes
        for key in odd.keys() - self._odd:
            node = nodes.get(key[0])
            if node is not None:
                self._events.emit(
                    {**node, "apiVersion": NODES.api_version, "kind": NODES.kind},
                    EventReason.NODE_NOT_UNDERSTOOD,
                    f"{odd[key].reason}: {odd[key].message}",
                    action="Count",
                    warning=True,
                )
        self._odd = frozenset(odd)

    def _domain_status(
        self, outcome: TickOutcome, index: int, domain: PowerDomain, found: Sequence[Finding]
    ) -> PowerDomainStatus:
        seen, decisions, topology = outcome.seen, outcome.decisions, outcome.topology
        outlook = outcome.outlooks.get(domain.name)
        known = outlook if outlook is not None and outlook.method != "limit" else None
        draw, budget = float(decisions.draw_watts[index]), float(seen.budget_watts[index])
        members = np.bincount(topology.domain_of_node, minlength=topology.n_domains)
        return PowerDomainStatus(
            observed_generation=domain.generation,
            accepted_spec=_spec_of(self._desired.accepted_domains().get(domain.name)),
            budget_watts=round(budget),
            draw_watts=round(draw),
            forecast_p95_watts=round(known.p95_watts) if known else None,
            forecast_p99_watts=round(known.p99_watts) if known else None,
            headroom_watts=round(budget - draw),
            cap_band_watts=round(float(decisions.cap_band_watts[index])),
            breaker_heat_ratio=round(float(decisions.heat[index]), 3),
            band=Band(int(decisions.band[index])).name.capitalize(),
            members=int(topology.tree.sum_up(members.astype(np.float64))[index]),
            gpus=int(gpus_by_domain(topology)[index]),
            capped_gpus=int(capped_by_domain(topology, decisions)[index]),
            epoch=seen.epoch,
            conditions=self._judge(outcome, domain, found),
        )

    def _judge(
        self, outcome: TickOutcome, domain: PowerDomain, found: Sequence[Finding]
    ) -> list[Condition]:
        """What was found, with the time of each condition's last change."""
        conditions: Sequence[Condition] = self._conditions.get(
            domain.name, own_conditions(domain.status.conditions, OWN_TYPES)
        )
        aside = told_where_they_count(self._desired.counted_aside(), domain.name)
        for finding in found:
            if finding.type == "Ready" and aside:
                finding = replace(finding, message=f"{finding.message}; {aside}")
            conditions = set_condition(
                conditions,
                finding,
                observed_generation=domain.generation,
                wall_time_ns=outcome.wall_time_ns,
            )
        self._conditions[domain.name] = list(conditions)
        return self._conditions[domain.name]


def _findings(
    outcome: TickOutcome, index: int, domain: PowerDomain, refusal: Refusal | None
) -> Iterator[Finding]:
    """What is said of a domain that runs."""
    worst = float(outcome.decisions.guaranteed_watts[index])
    limit = float(outcome.decisions.guaranteed_limit_watts[index])
    safe = worst <= limit + _ROUNDING_WATTS
    fits = "every GPU's guaranteed cap fits below the rating (I1)"
    if refusal is None:
        notice = budget_notice(domain)
        runs = "the newest spec runs" + (f"; {notice}" if notice else "")
        yield Finding("Accepted", True, "Valid", runs)
    else:
        message = refusal.message or "what ran before runs on"
        yield Finding("Accepted", False, refusal.reason, message)
    if not safe:
        figures = f"worst case {worst:.0f} W with {_counted(outcome, index)}"
        message = f"{figures}, rating over phase imbalance {limit:.0f} W (I1)"
        yield Finding("Ready", False, "GuaranteedCapsDoNotFit", message)
    elif refusal is not None:
        yield Finding("Ready", False, refusal.reason, "what was accepted before runs on")
    else:
        yield Finding("Ready", True, "Controlled", fits)
    # The planner gives nothing to a domain that cannot promise its guaranteed caps.
    if safe:
        yield Finding("Degraded", False, "GuaranteedCapsFit", fits)
    else:
        text = "nothing is placed here until the guaranteed caps fit (I1)"
        yield Finding("Degraded", True, "GuaranteedCapsDoNotFit", text)
    outlook = outcome.outlooks.get(domain.name)
    if outlook is not None:
        yield Finding(FORECAST_TRUSTED, outlook.source is not None, outlook.state, outlook.reason)


def _counted(outcome: TickOutcome, index: int) -> str:
    """What I1's worst case of a domain is made of."""
    topology = outcome.topology

    def below(nodes: BoolArray) -> int:
        here = np.bincount(topology.domain_of_node[nodes], minlength=topology.n_domains)
        return int(topology.tree.sum_up(here.astype(np.float64))[index])

    unheld = unheld_nodes(topology, outcome.seen)
    if not below(unheld):
        return "every GPU at its guaranteed cap"
    return (
        f"{below(unheld)} of {below(np.ones_like(unheld))} servers at their default limits: no "
        "guaranteed cap is certain there (host unit, actuator, report, known GPU type)"
    )


def _spec_of(accepted: PowerDomain | None) -> PowerDomainSpec | None:
    """What runs; None where a domain was deleted and made anew with a spec that is refused."""
    return None if accepted is None else accepted.spec
