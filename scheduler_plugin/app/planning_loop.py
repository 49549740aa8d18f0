"""One planning cycle after the other: read, reconcile promises, plan, apply, explain.

``PlacementLoop.step`` is the whole product from the outside: the scheduler process, the demo and
the tests call it and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from scheduler_plugin import pods as pod_facts
from scheduler_plugin.admission import Mode
from scheduler_plugin.app.applier import Applier, Outcome
from scheduler_plugin.app.cluster_view import ClusterReader
from scheduler_plugin.app.missed_pins import MissedPins
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.pod_events import PendingEvents
from scheduler_plugin.app.release import release_all
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.ledger import Ledger
from scheduler_plugin.plan_document import Plan
from scheduler_plugin.snapshot import Pod
from scheduler_plugin.snapshot_builder import BuiltSnapshot, build_snapshot
from scheduler_plugin.solver_process import Planner
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.kube.event_reports import EventRecorder
from wattpack.kube.port import JsonObject, KubeApi, KubeError
from wattpack.units import ns_to_seconds

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What one step did.

    Attributes:
        outcome: idle (nobody waits), unchanged (the same question as before, which placed
            nothing), planned or failed (inputs were unusable; everything stays as it is).
        plan: The plan, if one was made.
        released: Node by pod key (``namespace/name``) of pods released now.
        pending: Reason and message by pod key.
    """

    outcome: Literal["idle", "unchanged", "planned", "failed"]
    plan: Plan | None = None
    released: Mapping[str, str] = field(default_factory=dict)
    pending: Mapping[str, tuple[str, str]] = field(default_factory=dict)


