"""What has been promised and not yet kept, so that nothing is promised twice. Pure.

Pods are the truth: a bound pod keeps its promise, a deleted one frees it. Beside that the ledger
holds what no pod shows yet: places of gang members that do not exist, and pod/node pairs that
proved impossible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from scheduler_plugin.documents.snapshot import Pod
from scheduler_plugin.promises.disruption_budget import DisruptionBudget
from scheduler_plugin.promises.move_book import MoveBook
from scheduler_plugin.room.resource_columns import covers
from scheduler_plugin.rules.static_rules import are_alike
from wattpack.units import NS_PER_SECOND

#: A pinned pod that kube-scheduler has found no node for is evicted then (docs/placement.md).
PIN_TIMEOUT_NS = 30 * NS_PER_SECOND
#: How long a pod's owner stays away from a node that refused it.
QUARANTINE_NS = 600 * NS_PER_SECOND
#: How long a Job that lost a pod to a missed pin is remembered: longer than Jobs wait (assumed).
JOB_MEMORY_NS = 7 * 86_400 * NS_PER_SECOND
#: In slots of gangs of which no pod exists yet.
EXPECTED = "#expected-"


class Stage(Enum):
    """How far a promise has come.

    ``WRITTEN`` stands in a PlacementPlan and no patch was sent; ``SENT`` means that a patch is
    under way or its answer was lost, so that it may still be made; ``RELEASED`` was answered: the
    pod is pinned, whatever a view that lags behind shows.
    """

    WRITTEN = "written"
    SENT = "sent"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Promise:
    """One pod on its way to a node.

    Attributes:
        key: ``namespace/name`` of the pod.
        since_ns: When it came to its present stage; for ``SENT``, when the newest patch was sent.
        cap_watts: Of its boards, that the plan counted on; 0 for none.
    """

    uid: str
    node: str
    owner: str
    since_ns: int
    key: str = ""
    gang: str = ""
    stage: Stage = Stage.WRITTEN
    cap_watts: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """The place of a gang member that does not exist yet; ``slot`` is its uid in snapshots.

    ``template`` is None after a restart: the largest sibling stands in for it.
    """

    slot: str
    node: str
    gang: str
    template: Pod | None
    until_ns: int


@dataclass(slots=True)
class Ledger:
    """Open promises by pod uid, reservations by slot, and what missed pins taught.

    Attributes:
        quarantined: Until when an (owner, node) pair is avoided.
        unpinned: Until when an owner's pods get no pin.
        moves: Steps of plans that move or evict, and the places that they keep.
        disruptions: What running pods may still be asked for.
    """

    promises: dict[str, Promise] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    quarantined: dict[tuple[str, str], int] = field(default_factory=dict)
    unpinned: dict[str, int] = field(default_factory=dict)
    moves: MoveBook = field(default_factory=MoveBook)
    disruptions: DisruptionBudget = field(default_factory=lambda: DisruptionBudget(0, 0))

    def promise(self, promise: Promise) -> None:
        """Write down a promise; what was sent for the same place before stays so."""
        known = self.promises.get(promise.uid)
        if known is None or known.node != promise.node:
            self.promises[promise.uid] = promise

    def reach(self, uid: str, stage: Stage, now_ns: int) -> None:
        """A promise has come to a stage; nothing happens if it was dropped meanwhile."""
        if uid in self.promises:
            self.promises[uid] = replace(self.promises[uid], stage=stage, since_ns=now_ns)

    def drop(self, uids: Iterable[str]) -> None:
        """Forget promises that are kept or void."""
        for uid in uids:
            self.promises.pop(uid, None)

    def unsettled(self) -> list[Promise]:
        """Promises whose patch is still to be sent or whose outcome is not known, by uid."""
        found = [p for p in self.promises.values() if p.stage is not Stage.RELEASED]
        return sorted(found, key=lambda p: p.uid)

    def overdue(self, now_ns: int) -> list[Promise]:
        """Released pods whose pin is older than its time-out, by uid."""
        old = [
            p
            for p in self.promises.values()
            if p.stage is Stage.RELEASED and now_ns - p.since_ns >= PIN_TIMEOUT_NS
        ]
        return sorted(old, key=lambda p: p.uid)

    def reserve(self, reservation: Reservation) -> None:
        """Keep a place for a member that does not exist yet."""
        self.reservations[reservation.slot] = reservation

    def free(self, slots: Iterable[str]) -> None:
        """Give places up."""
        for slot in slots:
            self.reservations.pop(slot, None)

    def keep_slots(self, slots: frozenset[str]) -> None:
        """Forget reservations that no living gang needs, or whose room real pods have taken."""
        self.reservations = {slot: r for slot, r in self.reservations.items() if slot in slots}

    def claim(self, pod: Pod) -> Reservation | None:
        """Take the first reserved place of the pod's gang that is large enough for it."""
        for slot in sorted(self.reservations):
            place = self.reservations[slot]
            if place.gang != pod.gang or place.node in pod.excluded_nodes:
                continue
            made_for = place.template
            # What pods are expected to be like is told by their owner; others may add to that.
            alike = EXPECTED in slot or made_for is None or are_alike(made_for, pod)
            if made_for is None or (covers(made_for, pod) and alike):
                return self.reservations.pop(slot)
        return None

    def quarantine(self, owner: str, node: str, now_ns: int) -> None:
        """Keep an owner's pods away from a node for a while."""
        self.quarantined[owner, node] = now_ns + QUARANTINE_NS

    def miss(self, owner: str, node: str, now_ns: int, *, for_good: bool) -> None:
        """A pin of this owner led nowhere: its next pods go unpinned, a Job's for good."""
        self.quarantine(owner, node, now_ns)
        until_ns = now_ns + (JOB_MEMORY_NS if for_good else QUARANTINE_NS)
        self.unpinned[owner] = max(until_ns, self.unpinned.get(owner, until_ns))

    def goes_unpinned(self, owner: str) -> bool:
        """Whether the owner's pods are released without a node."""
        return owner in self.unpinned

    def excluded_nodes(self, owner: str) -> tuple[str, ...]:
        """Nodes that an owner's pods must not be sent to."""
        return tuple(sorted(node for (who, node) in self.quarantined if who == owner))

    def expire(self, now_ns: int) -> list[Reservation]:
        """Forget what has run out; the places that nobody took in time, by slot."""
        late = [r for _, r in sorted(self.reservations.items()) if r.until_ns <= now_ns]
        self.quarantined = {k: t for k, t in self.quarantined.items() if t > now_ns}
        self.unpinned = {k: t for k, t in self.unpinned.items() if t > now_ns}
        self.reservations = {k: r for k, r in self.reservations.items() if r.until_ns > now_ns}
        return late

    def still_promised(self, uid: str) -> str:
        """The node of a pod that looks gated and has a promise or a kept place, or empty.

        No time ends a promise: a released pod can never be gated again, so the view is old; and a
        patch without an answer may be made at any later moment.
        """
        promise = self.promises.get(uid)
        return promise.node if promise is not None else self.moves.place_of(uid)

    def promised_cap_watts(self, uid: str) -> int:
        """Of a promised pod's boards, the cap that its plan counted on; 0 for none."""
        promise = self.promises.get(uid)
        return self.moves.cap_watts_of(uid) if promise is None else promise.cap_watts

    def gang_slots(self, gang: str) -> Mapping[str, Reservation]:
        """Reserved places of one gang by slot."""
        return {slot: r for slot, r in self.reservations.items() if r.gang == gang}
