"""What has been promised and not yet kept, so that nothing is promised twice. Pure.

Pods are the truth: a bound pod keeps its promise, a deleted one frees it. Beside that the ledger
holds what no pod shows yet: places of gang members that do not exist, and pod/node pairs that
proved impossible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scheduler_plugin.resource_columns import covers
from scheduler_plugin.snapshot import Pod
from wattpack.units import NS_PER_SECOND

#: A pinned pod that is not bound by then is evicted (docs/placement.md).
PIN_TIMEOUT_NS = 30 * NS_PER_SECOND
#: How long a released pod may still look gated in a view that lags behind.
VIEW_LAG_NS = 5 * NS_PER_SECOND
#: How long the place of a gang member that does not exist yet is kept.
RESERVATION_NS = 300 * NS_PER_SECOND
#: How long a pod's owner stays away from a node that refused it.
QUARANTINE_NS = 600 * NS_PER_SECOND
#: How long a Job that lost a pod to a missed pin is remembered: longer than Jobs wait (assumed).
JOB_MEMORY_NS = 7 * 86_400 * NS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Promise:
    """One released pod on its way to a node."""

    uid: str
    node: str
    owner: str
    made_ns: int


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
    """

    promises: dict[str, Promise] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    quarantined: dict[tuple[str, str], int] = field(default_factory=dict)
    unpinned: dict[str, int] = field(default_factory=dict)

    def promise(self, uid: str, node: str, owner: str, now_ns: int) -> None:
        """Write down a release; an older one of the same pod keeps its time."""
        if uid not in self.promises or self.promises[uid].node != node:
            self.promises[uid] = Promise(uid, node, owner, now_ns)

    def drop(self, uids: Iterable[str]) -> None:
        """Forget promises that are kept or void."""
        for uid in uids:
            self.promises.pop(uid, None)

    def overdue(self, now_ns: int) -> list[Promise]:
        """Promises older than the pin's time-out, by uid."""
        old = [p for p in self.promises.values() if now_ns - p.made_ns >= PIN_TIMEOUT_NS]
        return sorted(old, key=lambda p: p.uid)

    def reserve(self, reservation: Reservation) -> None:
        """Keep a place for a member that does not exist yet."""
        self.reservations[reservation.slot] = reservation

    def keep_slots(self, slots: frozenset[str]) -> None:
        """Forget reservations that no living gang needs, or whose room real pods have taken."""
        self.reservations = {slot: r for slot, r in self.reservations.items() if slot in slots}

    def claim(self, pod: Pod) -> Reservation | None:
        """Take the first reserved place of the pod's gang that is large enough for it."""
        for slot in sorted(self.reservations):
            place = self.reservations[slot]
            if place.gang == pod.gang and (place.template is None or _covers(place.template, pod)):
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

    def expire(self, now_ns: int) -> None:
        """Forget what has run out."""
        self.quarantined = {k: t for k, t in self.quarantined.items() if t > now_ns}
        self.unpinned = {k: t for k, t in self.unpinned.items() if t > now_ns}
        self.reservations = {k: r for k, r in self.reservations.items() if r.until_ns > now_ns}

    def still_promised(self, uid: str, now_ns: int) -> str:
        """The node of a pod that looks gated although we released it moments ago, or empty."""
        promise = self.promises.get(uid)
        recent = promise is not None and now_ns - promise.made_ns < VIEW_LAG_NS
        return promise.node if promise is not None and recent else ""

    def gang_slots(self, gang: str) -> Mapping[str, Reservation]:
        """Reserved places of one gang by slot."""
        return {slot: r for slot, r in self.reservations.items() if r.gang == gang}


def _covers(template: Pod, pod: Pod) -> bool:
    """The place was made for at least this pod's requests, and for the same static rules."""
    rules = ("gpu_models", "node_selector", "required_terms", "tolerations")
    return covers(template, pod) and all(
        getattr(pod, rule) == getattr(template, rule) for rule in rules
    )