class PlacementLoop:
    """The planner's side of a cluster.

    Args:
        api: The cluster.
        planner: Turns snapshots into plans.
        clock: Time.
        settings: Mode and limits.
        metrics: Series; own ones if None.
        instance: Name of this process, for Events.
        threaded: Whether informers run in their own threads (see ``start``).
    """

    def __init__(
        self,
        api: KubeApi,
        planner: Planner,
        clock: Clock,
        settings: PlacementSettings,
        metrics: PlacementMetrics | None = None,
        instance: str = "wattpack-scheduler",
        *,
        threaded: bool = False,
    ) -> None:
        self._api = api
        self._planner = planner
        self._clock = clock
        self._settings = settings
        self.metrics = metrics or PlacementMetrics()
        self.ledger = Ledger()
        self.reader = ClusterReader(
            api,
            clock,
            shadow=settings.mode is Mode.SHADOW,
            threaded=threaded,
            authority=settings.namespace,
        )
        self._applier = Applier(api, clock, self.ledger, settings.kept_plans)
        self._recorder = EventRecorder(api, clock, "wattpack.io/scheduler", instance)
        self._events = PendingEvents(self._recorder, settings.events_per_cycle)
        self._pins = MissedPins(api, self.ledger, self._recorder, self.metrics)
        self._last_digest = ""
        self._last = CycleResult("idle")
        self._recovered = False
        self._let_go = False

    def step(self) -> CycleResult:
        """One cycle; never raises for what the cluster contains or fails to answer."""
        if self._settings.mode is not Mode.MANAGE and not self._let_go:
            self._let_go = self._release_held()
        if self._settings.mode is Mode.OFF:
            return CycleResult("idle")
        try:
            result = self._step()
        except (InputError, ValidationError, KubeError) as error:
            # The last good state stays: nothing was promised from what could not be read.
            _LOG.error("planning cycle failed: %s", error)
            result = CycleResult("failed")
        if result.outcome != "planned":
            self.metrics.cycles.labels(result.outcome).inc()
        self.metrics.promises.set(len(self.ledger.promises))
        return result

    def _release_held(self) -> bool:
        """Let go of pods that an earlier Manage left at our gate; whether none is left.

        The Lease that this process renews keeps the watchdog quiet, so nobody else would.
        """
        try:
            done = release_all(self._api)
        except KubeError as error:
            _LOG.warning("held pods not read: %s", error)
            return False
        if done.released:
            _LOG.info("mode %s: %d held pods released", self._settings.mode, done.released)
        return done.left == 0

    def _step(self) -> CycleResult:
        if not self._recovered:
            self._applier.recover()
            self._recovered = True
        pods = self.reader.pods()
        now_ns = self._clock.monotonic_ns()
        self._pins.reconcile(pods, now_ns)
        unpinned = self._pins.release_unpinned(pods, self._let_one_go)
        if not self._anybody_waits(pods):
            self._last_digest = ""
            return CycleResult("idle")
        objects = self.reader.objects(pods)
        built = build_snapshot(objects, self.ledger, now_ns)
        self.ledger.keep_slots(built.kept_slots)
        claimed = self._claim_reserved(built, now_ns)
        if claimed:
            built = build_snapshot(objects, self.ledger, now_ns)
        return self._plan(built, unpinned | claimed)

    def _let_one_go(self, pod: JsonObject) -> bool:
        return self._applier.release(pod, "") is Outcome.RELEASED

    def _anybody_waits(self, pods: tuple[JsonObject, ...]) -> bool:
        if self._settings.mode is Mode.MANAGE:
            return any(map(pod_facts.is_gated, pods))
        spaces = self.reader.opted_in()
        return any(
            pod["metadata"].get("namespace", "default") in spaces
            and not pod_facts.is_finished(pod)
            and not pod_facts.unmanaged_reason(pod)
            for pod in pods
        )

    def _plan(self, built: BuiltSnapshot, claimed: Mapping[str, str]) -> CycleResult:
        digest = built.snapshot.digest()
        if digest == self._last_digest and not self._last.released and not claimed:
            return CycleResult("unchanged", None, {}, self._last.pending)
        started_ns = self._clock.monotonic_ns()
        plan = self._planner.plan(built.snapshot)
        if plan.refusals:
            _LOG.error("the checker refused a plan: %s", "; ".join(plan.refusals[:5]))
        released = dict(claimed)
        if self._settings.mode is Mode.MANAGE:
            released |= self._apply(plan, built)
        elif not self._same_pending(plan):
            # Shadow promises nothing: the object only says who would have had to wait, and why.
            pods = {pod.uid: pod for pod in built.snapshot.pods}
            self._applier.finish(self._applier.record(plan, [], pods), "Expired")
        elsewhere = {p.uid: (p.reason.value, p.message) for p in plan.pending if "#" not in p.uid}
        refused = {uid: ("InvalidRequest", text) for uid, text in built.refused.items()}
        causes = elsewhere | refused
        self._events.tell(causes, built.pending)
        keys = {uid: pod_facts.key(body) for uid, body in built.pending.items()}
        pending = {keys.get(uid, uid): cause for uid, cause in causes.items()}
        seconds = ns_to_seconds(self._clock.monotonic_ns() - started_ns)
        self.metrics.planned(plan, built.refused, seconds)
        self._last_digest = digest
        self._last = CycleResult("planned", plan, released, pending)
        return self._last

    def _apply(self, plan: Plan, built: BuiltSnapshot) -> dict[str, str]:
        """Carry the plan out; node by key of each released pod."""
        if not plan.placements and self._same_pending(plan):
            return {}
        applied = self._applier.apply(plan, built.snapshot, built.pending)
        nodes = {p.uid: p.node for p in plan.placements}
        released = {
            pod_facts.key(built.pending[uid]): nodes[uid]
            for uid, outcome in applied.outcomes.items()
            if outcome is Outcome.RELEASED
        }
        lost = sum(o in (Outcome.CONFLICT, Outcome.GONE) for o in applied.outcomes.values())
        self.metrics.released.inc(len(released))
        self.metrics.conflicts.inc(lost)
        return released

    def _same_pending(self, plan: Plan) -> bool:
        """Nothing new to write: nothing is placed and the causes are those of the last plan."""
        last = self._last.plan
        if last is None or last.placements:
            return False
        return {(p.uid, p.reason) for p in last.pending} == {
            (p.uid, p.reason) for p in plan.pending
        }

    def _claim_reserved(self, built: BuiltSnapshot, now_ns: int) -> dict[str, str]:
        """New members of a promised gang take the places that were kept for them."""
        if self._settings.mode is not Mode.MANAGE or not self.ledger.reservations:
            return {}
        pods: Mapping[str, Pod] = {pod.uid: pod for pod in built.snapshot.pods}
        claimed: dict[str, str] = {}
        for uid, body in built.pending.items():
            place = self.ledger.claim(pods[uid]) if pods[uid].gang else None
            if place is None:
                continue
            self.ledger.promise(uid, place.node, pod_facts.owner_key(body), now_ns)
            if self._applier.release(body, place.node) is Outcome.RELEASED:
                claimed[pod_facts.key(body)] = place.node
            elif uid not in self.ledger.promises:
                self.ledger.reserve(place)
        self.metrics.released.inc(len(claimed))
        return claimed
