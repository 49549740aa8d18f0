"""Carries plans out: promises first, then one patch a pod, gangs whole.

A gang is one transaction. Its members' patches are tried as dry runs before anything is promised,
so that one member that admission refuses holds the others; afterwards all are patched. Should a
patch fail even then, nothing goes if none went before; otherwise the place stays kept for it.

A patch without an answer may still be made, so its promise stays and the same patch is sent again
until the pod itself tells. Nothing else can be planned onto that place meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from scheduler_plugin.app.gang_rehearsal import ATTEMPTS, GangRehearsal
from scheduler_plugin.app.node_guard import NodeGuard
from scheduler_plugin.app.patch_crew import beside_each_other
from scheduler_plugin.app.plan_archive import PlanArchive
from scheduler_plugin.app.plan_writer import PlanWriter
from scheduler_plugin.app.unanswered import Unanswered
from scheduler_plugin.app.waiting_pods import Cause
from scheduler_plugin.documents.plan_document import Plan
from scheduler_plugin.documents.snapshot import Pod, Snapshot
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.promises.ledger import Ledger, Promise, Reservation, Stage
from scheduler_plugin.promises.move_record import Now, restore
from wattpack.clock import Clock
from wattpack.errors import InputError
from wattpack.kube.port import (
    PODS,
    ConflictError,
    ForbiddenError,
    InvalidError,
    JsonObject,
    KubeApi,
    KubeError,
    NotFoundError,
)
from wattpack.times import parse_rfc3339
from wattpack.units import NS_PER_SECOND

log = logging.getLogger(__name__)

#: A patch without an answer is sent again after this time.
RESEND_NS = 2 * NS_PER_SECOND
#: What one cycle spends on patches of single pods; the rest follows in the next.
PATCHING_NS = 10 * NS_PER_SECOND


class Outcome(Enum):
    """What became of one release; ``STALE``: its node is not what was planned for any more."""

    RELEASED = "released"
    CONFLICT = "conflict"
    STALE = "stale"
    GONE = "gone"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a plan.

    Attributes:
        outcomes: By pod uid, of those that were patched.
        refused: Why the API refuses a pod (by uid) or a member of a gang (by the gang's id).
        unfinished: Whether more is to be done at once: dry runs or patches are left.
    """

    outcomes: Mapping[str, Outcome]
    refused: Mapping[str, str]
    unfinished: bool


@dataclass(frozen=True, slots=True)
class ReleaseLimits:
    """Of an applier.

    Attributes:
        gang_timeout_ns: How long places of missing gang members are kept.
        at_once: How many patches may be under way.
    """

    gang_timeout_ns: int
    at_once: int = 1


