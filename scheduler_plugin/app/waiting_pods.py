"""Pods that wait for another reason than a plan: held back for a while, or let go without a node.

Held back are gangs whose members wait at somebody else's gate, because a gang starts together or
not at all, and what the API refused to release: it is tried again after a pause, and meanwhile
its place goes to others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.pod_claims import CLAIM_NOT_COUNTED
from wattpack.errors import InputError
from wattpack.gangs import GangRef, GangSources, gang_of
from wattpack.kube.port import JsonObject
from wattpack.object_names import GATE
from wattpack.units import NS_PER_SECOND

#: Pauses after a refusal: 2, 4, 8, 16, 20, 20 ... seconds. With the cycle that follows a pod is
#: patched again within 30 s of any failed patch.
FIRST_PAUSE_NS = 2 * NS_PER_SECOND
LONGEST_PAUSE_NS = 20 * NS_PER_SECOND
#: Causes that no present node removes, however empty it becomes.
UNSERVABLE = frozenset(
    reason.value
    for reason in (
        PendingReason.NO_NODES,
        PendingReason.NO_GPU_MODEL,
        PendingReason.NO_CPU_CLASS,
        PendingReason.NO_NIC_CLASS,
        PendingReason.NODE_AFFINITY,
        PendingReason.TAINT_NOT_TOLERATED,
        PendingReason.NO_READY_NODE,
        PendingReason.LARGER_THAN_ANY_NODE,
        PendingReason.GANG_EXCEEDS_CLUSTER,
    )
)
#: Pods that cannot be read are in no plan; they carry this reason.
UNREADABLE = "InvalidRequest"
FOREIGN_GATE = "SiblingGated"
REFUSED = "ReleaseRefused"
Cause = tuple[str, str]


@dataclass(slots=True)
class Pauses:
    """What the API refused, by pod uid or gang id, and when it is tried again."""

    _until_ns: dict[str, int] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)
    _why: dict[str, str] = field(default_factory=dict)

    def refused(self, why_by_key: Mapping[str, str], now_ns: int) -> None:
        """Each refusal in a row doubles the pause."""
        for key, why in why_by_key.items():
            count = self._failures.get(key, 0)
            self._failures[key] = count + 1
            self._until_ns[key] = now_ns + min(FIRST_PAUSE_NS << min(count, 10), LONGEST_PAUSE_NS)
            self._why[key] = why

    def why(self, key: str, now_ns: int) -> str:
        """The refusal that the key pauses for; empty if it does not."""
        return self._why[key] if now_ns < self._until_ns.get(key, 0) else ""

    def next_ns(self, now_ns: int) -> int | None:
        """When the next pause ends; None if nobody pauses."""
        return min((at for at in self._until_ns.values() if at > now_ns), default=None)

    def keep(self, keys: frozenset[str]) -> None:
        """Forget what waits no more."""
        for table in (self._until_ns, self._failures, self._why):
            for gone in table.keys() - keys:
                del table[gone]

    def any(self) -> bool:
        """Whether anything was refused lately."""
        return bool(self._failures)


def held_back(
    pods: Iterable[JsonObject], sources: GangSources, pauses: Pauses, now_ns: int
) -> dict[str, Cause]:
    """Reason and message by uid of waiting pods that must not be planned now."""
    alive = [pod for pod in pods if not pod_facts.is_finished(pod)]
    waiting = [pod for pod in alive if pod_facts.gates(pod)]
    foreign = _elsewhere(waiting, alive, sources)
    ours = [pod for pod in waiting if pod_facts.is_gated(pod)]
    if not foreign and not pauses.any():
        return {}
    held: dict[str, Cause] = {}
    keys: set[str] = set()
    for pod in ours:
        uid, gang = pod_facts.uid(pod), _gang_id(pod, sources)
        keys |= {uid, gang}
        if gang in foreign:
            held[uid] = (FOREIGN_GATE, foreign[gang])
        elif why := pauses.why(uid, now_ns) or pauses.why(gang, now_ns):
            held[uid] = (REFUSED, why)
    pauses.keep(frozenset(keys))
    return held


def _elsewhere(
    waiting: Iterable[JsonObject], alive: Iterable[JsonObject], sources: GangSources
) -> dict[str, str]:
    """Gangs with a member at somebody else's gate, in words.

    An elastic one begins without it, if enough others are there or free to come.
    """
    found: dict[str, str] = {}
    elastic: dict[str, int] = {}
    for pod in waiting:
        others = [gate for gate in pod_facts.gates(pod) if gate != GATE]
        gang = _gang(pod, sources) if others else None
        if gang is not None:
            where = f"waits at the gate {others[-1]}"
            found[gang.id] = f"{pod_facts.key(pod)} of the same gang {where}"
            if gang.is_elastic and gang.size is not None:
                elastic[gang.id] = gang.size
    if elastic:
        free = Counter(
            _gang_id(pod, sources) for pod in alive if not {*pod_facts.gates(pod)} - {GATE}
        )
        for gang_id, size in elastic.items():
            if free[gang_id] >= size:
                del found[gang_id]
    return found


def gang_bodies(
    pods: Iterable[JsonObject], sources: GangSources
) -> tuple[dict[str, list[JsonObject]], list[JsonObject]]:
    """Pods by gang id, and those without a gang or with one that cannot be read."""
    gangs: dict[str, list[JsonObject]] = {}
    single: list[JsonObject] = []
    for pod in pods:
        gang = _gang_id(pod, sources)
        gangs.setdefault(gang, []).append(pod) if gang else single.append(pod)
    return gangs, single


def _gang_id(pod: JsonObject, sources: GangSources) -> str:
    gang = _gang(pod, sources)
    return gang.id if gang is not None else ""


def _gang(pod: JsonObject, sources: GangSources) -> GangRef | None:
    try:
        return gang_of(pod, sources)
    except InputError:
        return None


@dataclass(slots=True)
class Unservable:
    """Since when no present node can serve a pod.

    Args:
        patience_ns: How long it waits for one.
    """

    patience_ns: int
    _since_ns: dict[str, int] = field(default_factory=dict)

    def due(self, causes: Mapping[str, Cause], now_ns: int) -> list[str]:
        """Uids of pods whose patience is over, of those whose cause no present node removes.

        Claims that cannot be counted are none of our business: such pods do not wait for us. A
        cycle that had no time to look for a cause says nothing against the last one.
        """
        hopeless = {
            uid for uid, (why, _) in causes.items() if why in UNSERVABLE or why == UNREADABLE
        }
        unknown = {u for u, (why, _) in causes.items() if why == PendingReason.NOT_EXPLAINED.value}
        known = hopeless | unknown & self._since_ns.keys()
        self._since_ns = {uid: self._since_ns.get(uid, now_ns) for uid in known}
        late = {u for u, since in self._since_ns.items() if since <= now_ns - self.patience_ns}
        return sorted(late | {u for u, (why, _) in causes.items() if why == CLAIM_NOT_COUNTED})
