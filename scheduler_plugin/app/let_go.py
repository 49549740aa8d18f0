"""What ends a wait without a place: no node can serve a pod, or a gang's members did not come."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from scheduler_plugin.app.applier import Applier, Outcome
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.provisioner import Provisioner
from scheduler_plugin.app.under_way_causes import NODE_UNDER_WAY
from scheduler_plugin.app.waiting_pods import UNSERVABLE, Cause, Unservable, gang_bodies
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.gang_census import GangCensus
from scheduler_plugin.kube_objects.pod_claims import CLAIM_NOT_COUNTED
from scheduler_plugin.kube_objects.provisioning_requests import Demand
from scheduler_plugin.promises.ledger import Reservation
from scheduler_plugin.promises.provisioning import Wait
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.gangs import GangSources
from wattpack.kube.event_reports import EventReason, EventRecorder
from wattpack.kube.port import PODS, JsonObject

log = logging.getLogger(__name__)
#: Members of a gang that get an Event; the others share its fate.
TOLD_MEMBERS = 10


class UnservablePods:
    """Lets go of pods that no present node can serve, so that autoscalers see them.

    kube-scheduler marks a released pod ``Unschedulable``, which is what autoscalers look at; a
    gated pod is invisible to them. Gangs go whole.

    Args:
        applier: Patches pods.
        clock: For the time that they waited.
        recorder: Where Events go.
        metrics: Counts them.
        patience_ns: How long a pod waits for a node that could serve it.
        provisioner: May have some of them wait for nodes that it asks for.
    """

    def __init__(
        self,
        applier: Applier,
        clock: Clock,
        recorder: EventRecorder,
        metrics: PlacementMetrics,
        patience_ns: int,
        provisioner: Provisioner,
    ) -> None:
        self._applier = applier
        self._clock = clock
        self._recorder = recorder
        self._metrics = metrics
        self._unservable = Unservable(patience_ns)
        self._provisioner = provisioner

    def let_go(
        self, causes: Mapping[str, Cause], bodies: Mapping[str, JsonObject], sources: GangSources
    ) -> int:
        """How many pods were released without a node.

        Args:
            causes: Why pods wait, by uid.
            bodies: All pods by uid.
            sources: Of gangs.
        """
        due = set(self._unservable.due(causes, self._clock.monotonic_ns())) & bodies.keys()
        asks = self._provisioner.is_busy
        waits = {uid for uid, (reason, _) in causes.items() if reason == NODE_UNDER_WAY and asks}
        hopeless = {uid for uid, (reason, _) in causes.items() if reason in UNSERVABLE and asks}
        if not (due | waits | hopeless):
            return 0
        waiting = [body for body in bodies.values() if pod_facts.is_gated(body)]
        gangs, single = gang_bodies(waiting, sources)
        groups = [("", [body]) for body in single] + list(gangs.items())
        missing = _Missing(bodies.values(), sources)
        released = 0
        for gang, group in groups:
            uids = [pod_facts.uid(body) for body in group]
            why, stays = "", False
            if not (waits | hopeless).isdisjoint(uids):
                demand = Demand(gang or uids[0], tuple(group), missing.of(gang, group), bool(gang))
                wait = Wait(*(not each.isdisjoint(uids) for each in (hopeless, waits, due)))
                stays, why = self._provisioner.keeps(demand, wait)
            late = uids if why else [uid for uid in uids if uid in due]
            if late and not stays:
                told = next(causes[uid] for uid in late if uid in causes)
                released += self._release(group, (told[0], f"{told[1]}. {why}" if why else told[1]))
        self._metrics.released_unpinned.inc(released)
        return released

    def _release(self, group: Sequence[JsonObject], cause: Cause) -> int:
        released = 0
        for body in group:
            if self._applier.release(body, "") is not Outcome.RELEASED:
                if not released:
                    break
                continue
            released += 1
            note = f"{cause[0]}: {cause[1]}. {_says(cause)}: released without a node"
            self._recorder.emit(
                {"apiVersion": PODS.api_version, "kind": PODS.kind, **body},
                EventReason.PLACEMENT_RELEASED,
                f"{note}, so that autoscalers see it",
                action="Releasing",
            )
        return released


def _says(cause: Cause) -> str:
    if cause[0] == CLAIM_NOT_COUNTED:
        return "Where its devices are is for kube-scheduler to find out"
    return "No present node can serve it"


class _Missing:
    """How many members of gangs are still to come.

    Args:
        bodies: All pods.
        sources: Of gangs.
    """

    def __init__(self, bodies: Iterable[JsonObject], sources: GangSources) -> None:
        self._bodies, self._sources = tuple(bodies), sources

    @cached_property
    def _alive(self) -> dict[str, list[JsonObject]]:
        alive = (body for body in self._bodies if not pod_facts.is_finished(body))
        return gang_bodies(alive, self._sources)[0]

    @cached_property
    def _census(self) -> GangCensus:
        return GangCensus(self._bodies, self._sources)

    def of(self, gang: str, members: Sequence[JsonObject]) -> int:
        """Of a gang, by the size that it has now; 0 without a gang."""
        try:
            found = self._census.gang(members[0]) if gang else None
        except InputError:
            return 0
        return max(0, ((found and found.size) or 0) - len(self._alive.get(gang, ())))


class GangEnd:
    """Says what became of a gang whose missing members did not take their places in time.

    Args:
        recorder: Where Events go.
        metrics: Counts such gangs.
    """

    def __init__(self, recorder: EventRecorder, metrics: PlacementMetrics) -> None:
        self._recorder = recorder
        self._metrics = metrics

    def tell(
        self, late: Sequence[Reservation], pods: Sequence[JsonObject], sources: GangSources
    ) -> None:
        """Report the places that were given up, on the members that are there.

        Args:
            late: The places.
            pods: All pods.
            sources: Of gangs.
        """
        if not late:
            return
        places: dict[str, list[Reservation]] = defaultdict(list)
        for place in late:
            places[place.gang].append(place)
        gangs, _ = gang_bodies([p for p in pods if not pod_facts.is_finished(p)], sources)
        for gang, given_up in places.items():
            self._metrics.gangs_timed_out.inc()
            nodes = ", ".join(sorted({place.node for place in given_up})[:8])
            note = (
                f"{len(given_up)} members of {gang} did not take their places in time; the places "
                f"on {nodes} are given up. Members that run stay; late ones are placed together"
            )
            log.warning("%s", note)
            for body in gangs.get(gang, [])[:TOLD_MEMBERS]:
                self._recorder.emit(
                    {"apiVersion": PODS.api_version, "kind": PODS.kind, **body},
                    EventReason.GANG_TIMED_OUT,
                    note,
                    action="GivingUp",
                    warning=True,
                )
