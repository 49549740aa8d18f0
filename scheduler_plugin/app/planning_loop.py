"""One planning cycle after the other: read, reconcile promises, plan, apply, explain.

``PlacementLoop.step`` is the whole product from the outside: the scheduler process, the demo and
the tests call it and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pydantic import ValidationError

from scheduler_plugin.app.applier import RESEND_NS, Applied, Applier, Outcome, ReleaseLimits
from scheduler_plugin.app.cluster_view import ClusterReader
from scheduler_plugin.app.kept_places import claim_kept_places
from scheduler_plugin.app.kueue_checks import KueueChecks
from scheduler_plugin.app.leadership import LeadershipLostError
from scheduler_plugin.app.let_go import GangEnd, UnservablePods
from scheduler_plugin.app.missed_pins import MissedPins
from scheduler_plugin.app.move_cycle import MoveCycle
from scheduler_plugin.app.move_notes import MoveNotes
from scheduler_plugin.app.mover import Mover
from scheduler_plugin.app.node_guard import NodeGuard
from scheduler_plugin.app.placement_metrics import PlacementMetrics
from scheduler_plugin.app.plan_archive import PlanArchive
from scheduler_plugin.app.plan_lines import pending_causes
from scheduler_plugin.app.planning_cycle import CycleResult, PlannerSurroundings
from scheduler_plugin.app.planning_wishes import PlanningWishes
from scheduler_plugin.app.pod_events import PendingEvents
from scheduler_plugin.app.provisioner import Provisioner
from scheduler_plugin.app.release import OpenGate
from scheduler_plugin.app.release_order import first_to_go
from scheduler_plugin.app.scheduler_settings import PlacementSettings
from scheduler_plugin.app.start_estimates import StartEstimates
from scheduler_plugin.app.under_way_causes import with_nodes_under_way
from scheduler_plugin.app.waiting_pods import (
    FIRST_PAUSE_NS,
    UNREADABLE,
    Cause,
    Pauses,
    held_back,
)
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.admission import Mode
from scheduler_plugin.promises.disruption_budget import DisruptionBudget
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.snapshot_builder import BuiltSnapshot, build_snapshot
from wattpack.errors import InputError
from wattpack.gangs import GangSources
from wattpack.kube.event_reports import EventRecorder
from wattpack.kube.port import JsonObject, KubeApi, KubeError
from wattpack.units import ns_to_seconds, seconds_to_ns

log = logging.getLogger(__name__)


class PlacementLoop:
    """The planner's side of a cluster.

    Args:
        api: The cluster.
        around: Time, solver and name.
        settings: Mode and limits.
        metrics: Series; own ones if None.
        epoch: Of the term that this loop plans in.
    """

    def __init__(
        self,
        api: KubeApi,
        around: PlannerSurroundings,
        settings: PlacementSettings,
        metrics: PlacementMetrics | None = None,
        *,
        epoch: int = 0,
    ) -> None:
        self._api = api
        self._planner = around.planner
        self._clock = clock = around.clock
        self._settings = settings
        self.metrics = metrics or PlacementMetrics()
        limits, manages = settings.moves, settings.mode is Mode.MANAGE
        moves = manages and limits.enabled
        budget = DisruptionBudget(limits.per_hour, limits.per_owner_per_hour)
        self.ledger = Ledger(disruptions=budget)
        self.reader = ClusterReader(
            api,
            clock,
            shadow=settings.mode is Mode.SHADOW,
            threaded=around.threaded,
            authority=settings.namespace,
            moves=moves,
        )
        archive = PlanArchive(api, clock, epoch, settings.kept_plans)
        timeout_ns = seconds_to_ns(settings.gang_timeout_seconds)
        # Without threads one thread owns virtual time.
        at_once = settings.patches_at_once if around.threaded else 1
        self._nodes = NodeGuard(self.reader.now)
        release = ReleaseLimits(timeout_ns, at_once)
        self._applier = Applier(api, clock, self.ledger, archive, release, self._nodes)
        self._recorder = EventRecorder(api, clock, "wattpack.io/scheduler", around.instance)
        self._events = PendingEvents(self._recorder, clock, settings.events_per_cycle)
        self._moves = self._move_cycle(enabled=moves)
        answers = manages and settings.kueue_admission_checks
        self._checks = KueueChecks(api, clock, self.ledger, enabled=answers)
        take_back = self._checks.take_back
        self._pins = MissedPins(api, clock, self.ledger, self._recorder, self.metrics, take_back)
        self._starts = StartEstimates(clock)
        self._pauses = Pauses()
        self._gangs_end = GangEnd(self._recorder, self.metrics)
        asks = settings.provisioning
        self._provisioner = Provisioner(api, clock, self._recorder, self.metrics, asks, at_once)
        self._hopeless = UnservablePods(
            self._applier,
            clock,
            self._recorder,
            self.metrics,
            seconds_to_ns(settings.unservable_seconds),
            self._provisioner,
        )
        self._wishes = PlanningWishes(settings, self.metrics.room)
        self._last_digest = ""
        self._last = CycleResult("idle")
        self._causes: Mapping[str, Cause] = {}
        self._retry_at_ns: int | None = None
        self._recovered = False
        self._gate = OpenGate(api, settings.mode, self.reader.pods)

    def _move_cycle(self, *, enabled: bool) -> MoveCycle:
        """Moves of pods that run, noted by this loop's Events and series."""
        api, clock, limits = self._api, self._clock, self._settings.moves
        notes = MoveNotes(self._recorder, self.metrics)
        mover = Mover(api, clock, self.ledger, self._applier, notes, limits)
        return MoveCycle(self.reader, mover, clock, limits, enabled=enabled)

    def step(self) -> CycleResult:
        """One cycle; never raises for what the cluster contains or fails to answer.

        Raises:
            LeadershipLostError: if the term ended in the middle; nothing more was written then.
        """
        if self._settings.mode is not Mode.MANAGE:
            self._gate.step()
        if self._settings.mode is Mode.OFF:
            return CycleResult("idle")
        try:
            result = self._step()
        except LeadershipLostError:
            raise
        except (InputError, ValidationError, KubeError) as error:
            # The last good state stays: nothing was promised from what could not be read.
            log.error("planning cycle failed: %s", error)
            result = CycleResult("failed")
        except Exception:
            # A fault of ours: who leads is told that planning does not work, and so are people.
            log.exception("planning cycle failed")
            result = CycleResult("failed")
        if result.plan is None:
            self.metrics.cycles.labels(result.outcome).inc()
        self.metrics.promises.set(len(self.ledger.promises))
        return result

    def close(self) -> None:
        """Read no more, and tell how often each Event was repeated."""
        self.reader.stop()
        try:
            self._recorder.close()
        except LeadershipLostError as error:
            log.info("the counts of Events are not told: %s", error)

    def _step(self) -> CycleResult:
        pods = self.reader.pods()
        by_uid = {pod_facts.uid(pod): pod for pod in pods}
        if not self._recovered:
            self._applier.recover(by_uid)
            self._recovered = True
        now_ns = self._clock.monotonic_ns()
        self._pins.reconcile(pods, self.reader.standing_nodes(), now_ns)
        late = self.ledger.expire(now_ns)
        self._moves.reconcile(pods, by_uid, self._causes)
        settled = self._settle(by_uid)
        unpinned = self._pins.release_unpinned(pods, self._let_one_go)
        self._provisioner.withdraw(pods)
        expected = self._checks.expected()
        if not (expected or self._anybody_waits(pods) or self._moves.is_busy):
            self._last_digest = ""
            self._now_wait({})
            self._gangs_end.tell(late, pods, GangSources.empty())
            times = (self._checks.again_ns(), self._provisioner.again_ns())
            return CycleResult("idle", again_ns=_first(times))
        self._nodes.begin_cycle(pods)
        kept = {place.gang for place in self.ledger.reservations.values()}
        objects = self.reader.objects(pods, kept)
        self._gangs_end.tell(late, pods, objects.gangs)
        held: dict[str, Cause] = {}
        if self._settings.mode is Mode.MANAGE:
            held = held_back(pods, objects.gangs, self._pauses, now_ns)
        there = tuple(pod for uid, pod in by_uid.items() if uid not in held)
        objects = replace(objects, pods=there, expected=expected)
        objects = self._settings.applied_to(objects, self.reader.policy_floors)
        objects = self._moves.seen(objects, by_uid)
        built = build_snapshot(objects, self.ledger)
        self.ledger.keep_slots(built.kept_slots)
        claimed = self._claim_reserved(built)
        if claimed is not None:
            built = build_snapshot(objects, self.ledger)
        moved: dict[str, str] = {}
        if self._moves.is_busy:
            applied, nodes = self._moves.carry_on(built, by_uid)
            moved = self._account(applied, nodes, by_uid)
            built = build_snapshot(objects, self.ledger)
        built = self._wishes.applied(built, ns_to_seconds(self._clock.wall_time_ns()))
        before = settled | unpinned | (claimed or {}) | moved
        result = self._plan(built, before, held, by_uid)
        self._checks.answer(result.plan, built.living_gangs)
        if self._settings.mode is Mode.MANAGE:
            self._provisioner.see(objects.under_way.requests)
            self._hopeless.let_go(self._causes, by_uid, objects.gangs)
        return replace(result, again_ns=self._again_ns())

    def _again_ns(self) -> int | None:
        """When this loop wants to be called although nothing changed."""
        times = [p.since_ns + RESEND_NS for p in self.ledger.unsettled()]
        pause = self._pauses.next_ns(self._clock.monotonic_ns())
        others = (self._moves.again_ns(), self._checks.again_ns(), self._provisioner.again_ns())
        return _first((*times, pause, self._retry_at_ns, *others))

    def _let_one_go(self, pod: JsonObject) -> bool:
        return self._applier.release(pod, "") is Outcome.RELEASED

    def _settle(self, bodies: Mapping[str, JsonObject]) -> dict[str, str]:
        """Go on with patches that are left or were not answered; node by key of released pods."""
        nodes = {p.uid: p.node for p in self.ledger.unsettled()}
        if not nodes or self._settings.mode is not Mode.MANAGE:
            return {}
        return self._account(self._applier.settle(bodies), nodes, bodies)

    def _account(
        self, applied: Applied, nodes: Mapping[str, str], bodies: Mapping[str, JsonObject]
    ) -> dict[str, str]:
        """Count what became of patches, and when to look again; node by key of released pods."""
        now_ns = self._clock.monotonic_ns()
        outcomes = applied.outcomes
        gone = {uid: bodies[uid] for uid, o in outcomes.items() if o is Outcome.RELEASED}
        released = {pod_facts.key(body): nodes[uid] for uid, body in gone.items()}
        self.metrics.room.released(gone.values(), ns_to_seconds(self._clock.wall_time_ns()))
        lost = sum(o in (Outcome.CONFLICT, Outcome.GONE, Outcome.STALE) for o in outcomes.values())
        self.metrics.released.inc(len(released))
        self.metrics.conflicts.inc(lost)
        self._pauses.refused(applied.refused, now_ns)
        if applied.unfinished:
            self._retry_at_ns = now_ns
        elif len(released) < len(outcomes) or applied.refused:
            self._retry_at_ns = now_ns + FIRST_PAUSE_NS
        return released

    def _anybody_waits(self, pods: tuple[JsonObject, ...]) -> bool:
        if self._settings.mode is Mode.MANAGE:
            return any(map(pod_facts.is_gated, pods))
        spaces = self.reader.opted_in()
        return any(
            pod_facts.namespace(pod) in spaces
            and not pod_facts.is_finished(pod)
            and not pod_facts.unmanaged_reason(pod)
            for pod in pods
        )

    def _plan(
        self,
        built: BuiltSnapshot,
        before: Mapping[str, str],
        held: Mapping[str, Cause],
        bodies: Mapping[str, JsonObject],
    ) -> CycleResult:
        """Plan and apply, unless the same was asked before and nothing failed since.

        Args:
            built: What to plan.
            before: Node by key of pods that this cycle has released already.
            held: Cause by uid of pods that are not planned now.
            bodies: All pods by uid.
        """
        moves = self._moves.wanted
        digest = f"{built.question} {moves}"
        asked = digest == self._last_digest and not self._last.released and not before
        retry_ns, now_ns = self._retry_at_ns, self._clock.monotonic_ns()
        if asked and (retry_ns is None or now_ns < retry_ns):
            self._events.tell({**self._causes, **self._applier.unanswered()}, bodies)
            return CycleResult("unchanged", None, {}, self._last.pending)
        started_ns = self._clock.monotonic_ns()
        plan = self._planner.plan(built.snapshot, moves=moves)
        self._retry_at_ns = self._moves.ask_again_ns(plan, built.snapshot)
        if plan.refusals:
            log.error("the checker refused a plan: %s", "; ".join(plan.refusals[:5]))
        released = dict(before)
        if self._settings.mode is Mode.MANAGE:
            released |= self._apply(plan, built, bodies)
        elif not self._same_pending(plan):
            self._applier.write(plan, built.snapshot)
        elsewhere = pending_causes(plan, {pod.uid: pod for pod in built.snapshot.pods})
        refused = {uid: (UNREADABLE, text) for uid, text in built.refused.items()}
        causes = {**elsewhere, **refused, **built.later, **held, **self._applier.unanswered()}
        causes = with_nodes_under_way(causes, built)
        causes = self._starts.told(causes, plan.pending, built.snapshot, bodies.values())
        self._events.tell(causes, bodies)
        pending = {
            pod_facts.key(bodies[uid]): cause for uid, cause in causes.items() if uid in bodies
        }
        seconds = ns_to_seconds(self._clock.monotonic_ns() - started_ns)
        self.metrics.planned(plan, seconds)
        self.metrics.room.planned(plan, built.snapshot)
        self._now_wait(causes)
        self._last = CycleResult("planned", plan, released, pending)
        if plan.refusals and plan.method == "none":
            # Nobody gets a place as long as the same is asked: the watchdog has to hear of that.
            self._last_digest = ""
            return replace(self._last, outcome="failed")
        self._last_digest = digest
        return self._last

    def _apply(
        self, plan: Plan, built: BuiltSnapshot, bodies: Mapping[str, JsonObject]
    ) -> dict[str, str]:
        """Carry the plan out; node by key of each released pod."""
        if plan.steps:
            applied, nodes = self._moves.begin(plan, built, bodies)
            return self._account(applied, nodes, bodies)
        plan, more = first_to_go(self._moves.plain(plan), built.snapshot, self.ledger)
        if not plan.placements and self._same_pending(plan):
            return {}
        applied = self._applier.apply(plan, built.snapshot, built.pending)
        applied = replace(applied, unfinished=applied.unfinished or more)
        nodes = {p.uid: p.node for p in plan.placements}
        return self._account(applied, nodes, built.pending)

    def _now_wait(self, causes: Mapping[str, Cause]) -> None:
        self._causes = causes
        self.metrics.room.waiting(reason for reason, _ in causes.values())

    def _same_pending(self, plan: Plan) -> bool:
        """Nothing new to write: the causes are those of the last plan."""
        last = self._last.plan
        if last is None or last.steps or (last.placements and self._settings.mode is Mode.SHADOW):
            return False
        return {(p.uid, p.reason) for p in last.pending} == {
            (p.uid, p.reason) for p in plan.pending
        }

    def _claim_reserved(self, built: BuiltSnapshot) -> dict[str, str] | None:
        """Node by key of released pods that took kept places; None if there were none to take."""
        if self._settings.mode is not Mode.MANAGE:
            return None
        claimed = claim_kept_places(built, self.ledger, self._applier)
        return None if claimed is None else self._account(*claimed, built.pending)


def _first(times_ns: Iterable[int | None]) -> int | None:
    """The earliest of those that there are."""
    return min((t for t in times_ns if t is not None), default=None)
