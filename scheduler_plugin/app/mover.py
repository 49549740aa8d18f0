"""Carries moves and evictions out, step by step, through the Eviction API and nothing else.

    begin      a plan with steps: places are kept, the plan is written, what can go now goes
    reconcile  each cycle, from what the pods show: who has left, who has come, whose time is over
    carry_on   each cycle: successors take their places, and what has become possible is done

A step waits for what it needs (room, its disruption budget, the API) and holds no other back that
needs nothing from it. Nothing is forced: an eviction that the API refuses is asked again later,
until its time is over; then the chain ends where it stands, which is a state that the plan allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from scheduler_plugin.app.applier import Applied, Applier
from scheduler_plugin.app.move_notes import MoveNotes
from scheduler_plugin.app.nominations import Nominations
from scheduler_plugin.documents.plan_document import Placement, Plan
from scheduler_plugin.documents.snapshot import Pod, Snapshot
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.promises.disruption_budget import Disruption
from scheduler_plugin.promises.due_steps import due_steps
from scheduler_plugin.promises.ledger import Ledger
from scheduler_plugin.promises.move_book import Coming, Leaving, Step
from scheduler_plugin.promises.move_ends import End, MoveEnds
from scheduler_plugin.promises.move_intake import Intake, affordable, chains_of
from scheduler_plugin.promises.move_record import MAX_RECORD_BYTES, Now, record_of
from scheduler_plugin.promises.move_settings import MoveSettings
from scheduler_plugin.snapshot_builder import BuiltSnapshot
from wattpack.clock import Clock
from wattpack.kube.port import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    JsonObject,
    KubeApi,
    KubeError,
    NotFoundError,
    ThrottledError,
)
from wattpack.units import NS_PER_SECOND, seconds_to_ns

__all__ = ["Mover"]

log = logging.getLogger(__name__)
#: What one cycle spends on evictions; the rest follows in the next.
EVICTING_NS = 5 * NS_PER_SECOND
#: Pauses after an eviction that was refused: 2, 4, 8 ... seconds, at most one minute.
FIRST_PAUSE_NS = 2 * NS_PER_SECOND
LONGEST_PAUSE_NS = 60 * NS_PER_SECOND
#: Beyond the grace period of a pod that leaves, its place is waited for so long (assumed).
MARGIN_NS = 60 * NS_PER_SECOND
NOTHING = Applied({}, {}, unfinished=False)


class Mover:
    """What runs makes room, as far as its owners allow.

    Args:
        api: The cluster.
        clock: Time.
        ledger: Holds the open steps and the budget.
        applier: Writes plans and releases waiting pods.
        notes: Tells people.
        settings: Limits.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        ledger: Ledger,
        applier: Applier,
        notes: MoveNotes,
        settings: MoveSettings,
    ) -> None:
        self._api = api
        self._clock = clock
        self._ledger = ledger
        self._applier = applier
        self._notes = notes
        self._settings = settings
        self._nominations = Nominations(api)
        self._ends = MoveEnds(ledger.moves, ledger.disruptions)
        self._allowed: frozenset[str] = frozenset()
        self._due: Sequence[Step] = ()
        self._again: dict[str, tuple[int, int]] = {}

    @property
    def is_busy(self) -> bool:
        """Steps are open."""
        return bool(self._ledger.moves.steps)

    def allow(self, allowed: frozenset[str], bodies: Mapping[str, JsonObject]) -> frozenset[str]:
        """Who may be chosen by a plan: of those who may go at all, whom no step and no pause names.

        Args:
            allowed: Uids of pods that opted in and whom nothing forbids to go now.
            bodies: All pods by uid.
        """
        self._allowed = allowed
        now_ns = self._clock.monotonic_ns()
        book = self._ledger.moves
        leaving = {step.uid for step in book.leaving()}
        resting = book.resting_keys(now_ns) | self._ledger.disruptions.spent_owners(now_ns)
        return frozenset(
            uid for uid in allowed - leaving if pod_facts.owner_key(bodies[uid]) not in resting
        )

    def can_pay(self) -> bool:
        """Whether anybody may be disturbed now."""
        return self._ledger.disruptions.left(self._clock.monotonic_ns()) > 0

    def resting(self) -> frozenset[str]:
        """Waiting pods and gangs for whom an attempt failed lately, and such owners."""
        return self._ledger.moves.resting_keys(self._clock.monotonic_ns())

    def reconcile(self, bodies: Mapping[str, JsonObject]) -> None:
        """Close steps by what the pods show.

        Args:
            bodies: All pods by uid.
        """
        now_ns = self._clock.monotonic_ns()
        if not self._settings.enabled:
            for step in self._ledger.moves.leaving():
                if step.left_ns is None:
                    ends = self._ends.give_up(step.chain, "moves are off now", now_ns)
                    self._tell(ends, bodies)
        self._tell(self._ends.settle(bodies, now_ns), bodies)
        open_uids = {step.uid for step in self._ledger.moves.leaving()}
        self._again = {uid: pause for uid, pause in self._again.items() if uid in open_uids}
        self._tell_state(now_ns)

    def begin(
        self, plan: Plan, built: BuiltSnapshot, bodies: Mapping[str, JsonObject]
    ) -> tuple[Applied, dict[str, str]]:
        """Take up a plan with steps: written first, then what can go now goes.

        Args:
            plan: It was checked.
            built: What it was made for.
            bodies: All pods by uid.

        Returns:
            What became of releases, and the node by uid of pods that were to be released.

        Raises:
            KubeError: if the plan could not be written; nothing was done then.
        """
        book = self._ledger.moves
        before = list(book.steps)
        taken = self._taken_up(plan, built, bodies)
        if not taken:
            return NOTHING, {}
        book.steps += taken
        try:
            applied, nodes = self._go_on(plan, built.snapshot, bodies)
        except KubeError:
            known = {step.uid for step in before if isinstance(step, Leaving)}
            for step in taken:
                if isinstance(step, Leaving) and step.uid not in known:
                    self._ledger.disruptions.refund(step.uid)
            book.steps = before
            raise
        return applied, nodes

    def carry_on(
        self, built: BuiltSnapshot, bodies: Mapping[str, JsonObject]
    ) -> tuple[Applied, dict[str, str]]:
        """Give successors their places and do what has become possible; as ``begin`` returns.

        Raises:
            KubeError: if a plan could not be written; nothing was done then.
        """
        book = self._ledger.moves
        if not book.steps:
            return NOTHING, {}
        held = {pod.uid for pod in book.held()}
        self._claim(built, bodies)
        # A place that was just claimed is no longer somebody else's.
        claimed = held - {pod.uid for pod in book.held()}
        pods = tuple(pod for pod in built.snapshot.pods if pod.uid not in claimed)
        snapshot = built.snapshot.model_copy(update={"pods": pods})
        empty = Plan(snapshot_digest=built.snapshot.digest(), method="none")
        outcome = self._go_on(empty, snapshot, bodies)
        why = "others have taken the room"
        self._tell(self._ends.hopeless(self._due, bodies, why), bodies)
        return outcome

    # Inside

    def _tell(self, ends: Iterable[End], bodies: Mapping[str, JsonObject]) -> None:
        for end in ends:
            step = end.step
            if isinstance(step, Coming) and end.outcome == "given_up":
                self._notes.given_up(step, bodies.get(step.members[0].uid), end.why)
            elif end.outcome:
                self._notes.done(end.outcome)
            if isinstance(step, Coming) and end.outcome != "arrived":
                self._nominations.withdraw(step, bodies)

    def _taken_up(
        self, plan: Plan, built: BuiltSnapshot, bodies: Mapping[str, JsonObject]
    ) -> list[Step]:
        """The plan's chains that the budget pays for; they are paid."""
        now = Now(self._clock.monotonic_ns(), self._clock.wall_time_ns())
        book, budget = self._ledger.moves, self._ledger.disruptions
        until_ns = now.monotonic_ns + seconds_to_ns(self._settings.timeout_seconds)
        pods = {pod.uid: pod for pod in built.snapshot.pods}
        intake = Intake(pods, bodies, until_ns, book.next_chain(), now.wall_ns)
        taken: list[Step] = []

        def pays(owners: Iterable[str]) -> bool:
            return budget.affords(owners, now.monotonic_ns)

        def may_evict(uid: str) -> bool:
            spec = bodies[uid]["spec"] if uid in bodies else {}
            return bool(spec.get("preemptionPolicy") != "Never")

        for chain in chains_of(plan, intake):
            part = affordable(chain, pays, may_evict)
            if not part and any(isinstance(step, Leaving) for step in chain):
                self._notes.metrics.evictions_refused.labels("budget").inc()
            leaving = [step for step in part if isinstance(step, Leaving)]
            if not leaving:
                # What kube-scheduler found no node for needs more than a free place.
                part = [s for s in part if isinstance(s, Coming) and s.members[0].gated]
            for step in leaving:
                budget.spend(Disruption(step.uid, step.owner, step.until_ns))
            book.steps += part
            too_long = len(record_of(book, budget, now).encode()) > MAX_RECORD_BYTES
            book.drop(part)
            if too_long:
                for step in leaving:
                    budget.refund(step.uid)
                break
            taken += part
        return taken

    def _claim(self, built: BuiltSnapshot, bodies: Mapping[str, JsonObject]) -> None:
        """Pods at our gate take the places that were kept for them."""
        pods: Mapping[str, Pod] = {pod.uid: pod for pod in built.snapshot.pods}
        until_ns = self._clock.monotonic_ns() + seconds_to_ns(self._settings.timeout_seconds)
        for uid in sorted(built.pending, key=lambda u: pod_facts.key(built.pending[u])):
            body = bodies[uid]
            if not pod_facts.is_gated(body):
                continue
            owner, key = pod_facts.owner_key(body), pod_facts.key(body)
            if self._ledger.moves.claim(pods[uid], key, owner, until_ns) is not None:
                self._notes.done("claimed")

    def _go_on(
        self, plan: Plan, snapshot: Snapshot, bodies: Mapping[str, JsonObject]
    ) -> tuple[Applied, dict[str, str]]:
        """Release who has room now, after everything open is written; hints, then evictions."""
        book = self._ledger.moves
        self._due = due = due_steps(snapshot, book.steps)
        ready = [s for s in due if isinstance(s, Coming) and all(m.gated for m in s.members)]
        applied, nodes = NOTHING, dict[str, str]()
        if ready or plan.placements:
            applied, nodes = self._release(plan, ready, snapshot, bodies)
        for coming in book.coming():
            # Before there is room: the hint keeps it from less important pods.
            self._nominations.name(coming, bodies)
        began_ns = self._clock.monotonic_ns()
        for step in due:
            if isinstance(step, Leaving) and self._is_needed(step):
                if self._clock.monotonic_ns() - began_ns > EVICTING_NS:
                    break
                self._evict(step, bodies)
        return applied, nodes

    def _is_needed(self, step: Leaving) -> bool:
        """Its chain was not given up meanwhile, and somebody of it still waits."""
        book = self._ledger.moves
        return step in book.steps and any(c.chain == step.chain for c in book.coming())

    def _release(
        self,
        plan: Plan,
        ready: Sequence[Coming],
        snapshot: Snapshot,
        bodies: Mapping[str, JsonObject],
    ) -> tuple[Applied, dict[str, str]]:
        book = self._ledger.moves
        watts = {placement.uid: placement.watts for placement in plan.placements}
        members = [(step, member) for step in ready for member in step.members]
        placements = tuple(
            Placement(
                uid=m.uid,
                node=m.node,
                gang=step.gang,
                watts=watts.get(m.uid, 0),
                cap_watts=m.cap_watts,
            )
            for step, m in members
        )
        known = {pod.uid for pod in snapshot.pods}
        missing = (m.template for _, m in members if m.uid not in known)
        snapshot = snapshot.model_copy(update={"pods": (*snapshot.pods, *missing)})
        pending = {m.uid: bodies[m.uid] for _, m in members if m.exists and m.uid in bodies}
        before = list(book.steps)
        book.drop(ready)
        try:
            applied = self._applier.apply(
                plan.model_copy(update={"placements": placements}), snapshot, pending
            )
        except KubeError:
            book.steps = before
            raise
        return applied, {m.uid: m.node for _, m in members}

    def _evict(self, step: Leaving, bodies: Mapping[str, JsonObject]) -> None:
        """Ask for one eviction, if its owner and budgets still allow it and not too many go."""
        now_ns = self._clock.monotonic_ns()
        body = bodies.get(step.uid)
        under_way = sum(other.left_ns is not None for other in self._ledger.moves.leaving())
        if body is None or under_way >= self._settings.at_once:
            return
        again_ns, failures = self._again.get(step.uid, (0, 0))
        if now_ns < again_ns:
            return
        if step.uid not in self._allowed:
            self._pause(step, failures, now_ns)
            text = "a disruption budget or its owner does not allow it now"
            self._notes.refused(step, body, "not_allowed", text)
            return
        space, _, name = step.key.partition("/")
        try:
            self._api.evict(name, space, uid=step.uid)
        except ThrottledError as error:
            self._pause(step, failures, now_ns)
            self._notes.refused(step, body, "disruption_budget", str(error))
        except (NotFoundError, ConflictError):
            # Somebody else ended it; what that makes of the step the pods will show.
            self._pause(step, failures, now_ns)
        except (ForbiddenError, InvalidError) as error:
            self._notes.refused(step, body, "forbidden", str(error))
            why = f"{step.key} cannot be evicted"
            self._tell(self._ends.give_up(step.chain, why, now_ns), bodies)
        except KubeError as error:
            self._pause(step, failures, now_ns)
            log.warning("eviction of %s unanswered: %s", step.key, error)
        else:
            self._notes.evicted(step, body, self._made_for(step))
            self._has_left(step, body, now_ns)

    def _has_left(self, step: Leaving, body: JsonObject, now_ns: int) -> None:
        """The API took the eviction: from now on its place ends at a stated time."""
        book = self._ledger.moves
        grace_ns = int(body["spec"].get("terminationGracePeriodSeconds", 30)) * NS_PER_SECOND
        kept_ns = now_ns + grace_ns + seconds_to_ns(self._settings.successor_seconds)
        wall_ns = self._clock.wall_time_ns()
        self._ledger.disruptions.spend(Disruption(step.uid, step.owner, now_ns))
        book.swap(step, replace(step, left_ns=now_ns, since_wall_ns=wall_ns, until_ns=kept_ns))
        for coming in book.coming():
            if coming.chain == step.chain:
                until_ns = max(coming.until_ns, now_ns + grace_ns + MARGIN_NS)
                book.swap(coming, replace(coming, until_ns=until_ns))

    def _pause(self, step: Leaving, failures: int, now_ns: int) -> None:
        pause_ns = min(FIRST_PAUSE_NS << min(failures, 10), LONGEST_PAUSE_NS)
        self._again[step.uid] = (now_ns + pause_ns, failures + 1)

    def _made_for(self, step: Leaving) -> str:
        names = [
            member.key
            for coming in self._ledger.moves.coming()
            if coming.chain == step.chain
            for member in coming.members
        ]
        return names[0] if len(names) == 1 else f"{len(names)} pods ({', '.join(names[:3])})"

    def _tell_state(self, now_ns: int) -> None:
        book, metrics = self._ledger.moves, self._notes.metrics
        metrics.open_moves.set(len(book.leaving()))
        metrics.move_budget_left.set(self._ledger.disruptions.left(now_ns))