class Applier:
    """Writes plans to the API.

    Args:
        api: The cluster.
        clock: For promise times.
        ledger: Where promises are kept; shared with the snapshot builder.
        archive: Where promises are written.
        limits: Of releases.
        guard: Knows which nodes are no longer what was planned for.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        ledger: Ledger,
        archive: PlanArchive,
        limits: ReleaseLimits,
        guard: NodeGuard,
    ) -> None:
        self._api = api
        self._at_once = limits.at_once
        self._guard = guard
        self._clock = clock
        self._ledger = ledger
        self._archive = archive
        self._gang_timeout_ns = limits.gang_timeout_ns
        self._writer = PlanWriter(clock, ledger, archive, limits.gang_timeout_ns)
        self._why: dict[str, str] = {}
        self._unanswered = Unanswered(clock)
        self._fresh_slots: list[str] = []
        self._rehearsal = GangRehearsal(self._patch, self._read_again, clock, limits.at_once)

    def recover(self, bodies: Mapping[str, JsonObject]) -> None:
        """Take up what earlier processes promised; pods tell which promises are still open.

        Only the newest plan can have patches under way, and only while it is not settled. Such a
        pod counts as taken, and the same patch is sent again: whichever comes first, the place is
        the same.

        Args:
            bodies: All pods by uid, read after this term began.
        """
        plans = self._archive.read()
        now_ns = self._clock.monotonic_ns()
        if plans:
            self._recover_moves(plans[-1].moves)
        for plan in plans:
            is_newest = plan is plans[-1]
            for said in plan.promises:
                if said.pod_uid.startswith("#"):
                    if is_newest:
                        until_ns = now_ns + self._left_ns(said.until)
                        slot = said.gang + said.pod_uid
                        place = Reservation(slot, said.node, said.gang, None, until_ns)
                        self._ledger.reserve(place)
                    continue
                body = bodies.get(said.pod_uid)
                if body is None or pod_facts.is_finished(body) or pod_facts.node_name(body):
                    continue
                to, sent_ns = (said.node, said.gang), now_ns - RESEND_NS
                promise = _promise(body, to, sent_ns, said.cap_watts)
                if pod_facts.is_gated(body):
                    if is_newest and not plan.is_settled:
                        self._ledger.promise(promise)
                        self._ledger.reach(promise.uid, Stage.SENT, promise.since_ns)
                elif pod_facts.pinned_node(body) == said.node:
                    self._ledger.promise(promise)
                    self._ledger.reach(promise.uid, Stage.RELEASED, now_ns)

    def _recover_moves(self, record: str) -> None:
        """Open steps of moves, and what they have cost."""
        ledger = self._ledger
        now = Now(self._clock.monotonic_ns(), self._clock.wall_time_ns())
        try:
            if record:
                restore(record, ledger.moves, ledger.disruptions, now)
        except InputError as error:
            log.warning("moves of the newest plan are left out: %s", error)

    def _left_ns(self, until: str) -> int:
        """Time to a moment, at most the gang's time-out; all of it if nobody says."""
        try:
            wall_ns = round(parse_rfc3339(until).timestamp() * NS_PER_SECOND)
        except ValueError:
            return self._gang_timeout_ns
        return min(max(0, wall_ns - self._clock.wall_time_ns()), self._gang_timeout_ns)

    def apply(self, plan: Plan, snapshot: Snapshot, pending: Mapping[str, JsonObject]) -> Applied:
        """Promise everything in a PlacementPlan, then release pods, gangs last and together.

        Args:
            plan: What to do; it was checked.
            snapshot: What it was made for.
            pending: Pods that wait, as they were read, by uid.
        """
        self._why = {}
        bodies = dict(pending)
        held = self._rehearsal.of(plan, bodies)
        chosen = [p for p in plan.placements if p.gang not in held]
        # After the dry runs, which may take seconds.
        stale = {p.uid for p in self._guard.stale(chosen)}
        chosen = [p for p in chosen if p.uid not in stale]
        pods = {pod.uid: pod for pod in snapshot.pods}
        self._writer.write(plan, snapshot, chosen, bodies)
        self._fresh_slots = [p.uid for p in chosen if p.uid not in bodies]
        for placement in chosen:
            body = bodies.get(placement.uid)
            if body is None:
                self._reserve(placement.gang, placement.uid, placement.node, pods[placement.uid])
            else:
                now_ns = self._clock.monotonic_ns()
                place = (placement.node, placement.gang)
                self._ledger.promise(_promise(body, place, now_ns, placement.cap_watts))
        self._guard.promised((p.uid for p in chosen), self._ledger.promises.keys())
        outcomes = self._settle(bodies)
        outcomes |= dict.fromkeys(stale & bodies.keys(), Outcome.STALE)
        self._fresh_slots = []
        refused = self._why | {gang: why for gang, why in held.items() if why}
        return Applied(outcomes, refused, self._has_rest() or "" in held.values())

    def write(self, plan: Plan, snapshot: Snapshot) -> None:
        """Say who would have had to wait, and promise nothing (mode Shadow)."""
        self._writer.write(plan, snapshot, [], {})
        self._archive.close()

    def settle(self, bodies: Mapping[str, JsonObject]) -> Applied:
        """Send the patches that are still to be sent or were not answered.

        Args:
            bodies: Pods as they were read, by uid; others stay as they are.
        """
        self._why = {}
        outcomes = self._settle(bodies)
        return Applied(outcomes, self._why, self._has_rest())

    def _has_rest(self) -> bool:
        return any(p.stage is Stage.WRITTEN for p in self._ledger.unsettled())

    def _settle(self, bodies: Mapping[str, JsonObject]) -> dict[str, Outcome]:
        now_ns = self._clock.monotonic_ns()
        outcomes: dict[str, Outcome] = {}
        gangs: dict[str, list[Promise]] = {}
        single: list[Promise] = []
        for promise in self._ledger.unsettled():
            body = bodies.get(promise.uid)
            if body is None:
                continue
            if not pod_facts.is_gated(body):
                outcomes[promise.uid] = self._as_the_pod_tells(promise, body)
            elif promise.stage is Stage.SENT and now_ns - promise.since_ns < RESEND_NS:
                continue
            elif promise.gang:
                gangs.setdefault(promise.gang, []).append(promise)
            else:
                single.append(promise)

        def in_time() -> bool:
            return self._clock.monotonic_ns() - now_ns <= PATCHING_NS

        outcomes |= self._release_each(single, bodies, in_time)
        for members in gangs.values():
            outcomes |= self._release_gang(members, bodies)
        if not self._ledger.unsettled():
            self._archive.close()
        return outcomes

    def _release_each(
        self,
        promises: Sequence[Promise],
        bodies: Mapping[str, JsonObject],
        goes_on: Callable[[], bool] = lambda: True,
    ) -> dict[str, Outcome]:
        """Several at once; which the API takes first does not matter, all are promised."""

        def sent(promise: Promise) -> Outcome:
            if self._guard.is_void(promise):
                return self._ended(promise.uid, Outcome.STALE)
            return self.release(bodies[promise.uid], promise.node)

        made = beside_each_other(promises, sent, self._at_once, goes_on)
        return {p.uid: outcome for p, outcome in zip(promises, made, strict=False)}

    def release(self, body: JsonObject, node: str) -> Outcome:
        """Pin one pod, or only let it go without a node; what changed meanwhile is read again."""
        uid = pod_facts.uid(body)
        for _ in range(ATTEMPTS):
            self._ledger.reach(uid, Stage.SENT, self._clock.monotonic_ns())
            try:
                self._patch(body, node, dry_run=False)
            except ConflictError:
                body, outcome = self._read_again(body, node)
                if outcome is None:
                    continue
                return self._ended(uid, outcome)
            except NotFoundError:
                return self._ended(uid, Outcome.GONE)
            except (InvalidError, ForbiddenError) as error:
                log.warning("release of %s refused: %s", pod_facts.key(body), error)
                self._why[uid] = str(error)
                return self._ended(uid, Outcome.REFUSED)
            except KubeError as error:
                log.warning("release of %s unanswered: %s", pod_facts.key(body), error)
                self._unanswered.note(uid, str(error))
                return self._ended(uid, Outcome.UNKNOWN)
            return self._ended(uid, Outcome.RELEASED)
        return self._ended(uid, Outcome.CONFLICT)

    def unanswered(self) -> dict[str, Cause]:
        """Reason and message, by uid, of promised pods whose patches are not answered."""
        return self._unanswered.causes(self._ledger.promises)

    def _ended(self, uid: str, outcome: Outcome) -> Outcome:
        if outcome is not Outcome.UNKNOWN:
            self._unanswered.ended(uid)
        if outcome is Outcome.RELEASED:
            self._ledger.reach(uid, Stage.RELEASED, self._clock.monotonic_ns())
        elif outcome is not Outcome.UNKNOWN:
            self._ledger.drop([uid])
        return outcome

    def _patch(self, body: JsonObject, node: str, *, dry_run: bool) -> None:
        metadata = body["metadata"]
        self._api.patch_json(
            PODS,
            metadata["name"],
            pod_facts.release_patch(body, node),
            metadata.get("namespace", "default"),
            dry_run=dry_run,
        )

    def _as_the_pod_tells(self, promise: Promise, body: JsonObject) -> Outcome:
        """The gate is gone: by our patch, or somebody else let the pod go."""
        ours = pod_facts.pinned_node(body) == promise.node
        return self._ended(promise.uid, Outcome.RELEASED if ours else Outcome.CONFLICT)

    def _read_again(self, body: JsonObject, node: str) -> tuple[JsonObject, Outcome | None]:
        """The pod as it is now, and what that decides; None: it asks for the same, try again."""
        metadata = body["metadata"]
        try:
            fresh = self._api.get(PODS, metadata["name"], metadata.get("namespace", "default"))
        except NotFoundError:
            return body, Outcome.GONE
        except KubeError:
            return body, Outcome.UNKNOWN
        if fresh["metadata"]["uid"] != metadata["uid"]:
            return body, Outcome.GONE
        if not pod_facts.is_gated(fresh):
            ours = not node or pod_facts.pinned_node(fresh) == node
            return fresh, Outcome.RELEASED if ours else Outcome.CONFLICT
        same = fresh["spec"] == body["spec"] and not fresh["metadata"].get("deletionTimestamp")
        return fresh, None if same else Outcome.CONFLICT

    # Gangs

    def _release_gang(
        self, members: list[Promise], bodies: Mapping[str, JsonObject]
    ) -> dict[str, Outcome]:
        """All members; if the first fails, none."""
        gang = members[0].gang
        begun = any(
            p.gang == gang and p.stage is not Stage.WRITTEN for p in self._ledger.promises.values()
        )
        # The first goes alone: if it fails, all can stay.
        outcomes: dict[str, Outcome] = {}
        rest = members if begun else members[1:]
        if not begun:
            if any(map(self._guard.is_void, members)):
                self._none_goes(members)
                return dict.fromkeys((p.uid for p in members), Outcome.STALE)
            first = members[0]
            outcomes[first.uid] = outcome = self.release(bodies[first.uid], first.node)
            if outcome not in (Outcome.RELEASED, Outcome.UNKNOWN):
                self._tell_of(first)
                self._none_goes(members)
                return outcomes
        later = self._release_each(rest, bodies)
        for member in rest:
            # A place on a node that changed is worth nothing: its member is planned anew.
            if later[member.uid] not in (Outcome.RELEASED, Outcome.UNKNOWN, Outcome.STALE):
                self._tell_of(member)
                self._reserve(gang, f"{gang}#{member.uid}", member.node, None)
        return outcomes | later

    def _none_goes(self, members: Sequence[Promise]) -> None:
        gang = members[0].gang
        self._ledger.drop(p.uid for p in members)
        self._ledger.free(s for s in self._fresh_slots if s.startswith(f"{gang}#"))

    def _tell_of(self, member: Promise) -> None:
        """A refusal of a member is the gang's."""
        if why := self._why.pop(member.uid, ""):
            self._why[member.gang] = f"{member.key}: {why}"

    def _reserve(self, gang: str, slot: str, node: str, template: Pod | None) -> None:
        until_ns = self._clock.monotonic_ns() + self._gang_timeout_ns
        self._ledger.reserve(Reservation(slot, node, gang, template, until_ns))


def _promise(body: JsonObject, place: tuple[str, str], since_ns: int, cap_watts: int) -> Promise:
    """``place`` is the node and the gang."""
    (node, gang), owner = place, pod_facts.owner_key(body)
    uid, key = pod_facts.uid(body), pod_facts.key(body)
    return Promise(uid, node, owner, since_ns, key, gang, cap_watts=cap_watts)
